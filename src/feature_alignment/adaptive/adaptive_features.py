"""Regression with adaptive tangent features, as a scikit-learn estimator."""

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from feature_alignment.adaptive.adapted_tangent_kernel import adapted_tangent_kernel
from feature_alignment.adaptive.feature_structures import (
    Diagonal,
    LayerStructure,
    Structure,
    Structureless,
    Transformation,
)
from feature_alignment.adaptive.parameter_matrices import Matrices, matrix_layout
from feature_alignment.adaptive.penalised_interpolation import Interpolation, minimise_penalty
from feature_alignment.adaptive.penalties import Penalty, PowerPenalty, logarithmic_penalty
from feature_alignment.determinism import torch_stream
from feature_alignment.errors import check_choice, check_kind, check_whole
from feature_alignment.kernels.jacobian import Jacobian
from feature_alignment.models.mlp import MLP
from feature_alignment.training.evaluation import undisturbed

PENALTIES: dict[str, Penalty] = {
    "square": PowerPenalty(2),
    "absolute": PowerPenalty(1),
    "logarithmic": logarithmic_penalty,
}
"""Penalties by name: ω₁ and ω₂ of Figure 2, and the penalty of gradient flow."""

Samples = ArrayLike | torch.Tensor

NetworkFactory = Callable[[int, int, torch.Generator], nn.Module]
"""Builds a network from the size of one flattened input, the number of outputs and a generator."""

STRUCTURES = ("layers", "diagonal", "none")

_CHUNK = 500  # samples predicted at a time, which bounds memory


@dataclass(eq=False, repr=False)
class AdaptiveTangentFeatures(RegressorMixin, BaseEstimator):
    """Interpolation with tangent features whose transformation is penalised.

    Minimises Ω(M) + ‖θ − θ₀‖² over M and θ subject to f_θ₀(x_i) + ∇f_θ₀(x_i) M (θ − θ₀) = y_i, as
    min Ω̃(B) over the coefficients B = M(θ − θ₀). With no structure the predictions are those of
    ridgeless regression with the tangent kernel; with a matrix per layer, B has nearly low rank.

    Samples are tensors, arrays or pandas tables, passed to the network as float64. Integers that
    the network rejects as float64, such as tokens (n, T) for an embedding, are passed as int64.
    All parameters count, frozen ones too.

    Everything is computed in float64. `fit` needs passes through the network and one Cholesky
    factor of the tangent kernel (8(n·c)² bytes), and never stores the n·c·p features.

    Source: LeJeune & Alemohammad 2024, eqs. 1 and 2, Theorems 1 and 2, Appendix A.1.

    Attributes:
        coefficients_: B by layer, matrices (outputs, inputs), see `parameter_matrices`.
        transformation_: M̂, see `feature_structures`.
        objective_: Ω̃(B).
        objectives_: its values at the start and after each iteration, nonincreasing.
        n_iter_: number of iterations of the best start.
        converged_: whether the best start reached the tolerance.
        network_: the network at θ₀ in float64.

    Args:
        network: the network at θ₀, which is not modified; its outputs are (n, c), or any shape
            with c numbers per sample; slow if PyTorch cannot differentiate them twice. Or a
            function that builds it, see `NetworkFactory`; None for an MLP with one hidden layer of
            512 ReLUs.
        structure: "layers", a transformation on either side of each layer's matrix (Model A: the
            readout's outputs are not transformed); "diagonal", one scale for each parameter; or
            "none", any M.
        penalty: ω, "square" ((v − 1)²), "absolute" (|v − 1|), "logarithmic" (v² − 1 − 2 log v) or
            a function, see `penalties`.
        output_penalty: ω⁽²⁾ on the output sides; None for the same as `penalty`. Only for "layers".
        starts: number of starts: the first from M = I, the others from random transformations.
            With structure "none" one is enough: Ω̃ increases with ‖B‖, so the minimiser is unique,
            though Ω̃ need not be convex (for |v − 1| it is not). With "diagonal" the problem is
            convex for the square and the logarithmic penalty. With "layers" it is not convex.
        tolerance: relative change of the objective at which to stop.
        max_iter: maximum number of iterations of each start.
        seed: seed for building a network and for the random starts.

    Example:
        >>> network = nn.Linear(2, 1, bias=False)
        >>> _ = nn.init.zeros_(network.weight)
        >>> model = AdaptiveTangentFeatures(network).fit(np.eye(2)[:1], np.array([3.0]))
        >>> model.predict(np.array([[2.0, 5.0]])).round(6)
        array([6.])
    """

    network: nn.Module | NetworkFactory | None = None
    _: KW_ONLY
    structure: str = "layers"
    penalty: str | Penalty = "square"
    output_penalty: str | Penalty | None = None
    starts: int = 1
    tolerance: float = 1e-6
    max_iter: int = 200
    seed: int = 0

    def fit(self, X: Samples, y: Samples) -> "AdaptiveTangentFeatures":
        """Fit targets y, (n,) or (n, c), exactly at samples X (n, …); return the estimator itself.

        Raises:
            ValueError: if a value is not finite, shapes do not match, a setting is unknown, the
                tangent features of the samples are linearly dependent, or the targets too large.

        Warns:
            ConvergenceWarning: if the best start ended at `max_iter`, or stalled above its minimum.
        """
        self._check_numbers()
        checks: Any = ({"allow_nd": True}, {"ensure_2d": False})
        checked = validate_data(self, _on_cpu(X), _on_cpu(y), validate_separately=checks)
        samples, values = (np.ascontiguousarray(part) for part in checked)
        check_consistent_length(samples, values)
        network = self._new_network(samples.shape, values.shape)
        x = _inputs(network, samples)
        targets = torch.tensor(values, dtype=torch.float64, device=x.device)
        flat = targets.ndim == 1
        targets = targets[:, None] if flat else targets
        interpolation = Interpolation(network, x, targets)
        structure = self._structure(interpolation.readout)
        problem = interpolation, structure, self.tolerance, self.max_iter
        with interpolation.many_products():
            best = minimise_penalty(*problem)
            for number in range(1, self.starts):
                start = self._random_start(structure, best.coefficients, number)
                found = minimise_penalty(*problem, start)
                best = found if found.objectives[-1] < best.objectives[-1] else best
        if not best.converged:
            last = len(best.objectives) - 1
            why = (
                f"is not at its minimum to {self.tolerance:g} of itself in iteration {last}, the "
                "last; raise max_iter or tolerance."
                if last >= self.max_iter
                else f"stalled above its minimum in iteration {last}; give targets of unit size."
            )
            warnings.warn(f"the objective {why}", ConvergenceWarning, stacklevel=2)
        self._flat, self._sample_shape, self.network_ = flat, samples.shape[1:], network
        self.coefficients_, self.transformation_ = best.coefficients, best.transformation
        self.objectives_, self.objective_ = best.objectives, best.objectives[-1]
        self.n_iter_, self.converged_ = len(best.objectives) - 1, best.converged
        return self

    def predict(self, X: Samples) -> np.ndarray:
        """Predictions f_θ₀(x) + ∇f_θ₀(x) B, (n,) if y was (n,), else (n, c).

        Raises:
            NotFittedError: if called before `fit`.
            ValueError: if the samples do not match those given to `fit`.
        """
        x = self._samples(X)
        direction = matrix_layout(self.network_).split(self.coefficients_)
        parts = []
        for chunk in x.split(_CHUNK):
            change = Jacobian(self.network_, chunk).times(direction)
            with torch.no_grad():
                parts.append(self.network_(chunk).reshape(change.shape) + change)  # (b, c)
        f = torch.cat(parts).cpu().numpy()
        return f[:, 0] if self._flat else f

    def adapted_kernel(self, X: Samples, X2: Samples | None = None) -> np.ndarray:
        """Adapted kernel K(x, x') = ∇f_θ₀(x) M̂² ∇f_θ₀(x')ᵀ, (n·c, n₂·c), of X and X2; None for X.

        With a transformation on either side of each layer it is
        K₀ + Σ_ℓ Σ_{i,j} (s⁽¹⁾_i² s⁽²⁾_j² − 1) φ_ij(x) φ_ij(x')ᵀ over all pairs of singular
        vectors, with φ_ij = ∇_{vec W_ℓ} f vec(u_i v_jᵀ). The paper's sum, over i = j only, is not
        the kernel of its own M̂. With structure "diagonal" all n·c·p features are stored.

        Source: LeJeune & Alemohammad 2024, Section 3 and Theorem 2, corrected.

        Raises:
            NotFittedError: if called before `fit`.
            ValueError: if the samples do not match those given to `fit`; with structure "layers",
                if a layer with parameters is neither linear nor a plain 2D convolution, or shares
                a parameter with another layer.
        """
        x = self._samples(X)
        try:
            x2 = None if X2 is None else self._samples(X2)
        except ValueError as error:
            raise ValueError(f"X2: {error}") from error
        return adapted_tangent_kernel(self.network_, x, x2, self.transformation_).cpu().numpy()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _new_network(self, inputs: tuple[int, ...], targets: tuple[int, ...]) -> nn.Module:
        # The network at θ₀ for samples and targets of these shapes.
        network = self.network
        if isinstance(network, type) and issubclass(network, nn.Module):
            raise ValueError(f"network: {network.__name__} is a class; give an instance of it.")
        if network is None or (callable(network) and not isinstance(network, nn.Module)):
            generator = torch_stream(self.seed, "adaptive_features/init")
            d, c = math.prod(inputs[1:]), math.prod(targets[1:])
            if network is None:
                network = MLP(d, [512], c, "relu", True, generator, "kaiming", dtype=torch.float64)
            else:
                network = network(d, c, generator)
        check_kind("network", network, nn.Module, "a module, or a function that builds one")
        return copy.deepcopy(network).double().eval()

    def _samples(self, values: Samples) -> torch.Tensor:
        # Samples as inputs of the fitted network; they must match those given to `fit`.
        check_is_fitted(self, "network_")
        checked = validate_data(self, _on_cpu(values), reset=False, allow_nd=True)
        samples = np.ascontiguousarray(checked)
        if samples.shape[1:] != self._sample_shape:
            raise ValueError(
                f"X: samples of shape {samples.shape[1:]}; `fit` was given {self._sample_shape}."
            )
        return _inputs(self.network_, samples)

    def _check_numbers(self) -> None:
        for name, least in (("starts", 1), ("max_iter", 1), ("seed", 0)):
            check_whole(name, getattr(self, name), least)
        tolerance: Any = self.tolerance
        if isinstance(tolerance, bool) or not isinstance(tolerance, Real) or not tolerance >= 0:  # pyright: ignore[reportOperatorIssue]: numbers compare
            raise ValueError(f"tolerance: {tolerance!r}; a number of at least 0 is needed.")

    def _structure(self, readout: str) -> Structure:
        check_choice("structure", self.structure, STRUCTURES)
        penalty = _penalty("penalty", self.penalty)
        if self.structure == "layers":
            output = self.penalty if self.output_penalty is None else self.output_penalty
            return LayerStructure(penalty, _penalty("output_penalty", output), readout)
        if self.output_penalty is not None:
            raise ValueError("output_penalty: only the structure 'layers' has an output side.")
        return Diagonal(penalty) if self.structure == "diagonal" else Structureless(penalty)

    def _random_start(self, structure: Structure, best: Matrices, number: int) -> Transformation:
        """The best M for random coefficients, each layer's of the norm of the best ones so far."""
        generator = torch_stream(self.seed, f"adaptive_features/start{number}")
        drawn: Matrices = {}
        for layer, b in best.items():
            matrix = torch.randn(b.shape, generator=generator, dtype=torch.float64).to(b)
            drawn[layer] = matrix * (b.norm() / matrix.norm())
        return structure.adapt(drawn)


def _on_cpu(values: Samples) -> Any:
    """Convert tensors to arrays, which scikit-learn can check; return anything else unchanged."""
    if not isinstance(values, torch.Tensor):
        return values
    values = values.detach().cpu()
    return (values.double() if values.is_floating_point() else values).numpy()


def _inputs(network: nn.Module, samples: np.ndarray) -> torch.Tensor:
    # Samples in the dtype that the network accepts: float64, else int64 for integers.
    device = next((p.device for p in network.parameters()), None)
    dtypes, refused = [torch.float64, torch.int64], []
    for dtype in dtypes if samples.dtype.kind in "iu" else dtypes[:1]:
        x = torch.tensor(samples, dtype=dtype, device=device)
        try:
            with torch.no_grad(), undisturbed(network):
                f = network(x if dtype == torch.int64 else x[:1])
        except (RuntimeError, IndexError) as error:
            refused.append(str(error))
            continue
        if not isinstance(f, torch.Tensor):
            raise ValueError(f"network: it returns a {type(f).__name__}; let it return a tensor.")
        return x
    raise ValueError(
        f"X: the network does not take inputs of shape {samples.shape}, samples "
        f"first: {'; as tokens: '.join(refused)}"
    )


def _penalty(key: str, penalty: str | Penalty | Callable[[np.ndarray], np.ndarray]) -> Penalty:
    if callable(penalty):
        return penalty
    check_choice(key, penalty, PENALTIES)
    return PENALTIES[penalty]
