"""Norm-based measures of a trained network's complexity, from generalisation bounds.

Each is the part of a bound that depends on the network, without constants and logarithms. W_1 … W_L
are the weights as matrices (k, d), see `layer_matrices`, W_i⁰ their initial values, s_i = ‖W_i‖₂
the spectral norms. As in the bounds, only the path and Fisher–Rao norms include biases. Bounds on
classifiers divide by the margin γ; of these functions only `unit_capacity_bound` does. Measures of
weights raise ValueError if these are not finite matrices.
"""

import math
from collections.abc import Collection, Sequence
from numbers import Real

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized

from feature_alignment.arrays import Matrix, real_tensor
from feature_alignment.errors import check_kind, check_whole, shortened
from feature_alignment.gradients.blocks import spans
from feature_alignment.gradients.model_function import ModelFunction, OutputChoice, outputs_of
from feature_alignment.gradients.parameter_values import input_like, select_parameters
from feature_alignment.gradients.refused_modules import label_of, refuse_absent_values
from feature_alignment.gradients.samples import ModelInput, Samples, as_samples
from feature_alignment.kernels.jacobian import Jacobian
from feature_alignment.training.evaluation import evaluation_mode

Matrices = Sequence[torch.Tensor]

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMALISATIONS = (_NormBase, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.LocalResponseNorm)
"""Modules whose parameters are no matrices of a layer."""


def layer_matrices(model: nn.Module) -> list[torch.Tensor]:
    """Copies of linear and convolutional layers' weights as float64 matrices, in module order.

    A convolution's weight (k, d, size, size) becomes (k, d·size²), the matrix that acts on one
    patch; with groups it is block diagonal. Its norms are not those of the convolution as a map
    between whole images. A module counts once, however often it is used.

    Raises:
        ValueError: if there is no such layer, another module has a matrix of parameters, or a
            weight is complex, not finite, not here, or computed by a forward pre-hook.

    Example:
        >>> [tuple(matrix.shape) for matrix in layer_matrices(nn.Conv2d(3, 8, kernel_size=5))]
        [(8, 75)]
    """
    refuse_absent_values(model)
    matrices = []
    with evaluation_mode(model):  # so that no parametrisation updates its buffers
        named = list(model.named_modules())
        weights = {name: m.weight.detach() for name, m in named if isinstance(m, _LAYERS)}
    for name, module in named:
        if name in weights:
            made = "weight" not in module._parameters and not is_parametrized(module, "weight")
            if made or weights[name].is_complex():
                raise ValueError(
                    f"layer_matrices: {label_of(name, module)} has complex weights, or a hook that "
                    "makes them at each forward pass; use torch.nn.utils.parametrizations."
                )
            matrix = weights[name].to(torch.float64, copy=True).flatten(1)
            matrices.append(torch.block_diag(*matrix.chunk(getattr(module, "groups", 1))))
        elif not isinstance(module, (ParametrizationList, *NORMALISATIONS)):
            own = module.named_parameters(recurse=False)
            if others := [parameter for parameter, value in own if value.squeeze().ndim > 1]:
                raise ValueError(
                    f"layer_matrices: {label_of(name, module)} has a parameter {others[0]!r}, and "
                    "is neither linear nor a convolution; give the part of the model that has such "
                    "layers only."
                )
    if not matrices:
        raise ValueError("layer_matrices: the model has no linear or convolutional layer.")
    if not all(matrix.isfinite().all() for matrix in matrices):
        raise ValueError("layer_matrices: some weights of the model are not finite.")
    return matrices


def spectral_product(weights: Matrices) -> float:
    """Product of the spectral norms Π_i s_i, for ReLU MLPs a bound on the Lipschitz constant.

    Source: Bartlett, Foster and Telgarsky 2017, arXiv:1706.08498.

    Raises:
        ValueError: if there are no matrices, or one has entries that are not finite.

    Example:
        >>> round(spectral_product([torch.diag(torch.tensor([3.0, 1.0])), 2 * torch.eye(2)]), 4)
        6.0
    """
    return math.prod(map(_spectral, _finite("weights", weights)))


def frobenius_product(weights: Matrices) -> float:
    """Product of the Frobenius norms Π_i ‖W_i‖_F.

    Source: Neyshabur et al. 2015, arXiv:1503.00036; Golowich et al. 2018, arXiv:1712.06541.

    Raises:
        ValueError: if there are no matrices, or one has entries that are not finite.

    Example:
        >>> frobenius_product([torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0]])])
        10.0
    """
    return math.prod(float(w.norm()) for w in _finite("weights", weights))


def l1_infinity_product(weights: Matrices) -> float:
    """Product over layers of the largest ℓ1 norm of a unit's incoming weights, Π_i ‖W_i‖_{1,∞}.

    Source: Bartlett and Mendelson 2002, JMLR 3:463.

    Raises:
        ValueError: if there are no matrices, or one has entries that are not finite.

    Example:
        >>> u, v = torch.tensor([[1.0, -2.0], [0.0, 1.0]]), torch.tensor([[2.0, 3.0]])
        >>> l1_infinity_product([u, v])
        15.0
    """
    return math.prod(float(w.abs().sum(1).max()) for w in _finite("weights", weights))


def spectral_complexity(weights: Matrices, initial: Matrices) -> float:
    """Spectral complexity Π_i s_i · (Σ_i (‖(W_i − W_i⁰)ᵀ‖_{2,1} / s_i)^{2/3})^{3/2}.

    ‖Aᵀ‖_{2,1} is the sum of the ℓ2 norms of A's rows, one row per unit of the layer.

    Source: Bartlett et al. 2017, arXiv:1706.08498, eq. 1.2, with W_i⁰ as reference matrices.

    Raises:
        ValueError: if a layer is zero, or the initial weights have different shapes.

    Example:
        >>> round(spectral_complexity([2 * torch.eye(2)], [torch.zeros(2, 2)]), 4)
        4.0
    """
    norms = _nonzero_norms(weights)
    shares = [
        (float(change.norm(dim=1).sum()) / s) ** (2 / 3)
        for change, s in zip(_changes(weights, initial), norms, strict=True)
    ]
    return math.prod(norms) * math.fsum(shares) ** 1.5


def pac_bayes_spectral(weights: Matrices, initial: Matrices) -> float:
    """PAC-Bayesian spectral measure √h · Π_i s_i · (Σ_i ‖W_i − W_i⁰‖_F² / s_i²)^{1/2}.

    h is the largest number of units in a hidden layer (of output channels in a convolution).

    Source: Neyshabur, Bhojanapalli and Srebro 2018, arXiv:1707.09564, Theorem 1, which has
    ‖W_i‖_F; the distance from the initial weights is the variant of arXiv:1805.12076, Table 1.

    Raises:
        ValueError: if a layer is zero, or the initial weights have different shapes.

    Example:
        >>> hidden, last = torch.eye(4), torch.full((1, 4), 0.5)
        >>> round(pac_bayes_spectral([hidden, last], [0 * hidden, last]), 4)
        4.0
    """
    norms = _nonzero_norms(weights)
    width = max((len(w) for w in weights[:-1]), default=1)
    changes = _changes(weights, initial)
    distances = [float(change.norm()) / s for change, s in zip(changes, norms, strict=True)]
    return math.sqrt(width) * math.prod(norms) * math.hypot(*distances)


def unit_capacity(weights: Matrices, initial: Matrices) -> float:
    """Unit-wise capacity ‖V‖_F (‖U − U⁰‖_F + ‖U⁰‖₂) of a network with weights U (h, d), V (c, h).

    Source: Neyshabur, Li, Bhojanapalli, LeCun and Srebro, arXiv:1805.12076 (2018; ICLR 2019),
    Table 1, without √h, which is added after division by the margin; see `unit_capacity_bound`.

    Raises:
        ValueError: if there are not two layers, or the initial weights have different shapes.

    Example:
        >>> u, v = torch.diag(torch.tensor([3.0, 4.0])), torch.tensor([[0.0, 2.0]])
        >>> round(unit_capacity([u, v], [0 * u, v]), 4)
        10.0
    """
    u, v, u0 = _two_layers("unit_capacity", weights, initial)
    return float(v.norm()) * (float((u - u0).norm()) + _spectral(u0))


def unit_capacity_bound(weights: Matrices, initial: Matrices, x: Matrix, margin: float) -> float:
    """Unit-wise bound √c ‖V‖_F (‖U − U⁰‖_F ‖X‖_F + ‖U⁰X‖_F) / (γ √n) + √h for inputs x (n, …).

    Source: Neyshabur, Li, Bhojanapalli, LeCun and Srebro, arXiv:1805.12076, Theorem 1, times √n.

    Raises:
        ValueError: if there are not two layers, shapes differ, there is no sample, an input is not
            finite, or the margin is not positive.

    Example:
        >>> u, v = torch.diag(torch.tensor([3.0, 4.0])), torch.tensor([[0.0, 2.0]])
        >>> round(unit_capacity_bound([u, v], [0 * u, v], torch.tensor([[1.0, 0.0]]), margin=1), 4)
        11.4142
    """
    u, v, u0 = _two_layers("unit_capacity_bound", weights, initial)
    margin = _number("margin", margin, "a number above 0")
    if not margin > 0:
        raise ValueError(f"margin: {margin}; the bound needs a margin above 0.")
    x = real_tensor("x", x, u0)
    if x.ndim < 2 or not x.numel() or x[0].numel() != u.shape[1]:
        raise ValueError(
            f"x: of shape {tuple(x.shape)}; the first layer takes {u.shape[1]} inputs."
        )
    if not x.isfinite().all():
        raise ValueError("x: some inputs are not finite, so they have no bound.")
    x = x.flatten(1)  # (n, d)
    data = float((u - u0).norm()) * float(x.norm()) + float((x @ u0.T).norm())
    scale = math.sqrt(len(v)) * float(v.norm()) / (margin * math.sqrt(len(x)))
    return scale * data + math.sqrt(len(u))


def distance_from_start(weights: Matrices, initial: Matrices) -> float:
    """Distance of the weights from their initial values, (Σ_i ‖W_i − W_i⁰‖_F²)^{1/2}.

    Source: Nagarajan and Kolter 2019, arXiv:1901.01672.

    Raises:
        ValueError: if the initial weights have different shapes.

    Example:
        >>> distance_from_start([torch.tensor([[3.0, 4.0]])], [torch.zeros(1, 2)])
        5.0
    """
    return math.hypot(*(float(change.norm()) for change in _changes(weights, initial)))


def fisher_rao_norm(
    model: nn.Module,
    x: ModelInput,
    y: Matrix,
    chunk_size: int = 500,
    *,
    inputs: str | Collection[str | int] | None = None,
    output: OutputChoice | None = None,
) -> float:
    """Fisher–Rao norm (E_i ⟨w, ∇_w ℓ_i⟩²)^{1/2} of the cross-entropy ℓ at the labels y (n,).

    ⟨w, ∇_w ℓ_i⟩ = Σ_y ∂ℓ_i/∂f_y · (J_i w)_y, where J_i w is the derivative of f(x_i) as all
    parameters, biases included, are scaled up together. The norm vanishes as the labels are fitted.
    `chunk_size` samples at a time bound the memory and do not change the result. The model is
    evaluated in evaluation mode; frozen parameters are included. `inputs` and `output` are as for
    `tangent_kernel`.

    Source: Liang, Poggio, Rakhlin and Stokes 2019, arXiv:1711.01530, Definition 2.

    Raises:
        ValueError: if there is no sample, the labels are not one class number per sample, the
            outputs have several axes, a parameter has no values here, `chunk_size` is not a
            positive whole number, or the norm is not finite.

    Example:
        >>> layer = nn.Linear(1, 2, bias=False)
        >>> with torch.no_grad():
        ...     _ = layer.weight.copy_(torch.tensor([[3.0], [1.0]]).log())
        >>> round(fisher_rao_norm(layer, torch.ones(1, 1), torch.tensor([1])), 4)  # 3/4 log 3
        0.824
    """
    refuse_absent_values(model)
    samples, labels = as_samples(x, inputs, input_like(model)), real_tensor("y", y)
    if labels.shape[:1] != (len(samples),):
        found = f"of shape {tuple(labels.shape)} for {len(samples)} samples"
        raise ValueError(f"y: labels {found}; give one for each.")
    check_whole("chunk_size", chunk_size, 1)
    own = dict(model.named_parameters())
    weights = {name: own[name] for name in select_parameters(model, None)}
    along = []  # ⟨w, ∇_w ℓ_i⟩ by chunk, float64 (b,)
    with evaluation_mode(model):
        for span in spans(len(samples), chunk_size):
            jacobian = Jacobian(model, samples[span], output=output)
            if not along:
                _refuse_several_axes(model, samples[:1], output)
            classes = _class_numbers(labels[span], jacobian.f)
            gradient = jacobian.f.double().softmax(1)  # (b, c)
            own_class = torch.arange(len(classes)), classes
            gradient[own_class] = 0
            gradient[own_class] = -gradient.sum(1)  # exact also where p_y − 1 rounds to 0
            along.append((gradient * jacobian.times(weights)).sum(1))
    mean = float(torch.cat(along).square().mean())
    if not math.isfinite(mean):
        raise ValueError("fisher_rao_norm: the mean square over samples is not finite.")
    return math.sqrt(mean)


def _refuse_several_axes(model: nn.Module, sample: Samples, output: OutputChoice | None) -> None:
    # Class numbers would be taken for those of all entries, which the Jacobian has in one row.
    function = ModelFunction(model, output, flat=False)
    with function.installed(dict(model.named_parameters()), False) as f, torch.no_grad():
        shape = outputs_of(f, sample)[0].shape
    if sum(size > 1 for size in shape[1:]) > 1:
        raise ValueError(
            f"y: one class number for each sample, for outputs of shape {tuple(shape)} of one; "
            "give a model, or an `output`, of (n, c)."
        )


def margin_quantile(outputs: Matrix, y: Matrix, q: float = 0.1) -> float:
    """Quantile q over samples of the margin f_y − max_{k≠y} f_k, for f (n, c), c ≥ 2, and y (n,).

    Source: Jiang et al. 2020, arXiv:1912.02178, Appendix C (the 10th percentile).

    Raises:
        ValueError: if y is not one class number per sample, q not in [0, 1], or f not finite.

    Example:
        >>> margin_quantile(torch.tensor([[3.0, 1.0], [0.0, 5.0]]), torch.tensor([0, 1]), 0.0)
        2.0
    """
    q = _number("q", q, "a number from 0 to 1")
    if not 0 <= q <= 1:
        raise ValueError(f"q: {q}; a quantile is from 0 to 1.")
    f = real_tensor("outputs", outputs).detach().double()
    if not f.isfinite().all():
        raise ValueError("outputs: some are not finite, so they have no margins.")
    y = _class_numbers(real_tensor("y", y), f)
    own = f.gather(1, y[:, None])[:, 0]  # (n,)
    others = f.scatter(1, y[:, None], -math.inf).max(1).values
    return float((own - others).quantile(q))


def _number(key: str, value: float | torch.Tensor, allowed: str) -> float:
    check_kind(key, value, Real | torch.Tensor, allowed)
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        raise ValueError(f"{key}: {value.numel()} numbers; give {allowed}.")
    return float(value)


def _two_layers(
    measure: str, weights: Matrices, initial: Matrices
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ends = _finite("weights", weights)
    if len(ends) != 2:
        raise ValueError(
            f"{measure}: the network has {len(ends)} layers; the measure is defined for 2."
        )
    _changes(weights, initial)
    u, v = ends
    if v.shape[1] != len(u):
        raise ValueError(
            f"{measure}: the second layer takes {v.shape[1]} inputs, and the first has {len(u)} "
            "units."
        )
    return u, v, _finite("initial", initial)[0]


def _changes(weights: Matrices, initial: Matrices) -> list[torch.Tensor]:
    """W_i − W_i⁰ of each layer; ValueError if shapes differ."""  # noqa: DOC501
    ends, starts = _finite("weights", weights), _finite("initial", initial)
    shapes, others = ([tuple(w.shape) for w in matrices] for matrices in (ends, starts))
    if shapes != others:
        raise ValueError(f"initial: layers of shapes {others}, the weights are of {shapes}.")
    return [w - w0 for w, w0 in zip(ends, starts, strict=True)]


def _finite(name: str, weights: Matrices) -> list[torch.Tensor]:
    # Weights as float64 matrices.
    given = list(weights) if isinstance(weights, Sequence) else []
    found = [real_tensor(name, w).detach().double() for w in given]
    if not found or any(w.ndim != 2 or not w.numel() or not w.isfinite().all() for w in found):
        raise ValueError(
            f"{name}: found {shortened(weights)}; give a list of finite matrices (k, d), one for "
            "each layer, as from `layer_matrices`."
        )
    return found


def _class_numbers(y: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
    """Labels (n,) as class numbers from 0 to c − 1 for f (n, c), c ≥ 2; else ValueError."""  # noqa: DOC501
    if f.ndim != 2:
        raise ValueError(f"outputs of shape {tuple(f.shape)}; (n, c) is needed, c classes.")
    n, classes = f.shape
    numbers = y.long().to(f.device)
    fits = y.shape == (n,) and n > 0 and classes > 1 and bool((numbers == y.to(f.device)).all())
    if not fits or numbers.min() < 0 or numbers.max() >= classes:
        raise ValueError(
            f"y: labels of shape {tuple(y.shape)} for {n} samples and {classes} outputs; give a "
            "class number from 0 on for each sample, of two outputs or more."
        )
    return numbers


def _nonzero_norms(weights: Matrices) -> list[float]:
    norms = [_spectral(w) for w in _finite("weights", weights)]
    if not all(norms):
        raise ValueError("a layer's weights are zero; the measure divides by their spectral norm.")
    return norms


def _spectral(matrix: torch.Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))
