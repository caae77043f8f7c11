"""Regression with adaptive tangent features, as an estimator with scikit-learn's conventions."""

import copy
import warnings
from collections.abc import Callable

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import nn

from feature_alignment.adaptive.adapted_tangent_kernel import adapted_tangent_kernel
from feature_alignment.adaptive.feature_structures import (
    Diagonal,
    LayerStructure,
    Structure,
    Structureless,
    Transformation,
)
from feature_alignment.adaptive.interpolation import Interpolation
from feature_alignment.adaptive.parameter_matrices import Matrices, matrix_layout
from feature_alignment.adaptive.penalised_interpolation import Solution, minimise_penalty
from feature_alignment.adaptive.penalties import Penalty, PowerPenalty, logarithmic_penalty
from feature_alignment.determinism import torch_stream
from feature_alignment.errors import suggestion
from feature_alignment.kernels.jacobian import jacobian_vector_product

PENALTIES: dict[str, Penalty] = {
    "square": PowerPenalty(2),
    "absolute": PowerPenalty(1),
    "logarithmic": logarithmic_penalty,
}
"""Penalties by name: ω₁ and ω₂ of Figure 2, and that of gradient flow."""

STRUCTURES = ("layers", "diagonal", "none")

_CHUNK = 500
"""Samples predicted at a time, which bounds memory."""


class AdaptiveTangentFeatures(RegressorMixin, BaseEstimator):
    """Interpolation with tangent features whose transformation is penalised.

    Minimises Ω(M) + ‖θ − θ₀‖² over M and θ subject to f_θ₀(x_i) + ∇f_θ₀(x_i) M (θ − θ₀) = y_i, as
    min Ω̃(B) over the coefficients B = M(θ − θ₀). With no structure the predictions are those of
    ridgeless regression with the tangent kernel; with a matrix per layer, B is nearly of low rank.

    All of it is computed in float64. Time and memory are those of passes through the network and
    of one Cholesky factor of the tangent kernel (8(n·c)² bytes); n·c·p numbers are never held.

    Source: LeJeune & Alemohammad 2024, eqs. 1 and 2, Theorems 1 and 2, Appendix A.1.

    Attributes:
        coefficients_: B by layer, matrices (outputs, inputs), see `parameter_matrices`.
        transformation_: M̂, see `feature_structures`.
        objective_: Ω̃(B).
        objectives_: its values at the start and after each iteration, nonincreasing.
        n_iter_: iterations of the start that was best.
        converged_: whether they ended by the tolerance.

    Args:
        network: the network at θ₀, with outputs (n, c); it is not changed. Twice differentiable
            in PyTorch.
        structure: "layers", a transformation on either side of each layer's matrix (Model A: the
            readout's outputs are not transformed); "diagonal", one scale for each parameter; or
            "none", any M.
        penalty: ω, "square" ((v − 1)²), "absolute" (|v − 1|), "logarithmic" (v² − 1 − 2 log v) or
            a function, see `penalties`.
        output_penalty: ω⁽²⁾ on the output sides if another one; with "layers" only.
        starts: how often to start; first from M = I, then from random transformations. With
            structure "none" one is enough: Ω̃ rises with ‖B‖, so there is one minimiser, though Ω̃
            need not be convex (for |v − 1| it is not). With "diagonal" the problem is convex for
            the square and the logarithmic penalty, and not for |v − 1|. With "layers" it is not
            convex.
        tolerance: relative change of the objective at which to stop.
        max_iter: iterations of each start.
        seed: seed of the random starts.

    Example:
        >>> network = nn.Linear(2, 1, bias=False)
        >>> _ = nn.init.zeros_(network.weight)
        >>> model = AdaptiveTangentFeatures(network).fit(np.eye(2)[:1], np.array([3.0]))
        >>> model.predict(np.array([[2.0, 5.0]])).round(6)
        array([6.])
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        structure: str = "layers",
        penalty: str | Penalty = "square",
        output_penalty: str | Penalty | None = None,
        starts: int = 1,
        tolerance: float = 1e-6,
        max_iter: int = 200,
        seed: int = 0,
    ) -> None:
        self.network = network
        self.structure = structure
        self.penalty = penalty
        self.output_penalty = output_penalty
        self.starts = starts
        self.tolerance = tolerance
        self.max_iter = max_iter
        self.seed = seed

    def fit(
        self, X: np.ndarray | torch.Tensor, y: np.ndarray | torch.Tensor
    ) -> "AdaptiveTangentFeatures":
        """Fit samples X (n, …) to targets y, (n,) or (n, c), exactly; returns the estimator itself.

        Raises:
            ValueError: if shapes do not match, a setting is unknown, or the tangent features of
                the samples are linearly dependent.

        Warns:
            ConvergenceWarning: if the best start ended by `max_iter`.
        """
        network, targets = self._network(), self._input(y)
        x = self._samples("X", X, network)
        flat = targets.ndim == 1
        targets = targets[:, None] if flat else targets
        interpolation = Interpolation(network, x)
        outputs = interpolation.outputs()
        if outputs.shape != targets.shape:
            raise ValueError(
                f"y: shape {tuple(targets.shape)}; the network's outputs have shape "
                f"{tuple(outputs.shape)}."
            )
        structure = self._structure()
        residual = targets - outputs
        best: Solution | None = None
        for number in range(self.starts):
            start = None if best is None else self._random_start(structure, best, number)
            found = minimise_penalty(
                interpolation,
                residual,
                structure,
                start,
                tolerance=self.tolerance,
                max_iterations=self.max_iter,
            )
            if best is None or found.objectives[-1] < best.objectives[-1]:
                best = found
        if best is None:
            raise ValueError(f"starts: {self.starts}; at least 1 is needed.")
        if not best.converged:
            warnings.warn(
                f"the objective still falls by more than {self.tolerance:g} of itself in iteration "
                f"{self.max_iter}, the last; raise max_iter or tolerance.",
                ConvergenceWarning,
                stacklevel=2,
            )
        self._flat = flat
        self.coefficients_, self.transformation_ = best.coefficients, best.transformation
        self.objectives_, self.objective_ = best.objectives, best.objectives[-1]
        self.n_iter_, self.converged_ = len(best.objectives) - 1, best.converged
        return self

    def predict(self, X: np.ndarray | torch.Tensor) -> np.ndarray:
        """Predictions f_θ₀(x) + ∇f_θ₀(x) B: (n,) if y was, else (n, c).

        Raises:
            NotFittedError: before `fit`.
            ValueError: if the network does not take samples of that shape.
        """
        check_is_fitted(self)
        network = self._network()
        direction = matrix_layout(network).split(self.coefficients_)
        parts = []
        for x in self._samples("X", X, network).split(_CHUNK):
            change = jacobian_vector_product(network, x, direction)
            with torch.no_grad():
                parts.append(network(x) + change)  # (b, c)
        f = torch.cat(parts).cpu().numpy()
        return f[:, 0] if self._flat else f

    def adapted_kernel(
        self, X: np.ndarray | torch.Tensor, X2: np.ndarray | torch.Tensor | None = None
    ) -> np.ndarray:
        """Adapted kernel K(x, x') = ∇f_θ₀(x) M̂² ∇f_θ₀(x')ᵀ, (n·c, n₂·c), of X and X2; None for X.

        With a transformation on either side of a layer it is
        K₀ + Σ_ℓ Σ_{i,j} (s⁽¹⁾_i² s⁽²⁾_j² − 1) φ_ij(x) φ_ij(x')ᵀ over all pairs of singular
        vectors, where φ_ij = ∇_{vec W_ℓ} f vec(u_i v_jᵀ): the sum over i = j alone that the paper
        prints is not the kernel of its own M̂.

        Source: LeJeune & Alemohammad 2024, Section 3 and Theorem 2, corrected.

        Raises:
            NotFittedError: before `fit`.
            ValueError: if the network does not take samples of that shape; with structure
                "layers", if it has layers with parameters other than linear ones and
                convolutions.
        """
        check_is_fitted(self)
        network = self._network()
        x = self._samples("X", X, network)
        x2 = None if X2 is None else self._samples("X2", X2, network)
        kernel = adapted_tangent_kernel(network, x, x2, self.transformation_)
        return kernel.cpu().numpy()

    def _network(self) -> nn.Module:
        return copy.deepcopy(self.network).double().eval()

    def _input(self, values: np.ndarray | torch.Tensor) -> torch.Tensor:
        device = next(self.network.parameters()).device
        return torch.as_tensor(values).to(device, torch.float64)

    def _samples(
        self, name: str, values: np.ndarray | torch.Tensor, network: nn.Module
    ) -> torch.Tensor:
        """Inputs that the network takes.

        Raises:
            ValueError: if it does not.
        """
        x = self._input(values)
        try:
            with torch.no_grad():
                network(x[:1])
        except (RuntimeError, IndexError) as error:
            raise ValueError(
                f"{name}: the network does not take inputs of shape {tuple(x.shape)}, samples "
                f"first: {error}"
            ) from error
        return x

    def _structure(self) -> Structure:
        """The structure that the settings ask for.

        Raises:
            ValueError: if a setting is unknown.
        """
        penalty = _penalty("penalty", self.penalty)
        if self.structure == "layers":
            readout = list(matrix_layout(self.network).layers)[-1]
            output = self.penalty if self.output_penalty is None else self.output_penalty
            return LayerStructure(penalty, _penalty("output_penalty", output), readout)
        if self.output_penalty is not None:
            raise ValueError("output_penalty: only the structure 'layers' has an output side.")
        if self.structure == "diagonal":
            return Diagonal(penalty)
        if self.structure == "none":
            return Structureless(penalty)
        raise ValueError(
            f"structure: {self.structure!r} is not a structure; "
            f"{suggestion(self.structure, STRUCTURES)}."
        )

    def _random_start(self, structure: Structure, best: Solution, number: int) -> Transformation:
        """The transformation for random coefficients as large as the best ones so far."""
        generator = torch_stream(self.seed, f"adaptive_features/start{number}")
        drawn: Matrices = {
            layer: torch.randn(b.shape, generator=generator, dtype=torch.float64).to(b)
            for layer, b in best.coefficients.items()
        }
        for layer, b in best.coefficients.items():
            drawn[layer] *= b.norm() / drawn[layer].norm()
        return structure.adapt(drawn)


def _penalty(key: str, penalty: str | Penalty | Callable[[np.ndarray], np.ndarray]) -> Penalty:
    if callable(penalty):
        return penalty
    if penalty not in PENALTIES:
        raise ValueError(f"{key}: {penalty!r} is not a penalty; {suggestion(penalty, PENALTIES)}.")
    return PENALTIES[penalty]
