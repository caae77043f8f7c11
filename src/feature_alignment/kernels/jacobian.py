"""Products with the Jacobian of a network by its parameters, and its top singular directions.

The Jacobian J (n·c × p), rows sample-major as in `kernels.tangent`, is never formed: Jᵀu is one
backward pass, Jv the derivative of u ↦ Jᵀu, a backward pass through the backward pass. One forward
pass serves all products. Operations of the model must be twice differentiable in PyTorch, which
its fused attention is not. Parameter vectors are dicts by parameter name, in the parameters'
shapes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse.linalg
import torch
from torch import nn

from feature_alignment.gradients.model_function import refuse_dependent_samples
from feature_alignment.kernels.eigenfunctions import fixed_signs

Direction = dict[str, torch.Tensor]

# Relative residual ‖K_c u − σ²u‖/σ_1² that Lanczos iterations are run to.
_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


@dataclass(frozen=True)
class SingularDirections:
    """Leading singular triples of a Jacobian: J v_j = σ_j u_j, Jᵀu_j = σ_j v_j.

    The sign of each pair is fixed: the first entry of u_j among the largest in magnitude is
    positive (entries within 1e-6 of the largest count as equally large).

    Attributes:
        values: σ, (m,) float64, in nonincreasing order; σ² are eigenvalues of the kernel.
        functions: u as columns, (n·c, m) float64, orthonormal.
        directions: v by parameter name, (m, …) with the parameter's shape, orthonormal over all
            parameters together.
        residuals: ‖K u_j − σ_j²u_j‖/σ_1², (m,), as checked.
    """

    values: np.ndarray
    functions: np.ndarray
    directions: Direction
    residuals: np.ndarray


class Jacobian:
    """J at a model's own parameters, as two products from one forward pass.

    Attributes:
        f: outputs of the model, (n, c).
        samples: n.
        outputs: c.
        dtype: precision of the outputs and products.

    Args:
        model: any model in evaluation mode; outputs (n, c).
        x: inputs (n, …).

    Raises:
        ValueError: if samples are not independent, or the outputs are not (n, c).

    Example:
        >>> jacobian = Jacobian(nn.Linear(2, 1), torch.tensor([[3.0, 4.0]]))
        >>> jacobian.times({"bias": torch.ones(1)})
        tensor([[1.]])
    """

    def __init__(self, model: nn.Module, x: torch.Tensor) -> None:
        refuse_dependent_samples(model)
        self._values = {name: p.detach().requires_grad_() for name, p in model.named_parameters()}
        with torch.enable_grad():
            f = torch.func.functional_call(model, self._values, (x.detach().clone(),))
            if f.ndim != 2 or len(f) != len(x):
                raise ValueError(
                    f"the model's outputs have shape {tuple(f.shape)} for {len(x)} samples; "
                    "they must be (n, c)."
                )
            self._outputs = f
            self._weights = torch.zeros_like(f, requires_grad=True)
            self._pulled = self._gradients(self._weights, create_graph=True)
        self.f = f.detach()
        self.samples, self.outputs = f.shape
        self.dtype = f.dtype

    def times(self, direction: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Jv: (n, c).

        Raises:
            ValueError: if the direction does not fit the parameters.
        """
        for name, v in direction.items():
            if name not in self._values or v.shape != self._values[name].shape:
                raise ValueError(
                    f"direction: {name!r} of shape {tuple(v.shape)} is not a parameter of the "
                    "model; use the names and shapes of model.named_parameters()."
                )
        used = [name for name in direction if self._pulled[name].requires_grad]
        if not used:  # parameters that the outputs do not depend on
            return torch.zeros_like(self._outputs)
        (product,) = torch.autograd.grad(
            [self._pulled[name] for name in used],
            self._weights,
            grad_outputs=[direction[name] for name in used],
            retain_graph=True,
            materialize_grads=True,
        )
        return product

    def transpose_times(self, weights: torch.Tensor) -> Direction:
        """Jᵀu for u (n, c).

        Raises:
            ValueError: if u does not fit the outputs.
        """
        if weights.shape != (self.samples, self.outputs):
            raise ValueError(
                f"weights of shape {tuple(weights.shape)}; the model's outputs have "
                f"{(self.samples, self.outputs)}."
            )
        return self._gradients(weights)

    def _gradients(self, weights: torch.Tensor, create_graph: bool = False) -> Direction:
        found = torch.autograd.grad(
            self._outputs,
            list(self._values.values()),
            grad_outputs=weights,
            retain_graph=True,
            create_graph=create_graph,
            materialize_grads=True,
        )
        return dict(zip(self._values, found, strict=True))


def jacobian_vector_product(
    model: nn.Module, x: torch.Tensor, direction: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Change Jv, (n, c), of the outputs per unit step of the parameters along v.

    Source: Baratin et al. 2021, eq. 2 and Appendix A.1 (Figure 7).

    Args:
        model: any model in evaluation mode; outputs (n, c).
        x: inputs (n, …).
        direction: v by parameter name; names that are left out stand for zero.

    Raises:
        ValueError: if samples are not independent, the outputs are not (n, c), or the direction
            has another name or shape than the parameters.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> jacobian_vector_product(model, torch.tensor([[3.0, 4.0]]), {"bias": torch.ones(1)})
        tensor([[1.]])
    """
    return Jacobian(model, x).times(direction)


def vector_jacobian_product(model: nn.Module, x: torch.Tensor, weights: torch.Tensor) -> Direction:
    """Gradient Jᵀu, by parameter name, of a weighted sum Σ_i Σ_y u_iy f_y(x_i) of the outputs.

    Source: Baratin et al. 2021, eq. 3 (the update of gradient descent is −η Jᵀ∇L).

    Args:
        model: any model in evaluation mode; outputs (n, c).
        x: inputs (n, …).
        weights: u, (n, c).

    Raises:
        ValueError: if samples are not independent, or the outputs are not (n, c).

    Example:
        >>> model = nn.Linear(2, 1)
        >>> vector_jacobian_product(model, torch.ones(3, 2), torch.ones(3, 1))["weight"]
        tensor([[3., 3.]])
    """
    return Jacobian(model, x).transpose_times(weights)


def kernel_vector_product(
    model: nn.Module, x: torch.Tensor, weights: torch.Tensor, x2: torch.Tensor | None = None
) -> torch.Tensor:
    """Product K(x, x₂)u = J(x) J(x₂)ᵀ u, (n, c), of the tangent kernel without the kernel.

    Source: Baratin et al. 2021, eq. 3 (δf = −η K ∇L).

    Args:
        model: any model in evaluation mode; outputs (n, c).
        x: inputs (n, …) of the kernel's rows.
        weights: u, (n₂, c).
        x2: inputs (n₂, …) of the kernel's columns; None for x.

    Raises:
        ValueError: if samples are not independent, or the outputs are not (n, c).

    Example:
        >>> kernel_vector_product(nn.Linear(2, 1), torch.tensor([[3.0, 4.0]]), torch.ones(1, 1))
        tensor([[26.]])
    """
    rows = Jacobian(model, x)
    columns = rows if x2 is None else Jacobian(model, x2)
    return rows.times(columns.transpose_times(weights))


def top_singular_directions(
    model: nn.Module,
    x: torch.Tensor,
    number: int,
    generator: np.random.Generator,
    centred: bool = False,
    tolerance: float | None = None,
) -> SingularDirections:
    """Leading singular values and vectors of the Jacobian, by Lanczos iterations on K u = J(Jᵀu).

    The right singular vectors are the directions of the parameters in which the outputs change
    most. Each iteration costs two passes over the graph of all samples.

    Source: Baratin et al. 2021, Appendix A.1 (Figure 7) and Section 3.2.

    Args:
        model: any model in evaluation mode; outputs (n, c).
        x: inputs (n, …), all at once.
        number: m, how many, less than n·c.
        generator: stream of the first vector.
        centred: whether J's rows are first centred over samples for each output.
        tolerance: largest residual ‖K u_j − σ_j²u_j‖/σ_1²; None for 1e-5 in float32 and 1e-10 in
            float64.

    Returns:
        The m leading triples. Singular values below √tolerance · σ_1 are not resolved.

    Raises:
        ValueError: if samples are not independent, the outputs are not (n, c), the number is out
            of range, a singular value is zero to the tolerance, or the residual check fails.
        scipy.sparse.linalg.ArpackNoConvergence: if the iterations do not converge.

    Example:
        >>> model = nn.Linear(1, 2, bias=False)  # J is x for each output
        >>> x = torch.tensor([[3.0], [4.0]], dtype=torch.float64)
        >>> found = top_singular_directions(model.double(), x, 2, np.random.default_rng(0))
        >>> found.values.round(6).tolist()
        [5.0, 5.0]
    """
    jacobian = Jacobian(model, x)
    size = jacobian.samples * jacobian.outputs
    if not 1 <= number < size:
        raise ValueError(
            f"number: {number} directions; Lanczos iterations give from 1 to n·c − 1 = {size - 1}."
        )
    tolerance = _TOLERANCE[jacobian.dtype] if tolerance is None else tolerance

    def centre(u: torch.Tensor) -> torch.Tensor:
        return u - u.mean(0) if centred else u

    def pull_back(u: np.ndarray) -> Direction:
        weights = torch.from_numpy(np.array(u, dtype=np.float64)).to(x.device, jacobian.dtype)
        return jacobian.transpose_times(centre(weights.view(-1, jacobian.outputs)))

    def apply_kernel(u: np.ndarray) -> np.ndarray:
        changes = centre(jacobian.times(pull_back(u.ravel())))
        return changes.flatten().double().cpu().numpy()

    # SciPy has no types, and those inferred from its source are wrong in two places.
    operator = scipy.sparse.linalg.LinearOperator(
        (size, size),
        apply_kernel,
        dtype=np.float64,  # pyright: ignore[reportCallIssue]
    )
    start = generator.standard_normal(size)
    if not apply_kernel(start).any():
        raise ValueError("the Jacobian is zero (once centred), so it has no singular directions.")
    eigenvalues, functions = scipy.sparse.linalg.eigsh(
        operator,
        number,
        v0=start,
        tol=tolerance / 10,  # pyright: ignore[reportArgumentType]
    )
    eigenvalues, functions = eigenvalues[::-1], functions[:, ::-1]
    if eigenvalues[-1] <= tolerance * eigenvalues[0]:
        raise ValueError(
            f"number: {number}; only {int((eigenvalues > tolerance * eigenvalues[0]).sum())} "
            f"singular values are above √tolerance = {tolerance**0.5:.1g} of the largest."
        )
    functions = functions * fixed_signs(functions)
    images = np.stack([apply_kernel(u) for u in functions.T], axis=1)
    residuals = np.linalg.norm(images - functions * eigenvalues, axis=0) / eigenvalues[0]
    if residuals.max() > tolerance:
        raise ValueError(
            f"the singular directions are found to {residuals.max():.1e} only, not to the "
            f"tolerance {tolerance:.1e}; use float64 or a larger tolerance."
        )
    values = np.sqrt(eigenvalues)
    pulled = [pull_back(u) for u in functions.T]
    directions = {
        name: torch.stack([v[name] / s for v, s in zip(pulled, values, strict=True)])
        for name in pulled[0]
    }
    return SingularDirections(values, functions, directions, residuals)
