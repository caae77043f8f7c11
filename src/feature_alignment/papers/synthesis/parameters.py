"""Parameters of the study: its full sizes are the defaults."""

from typing import Annotated, Literal

from pydantic import Field

from feature_alignment.pipeline.parameters import (
    Count,
    Geometric,
    Momentum,
    NotNegative,
    Parameters,
    Positive,
    Precision,
    Section,
    Share,
    by_figure,
)

Rate = Annotated[Positive, Field(description="Step size of gradient descent (SGD).")]
SLORate = Annotated[
    Positive,
    Field(description="Step size of Speed Limited Optimization (SLO), the same for every layer."),
]
Train = Annotated[int, Field(ge=10, description="Training images or texts.")]
Test = Annotated[int, Field(ge=10, description="Test images or texts.")]
KernelSamples = Annotated[
    int,
    Field(
        ge=2,
        description="Training images or texts on which tangent kernels and feature covariances are "
        "measured.",
    ),
]
TraceSamples = Annotated[
    Count,
    Field(description="Training images or texts on which Tr K is measured for the complexity."),
]
TraceEvery = Annotated[
    Count,
    Field(
        description="Updates between two measurements of Tr K; above 1 the complexity is an "
        "estimate."
    ),
]


class Perceptron(Section):
    """The MLP on MNIST."""

    train_samples: Train = 10000
    test_samples: Test = 10000
    kernel_samples: KernelSamples = 100
    trace_samples: TraceSamples = 100
    trace_every: TraceEvery = 1
    width: Count = Field(default=128, description="Units of each hidden layer.")
    hidden_layers: Count = Field(default=3, description="Hidden layers.")
    learning_rate: Rate = 0.01
    slo_rate: SLORate = 0.1


class ConvolutionalNetwork(Section):
    """The VGG11 on CIFAR-10."""

    train_samples: Train = 10000
    test_samples: Test = 10000
    kernel_samples: KernelSamples = 100
    trace_samples: TraceSamples = 20
    trace_every: TraceEvery = 1
    base_width: Count = Field(default=32, description="Channels of the first convolution.")
    learning_rate: Rate = 0.01
    slo_rate: SLORate = 0.05


class Transformer(Section):
    """The transformer on Shakespeare's characters."""

    train_samples: Train = 4096
    test_samples: Test = 1024
    kernel_samples: KernelSamples = 20
    trace_samples: TraceSamples = 4
    trace_every: TraceEvery = 10
    blocks: Count = Field(default=3, description="Transformer blocks.")
    heads: Count = Field(
        default=4, description="Attention heads of each block, a divisor of the width."
    )
    width: Count = Field(default=128, description="Size of a character's vector.")
    context: int = Field(default=64, ge=2, description="Characters of one text.")
    learning_rate: Rate = 0.1
    slo_rate: SLORate = 0.1
    output_samples: Count = Field(
        default=8,
        description="Random backward passes that estimate the feature covariance's sum over all "
        "positions and characters.",
    )


class Runs(Parameters, experiment="runs"):
    """Trainings on which the quantities of all three papers are measured (synthesis_fig1)."""

    mlp: Perceptron = Field(default=Perceptron(), description="The MLP on MNIST.")
    vgg: ConvolutionalNetwork = Field(
        default=ConvolutionalNetwork(), description="The VGG11 on CIFAR-10."
    )
    gpt: Transformer = Field(
        default=Transformer(), description="The transformer on Shakespeare's characters."
    )
    momentum: Momentum = Field(
        default=0.9, description="Momentum of gradient descent; SLO has none."
    )
    epsilon: NotNegative = Field(
        default=0.1, description="SLO's relaxation, added to the gradient norm of each layer."
    )
    batch_size: Count = Field(default=100, description="Images or texts in a batch.")
    steps: Count = Field(default=10000, description="Updates of every training.")
    measure_at: Geometric = Field(
        default=Geometric(first=2, ratio=1.4),
        description="The geometric schedule of measurements, step 0 and the integer parts of "
        "first * ratio^j; the last step is always measured.",
    )
    path_points: int = Field(
        default=10,
        ge=2,
        description="Points of the straight path from the initial parameters at which the adapted "
        "kernel's features are averaged.",
    )
    precision: Precision = Field(
        default="float32",
        description="Floating-point type of training and kernels; eigenvalues are computed in "
        "float64.",
    )
    network: Literal["mlp", "vgg", "gpt"] = by_figure("mlp", "The network, and its section.")
    dataset: Literal["mnist", "cifar10", "shakespeare"] = by_figure(
        "mnist", "What the network is trained on."
    )
    optimizer: Literal["gd", "slo"] = by_figure(
        "gd", "Gradient descent or Speed Limited Optimization."
    )
    random_label_share: Share = by_figure(
        0, "Share of the training labels, or of the characters that follow, drawn anew."
    )
