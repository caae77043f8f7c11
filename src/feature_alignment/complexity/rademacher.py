"""Rademacher complexities, exactly over all sign vectors, and bounds for classes of linear models.

Axes: s sign vectors, n samples, c classes, p parameters, m members of a finite class. Φ (n, p) are
features; A (p, p), invertible, defines the norm ‖w‖_A = ‖Aᵀw‖ ≤ M.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np


def all_signs(n: int) -> np.ndarray:
    """All 2ⁿ sign vectors σ, (2ⁿ, n), for exact expectations over σ."""
    return np.array(list(product((-1.0, 1.0), repeat=n)))


def finite_class_complexity(values: np.ndarray, signs: np.ndarray) -> float:
    """Rademacher complexity E_σ max_f (1/n) Σ_i σ_i f(x_i) of functions (m, n), signs σ (s, n).

    Source: Baratin et al. 2021, eqs. 8 and 52.
    """
    return float((signs @ values.T).max(axis=1).mean() / signs.shape[1])


def linear_class_maximisers(
    features: np.ndarray, transform: np.ndarray, radius: float, signs: np.ndarray
) -> np.ndarray:
    """Weights (s, p) that maximise Σ_i σ_i ⟨w, Φ(x_i)⟩ over ‖w‖_A ≤ M, for each σ of (s, n).

    w = M A⁻ᵀ z/‖z‖ with z = A⁻¹ Φᵀσ; w = 0 if Φᵀσ = 0, when every w is a maximiser.

    Source: Baratin et al. 2021, eq. 61.

    Raises:
        ValueError: if shapes do not fit, A is singular, or the radius M is negative.
    """
    _check_class(features, transform, radius)
    z = np.linalg.solve(transform, features.T @ signs.T)  # (p, s)
    norms = np.linalg.norm(z, axis=0)
    return radius * np.linalg.solve(transform.T, z / np.where(norms > 0, norms, 1)).T


def linear_class_bound(features: np.ndarray, transform: np.ndarray, radius: float) -> float:
    """Bound (M/n) ‖A⁻¹Φᵀ‖_F on the Rademacher complexity of linear functions with ‖w‖_A ≤ M.

    It equals (M/n) √Tr K_A. For learning flows, sums of updates with ‖δw_t‖_{A_t} ≤ m_t, the bounds
    of the updates add up.

    Source: Baratin et al. 2021, eqs. 10 and 60 (Proposition 10); eq. 12 (Theorem 2).

    Raises:
        ValueError: if shapes do not fit, A is singular, the radius M is negative, or a value is not
            finite.
    """
    _check_class(features, transform, radius)
    rescaled = np.linalg.solve(transform, features.T)
    return float(radius / len(features) * np.linalg.norm(rescaled))


def _check_finite(**arrays: np.ndarray) -> None:
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise ValueError(f"{name}: found values that are not finite; give numbers.")


def _check_class(features: np.ndarray, transform: np.ndarray, radius: float) -> None:
    if not radius >= 0:
        raise ValueError(f"radius: {radius}; it must be at least 0.")
    shapes = np.shape(features), np.shape(transform)
    if len(shapes[0]) != 2 or shapes[1] != (shapes[0][1],) * 2:
        raise ValueError(
            f"features, transform: of shapes {shapes[0]} and {shapes[1]}; (n, p) and (p, p) are "
            "needed."
        )
    _check_finite(features=features, transform=transform)
    if np.linalg.matrix_rank(transform) < len(transform):
        raise ValueError("transform: is singular, so that it defines no norm.")


def margin(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Margin f(x)[y] − max_{y' ≠ y} f(x)[y'], (…, n), for scores (…, n, c), c ≥ 2, and y (n,).

    Source: Baratin et al. 2021, eq. 54.

    Raises:
        ValueError: if there are fewer than two classes, a score is not finite, or the labels are
            not class numbers, one for each sample.
    """
    (n, c), labels = scores.shape[-2:], np.asarray(labels)
    if c < 2:
        raise ValueError(f"scores: of {c} classes; a margin needs two or more.")
    _check_finite(scores=scores)
    if labels.shape != (n,):
        raise ValueError(f"labels of shape {labels.shape} for {n} samples; give (n,).")
    whole = np.floor(labels.astype(np.float64)) == labels  # NaN is not
    if not (whole & (labels >= 0) & (labels < c)).all():
        raise ValueError(
            f"labels from {labels.min()} to {labels.max()}; give whole numbers from 0 to {c - 1}."
        )
    own = np.eye(c, dtype=bool)[labels.astype(np.int64)]  # (n, c)
    best_other = np.where(own, -np.inf, scores).max(axis=-1)
    return np.where(own, scores, 0.0).sum(axis=-1) - best_other


def ramp_loss(margins: np.ndarray, gamma: float) -> np.ndarray:
    """Ramp φ_γ(u): 1 for u ≤ 0, 0 for u > γ, 1 − u/γ between.

    Source: Baratin et al. 2021, eq. 55.

    Raises:
        ValueError: if γ is not positive, or a margin not finite.
    """
    _check_margin(gamma)
    _check_finite(margins=margins)
    return np.clip(1 - margins / gamma, 0.0, 1.0)


def multiclass_bound(
    features: np.ndarray, transform: np.ndarray, radius: float, gamma: float
) -> float:
    """Bound (c^{3/2} M/(γ n)) √Tr K_A on the Rademacher complexity of the margin-loss class.

    That is the class of ramp losses of linear classifiers with ‖w‖_A ≤ M. The features are
    Φ(x_i)[y], (n, c, p); γ is the margin.

    Source: Baratin et al. 2021, Theorem 13 (eq. 78).

    Raises:
        ValueError: if the radius M is negative, or γ not positive.
    """
    _check_margin(gamma)
    n, c, p = features.shape
    flat = linear_class_bound(features.reshape(n * c, p), transform, radius)  # contains 1/(nc)
    return c * c**1.5 * flat / gamma


def _check_margin(gamma: float) -> None:
    if not gamma > 0:
        raise ValueError(f"gamma: {gamma}; it must be above 0.")


@dataclass(frozen=True)
class MinimumNorm:
    """Minimum-norm interpolator w* (p,) and its modes j < r."""

    weights: np.ndarray  # w*
    eigenvalues: np.ndarray  # λ, (r,), of the kernel matrix, largest first
    coefficients: np.ndarray  # u_jᵀy, (r,)


def minimum_norm_interpolator(features: np.ndarray, y: np.ndarray) -> MinimumNorm:
    """Weights w* = Φᵀ K⁻¹ y = Σ_j (u_jᵀy/√λ_j) v_j of least norm with Φw = y, if Φ has rank n.

    Source: Baratin et al. 2021, eq. 81.

    Raises:
        ValueError: if the rank in float64 is below n, too low to fit y, y is not (n,), or a value
            is not finite.
    """
    features, y = np.asarray(features, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if y.shape != (len(features),):
        raise ValueError(f"y: labels of shape {y.shape} for {len(features)} samples; give (n,).")
    if not all(np.isfinite(values).all() for values in (features, y)):
        raise ValueError("features and y: they must be finite.")
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
    """Scales ν_j = κ λ_j/|u_jᵀy|, the minimisers of `interpolator_bound`, for u_jᵀy ≠ 0, κ > 0.

    Source: Baratin et al. 2021, Proposition 14.
    """
    return kappa * eigenvalues / np.abs(coefficients)


def interpolator_bound(
    eigenvalues: np.ndarray, coefficients: np.ndarray, scales: np.ndarray
) -> float:
    """Bound (‖w*‖_A/n) √Tr K_A on the Rademacher complexity of the ball with w* on its surface.

    Equal to (1/n) √(Σ_j ν_j (u_jᵀy)²/λ_j) · √(Σ_j λ_j/ν_j), with A = Σ_j √ν_j v_j v_jᵀ on the span
    of the v_j; ν = 1 gives A = Id. Assumes full rank, n = r.

    Source: Baratin et al. 2021, eqs. 60 and 83.

    Raises:
        ValueError: if an eigenvalue or a scale is not positive, or a coefficient not finite.
    """
    _check_finite(coefficients=coefficients)
    if not (np.min(eigenvalues) > 0 and np.min(scales) > 0):  # also for NaN
        raise ValueError("eigenvalues and scales: they must be above 0.")
    norm = np.sum(scales * coefficients**2 / eigenvalues)
    trace = np.sum(eigenvalues / scales)
    return float(np.sqrt(norm) * np.sqrt(trace) / len(eigenvalues))


def optimal_bound_range(eigenvalues: np.ndarray, coefficients: np.ndarray) -> tuple[float, float]:
    """Least and largest optimal bound Σ_j |u_jᵀy|/n over bases of eigenspaces.

    The optimum of `interpolator_bound` over its scales depends on the eigenvectors u_j, which are
    arbitrary within an eigenspace. There, with the projection Py of the labels on k dimensions, the
    sum is between ‖Py‖ and √k ‖Py‖. Eigenvalues (r,), in order, count as equal if they are less
    apart than rounding, r ε λ_max.

    Source: Baratin et al. 2021, Proposition 14; the range is this project's.
    """
    rounding = len(eigenvalues) * np.finfo(np.float64).eps * np.max(eigenvalues)
    ends = np.flatnonzero(np.abs(np.diff(eigenvalues)) > rounding) + 1
    spaces = np.split(np.asarray(coefficients), ends)
    norms, sizes = np.array([(np.linalg.norm(space), len(space)) for space in spaces]).T
    n = len(coefficients)
    return float(norms.sum() / n), float((np.sqrt(sizes) * norms).sum() / n)
