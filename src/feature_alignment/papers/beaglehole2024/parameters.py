"""Parameters of the paper's experiments, with its settings as defaults."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from feature_alignment.pipeline.parameters import (
    Count,
    Momentum,
    NotNegative,
    Parameters,
    Positive,
    Precision,
    Section,
    SeedNumber,
    Seeds,
    Several,
    Values,
    by_figure,
)

ImageDataset = Literal["cifar10", "cifar100", "svhn", "mnist", "gtsrb", "stl10"]
Activation = Literal["quadratic", "relu", "erf"]
Optimizer = Annotated[
    Literal["gd", "slo"],
    Field(description="gd: gradient descent; slo: Speed Limited Optimization (SLO)."),
]
Relaxation = Annotated[
    Literal["additive", "multiplicative"],
    Field(
        description="Whether SLO divides by norm + epsilon (additive) or by norm * epsilon "
        "(multiplicative, as printed in Appendix K, which diverges there)."
    ),
]
Width = Annotated[Count, Field(description="Width k of every hidden layer.")]
HiddenLayers = Annotated[Count, Field(description="Number of hidden layers.")]
Samples = Annotated[int, Field(ge=8, description="Training samples n.")]
Dimension = Annotated[int, Field(ge=3, description="Input dimension d; must be at least the rank.")]
Batch = Annotated[Count, Field(description="Batch size.")]
Epochs = Annotated[Count, Field(description="Epochs at the learning rate.")]
Epsilon = Annotated[NotNegative, Field(description="SLO's relaxation of the gradient norm.")]
Steps = Annotated[Count, Field(description="Steps of the optimizer.")]
MeasureEvery = Annotated[Count, Field(description="Steps between two measurements.")]
TrainingPrecision = Annotated[Precision, Field(description="Floating-point type of the training.")]
Weights = Annotated[
    Literal["pytorch", "kaiming"],
    Field(description="Scale 1 is uniform of variance 1/(3 fan-in), or normal of 2/fan-in."),
]
FirstIndex = Annotated[Literal[0, 1], Field(description="First k of the eigenvalues 1/(1 + k^a).")]
ScaledLayers = Annotated[
    Literal["all", "ends", "first", "second"],
    Field(description="Layers with the multiplier (not stated); ends: the first and the readout."),
]
GradientNorm = Annotated[
    Literal["layer", "global"],
    Field(description="SLO divides by each layer's gradient norm, or all's (Appendices J and K)."),
]
DataSeeds = Annotated[
    SeedNumber,
    Field(description="Number of draws of data and networks; seed i is the integer i, from 0."),
]


class ChainParameters(Parameters):
    """The chain-monomial task, and the networks trained on it."""

    samples: Samples = 256
    test_samples: int = Field(default=1024, ge=8)
    """Fresh samples on which the test loss is measured."""
    dimension: Dimension = 32
    rank: int = Field(default=5, ge=3)
    """Number r of coordinates that the target depends on."""
    width: Width = 256
    hidden_layers: HiddenLayers = 2
    initialisation: Weights = "pytorch"
    centred_labels: bool = False
    """Whether labels are also shifted to mean 0 (the text only says deviation 1)."""
    half_loss: bool = False
    """Whether training uses half the mean squared error; the full one is recorded."""
    subtract_mean: bool = False
    """Whether `nfc` and `centred_nfc` are Pearson's, as in the released code, not plain cosines."""
    steps: Steps = 600
    precision: TrainingPrecision = "float64"
    seeds: Seeds = 5


class ChainMonomial(ChainParameters, experiment="chain_monomial"):
    """Full-batch gradient descent on the chain-monomial task (Figure 1 and Appendix J)."""

    samples: Samples = 384
    test_samples: int = Field(default=4096, ge=8)
    """Fresh samples on which the test loss is measured."""
    width: Width = 128
    first_layer_scale: Positive = 0.01
    """Multiplier on PyTorch's default initialisation, first layer only."""
    learning_rate: Positive = 0.05
    """Step size of gradient descent (not stated for Figure 1)."""
    steps: Steps = 800
    random_conjugates: Count = 20
    """Draws of the matrix Q with the spectrum of K and Haar-random eigenvectors."""
    seeds: Seeds = 10


class Spectra(ChainParameters, experiment="spectra"):
    """The chain-monomial task for several initialisation scales and data spectra.

    Figures 5, 6 and 8-10.
    """

    hidden_layers: int = Field(default=2, ge=2)
    """Number of hidden layers; the figures show the first two."""
    samples: int = Field(default=384, ge=8)
    """Training samples n (not stated; Figure 1's, as are dimension, rank and width)."""
    decay: NotNegative | None = by_figure(
        None, "Exponent a of the data covariance's eigenvalues 1/(1 + k^a); null for the identity."
    )
    first_index: FirstIndex = 1
    unit_variance: bool = False
    """Whether those eigenvalues are scaled to mean 1, like the identity's."""
    width: Width = 128
    first_layer_scales: Several[Positive] = (1.0, 0.1, 0.01)
    """Multipliers on the initialisation; a network is trained for each (not stated)."""
    scaled_layers: ScaledLayers = "first"
    learning_rate: Positive = 0.05
    """Step size of gradient descent."""
    steps: Steps = 800
    measure_every: MeasureEvery = 5
    seeds: Seeds = 20


class Initialisation(Section):
    """One initialisation scale of the first layer, and its learning rate."""

    first_layer_scale: Positive
    """Multiplier on PyTorch's default initialisation, first layer only."""
    learning_rate: Positive
    """Step size, of gradient descent and of SLO."""


class SLO(ChainParameters, experiment="slo"):
    """Gradient descent and SLO on the chain-monomial task (Figures 4 and 11)."""

    initialisations: Several[Initialisation] = (
        Initialisation(first_layer_scale=1.0, learning_rate=0.03),
        Initialisation(first_layer_scale=0.1, learning_rate=0.1),
        Initialisation(first_layer_scale=0.01, learning_rate=0.2),
        Initialisation(first_layer_scale=0.001, learning_rate=0.4),
    )
    """Scales of the first layer, each with its learning rate; a network is trained for each."""
    readout_scale: Positive = 0.01
    """Multiplier on the readout's default initialisation (the text divides by it, which
    diverges)."""
    optimizer: Optimizer = by_figure("gd", "gd: gradient descent; slo: SLO.")
    speeds: Values[NotNegative] = (500.0, 0.002, 0.002)
    """SLO's speed of each layer, from input to readout."""
    epsilon: Epsilon = 0.1
    relaxation: Relaxation = "additive"
    gradient_norm: GradientNorm = "layer"
    measure_every: MeasureEvery = 5
    seeds: Seeds = 10


class AdaptiveSLO(ChainParameters, experiment="adaptive_slo"):
    """SLO that speeds up the least aligned layer, on the chain-monomial task (Figure 12)."""

    rank: int = Field(default=3, ge=3)
    """Number r of coordinates that the target depends on."""
    hidden_layers: HiddenLayers = 3
    initial_scale: Positive = 0.1
    """Multiplier on PyTorch's default initialisation."""
    scaled_layers: ScaledLayers = by_figure("ends", "Layers with the multiplier (not stated).")
    optimizer: Optimizer = by_figure("gd", "gd: gradient descent; slo: SLO.")
    learning_rate: Positive = by_figure(0.25, "Step size, by optimizer.")
    speed: Positive = 20.0
    """SLO's speed s of the layer with the smallest UC-NFC; every other layer has 1/s."""
    epsilon: Epsilon = 0.01
    relaxation: Relaxation = "additive"
    gradient_norm: GradientNorm = by_figure("layer", "SLO divides by each layer's, or all's.")
    steps: Steps = 500
    measure_every: MeasureEvery = 10
    seeds: Seeds = 20


class ImageParameters(Parameters):
    """Training on images by stochastic gradient descent."""

    samples: int = Field(default=50000, ge=8)
    """Training images, drawn at random; a smaller dataset gives all it has."""
    test_samples: int = Field(default=10000, ge=8)
    """Test images, drawn at random; a smaller dataset gives all it has."""
    learning_rate: Positive = by_figure(0.2, "Step size, by dataset and setting.")
    first_epoch_rate: Positive | None = by_figure(
        None,
        "Step size of an additional first epoch, as in the released code; null for none, as in "
        "the text.",
    )
    momentum: Momentum = 0.0
    """Momentum of the gradient descent."""
    batch_size: Batch = 128
    epochs: Epochs = 150
    measure_every: Count = 1
    """Epochs between two measurements; the start and the first epoch are always measured."""
    probe_samples: int = Field(default=1000, ge=2)
    """Training images on which the feature covariance is taken."""
    pixels: Literal["standardised", "unit"] = "standardised"
    """Whether each channel has mean 0 and deviation 1, as in the released code, or lies in
    [0, 1] (unit); the text does not say."""
    precision: TrainingPrecision = "float32"
    seeds: Seeds = 3


class ImageMLP(ImageParameters, experiment="image_mlp"):
    """Fully connected networks on image datasets (Figures 2A, 2B, 13 and 14)."""

    dataset: ImageDataset = by_figure("cifar10", "The dataset of one run, one of `datasets`.")
    datasets: Several[ImageDataset] = ("cifar10", "cifar100", "svhn", "mnist", "gtsrb", "stl10")
    """The datasets of the figures and of their averages; Figure 2A shows the first. Omit those that
    are not available; figures and claims then name what is missing."""
    width: Width = 256
    hidden_layers: HiddenLayers = 5
    epochs: Count = 150
    """Epochs at the learning rate; the figures use at most 50 for MNIST."""


class ImageVGG(ImageParameters, experiment="image_vgg"):
    """VGG-11 without batch norm on CIFAR-10 (Figures 2C and 15A)."""

    dataset: Literal["cifar10"] = "cifar10"
    """The image dataset."""
    base_width: Count = 64
    """Channels of the first convolution; the others have 2, 4 and 8 times as many, the two hidden
    linear layers 64 times."""
    dropout: Momentum = 0.5
    """Probability of dropout after each hidden linear layer."""
    learning_rate: Positive = by_figure(1.0, "Step size.")
    momentum: Momentum = by_figure(0.0, "Momentum of the gradient descent, by setting.")
    batch_size: Batch = 256
    epochs: Epochs = 50


class CharacterGPT(Parameters, experiment="character_gpt"):
    """A character-level transformer (Figures 2D and 15B).

    Sizes and schedule are nanoGPT's for Shakespeare, except for the 3 blocks.
    """

    dataset: Literal["shakespeare"] = "shakespeare"
    """The text."""
    blocks: Count = 3
    """Transformer blocks."""
    heads: Count = 6
    """Attention heads of each block, a divisor of the width."""
    width: Count = 384
    """Embedding dimension."""
    context: int = Field(default=256, ge=2)
    """Characters per text."""
    learning_rate: Positive = 0.005
    """Largest step size of Adam."""
    batch_size: Count = 64
    """Texts in a batch."""
    steps: Steps = 5000
    warmup_steps: int = Field(default=100, ge=0)
    """Steps during which the step size rises; it then falls to a fiftieth along a cosine."""
    measure_every: MeasureEvery = 250
    loss_samples: Count = 256
    """Texts on which each loss is measured."""
    probe_samples: Count = 64
    """Training texts on which the feature covariance is taken."""
    output_samples: Count = 8
    """Random backward passes to estimate the covariance's sum over positions and characters."""
    precision: TrainingPrecision = "float32"
    seeds: Seeds = 1

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.width % self.heads:
            raise ValueError(
                f"a width of {self.width} cannot be shared by {self.heads} heads; use a multiple"
            )
        return self


class CelebA(Parameters, experiment="celeba"):
    """A network that recognises eyeglasses, and its first layer's feature matrices (Figure 16)."""

    dataset: Literal["celeba"] = "celeba"
    """The image dataset."""
    samples: int = Field(default=7500, ge=8)
    """Training images, half of them with eyeglasses."""
    test_samples: int = Field(default=2000, ge=8)
    """Test images, half of them with eyeglasses."""
    shrink: Count = 1
    """Side in pixels of the squares that are averaged into one pixel before training."""
    width: Width = 128
    hidden_layers: HiddenLayers = 2
    first_layer_scale: Positive = 0.02
    """Multiplier on PyTorch's default initialisation, first layer."""
    learning_rate: Positive = 0.0001
    """Step size of Adam."""
    batch_size: Count | None = None
    """Batch size (not stated); null for all images at once."""
    epochs: Count = 500
    """Epochs of training."""
    random_conjugates: Count = 20
    """Random matrices Q with the spectrum of K."""
    precision: TrainingPrecision = "float32"
    seeds: Seeds = 3


class SVHNSLO(Parameters, experiment="svhn_slo"):
    """Gradient descent and SLO on SVHN (Figure 17)."""

    dataset: Literal["svhn"] = "svhn"
    """The image dataset."""
    samples: int = Field(default=4000, ge=8)
    """Training images n, drawn at random."""
    test_samples: int = Field(default=4000, ge=8)
    """Test images, drawn at random."""
    width: Width = 256
    hidden_layers: HiddenLayers = 4
    initial_scale: Positive = 1.0
    """Multiplier on the default initialisation, all layers."""
    initialisation: Weights = "pytorch"
    loss: Literal["mse", "mse_one_hot", "squared_error", "cross_entropy"] = "mse"
    """The loss (not stated): mse has one-hot targets less 1/10, and a mean over images and outputs;
    mse_one_hot has one-hot targets; squared_error is mse summed over the outputs."""
    optimizer: Optimizer = by_figure("gd", "gd: gradient descent; slo: SLO.")
    learning_rate: Positive = by_figure(0.2, "Step size, by optimizer.")
    batch_size: Count | None = None
    """Batch size (not stated); null for all images at once."""
    first_speed: NotNegative = 2.5
    """SLO's speed of the first layer."""
    other_speed: NotNegative = 0.4
    """SLO's speed of every other layer (the text gives it for the second and third)."""
    epsilon: Epsilon = 0.2
    gradient_norm: GradientNorm = "layer"
    epochs: Count = 3000
    """Epochs of training."""
    measure_every: Count = 50
    """Epochs between two measurements."""
    precision: TrainingPrecision = "float32"
    seeds: Seeds = 3


class AlignmentReversing(Parameters, experiment="alignment_reversing"):
    """C-NFC at initialisation on the alignment reversing data set (Figure 3)."""

    size: int = Field(default=1024, ge=8)
    """Samples n, input dimension d and width k, all equal."""
    reading: Literal["tempered", "square", "compact", "rounded"] = by_figure(
        "tempered", "How Appendix G is read, see deviations.md."
    )
    balances: Several[Annotated[float, Field(gt=0, le=1)]] = Field(
        default=(0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0), min_length=2
    )
    """Values of the balance γ, the share of label 1 (the paper's are not stated)."""
    epsilon1: Positive = 0.5
    """Isotropic part ε₁ of the covariance."""
    epsilon2: NotNegative = 0.01
    """Standard deviation ε₂ of the noise added to all inputs."""
    delta: Positive = by_figure(0.001, "Tempering δ of the tempered reading (not in the paper).")
    label_shift: float = 1e-05
    """Added to every label."""
    observed_networks: Count = 4
    """Networks on which the correlation is observed; curves show the first, the paper has one."""
    moment_networks: Count = 30
    """Networks over which the moments of R are averaged for the prediction."""
    seeds: SeedNumber = 20
    """Number of draws of the data; seed i is the integer i, from 0. The networks are the same for
    all."""


class DepthPrediction(Parameters, experiment="depth_prediction"):
    """C-NFC at initialisation with two hidden layers, predicted to first order (Figure 7)."""

    samples: int = Field(default=128, ge=8)
    """Samples n."""
    dimension: Dimension = 128
    widths: Several[Count] = Field(default=(128, 1024), min_length=2)
    """Widths k of both hidden layers."""
    hidden_layers: HiddenLayers = 2
    activation: Activation = by_figure("quadratic", "Activation.")
    target: Literal["low_rank", "high_rank"] = by_figure(
        "low_rank", "low_rank is the chain monomial, high_rank is Σ_i (Qx)_i² with a Gaussian Q."
    )
    rank: int = Field(default=5, ge=3)
    """Length r of the chain of the low-rank target."""
    decay_rates: Several[NotNegative] = Field(
        default=(0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0), min_length=3
    )
    """Values of α in the covariance's eigenvalues 1/(1 + k^α) (the paper's are not stated)."""
    first_index: FirstIndex = 1
    initialisation: Weights = "pytorch"
    centred_labels: bool = False
    """Whether labels are also shifted to mean 0 (the text only says deviation 1)."""
    residuals: Literal["labels", "network"] = "labels"
    """∂L/∂f in the observed derivatives: labels, as if outputs were zero, or each network's own."""
    networks: Count = 10
    """Networks observed for each draw of the data (the paper's number is not stated). The mean 𝒦²
    at smaller widths is that of more, in inverse proportion to the width."""
    seeds: DataSeeds = 20


class AspectRatios(Parameters, experiment="aspect_ratios"):
    """C-NFC at initialisation of one hidden layer, for any n/d and k/d (beyond Figures 3 and 7)."""

    dimension: int = Field(default=256, ge=4)
    """Input dimension d."""
    samples_ratios: Several[Positive] = Field(default=(0.25, 0.5, 1, 2, 4), min_length=2)
    """Values of ψ₁ = n/d."""
    width_ratios: Several[Positive] = Field(default=(0.25, 0.5, 1, 2, 4), min_length=2)
    """Values of ψ₂ = k/d."""
    activation: Activation = by_figure("quadratic", "Activation.")
    weight_variance: Positive = 1.0
    """Variance of the weights times their fan-in; ρ depends on it for erf only, whose point sets
    its own."""
    networks: Count = 3
    """Networks observed for each draw of the data."""
    seeds: DataSeeds = 3


class Theorem9(Parameters, experiment="theorem9"):
    """C-NFC at initialisation for data on the sphere in growing dimension (Theorem 9)."""

    activation: Literal["relu", "erf", "exponential", "quadratic"] = by_figure(
        "relu", "Activation."
    )
    dimensions: Several[Annotated[int, Field(ge=4)]] = Field(
        default=(16, 32, 64, 128, 256), min_length=2
    )
    """Input dimensions d."""
    most_samples: Count = 50000
    """Sample sizes above this are omitted; d log³d is 43650 at d = 256."""
    network_dimension: int = Field(default=32, ge=4)
    """Input dimension of the network whose initial outputs are set to zero."""
    network_width: Count = 4096
    """Width k of that network."""
    seeds: DataSeeds = 5


class Propositions(Parameters, experiment="propositions"):
    """Numerical checks of Propositions 2, 3, 12 and 16, of Lemma 13 and of equations.

    Among them are eq. 10, 20, 22 and 28, and the EGOP of Section 2.1.
    """

    samples: int = Field(default=24, ge=2)
    """Samples n for the propositions."""
    dimension: int = Field(default=16, ge=2)
    """Input dimension d, and width of the hidden layers for Propositions 2, 3 and 12."""
    widths: Several[Count] = Field(default=(2, 8, 32, 128), min_length=2)
    """Widths k for Proposition 16."""
    networks: int = Field(default=20000, ge=2)
    """Networks over which the expectations of Proposition 16 are averaged."""
    matrix_size: int = Field(default=1024, ge=8)
    """Size n = d = k of the random matrices for the equations."""
    matrix_networks: Count = 8
    """Networks over which the sampled traces are averaged for the equations."""
    seeds: DataSeeds = 3
