"""Linear regression with one signal feature, many weak noise features, and noise along those."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class NoisyRegression:
    """Sample of the problem.

    Attributes:
        features: Φ = [φ, φ_noise], (n, d + 1), the signal first.
        y: labels (n,).
        interpolator: weights (d + 1,) with Φw = y exactly; [1, 0, …] would be free of noise.
    """

    features: np.ndarray
    y: np.ndarray
    interpolator: np.ndarray


def noisy_regression(
    n: int, d: int, variance: float, generator: np.random.Generator, projection: str = "printed"
) -> NoisyRegression:
    """Draw features φ ~ N(0, 1) and φ_noise ~ N(0, I_d/d), and labels y = φ + P_noise ε.

    P_noise = φ_noise φ_noiseᵀ and ε ~ N(0, σ² I_n). P_noise is not a projection: the features are
    not orthonormal over the sample. The projection `orthogonal` is one, φ_noise φ_noise⁺.

    Source: Baratin et al. 2021, Section 4.1.2.

    Args:
        n: samples.
        d: noise features.
        variance: σ².
        generator: source of the draw.
        projection: what P_noise is, printed or orthogonal.
    """
    signal = generator.standard_normal(n)
    noise = generator.standard_normal((n, d)) / np.sqrt(d)
    epsilon = np.sqrt(variance) * generator.standard_normal(n)
    features = np.column_stack([signal, noise])
    onto = noise.T if projection == "printed" else np.linalg.pinv(noise)
    interpolator = np.concatenate([[1.0], onto @ epsilon])
    return NoisyRegression(features, features @ interpolator, interpolator)


def expected_loss(weights: np.ndarray) -> np.ndarray:
    """Expected squared error E(⟨w, Φ(x)⟩ − φ(x))² on fresh inputs, in closed form.

    (w_1 − 1)² + Σ_j w_{1+j}²/d, since the features are independent with variances 1 and 1/d.

    Args:
        weights: w, (…, d + 1), the signal's first.

    Example:
        >>> float(expected_loss(np.array([0.0, 1.0, 1.0])))
        2.0
    """
    d = weights.shape[-1] - 1
    return (weights[..., 0] - 1) ** 2 + (weights[..., 1:] ** 2).sum(-1) / d
