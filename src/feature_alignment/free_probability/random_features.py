"""Moments of R = Wᵀ diag(a²) W at initialisation, exact in the limit and for sampled networks.

W is (k, d) with independent N(0, 1/k) entries; a is (k,) with i.i.d. entries of any distribution.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import inf, prod
from numbers import Real
from typing import Any

import numpy as np
import torch

from feature_alignment.errors import UserError, shortened
from feature_alignment.free_probability.words import moments_from_cumulants

_NUMBER = Real | np.ndarray | torch.Tensor
_ROUNDING = 1e-6  # of moments in float32


def gaussian_even_moments(order: int) -> list[int]:
    """E[a²], E[a⁴], …, E[a^(2·order)] for a ~ N(0, 1): the double factorials (2n − 1)!!."""
    return [prod(range(2 * n - 1, 0, -2)) for n in range(1, order + 1)]


def limiting_moments(ratio: Any, even_moments: Sequence[Any]) -> list[Any]:
    """Moments tr(R^n) as k, d → ∞ with d/k = c: R is a compound free Poisson element.

    R = (1/k) Σ_s a_s² g_s g_sᵀ with g_s ~ N(0, I) has the free cumulants κ_n = c^(n−1) E[a^(2n)].
    For a ~ N(0, 1) this gives 1, 1 + 3c, 1 + 9c + 15c² and 1 + 18c + 78c² + 105c³.

    Source: Mingo and Speicher, Free Probability and Random Matrices, Section 4; for R see
    Beaglehole et al. 2024, eq. 16.

    Raises:
        UserError: if the ratio c is a number (it may be a symbol) and not positive and finite, or
            the moments are numbers that no a has by their ratios E[a²], E[a⁴]/E[a²], …, which must
            not fall.

    Example:
        >>> limiting_moments(1, gaussian_even_moments(4))
        [1, 4, 25, 202]
    """
    if isinstance(ratio, _NUMBER) and not 0 < float(ratio) < inf:
        raise UserError(f"ratio d/k: found {ratio}; it must be positive and finite.")
    if all(isinstance(moment, _NUMBER) for moment in even_moments):
        positive = all(0 < moment < inf for moment in even_moments)
        ratios = [b / a for a, b in pairwise([1, *even_moments])] if positive else []
        if not positive or any(b < a * (1 - _ROUNDING) for a, b in pairwise(ratios)):
            raise UserError(
                f"even_moments: found {shortened([*even_moments])}; give E[a²], E[a⁴], … of some "
                "a: positive numbers, of which the ratios E[a²], E[a⁴]/E[a²], … do not fall."
            )
    return moments_from_cumulants([ratio**n * moment for n, moment in enumerate(even_moments)])


def second_moment_at_finite_size(d: int, k: int, even_moments: Sequence[float]) -> float:
    """E[tr(R²)] = (1 − 1/k) E[a²]² + E[a⁴](d + 2)/k, exact at any input dimension d and width k.

    The first term is that of pairs s ≠ t, the second that of s = t, with E[‖g‖⁴] = d(d + 2). The
    sum exceeds its limit E[a²]² + c E[a⁴] by (2 E[a⁴] − E[a²]²)/k, which is 5/k for a ~ N(0, 1).

    Source: this project's.
    """
    second, fourth = even_moments[:2]
    return (1 - 1 / k) * second**2 + fourth * (d + 2) / k


def sample_r(
    d: int, k: int, generator: torch.Generator, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """R = Wᵀ diag(a²) W, (d, d), of a network with a ~ N(0, I) and W ~ N(0, I/k), in float64.

    W and then a are drawn from the CPU generator.

    Source: Beaglehole et al. 2024, eq. 16 and Proposition 16.
    """
    weight = torch.randn(k, d, generator=generator, dtype=torch.float64) / k**0.5
    readout = torch.randn(k, 1, generator=generator, dtype=torch.float64)
    scaled = (readout * weight).to(device)  # (k, d)
    return scaled.T @ scaled


def matrix_moments(matrix: torch.Tensor) -> list[float]:
    """Normalised traces tr(R), tr(R²), tr(R³) and tr(R⁴) of a symmetric matrix (d, d)."""
    square = matrix @ matrix
    powers = matrix.diagonal().sum(), (matrix**2).sum(), (matrix * square).sum(), (square**2).sum()
    return [float(power) / len(matrix) for power in powers]
