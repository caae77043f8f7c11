"""Coefficients of tangent features that interpolate targets: the affine set that is searched.

J (n·c × p) is never formed: both products with it are passes through the network. What is stored
is the tangent kernel K₀ = JJᵀ, as its Cholesky factor (n·c × n·c).
"""

import torch
from torch import nn

from feature_alignment.adaptive.parameter_matrices import Matrices, combine, matrix_layout
from feature_alignment.kernels.jacobian import Jacobian
from feature_alignment.kernels.tangent import tangent_kernel


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
        self._jacobian = Jacobian(model, x)

    def outputs(self) -> torch.Tensor:
        """Initial outputs f_θ₀(x), (n, c)."""
        return self._jacobian.f

    def times(self, matrices: Matrices) -> torch.Tensor:
        """J B, (n, c)."""
        return self._jacobian.times(self.layout.split(matrices))

    def transpose_times(self, weights: torch.Tensor) -> Matrices:
        """Jᵀα for α (n, c)."""
        return self.layout.join(self._jacobian.transpose_times(weights))

    def minimum_norm(self, targets: torch.Tensor) -> Matrices:
        """The interpolating B of least norm, Jᵀ K₀⁻¹ r for targets r (n, c)."""
        solved = torch.cholesky_solve(targets.reshape(-1, 1), self._factor)
        return self.transpose_times(solved.view(targets.shape))

    def within(self, matrices: Matrices) -> Matrices:
        """The part of B that leaves the outputs unchanged: (I − JᵀK₀⁻¹J) B."""
        return combine(matrices, -1.0, self.minimum_norm(self.times(matrices)))

    def corrected(self, matrices: Matrices, targets: torch.Tensor) -> Matrices:
        """The interpolating coefficients nearest to B."""
        return combine(matrices, 1.0, self.minimum_norm(targets - self.times(matrices)))
