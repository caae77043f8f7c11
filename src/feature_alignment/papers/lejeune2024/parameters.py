"""Parameters of the paper's experiments, with its settings as defaults."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from feature_alignment.pipeline.parameters import (
    Count,
    Momentum,
    Parameters,
    Positive,
    Precision,
    SeedNumber,
    Seeds,
    Several,
    by_figure,
)

Digit = Annotated[int, Field(ge=0, le=9)]
Sizes = Several[Annotated[int, Field(ge=25)]]  # training-set sizes


class TwoDigits(Parameters):
    """Parameters shared by the experiments on two digit classes."""

    dataset: Literal["mnist", "kmnist"] = "mnist"
    """The image dataset; `classes` selects two of its classes."""
    classes: Several[Digit] = Field(default=(2, 3), min_length=2, max_length=2)
    """The two classes, labelled -1 and +1 in this order."""
    hidden_layers: Count = 2
    """Hidden layers."""
    normalisation: Literal["unit-norm", "unit-variance"] = "unit-norm"
    """Each image has mean 0 and norm 1, or variance 1 (as in the text, whose rate diverges)."""
    initialisation: Literal["kaiming", "lecun", "pytorch"] = "kaiming"
    """Initial weights, see `models.initialisation.new_linear`."""
    epochs: Count = 500
    """Epochs of SGD."""
    seeds: Seeds = 5


class DigitRegression(TwoDigits, experiment="digit_regression"):
    """Regression on two digit classes, and the adapted kernel (Figures 1 and 3, Appendix B.1)."""

    targets: Literal["linear", "binarised"] = by_figure(
        "binarised",
        "What is regressed on: a linear function of a random network's features, or its sign.",
    )
    train_samples: int = Field(default=5000, ge=16)
    """Number of training images: the first ones of the two classes in the dataset's order (the text
    says 500; the released code has 5000, which reproduces the published similarities)."""
    kernel_samples: int = Field(default=500, ge=8)
    """Number of training images, from the first, on which the kernels are measured."""
    width: Count = 128
    """Units of each hidden layer (the released code has 256)."""
    bias: bool = True
    """Whether layers have biases (the text says no, the released code has them)."""
    target_bias: bool = False
    """Whether the random network that makes the targets also has biases; only if `bias` is true."""
    target_fit: Literal["sgd", "least-squares"] = "sgd"
    """How the last layer that makes the linear targets is fitted to the classes."""
    label_flips: float = Field(default=0.0, ge=0, le=0.5)
    """Share of the training targets whose sign is flipped at random; 0 in the paper's figures."""
    learning_rate: Positive = 0.1
    """Initial step size of SGD, annealed to zero by a cosine."""
    annealing: Literal["epoch", "step"] = "epoch"
    """Whether the step size falls after each epoch or after each step."""
    momentum: Momentum = 0.9
    """Momentum of SGD."""
    batch_size: Count = 100
    """Batch size of SGD."""
    target_epochs: Count = 400
    """Training epochs of the last layer that makes the linear targets."""
    target_annealing_epochs: Count | None = None
    """Epochs in which that training's step size falls to zero, to rise again in as many and so on
    (released code: 100); null for all of its epochs."""
    path_points: int = Field(default=50, ge=2)
    """Points, endpoints included, on the straight path along which features are averaged."""
    precision: Precision = "float32"
    """Floating-point type of the training."""

    @model_validator(mode="after")
    def _check_samples(self) -> Self:
        if self.kernel_samples > self.train_samples:
            raise ValueError(
                f"kernel_samples: {self.kernel_samples} of {self.train_samples} train_samples; "
                "lower it"
            )
        return self


class LowRank(TwoDigits, experiment="low_rank"):
    """Change of the weights by the adaptive solver and by training (around Section 3.2)."""

    task: Literal["single-index", "digits"] = by_figure(
        "single-index",
        "What is fitted: the second Hermite polynomial of one direction of Gaussian inputs, or "
        "the two digit classes.",
    )
    samples: int = Field(default=300, ge=8)
    """Training samples of each task."""
    test_samples: int = Field(default=1000, ge=8)
    """Test samples; for the digits, at most all the test images."""
    dimension: int = Field(default=20, ge=2)
    """Input dimension of the single-index task."""
    noise: float = Field(default=0.5, ge=0)
    """Standard deviation of the noise in the training targets of the models named noisy (ten times
    this for tail); that of the targets themselves is about 1."""
    width: int = Field(default=128, ge=2)
    """Units of each hidden layer."""
    penalty: Literal["square", "absolute", "logarithmic"] = "square"
    """The solver's penalty on feature transformations."""
    learning_rate: Positive = 0.05
    """Initial step size of SGD with momentum 0.9, annealed by a cosine, for both trained models."""
    batch_size: Count = 50
    """Batch size of SGD."""


class SampleComplexity(Parameters, experiment="sample_complexity"):
    """Test error against training-set size, by kind of features (earlier version, Figure 4)."""

    dataset: Literal["mnist", "cifar10"] = by_figure("mnist", "The images that are classified.")
    network: Literal["mlp", "cnn"] = by_figure("mlp", "The network that is trained.")
    sampling: Literal["kept", "redrawn"] = by_figure(
        "kept", "Whether all epochs have the same samples, or each draws new ones."
    )
    model: Literal["fixed", "adaptive", "full"] = by_figure(
        "full", "Which features are learned with: fixed or adaptive tangent features, or all."
    )
    train_sizes: Sizes = (125, 250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 60000)
    """Training-set sizes n of the MLP on MNIST."""
    cnn_train_sizes: Sizes = (125, 250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 50000)
    """Training-set sizes n of the CNN on CIFAR-10."""
    test_samples: int = Field(default=10000, ge=10)
    """Test images of the MLP, drawn at random, whose error decides when a run ends."""
    cnn_test_samples: int = Field(default=10000, ge=10)
    """The same for the CNN."""
    mlp_width: int = Field(default=128, ge=2)
    """Units of the MLP's hidden layers."""
    mlp_depth: int = Field(default=5, ge=2)
    """Linear layers of the MLP, including the readout."""
    initialisation: Literal["lecun", "pytorch", "kaiming_zero_bias"] = "lecun"
    """Initial weights, see `models.initialisation.new_linear`."""
    normalisation: Literal["none", "unit-variance"] = "none"
    """Pixels lie between 0 and 1, or each image has mean 0 and variance 1."""
    cnn_width: Count = 16
    """Channels of the CNN's first convolution."""
    sgd_rate: Positive = 0.01
    """Step size of SGD, for the MLP."""
    momentum: Momentum = 0.9
    """Momentum of SGD, for the MLP."""
    adam_rate: Positive = 0.001
    """Step size of Adam, for the CNN."""
    batch_size: Count = 50
    """Batch size; at most a fifth of n (25 at n = 125)."""
    patience: Count = 20
    """Epochs without an improvement in test accuracy after which a run ends."""
    max_epochs: Count = 1000
    """Maximum number of epochs of a run."""
    reported_epoch: Literal["best", "last"] = "best"
    """The epoch whose test error is reported: the one with the smallest error, or the last."""
    seeds: Seeds = 10


class Theory(Parameters, experiment="theory"):
    """Checks of Theorems 1 and 2, Lemma 5 and Propositions 3 and 4 on small random problems."""

    samples: int = Field(default=6, ge=2)
    """Training points of the random problem."""
    dimension: Count = 4
    """Input dimension."""
    width: int = Field(default=5, ge=2)
    """Units of the one hidden layer."""
    target_scale: Positive = 8.0
    """Standard deviation of the Gaussian targets; large targets need large transformations."""
    starts: Count = 6
    """Starts of the generic optimiser and of the solver; the best result of each counts."""
    flow_time: Positive = 20.0
    """Duration of gradient flow on the factorised model."""
    seeds: SeedNumber = 5
    """Number of random problems; their seeds are the integers from 0."""
