"""Minimum-norm interpolators of linear models, and complexity bounds at their norm.

Axes: n samples, p parameters, r modes.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class MinimumNorm:
    """Minimum-norm interpolator and the modes it is made of.

    Attributes:
        weights: w*, (p,).
        eigenvalues: λ, (r,), of the kernel matrix, largest first.
        coefficients: u_jᵀy, (r,).
    """

    weights: np.ndarray
    eigenvalues: np.ndarray
    coefficients: np.ndarray


def minimum_norm_interpolator(features: np.ndarray, y: np.ndarray) -> MinimumNorm:
    """Weights w* = Φᵀ K⁻¹ y = Σ_j (u_jᵀy/√λ_j) v_j of least norm with Φw = y.

    Source: Baratin et al. 2021, eq. 81.

    Args:
        features: Φ, (n, p), of rank n.
        y: labels (n,).

    Raises:
        ValueError: if the rank is below n within float64, so that not all labels can be fitted.

    Example:
        >>> minimum_norm_interpolator(np.array([[2.0, 0.0]]), np.array([1.0])).weights.tolist()
        [0.5, 0.0]
    """
    left, singular_values, right = np.linalg.svd(features, full_matrices=False)
    rounding = singular_values[0] * max(features.shape) * np.finfo(np.float64).eps
    rank = int(np.count_nonzero(singular_values > rounding))
    if rank < len(y):
        raise ValueError(f"features: rank {rank} for {len(y)} labels; they cannot all be fitted.")
    coefficients = left.T @ y
    return MinimumNorm((coefficients / singular_values) @ right, singular_values**2, coefficients)


def optimal_norm_scales(
    eigenvalues: np.ndarray, coefficients: np.ndarray, kappa: float = 1.0
) -> np.ndarray:
    """Scales ν_j = κ λ_j/|u_jᵀy|, the minimisers of `interpolator_bound`.

    Source: Baratin et al. 2021, Proposition 14.

    Args:
        eigenvalues: λ, (r,).
        coefficients: u_jᵀy, (r,), none of them zero.
        kappa: κ > 0.

    Example:
        >>> optimal_norm_scales(np.array([4.0, 1.0]), np.array([-2.0, 1.0])).tolist()
        [2.0, 1.0]
    """
    return kappa * eigenvalues / np.abs(coefficients)


def interpolator_bound(
    eigenvalues: np.ndarray, coefficients: np.ndarray, scales: np.ndarray
) -> float:
    """Bound (‖w*‖_A/n) √Tr K_A on the Rademacher complexity of the ball with w* on its surface.

    (1/n) √(Σ_j ν_j (u_jᵀy)²/λ_j) · √(Σ_j λ_j/ν_j), with A = Σ_j √ν_j v_j v_jᵀ on the span of the
    v_j; ν = 1 gives A = Id. Of full rank: n = r.

    Source: Baratin et al. 2021, eqs. 60 and 83.

    Args:
        eigenvalues: λ, (n,).
        coefficients: u_jᵀy, (n,).
        scales: ν, (n,).

    Example:
        >>> interpolator_bound(np.ones(4), np.ones(4), np.ones(4))
        1.0
    """
    norm = np.sum(scales * coefficients**2 / eigenvalues)
    trace = np.sum(eigenvalues / scales)
    return float(np.sqrt(norm) * np.sqrt(trace) / len(eigenvalues))
