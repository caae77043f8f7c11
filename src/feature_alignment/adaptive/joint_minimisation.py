"""Joint minimisation over transformations and parameters by a generic optimiser.

For small problems. It does not use singular vectors or effective penalties, so it checks the
theorems of LeJeune & Alemohammad 2024 and the solver independently.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import torch

SingularPenalty = Callable[[torch.Tensor], torch.Tensor]
"""ω summed over singular values, as a differentiable function of a matrix."""


@dataclass(frozen=True)
class JointMinimum:
    """The best result of several descents."""

    objective: float  # Ω(M) + ‖W‖² there
    transformations: list[tuple[torch.Tensor, torch.Tensor]]  # by block: M⁽¹⁾ (d, d), M⁽²⁾ (k, k)
    coefficients: list[torch.Tensor]  # by block: B = M⁽²⁾ W M⁽¹⁾, (k, d)


def square_penalty(matrix: torch.Tensor) -> torch.Tensor:
    """Σ_j (σ_j − 1)²."""
    return (torch.linalg.svdvals(matrix) - 1).square().sum()


def logarithmic_matrix_penalty(matrix: torch.Tensor) -> torch.Tensor:
    """Σ_j σ_j² − 1 − 2 log σ_j, without computing singular values."""
    return matrix.square().sum() - len(matrix) - 2 * torch.linalg.slogdet(matrix)[1]


def minimise_jointly(
    features: Sequence[torch.Tensor],
    targets: torch.Tensor,
    penalty: SingularPenalty,
    generator: np.random.Generator,
    starts: int,
    fixed_outputs: Sequence[bool],
    *,
    identity_first: bool = True,
) -> JointMinimum:
    """Minimum over M and W of Σ_ℓ Ω(M_ℓ⁽¹⁾) + Ω(M_ℓ⁽²⁾) + ‖W_ℓ‖² subject to interpolation.

    For given M the best W has ‖W‖² = rᵀ K_M⁻¹ r with the kernel K_M of the transformed features;
    the remaining objective is minimised over the entries of all M by a quasi-Newton method.

    The features of each block are (n, k, d) in float64, the targets r are (n,); `fixed_outputs`
    says for each block whether M⁽²⁾ stays I. With `identity_first` the first start is M = I: a
    descent from there can keep symmetries of the problem that other starts would have to find.

    Source: LeJeune & Alemohammad 2024, eq. 1 under Model A; with one block, k = 1 and fixed
    outputs, eq. 1 under Theorem 1.

    Raises:
        ValueError: if the rank of the features' kernel in float64 is too low to fit all targets.
    """
    rank = int(torch.linalg.matrix_rank(_kernel(features), hermitian=True))
    if rank < len(targets):
        raise ValueError(
            f"features: rank {rank} for {len(targets)} targets; they cannot all be fitted."
        )
    sizes: list[int] = []
    for block, fixed in zip(features, fixed_outputs, strict=True):
        _, k, d = block.shape
        sizes += [d] if fixed else [d, k]

    def unpack(entries: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        parts = entries.split([size**2 for size in sizes])
        matrices = (part.view(size, size) for part, size in zip(parts, sizes, strict=True))
        return [
            (next(matrices), torch.eye(block.shape[1]).to(block) if fixed else next(matrices))
            for block, fixed in zip(features, fixed_outputs, strict=True)
        ]

    def transformed(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
        return [
            on_outputs.T @ block @ on_inputs.T
            for block, (on_inputs, on_outputs) in zip(features, pairs, strict=True)
        ]

    def weights(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        return torch.linalg.solve(_kernel(transformed(pairs)), targets)

    def objective(entries: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.tensor(entries, requires_grad=True)
        pairs = unpack(free)
        value = targets @ weights(pairs)
        for (on_inputs, on_outputs), fixed in zip(pairs, fixed_outputs, strict=True):
            value = value + penalty(on_inputs)
            if not fixed:
                value = value + penalty(on_outputs)
        (slope,) = torch.autograd.grad(value, free)
        return float(value.detach()), slope.numpy()

    identity = np.concatenate([np.eye(size).ravel() for size in sizes])
    found = []
    for number in range(starts):
        random = number > 0 or not identity_first
        start = identity + random * 0.5 * generator.standard_normal(len(identity))
        options = {"maxiter": 5000, "maxfun": 10_000, "ftol": 1e-15, "gtol": 1e-9}
        found.append(
            scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        )
    best = min(found, key=lambda end: end.fun)
    pairs = unpack(torch.tensor(best.x))
    alpha = weights(pairs)
    coefficients = [
        on_outputs @ torch.einsum("n,nkd->kd", alpha, block) @ on_inputs
        for block, (on_inputs, on_outputs) in zip(transformed(pairs), pairs, strict=True)
    ]
    return JointMinimum(float(best.fun), pairs, coefficients)


def _kernel(features: Sequence[torch.Tensor]) -> torch.Tensor:
    flat = torch.cat([block.flatten(1) for block in features], dim=1)  # (n, p)
    return flat @ flat.T
