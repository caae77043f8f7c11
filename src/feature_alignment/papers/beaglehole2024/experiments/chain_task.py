"""The chain-monomial task and the networks trained on it, for every experiment that uses them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from feature_alignment.data.synthetic import (
    chain_monomial,
    isotropic_gaussian,
    power_law_gaussian,
)
from feature_alignment.errors import UserError
from feature_alignment.models.mlp import MLP
from feature_alignment.pipeline.run import SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.loop import train
from feature_alignment.training.losses import mse
from feature_alignment.training.probes import Recorder

if TYPE_CHECKING:
    from feature_alignment.papers.beaglehole2024.parameters import ChainParameters


@dataclass(frozen=True)
class ChainTask:
    """Samples of the chain-monomial task; labels are divided by the training labels' deviation.

    Attributes:
        x: training inputs (n, d).
        y: training labels (n, 1).
        x_test: test inputs (m, d).
        y_test: test labels (m, 1).
    """

    x: torch.Tensor
    y: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor


def chain_task(run: "SeedRun[ChainParameters]", decay: float | None = None) -> ChainTask:
    """Draw training and test samples of the task.

    Source: beaglehole2024, eq. 2; Appendix H (decaying spectra), J (labels of deviation 1).

    Args:
        run: the seed.
        decay: α of the inputs' covariance, with eigenvalues 1/(1 + k^α) and random eigenvectors,
            the same for training and test; None for x ~ N(0, I).

    Raises:
        UserError: if the task needs more coordinates than the inputs have.
    """
    p = run.parameters
    if p.rank > p.dimension:
        raise UserError(
            f"rank: found {p.rank}, above the dimension {p.dimension}; lower the rank or raise "
            "the dimension."
        )
    n, total, rng = p.samples, p.samples + p.test_samples, run.stream("data")
    if decay is None:
        inputs = isotropic_gaussian(total, p.dimension, rng)
    else:
        inputs = power_law_gaussian(total, p.dimension, decay, rng)
    labels = chain_monomial(inputs, p.rank)[:, np.newaxis]
    # Training and test labels share one scale, or the test loss would measure another task.
    x, y = (torch.tensor(array, **run.to) for array in (inputs, labels / labels[:n].std()))
    return ChainTask(x[:n], y[:n], x[n:], y[n:])


def chain_network(run: "SeedRun[ChainParameters]", layer_scales: Sequence[float]) -> MLP:
    """ReLU network without biases, one output, each layer's initial weights times a factor.

    Source: beaglehole2024, eq. 1 and Appendix J.

    Args:
        run: the seed.
        layer_scales: factors on PyTorch's default initialisation, input to readout.
    """
    p = run.parameters
    return MLP(
        p.dimension,
        [p.width] * p.hidden_layers,
        1,
        "relu",
        bias=False,
        generator=run.torch_stream("init"),
        layer_scales=layer_scales,
        dtype=run.dtype,
    ).to(run.device)


def train_on_chain(
    run: "SeedRun[ChainParameters]",
    model: MLP,
    task: ChainTask,
    optimizer: torch.optim.Optimizer,
    probe: FeatureProbe,
    measure_at: Iterable[int],
    name: str = "training",
) -> Recorder:
    """Train on all samples at once, and measure losses and what the probe measures.

    Args:
        run: the seed.
        model: the network; trained in place.
        task: the samples.
        optimizer: holds the model's parameters.
        probe: what is measured besides the losses.
        measure_at: the measured steps.
        name: tells the training from the seed's others.
    """
    return train(
        model,
        task.x,
        task.y,
        loss=mse,
        optimizer=optimizer,
        steps=run.parameters.steps,
        measure_at=measure_at,
        evaluate_on={"train": (task.x, task.y), "test": (task.x_test, task.y_test)},
        probes=[probe],
        progress=run.progress(run.parameters.steps),
        checkpoint=run.checkpoint(name),
    )


def hidden_layers(number: int) -> list[str]:
    """Names of a fully connected network's hidden layers.

    Example:
        >>> hidden_layers(2)
        ['layers.0', 'layers.1']
    """
    return [f"layers.{layer}" for layer in range(number)]
