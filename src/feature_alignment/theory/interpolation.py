"""Coefficients of tangent features that interpolate targets: the affine set that is searched.

J (n·c × p) is never formed: both products with it are passes through the network. What is stored
is the tangent kernel K₀ = JJᵀ, as its Cholesky factor (n·c × n·c).
"""

import torch
from torch import nn

from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.theory.parameter_matrices import Matrices, combine, matrix_layout


class Interpolation:
    """Coefficients B with J B = r, for the tangent features of a network at its own parameters.

    Attributes:
        layout: which parameters make up which matrix of B.

    Args:
        model: outputs (n, c), each sample's depending on that sample only; twice differentiable
            in PyTorch. Its precision is that of all results.
        x: inputs (n, …).

    Raises:
        ValueError: if the tangent features of the samples are linearly dependent, so that not all
            targets can be interpolated.
    """

    def __init__(self, model: nn.Module, x: torch.Tensor) -> None:
        self.layout = matrix_layout(model)
        kernel = tangent_kernel(model, x).total
        self._factor, failed = torch.linalg.cholesky_ex(kernel)
        if failed:
            raise ValueError(
                f"x: the tangent features of {len(x)} samples are linearly dependent (from row "
                f"{int(failed)} of {len(kernel)} of the kernel), so they cannot interpolate all "
                "targets; remove repeated samples or use a larger network."
            )
        del kernel
        self._values = {name: p.detach().requires_grad_() for name, p in model.named_parameters()}
        with torch.enable_grad():
            self._f = torch.func.functional_call(model, self._values, (x.detach().clone(),))
            self._weights = torch.zeros_like(self._f, requires_grad=True)
            self._pulled = self._gradients(self._weights, create_graph=True)

    def outputs(self) -> torch.Tensor:
        """Initial outputs f_θ₀(x), (n, c)."""
        return self._f.detach()

    def times(self, matrices: Matrices) -> torch.Tensor:
        """J B, (n, c)."""
        direction = self.layout.split(matrices)
        used = [name for name in direction if self._pulled[name].requires_grad]
        (product,) = torch.autograd.grad(
            [self._pulled[name] for name in used],
            self._weights,
            grad_outputs=[direction[name] for name in used],
            retain_graph=True,
            materialize_grads=True,
        )
        return product

    def transpose_times(self, weights: torch.Tensor) -> Matrices:
        """Jᵀα for α (n, c)."""
        return self.layout.join(self._gradients(weights))

    def minimum_norm(self, targets: torch.Tensor) -> Matrices:
        """The interpolating B of least norm, Jᵀ K₀⁻¹ r for targets r (n, c)."""
        solved = torch.cholesky_solve(targets.reshape(-1, 1), self._factor)
        return self.transpose_times(solved.view(targets.shape))

    def within(self, matrices: Matrices) -> Matrices:
        """What of B leaves the outputs unchanged: (I − JᵀK₀⁻¹J) B."""
        return combine(matrices, -1.0, self.minimum_norm(self.times(matrices)))

    def corrected(self, matrices: Matrices, targets: torch.Tensor) -> Matrices:
        """The interpolating coefficients nearest to B."""
        return combine(matrices, 1.0, self.minimum_norm(targets - self.times(matrices)))

    def _gradients(
        self, weights: torch.Tensor, create_graph: bool = False
    ) -> dict[str, torch.Tensor]:
        found = torch.autograd.grad(
            self._f,
            list(self._values.values()),
            grad_outputs=weights,
            retain_graph=True,
            create_graph=create_graph,
            materialize_grads=True,
        )
        return dict(zip(self._values, found, strict=True))
