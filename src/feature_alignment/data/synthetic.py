"""Synthetic inputs and targets of the papers, in float64; all draws are from a given generator.

Axes: n samples, d input dimension.
"""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from scipy.linalg import qr

from feature_alignment.errors import UserError, check_choice, check_kind

PROJECTIONS = ("printed", "orthogonal")
"""The readings of P_noise, see `noisy_regression`."""
DISK_RADIUS = float(np.sqrt(2 / np.pi))


def haar_orthogonal(d: int, generator: np.random.Generator) -> np.ndarray:
    """Orthogonal matrix (d, d) drawn from the Haar measure on O(d).

    QR factorisation of a Gaussian matrix, with the signs that make it unique.
    """
    factors: Any = qr(generator.standard_normal((d, d)))  # SciPy has no types
    q, r = factors
    return q * np.where(np.diag(r) < 0, -1.0, 1.0)


def power_law_spectrum(d: int, alpha: float, first: int = 1) -> np.ndarray:
    """Covariance eigenvalues λ_k = 1/(1 + k^α), nonincreasing for α ≥ 0; k counts from `first`.

    Source: Beaglehole et al. 2024, Figures 5 and 7.

    Example:
        >>> power_law_spectrum(3, 1.0).tolist()
        [0.5, 0.3333333333333333, 0.25]
    """
    return 1.0 / (1.0 + np.arange(first, first + d, dtype=np.float64) ** alpha)


def power_law_gaussian(
    n: int, d: int, alpha: float, generator: np.random.Generator, first: int = 1
) -> np.ndarray:
    """Inputs (n, d) x ~ N(0, U diag(λ) Uᵀ), λ from `power_law_spectrum`, U Haar, drawn first.

    Source: Beaglehole et al. 2024, Figures 5 and 7.
    """
    eigenvectors = haar_orthogonal(d, generator)
    white = generator.standard_normal((n, d))
    return (white * np.sqrt(power_law_spectrum(d, alpha, first))) @ eigenvectors.T


def uniform_sphere(n: int, d: int, radius: float, generator: np.random.Generator) -> np.ndarray:
    """Inputs (n, d) uniform on the sphere ‖x‖ = radius."""
    x = generator.standard_normal((n, d))
    return radius * x / np.linalg.norm(x, axis=1, keepdims=True)


def disk(n: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Disk data set: x ~ Unif[−1, 1]², (n, 2), half of it in the disk, and `disk_labels`.

    Source: Baratin et al. 2021, Figure 10.
    """
    x = generator.uniform(-1.0, 1.0, (n, 2))
    return x, disk_labels(x)


def disk_labels(x: np.ndarray) -> np.ndarray:
    """Labels (n,) of the disk data set at points (n, 2): +1 if ‖x‖ ≤ √(2/π), else −1.

    Source: Baratin et al. 2021, Figure 10.

    Example:
        >>> disk_labels(np.array([[0.0, 0.0], [0.8, 0.0]])).tolist()
        [1.0, -1.0]
    """
    return np.where(np.linalg.norm(x, axis=1) <= DISK_RADIUS, 1.0, -1.0)


def grid(m: int) -> np.ndarray:
    """Regular m × m grid on [−1, 1]², (m², 2), edges included; second coordinate varies fastest.

    Source: Baratin et al. 2021, Figure 10 (m = 50).

    Example:
        >>> grid(2).tolist()
        [[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]]
    """
    axis = np.linspace(-1.0, 1.0, m)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)


def chain_monomial(x: np.ndarray, r: int) -> np.ndarray:
    """Chain-monomial target y(x) = Σ_{k=1..r} x_{k mod r} · x_{(k+1) mod r}, (n, d) → (n,).

    Source: Beaglehole et al. 2024, eq. 2.

    Raises:
        UserError: if r is not a whole number from 1 to d.

    Example:
        >>> chain_monomial(np.array([[1.0, 2.0, 3.0, 9.0]]), r=3).tolist()
        [11.0]
    """
    _check_rank(x.shape[1], r)
    chain = x[:, :r]
    return np.sum(chain * np.roll(chain, -1, axis=1), axis=1)


def chain_monomial_egop(d: int, r: int) -> np.ndarray:
    """Exact EGOP(y, N(0, I)) = E[∇y ∇yᵀ], (d, d), of the chain-monomial target.

    ∇y = N x with N the counts of neighbours on the cycle, so EGOP = N Nᵀ. For r ≥ 5 the diagonal
    is 2 and second neighbours (j, j ± 2 mod r) are 1; for r = 4 the two second neighbours coincide,
    so entries are 0 or 2; for r = 3 they are the first neighbours, so all off-diagonals are 1. The
    rank is r, or r − 2 if 4 divides r (the eigenvalues are (2 cos(2πm/r))²).

    Source: Beaglehole et al. 2024, eq. 2 and Figure 1.

    Raises:
        UserError: if r is not a whole number from 1 to d.

    Example:
        >>> chain_monomial_egop(4, r=4).tolist()[0]
        [2.0, 0.0, 2.0, 0.0]
        >>> chain_monomial_egop(4, r=3).tolist()[0]
        [2.0, 1.0, 1.0, 0.0]
    """
    _check_rank(d, r)
    following = np.zeros((d, d))
    following[:r, :r] = np.roll(np.eye(r), 1, axis=1)
    counts = following + following.T  # how often j is a neighbour of i
    return counts @ counts.T


def _check_rank(d: int, r: int) -> None:
    check_kind("chain length", r, Integral, "a whole number")
    if not 1 <= r <= d:
        raise UserError(f"chain length {r}: wanted 1 to the input dimension {d}; correct it.")


def high_rank_quadratic(x: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """High-rank target y(x) = Σ_i (Q x)_i², (n, d) → (n,), with standard normal entries of Q.

    Source: Beaglehole et al. 2024, Appendix J, Predictions with depth.
    """
    q = generator.standard_normal((x.shape[1], x.shape[1]))
    return np.sum((x @ q.T) ** 2, axis=1)


def unit_deviation(y: np.ndarray) -> np.ndarray:
    """Divide labels by their standard deviation over all entries, without subtracting their mean.

    Raises:
        UserError: if there is none, one is not finite, or all are equal.

    Example:
        >>> unit_deviation(np.array([0.0, 4.0])).tolist()
        [0.0, 2.0]
    """
    if not np.size(y) or not np.isfinite(y).all():
        raise UserError("labels: there are none, or some are not finite, so they have no scale.")
    if y.min() == y.max():  # rounding can give equal labels a nonzero deviation
        raise UserError("labels: all are equal, so they have no scale; take more samples.")
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = y.std()
    if not np.sqrt(np.finfo(deviation.dtype).tiny) < deviation < np.inf:  # squares are out of range
        y = np.ldexp(y, -np.frexp(np.abs(y).max())[1])
        deviation = y.std()
    return y / deviation


@dataclass(frozen=True)
class NoisyRegression:
    """Linear regression with one signal feature, many weak noise features, and noise along them."""

    features: np.ndarray  # Φ = [φ, φ_noise], (n, d + 1), the signal first
    y: np.ndarray  # labels (n,)
    interpolator: np.ndarray  # w (d + 1,) with Φw = y exactly; [1, 0, …] if there is no noise


def noisy_regression(
    n: int, d: int, variance: float, generator: np.random.Generator, projection: str = "printed"
) -> NoisyRegression:
    """Draw features φ ~ N(0, 1) and φ_noise ~ N(0, I_d/d) of n samples, and y = φ + P_noise ε.

    ε ~ N(0, σ² I_n) with σ² = `variance`. As printed, P_noise = φ_noise φ_noiseᵀ is no projection,
    because the features are not orthonormal over the sample; "orthogonal" is φ_noise φ_noise⁺.

    Source: Baratin et al. 2021, Section 4.1.2.

    Raises:
        UserError: if the projection is unknown, or the variance is negative or not finite.
    """
    check_choice("projection", projection, PROJECTIONS)
    if not 0 <= variance < np.inf:
        raise UserError(f"variance: {variance}, wanted a finite number of at least 0.")
    signal = generator.standard_normal(n)
    noise = generator.standard_normal((n, d)) / np.sqrt(d)
    epsilon = np.sqrt(variance) * generator.standard_normal(n)
    features = np.column_stack([signal, noise])
    onto = noise.T if projection == "printed" else np.linalg.pinv(noise)
    interpolator = np.concatenate([[1.0], onto @ epsilon])
    return NoisyRegression(features, features @ interpolator, interpolator)


def expected_loss(weights: np.ndarray) -> np.ndarray:
    """Expected squared error E(⟨w, Φ(x)⟩ − φ(x))² on new inputs, of weights w (…, d + 1).

    (w_1 − 1)² + Σ_j w_{1+j}²/d, as the features are independent with variances 1 and 1/d.

    Example:
        >>> float(expected_loss(np.array([0.0, 1.0, 1.0])))
        2.0
    """
    d = weights.shape[-1] - 1
    return (weights[..., 0] - 1) ** 2 + (weights[..., 1:] ** 2).sum(-1) / d
