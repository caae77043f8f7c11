"""Products with a network's parameter Jacobian, and its top singular directions.

The Jacobian J (n·c × p), rows sample-major as in `kernels.tangent`, is never formed: Jᵀu is one
backward pass, and Jv, the derivative of u ↦ Jᵀu, a backward pass through it. All products share one
forward pass. Parameter vectors are dicts by parameter name, in the parameters' shapes.
"""

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse.linalg
import torch
from torch import nn

from feature_alignment.arrays import Matrix, real_tensor
from feature_alignment.determinism import torch_stream
from feature_alignment.errors import check_kind
from feature_alignment.gradients.border import close
from feature_alignment.gradients.capture import leaf_gradients, recorded, told_of_overwriting
from feature_alignment.gradients.checks import checked_outputs, refuse_non_finite, rounding
from feature_alignment.gradients.generic_jacobian import differentiable_attention
from feature_alignment.gradients.model_function import ModelFunction, OutputChoice
from feature_alignment.gradients.parameter_values import (
    Parameters,
    evaluation_point,
    input_like,
    select_parameters,
)
from feature_alignment.gradients.refused_modules import refuse_dependent_samples
from feature_alignment.gradients.samples import ModelInput, Samples, as_samples
from feature_alignment.kernels.eigenfunctions import fixed_signs

Direction = dict[str, torch.Tensor]

log = logging.getLogger(__name__)

# Relative residual ‖K u − σ²u‖/σ_1² to which Lanczos iterations are run.
_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}

_NOISE = 10  # rounding errors of vanishing gradients, in units of eps times the largest gradient


@dataclass(frozen=True)
class SingularDirections:
    """Leading singular triples of a Jacobian: J v_j = σ_j u_j, Jᵀu_j = σ_j v_j."""

    values: np.ndarray  # σ, (m,) float64, in nonincreasing order; σ² are eigenvalues of the kernel
    functions: np.ndarray  # u as columns, (n·c, m) float64, orthonormal, with `fixed_signs`
    directions: Direction  # v by parameter, (m, …), orthonormal over all parameters
    residuals: np.ndarray  # ‖K u_j − σ_j²u_j‖/σ_1², (m,), as checked


class Jacobian:
    """J at a model's own parameters: products with J and Jᵀ from one forward pass.

    Jv is the change of the outputs per unit step of the parameters along v; −η Jᵀ∇L is the step of
    gradient descent, and K u = J(Jᵀu). The model and further arguments are as for `tangent_kernel`.

    Source: Baratin et al. 2021, eqs. 2 and 3, Appendix A.4 (eqs. 41 and 42).

    Attributes:
        f: outputs of the model, (n, c).
        graph: the operations that computed them.
        samples: n.
        outputs: c.
        dtype: precision of the outputs and products.

    Raises:
        ValueError: if the model is not supported.

    Example:
        >>> jacobian = Jacobian(nn.Linear(2, 1), torch.tensor([[3.0, 4.0]]))
        >>> jacobian.times({"bias": torch.ones(1)})
        tensor([[1.]])
        >>> jacobian.transpose_times(torch.ones(1, 1))["weight"]
        tensor([[3., 4.]])
    """

    def __init__(
        self,
        model: nn.Module,
        x: ModelInput,
        *,
        inputs: str | Collection[str | int] | None = None,
        output: OutputChoice | None = None,
    ) -> None:
        refuse_dependent_samples(model)
        # Copies, so that products do not change when an optimiser changes the parameters.
        with torch.inference_mode(False):
            own = {name: value.clone() for name, value in evaluation_point(model).items()}
        samples = as_samples(x, inputs, input_like(model))
        names = select_parameters(model, None)
        self._function, *_ = checked_outputs(ModelFunction(model, output), own, samples)
        with torch.inference_mode(False), torch.enable_grad():
            with differentiable_attention(), recorded(self._function, own, samples, names) as found:
                self._outputs, self._values, self._all = found.f, found.leaves, found.values
                self.graph = found.graph
            self._function.refuse_kept_tensors(self.graph.unused(names))
            self.f = self._outputs.detach().clone()  # the graph needs its own
            self._weights = torch.zeros_like(self.f, requires_grad=True)
            self._pulled = self._twice_differentiable()
        self.samples, self.outputs = self.f.shape
        self.dtype = self.f.dtype
        self._refuse_dependent_gradients(own, samples)

    def _refuse_dependent_gradients(self, values: Parameters, samples: Samples) -> None:
        # Refuse models that mix samples in gradients though not in outputs: Jᵀu is then not the sum
        # of those over every other sample and over the rest.
        if len(samples) == 1:
            return
        generator, apart = torch_stream(0, "jacobian/apart"), dict[str, torch.Tensor]()
        u = torch.randn(self.f.shape, generator=generator).to(self.f)
        whole = self._gradients(u)
        for part in (range(0, len(samples), 2), range(1, len(samples), 2)):
            some, weights = samples[list(part)], u[torch.tensor(part)]
            record = recorded(self._function, values, some, list(whole))
            with differentiable_attention(), record as found:
                for name, g in leaf_gradients(found.f, found.leaves, weights).items():
                    apart[name] = apart.get(name, 0) + g
        relative = rounding(u, *whole.values(), within=self.graph.dtypes())
        scale = max(float(g.abs().max()) for g in whole.values())
        for name, g in whole.items():
            if float((g - apart[name]).abs().max()) > relative * scale:
                raise ValueError(
                    f"the gradients by parameter {name!r} of a sample depend on the other samples; "
                    "f(x_i) must depend on x_i only: look for statistics along the batch axis."
                )

    @contextlib.contextmanager
    def many_products(self) -> Iterator[None]:
        """Install the parameters in the model once for all products in this context."""
        with (
            torch.autocast("cpu", enabled=False),
            torch.autocast("cuda", enabled=False),
            self._function.installed(self._all),
            differentiable_attention(),
        ):
            yield

    def times(self, direction: Mapping[str, Matrix]) -> torch.Tensor:
        """Jv, (n, c), for tensors or arrays by parameter; omitted parameters count as zero.

        Raises:
            ValueError: if the direction does not fit the parameters.
        """
        check_kind("direction", direction, Mapping, "values by the parameters' names")
        along: Direction = {}
        for name, values in direction.items():
            v = real_tensor(f"direction: {name!r}", values, self.f).detach()
            if not v.numel() and name not in self._values:
                continue  # a parameter without entries
            if name not in self._values or v.shape != self._values[name].shape:
                raise ValueError(
                    f"direction: {name!r} of shape {tuple(v.shape)} is not a parameter of the "
                    "model; use the names and shapes of model.named_parameters()."
                )
            along[name] = v.to(self._values[name])
        if self._pulled is None:
            return self._times_by_rows(along)
        return self._derivative(self._pulled, along)

    def _derivative(
        self, pulled: Direction, direction: Mapping[str, torch.Tensor], create_graph: bool = False
    ) -> torch.Tensor:
        """Jv as the derivative of Jᵀu with respect to u."""
        used = [name for name in direction if pulled[name].requires_grad]
        if not used:  # parameters that the outputs do not depend on
            return torch.zeros_like(self.f)
        with self.many_products():
            (product,) = torch.autograd.grad(
                [pulled[name] for name in used],
                self._weights,
                grad_outputs=[direction[name] for name in used],
                retain_graph=True,
                create_graph=create_graph,
                materialize_grads=True,
            )
        return product

    def _twice_differentiable(self) -> Direction | None:
        """Jᵀu as a function of u, or None if an operation has no second derivative.

        Some raise and some are silently constant. So Jᵀu is compared with the derivative of ⟨u, Jv⟩
        with respect to v, which must equal it, parameter by parameter, to see weak branches, too.
        """
        u = torch.randn(self.f.shape, generator=torch_stream(0, "jacobian")).to(self.f)
        with told_of_overwriting():
            expected = self._gradients(u)
        for name, gradient in expected.items():
            refuse_non_finite(gradient, f"parameter {name!r}")
        v = {name: torch.zeros_like(value) for name, value in self._values.items()}
        with contextlib.suppress(RuntimeError):
            pulled = self._gradients(self._weights, create_graph=True)
            for direction in v.values():
                direction.requires_grad_()
            product = self._derivative(pulled, v, create_graph=True)
            with self.many_products():
                found = leaf_gradients(product, v, u)
            relative = rounding(u, *v.values(), within=self.graph.dtypes())
            noise = _NOISE * max(float(g.abs().max()) for g in expected.values())
            if all(
                close(found[name], g, relative, noise * torch.finfo(g.dtype).eps)
                for name, g in expected.items()
            ):
                return pulled
        log.warning(
            "an operation of the model cannot be differentiated twice; products with its "
            "Jacobian take one backward pass for each sample and output, which is slow."
        )
        return None

    def _times_by_rows(self, direction: Mapping[str, torch.Tensor]) -> torch.Tensor:
        product = torch.zeros_like(self.f)
        for entry in np.ndindex(*self.f.shape):
            row = torch.zeros_like(self.f)
            row[entry] = 1
            gradients = self._gradients(row)
            for name, v in direction.items():
                product[entry] += (gradients[name] * v).sum()
        return product

    def transpose_times(self, weights: Matrix) -> Direction:
        """Jᵀu for u (n, c), a tensor or array.

        Raises:
            ValueError: if u does not fit the outputs.
        """
        u = real_tensor("weights", weights, self.f).detach()
        if u.shape != (self.samples, self.outputs):
            raise ValueError(
                f"weights of shape {tuple(u.shape)}; the model's outputs have "
                f"{(self.samples, self.outputs)}."
            )
        return self._gradients(u)

    def _gradients(self, weights: torch.Tensor, create_graph: bool = False) -> Direction:
        with self.many_products():
            return leaf_gradients(self._outputs, self._values, weights, create_graph)


def top_singular_directions(
    model: nn.Module,
    x: ModelInput,
    number: int,
    generator: np.random.Generator,
    tolerance: float | None = None,
    **options: Any,
) -> SingularDirections:
    """Leading singular values and vectors of the Jacobian, by Lanczos iterations on K u = J(Jᵀu).

    The right singular vectors are the directions in parameter space in which the outputs change
    most; `number` is less than n·c. Each iteration costs two passes over the graph of all samples.
    Residuals ‖K u_j − σ_j²u_j‖/σ_1² are at most the tolerance, by default 1e-5 in float32
    and 1e-10 in float64; singular values below √tolerance · σ_1 are not resolved. The generator
    draws the starting vector. Options are those of `Jacobian`.

    Source: Baratin et al. 2021, Appendix A.4 (eqs. 41 and 42, Figure 7) and Section 3.2.

    Raises:
        ValueError: if the model is not supported, the number is out of range, a singular value is
            zero within the tolerance, or the residual check fails.
        scipy.sparse.linalg.ArpackNoConvergence: if the iterations do not converge.
    """
    jacobian = Jacobian(model, x, **options)
    size = jacobian.samples * jacobian.outputs
    if not (isinstance(number, Integral) and 1 <= number < size):
        raise ValueError(
            f"number: {number!r}; Lanczos iterations give a whole number of directions from 1 to "
            f"n·c − 1 = {size - 1}."
        )
    tolerance = _TOLERANCE[jacobian.dtype] if tolerance is None else tolerance

    def pull_back(u: np.ndarray) -> Direction:
        weights = torch.from_numpy(np.array(u, dtype=np.float64)).to(jacobian.f)
        return jacobian.transpose_times(weights.view(-1, jacobian.outputs))

    def apply_kernel(u: np.ndarray) -> np.ndarray:
        return jacobian.times(pull_back(u.ravel())).flatten().double().cpu().numpy()

    # SciPy has no types, and those inferred from its source are wrong in two places.
    operator = scipy.sparse.linalg.LinearOperator(
        (size, size),
        apply_kernel,
        dtype=np.float64,  # pyright: ignore[reportCallIssue]
    )
    start = generator.standard_normal(size)
    if not apply_kernel(start).any():
        raise ValueError("the Jacobian is zero, so it has no singular directions.")
    eigenvalues, functions = scipy.sparse.linalg.eigsh(
        operator,
        int(number),
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
