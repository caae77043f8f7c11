"""Parameters of the paper's experiments, with its settings as defaults."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from feature_alignment.pipeline.parameters import (
    Count,
    Different,
    Geometric,
    Momentum,
    NotNegative,
    Parameters,
    Positive,
    Precision,
    Schedule,
    Section,
    SeedNumber,
    Seeds,
    Several,
    Share,
    by_figure,
)

TrainImages = Annotated[
    int | None, Field(ge=10, description="Training images, drawn at random; null for all.")
]
TestImages = Annotated[
    int | None, Field(ge=10, description="Test images, drawn at random; null for all.")
]
BaseWidth = Annotated[Count, Field(description="Channels of the first convolution.")]
UpdatesFrom10 = Annotated[
    int,
    Field(
        ge=10,
        le=10**9,
        description="Iterations (updates) of SGD; gains are also counted from the tenth.",
    ),
]
HiddenWidth = Annotated[Count, Field(description="Units of each hidden layer.")]
LinearLayers = Annotated[int, Field(ge=2, description="Linear layers, the output layer included.")]
ClassifierRate = Annotated[Positive, Field(description="Step size of SGD on the cross-entropy.")]
SGDMomentum = Annotated[Momentum, Field(description="Momentum of SGD.")]
Batch = Annotated[Count, Field(description="Batch size of SGD.")]
Init = Literal["kaiming_zero_bias", "kaiming", "pytorch"]
InitOfMLP = Annotated[Init, Field(description="Initial weights; the text names none.")]
Centred = Annotated[bool, Field(description="Whether the kernel is centred over the points.")]
Kappa = Literal["max", "fixed", "literal", "trace", "lambda_max"]


class ClassificationMLP(Section):
    """Settings specific to the MLP (Figures 11 and 12), which is cheap to train."""

    steps: UpdatesFrom10 = 30000
    seeds: Seeds = 5


class ClassificationLate(Section):
    """A narrower VGG19, trained further where the wide one's training is cut short."""

    base_width: BaseWidth = 16
    train_samples: TrainImages = 5000
    test_samples: TestImages = 1000
    steps: UpdatesFrom10 = 6000
    measure_at: Schedule = Geometric(first=5, ratio=1.35)
    """Steps at which it is measured: further apart than the wide one's, in a longer training."""
    seeds: Seeds = 5


class Classification(Parameters, experiment="classification"):
    """Tangent kernel and label alignment of classifiers in training (Figs. 2, 3, 11, 12 and 14)."""

    train_samples: TrainImages = None
    test_samples: TestImages = None
    kernel_samples: int = Field(default=100, ge=16)
    """Number of training images, and of test images, on which the tangent kernel is measured; with
    ten outputs, 16 images give the 160 eigenvalues of the largest trace ratio."""
    evaluation_samples: int | None = Field(default=None, ge=10)
    """Number of training images, and of test images, on which loss and accuracy are computed: the
    first of those drawn; null for all, which for CIFAR-10 can cost more than a short training."""
    base_width: Count = 64
    """Channels of the first convolution of VGG19 and ResNet18."""
    width: Count = 80
    """Units of each hidden layer of the MLP."""
    linear_layers: int = Field(default=6, ge=2)
    """Number of linear layers of the MLP, including the output layer."""
    batch_norm: Different[Literal["vgg", "resnet18"]] = ("resnet18",)
    """Networks with batch norm after convolutions (as in the released code; the text is silent)."""
    init: Init = "kaiming_zero_bias"
    """Initial weights; the text names none, the released code uses Kaiming's with zero biases."""
    momentum: SGDMomentum = 0.9
    weight_decay: NotNegative = 0
    """Weight decay of SGD (the text has none, the released code 0.0005)."""
    batch_size: Count = 100
    """Batch size of SGD (128 in the released code)."""
    augmentation: bool = False
    """Whether training images are randomly shifted and mirrored (only in the released code)."""
    steps: UpdatesFrom10 = 30000
    measure_at: Schedule = Geometric()
    """Steps at which the network is measured: a list, or the two numbers of a geometric schedule,
    step 0 and the integer parts of first * ratio^j. Step 0 is before the first update; the last
    step is always measured."""
    precision: Precision = "float32"
    """Floating-point type of training and kernels; eigenvalues are computed in float64."""
    seeds: SeedNumber = 1
    """Number of seeds of VGG19 and ResNet18; the seeds are the integers from 0."""
    mlp: ClassificationMLP = ClassificationMLP()
    """Settings specific to the MLP (Figures 11 and 12), which is cheap to train."""
    late: ClassificationLate | None = None
    """The network of the figure about late training; null for Figure 2's."""
    model: Literal["vgg19", "vgg11", "resnet18", "mlp"] = by_figure("vgg19", "The network.")
    dataset: Literal["cifar10", "mnist"] = by_figure("cifar10", "The images; ten classes.")
    learning_rate: Positive = by_figure(0.01, "Step size of SGD on the cross-entropy.")
    random_label_share: Share = by_figure(0, "Share of the training labels drawn anew.")


class ComplexityPart(Section):
    """Parameters shared by the networks of Figure 6; the defaults are those of VGG19."""

    train_samples: TrainImages = None
    test_samples: TestImages = None
    kernel_samples: Count = 100
    """Number of training images in the fixed batch on which Tr K is measured at every update."""
    learning_rate: Positive = 0.01
    """Learning rate of SGD."""
    max_steps: Count = 50000
    """Updates after which a run ends even if it has not reached the goal."""
    seeds: Seeds = 3


class ComplexityMLP(ComplexityPart):
    """The MLP with one hidden layer on MNIST, as its width or the share of random labels grows."""

    train_samples: int | None = Field(default=1000, ge=10)
    """Training images, drawn at random; null for all. Narrow networks, and those with random
    labels, cannot be expected to fit all 60000 images of MNIST."""
    learning_rate: Positive = 0.02
    """Learning rate of SGD."""
    max_steps: Count = 20000
    """Updates after which a run ends even if it has not reached the goal."""
    widths: Several[Count] = Field(
        default=(16, 32, 64, 128, 256, 512, 1024, 2048, 5000), min_length=2
    )
    """Units of the hidden layer, in order; 5000 make 4 million parameters, the paper's largest."""
    random_label_shares: Several[Share] = Field(default=(0, 0.2, 0.4, 0.6, 0.8, 1), min_length=2)
    """Shares of random labels, in increasing order."""
    noisy_width: Count = 256
    """Units of the hidden layer as the share of random labels grows."""


class ComplexityVGG19(ComplexityPart):
    """VGG19 on CIFAR-10, as the number of its channels grows."""

    base_widths: Several[Count] = Field(default=(4, 8, 16, 28), min_length=2)
    """Channels of the first convolution, in increasing order; 28 make 4 million parameters, the
    paper's largest network."""


class Complexity(Parameters, experiment="complexity"):
    """Classifiers trained to a small loss, and measures of their complexity (Figure 6, eq. 18)."""

    mlp: ComplexityMLP = ComplexityMLP(seeds=5)
    """The MLP with one hidden layer on MNIST, as its width or the share of random labels grows."""
    vgg19: ComplexityVGG19 = ComplexityVGG19()
    """VGG19 on CIFAR-10, as the number of its channels grows."""
    loss_goal: Positive = 0.01
    """Training ends when the cross-entropy over all training images is below this, in nats."""
    check_every: Count = 10
    """Updates between evaluations of the loss over all training images. Wide MLPs from Kaiming's
    weights reach the goal after some 60 updates; with 100 between evaluations they would be trained
    far beyond it."""
    momentum: SGDMomentum = 0.9
    batch_size: Batch = 100
    precision: Precision = "float32"
    """Floating-point type of the training; norms are computed in float64."""
    seeds: Seeds = by_figure(3, "Number of seeds, that of the network's section.")
    model: Literal["mlp", "vgg19"] = by_figure("mlp", "The network, and its section.")
    dataset: Literal["mnist", "cifar10"] = by_figure("mnist", "The images; ten classes.")
    width: Count = by_figure(256, "Units of the hidden layer, or the first convolution's channels.")
    init: Init = by_figure("pytorch", "Initial weights, see models.initialisation.new_linear.")
    random_label_share: Share = by_figure(0, "Share of the training labels drawn anew.")


class DepthStudy(Section):
    """Settings specific to the study of depth (Figure 13)."""

    linear_layers: Several[LinearLayers] = Field(default=(2, 3, 4, 5, 6, 7, 8, 9, 10), min_length=2)
    """The depths; the figure's rows."""
    width: HiddenWidth = 60
    learning_rate: ClassifierRate = 0.01
    steps: Count = 3000
    """Iterations (updates) of SGD; the text does not say how many."""
    seeds: SeedNumber = 4
    """Number of seeds; the figure has a column for each of the first five."""


class Difficulty(Parameters, experiment="difficulty"):
    """Label alignment on easy and difficult examples in joint training (Figures 4 and 13)."""

    dataset: Literal["mnist", "kmnist"] = "mnist"
    """Source of the easy examples and, with random labels, of the difficult ones."""
    easy_samples: int = Field(default=10000, ge=10)
    """Easy training examples, drawn at random."""
    difficult_samples: int = Field(default=1000, ge=10)
    """Difficult training examples, drawn at random."""
    kernel_samples: int = Field(default=100, ge=10)
    """Number of easy, and of difficult, examples for the kernel; at most those trained on."""
    images: Literal["standardised", "unit_interval"] = "standardised"
    """Scaling of the pixels: by the easy images' mean and standard deviation, which become 0 and 1,
    or to the range from 0 to 1."""
    width: HiddenWidth = 80
    linear_layers: LinearLayers = 6
    tied: bool = False
    """Whether all layers between hidden ones share their weights, as in the released code."""
    init: InitOfMLP = "kaiming_zero_bias"
    learning_rate: ClassifierRate = 0.02
    momentum: SGDMomentum = 0.9
    weight_decay: NotNegative = 0
    """Weight decay of SGD (the text has none, the released code 0.0005)."""
    batch_size: Batch = 100
    steps: Count = 5000
    """Iterations (updates) of SGD; the text does not say how many."""
    measure_at: Geometric = Geometric()
    """Measured steps: 0, the integer parts of first * ratio^j, and the last one."""
    alignment: Literal[
        "label_alignment", "label_alignment_equation_7", "label_alignment_equation_7_raw"
    ] = "label_alignment"
    """The reading of the alignment shown in figures; it swaps names with `label_alignment`."""
    precision: Precision = "float32"
    """Floating-point type of training and kernels."""
    seeds: Seeds = 5
    depth_study: DepthStudy = DepthStudy(seeds=20)
    """Settings specific to the study of depth (Figure 13); the figure's four seeds are too few to
    tell a direction from chance."""
    difficult_dataset: Literal["mnist", "kmnist"] | None = by_figure(
        None, "The difficult examples; None for examples of `dataset` with random labels."
    )


class Disk(Parameters, experiment="disk"):
    """Gradient descent on the 2-d disk dataset, and kernel eigenfunctions (Figures 1 and 10)."""

    samples: int = Field(default=500, ge=8)
    """Training points n, uniform on the square [-1, 1]^2."""
    test_samples: int = Field(default=2000, ge=8)
    """Fresh points on which the accuracy is measured."""
    grid: int = Field(default=50, ge=8, le=100)
    """Points per side of the grid on which eigenfunctions are evaluated (N = grid^2)."""
    width: HiddenWidth = 256
    linear_layers: LinearLayers = 6
    init: InitOfMLP = "pytorch"
    learning_rate: Positive = 0.02
    """Step size of full-batch gradient descent on the mean binary cross-entropy."""
    steps: Count = 2000
    """Gradient-descent steps."""
    measure_at: Several[Annotated[int, Field(ge=0)]] = (0, 100, 250, 500, 1000, 1500, 2000)
    """Steps at which the tangent kernel is measured; 0 is before the first step. Steps beyond
    `steps` are ignored; the last step is always measured."""
    centred: Centred = True
    ratio_of: Literal["eigenvalues", "singular_values"] = "eigenvalues"
    """What `eigenvalue_ratio_20` compares: kernel eigenvalues, or singular values of features."""
    precision: Precision = "float64"
    """Floating-point type of the training. In float32, 2000 steps amplify rounding differences
    between processors until some networks end up elsewhere."""
    seeds: Seeds = 20
    six_hidden_seeds: SeedNumber = 20
    """Number of seeds of the network with one more linear layer, the other reading of "6-layer
    deep"."""


class Fourier(Parameters, experiment="fourier"):
    """Tangent-kernel eigenvectors of untrained networks on [0, 1], by frequency (Figure 8)."""

    points: int = Field(default=50, ge=24)
    """Equally spaced points on [0, 1], endpoints included."""
    width: HiddenWidth = 256
    linear_layers: LinearLayers = 6
    init: Literal["kaiming", "pytorch"] = "kaiming"
    """Initial weights, see models.initialisation.new_linear; the text names none. Biases must not
    be zero, or the kernel of one-dimensional inputs has rank 2."""
    centred: Centred = True
    first_index: Literal[0, 1] = 1
    """The index given to the largest eigenvalue, from which the tenth is counted."""
    seeds: Seeds = 20


class Interpolators(Parameters, experiment="interpolators"):
    """Minimum-norm interpolators on rescaled random features, and their bounds (Figure 9)."""

    points: int = Field(default=1000, ge=24)
    """Number N of equally spaced points, and of random features, P = N."""
    half_width: Positive = 1.0
    """The points lie on [-a, a]; the paper does not give a."""
    gamma: Positive = 1.0
    """Parameter of the RBF kernel exp(-gamma |x - x'|^2) that the random features approximate."""
    samples: int = Field(default=50, ge=2)
    """Size n of each training subset; less than `points`."""
    subsets: int = Field(default=100, ge=2)
    """Training subsets at each scale."""
    scaled: Literal["eigenvalues", "singular_values"] = "eigenvalues"
    """What the scales act on: l is the square of a feature singular value, or the value itself."""
    scales: Several[Momentum] = Field(
        default=(0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999),
        min_length=2,
    )
    """Feature scaling factors c, from 0 (white features) to below 1 (the features themselves, whose
    rank in float64 is too low for interpolation)."""
    seeds: SeedNumber = 5
    """Number of seeds (the integers from 0), each with its own features and subsets."""

    @model_validator(mode="after")
    def _check_samples(self) -> Self:
        if self.samples >= self.points:
            raise ValueError(f"samples: {self.samples} of {self.points} points; lower it")
        return self


class Perturbation(Parameters, experiment="perturbation"):
    """Output changes of a VGG11 along its Jacobian's singular and random directions (Figure 7)."""

    dataset: Literal["cifar10", "svhn", "stl10"] = "cifar10"
    """The images; ten classes, at least 32 pixels per side."""
    train_samples: TrainImages = None
    test_samples: int = Field(default=100, ge=6)
    """Number of test images for the Jacobian, and of fresh ones for the same perturbations (not
    stated in the paper)."""
    base_width: BaseWidth = 64
    directions: Count = 50
    """Number of singular directions, and of random ones; less than ten times test_samples."""
    perturbation: Positive = 0.001
    """Length of the perturbation relative to the parameters' norm (not stated in the paper)."""
    learning_rate: Positive = 0.01
    """Step size of SGD on the cross-entropy (not stated for this figure)."""
    momentum: SGDMomentum = 0.9
    batch_size: Batch = 100
    epochs: Count = 10
    """Epochs of training."""
    precision: Precision = "float32"
    """Floating-point type of training and Jacobian; output changes are measured in float64."""
    seeds: Seeds = 5

    @model_validator(mode="after")
    def _check_directions(self) -> Self:
        if self.directions >= 10 * self.test_samples:
            raise ValueError(
                f"directions: {self.directions}, where {self.test_samples} test_samples with ten "
                "outputs have fewer; lower it, or raise test_samples"
            )
        return self


class Supernat(Parameters, experiment="supernat"):
    """SuperNat and gradient descent on noisy linear regression (Figure 5, Section 4.1.2)."""

    samples: int = Field(default=50, ge=2)
    """Training points n."""
    noise_features: Count = 10
    """Number d of noise features; the model has d + 1 parameters."""
    noise_variance: Positive = 0.1
    """Variance sigma^2 of the noise before it is projected onto the noise features."""
    projection: Literal["printed", "orthogonal"] = "printed"
    """How it is projected: by the printed product of noise features, or orthogonally."""
    loss_factor: Positive = 0.5
    """The factor c of the loss c |f - y|^2/n."""
    kappas: Several[Kappa] = ("max", "fixed", "literal", "trace", "lambda_max")
    """Choices of Proposition 3's constant κ; the figure's loss curves are for the first."""
    learning_rates: Several[Positive] = (0.5, 0.2, 0.1)
    """Step sizes, which the paper does not give; the figure's curves use the first."""
    steps: int = Field(default=300, ge=2)
    """Gradient steps, which the paper does not give."""
    seeds: Seeds = 20


class Theory(Parameters, experiment="theory"):
    """Numerical checks of propositions and misprints (Section 4.1, Appendices A and B)."""

    seeds: SeedNumber = 20
    """Number of random cases for each statement; their seeds are the integers from 0."""
