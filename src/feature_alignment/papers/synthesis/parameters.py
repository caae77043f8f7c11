"""Parameters of the study, with its full sizes as defaults."""

from typing import Literal, Self

from pydantic import Field, model_validator

from feature_alignment.pipeline.parameters import (
    Count,
    Geometric,
    Parameters,
    Precision,
    Section,
    Seeds,
    Share,
    by_figure,
)
from feature_alignment.training.schedule import geometric

LEAST_MEASURED = 5
"""Measured steps that a training needs: fewer have no rank correlations of their changes."""


class Network(Section):
    """The sizes of one network and of its data."""

    train_samples: Count = Field(default=10000, description="Training images or texts.")
    test_samples: Count = Field(default=1500, description="Test images or texts.")
    kernel_samples: Count = 20
    """Training samples of the kernels and feature covariances."""
    trace_samples: Count = Field(default=10, description="Training samples of C's Tr K.")
    width: Count = 64
    """Units of a hidden layer, channels of the first convolution, or size of a character's
    vector."""

    @model_validator(mode="after")
    def _check_samples(self) -> Self:
        most = max(self.kernel_samples, self.trace_samples)
        if most > self.train_samples:
            raise ValueError(f"{most} samples to measure on, of {self.train_samples} to train on")
        return self


class Runs(Parameters, experiment="runs"):
    """Trainings on which the quantities of all three papers are measured (synthesis_fig1)."""

    mlp: Network = Network(test_samples=2000, kernel_samples=40, trace_samples=50, width=128)
    """The MLP on MNIST."""
    vgg: Network = Field(default=Network(), description="The VGG11 on CIFAR-10.")
    gpt: Network = Field(default=Network(), description="The transformer on Shakespeare's texts.")
    context: Count = Field(default=64, description="Characters of a text.")
    batch_size: Count = Field(default=100, description="Images or texts in a batch.")
    steps: Count = Field(default=10000, description="Updates of every training.")
    measure_at: Geometric = Geometric(first=2, ratio=1.4)
    """Steps at which all is measured, by a geometric schedule; and the last step."""
    path_points: int = Field(default=10, ge=2)
    """Points of the path that the adapted kernel averages over."""
    precision: Precision = Field(default="float32", description="Floating-point type.")
    seeds: Seeds = Field(default=3, description="Number of seeds; seed i is the integer i.")
    network: Literal["mlp", "vgg", "gpt"] = by_figure("mlp", "The network, and its section.")
    dataset: Literal["mnist", "cifar10", "shakespeare"] = by_figure("mnist", "Its data.")
    optimizer: Literal["gd", "slo"] = by_figure("gd", "Gradient descent, or SLO.")
    random_label_share: Share = by_figure(0, "Share of the training labels drawn anew.")

    @model_validator(mode="after")
    def _check_schedule(self) -> Self:
        schedule = geometric(self.steps, self.measure_at.first, self.measure_at.ratio)
        measured = len({*schedule, self.steps})
        if measured < LEAST_MEASURED:
            raise ValueError(
                f"{measured} measurements in {self.steps} steps; rank correlations along a "
                f"training need at least {LEAST_MEASURED}: lower measure_at.ratio"
            )
        return self
