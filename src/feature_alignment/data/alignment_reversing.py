"""The alignment reversing data set, whose labels turn AGOP and NFM against each other."""

import numpy as np

from feature_alignment.errors import UserError


def alignment_reversing(
    n: int,
    gamma: float,
    generator: np.random.Generator,
    *,
    epsilon1: float = 0.5,
    epsilon2: float = 1e-2,
    delta: float = 1e-3,
    label_shift: float = 1e-5,
) -> tuple[np.ndarray, np.ndarray]:
    """Alignment reversing data set, in the "tempered square" reading, n = d.

    1. X⁽¹⁾ and X̃⁽²⁾ are n × n, rows from N(0, 11ᵀ/d + ε₁ I) divided by √n.
    2. With (X⁽¹⁾)ᵀX⁽¹⁾ = U₁ S₁ U₁ᵀ and V₂ the left singular vectors of X̃⁽²⁾,
       X⁽²⁾ = V₂ (S₁ + δ)⁻¹ U₁ᵀ.
    3. X is the first γn rows of X⁽¹⁾, labels 1, and the other (1 − γ)n rows of X⁽²⁾, labels 0.
    4. X ← X + ε₂ Z with Z standard normal, y ← y + label_shift.

    The paper's text cannot be followed to the letter: with γn < d rows the matrix to be inverted
    is singular (its δ is 0), the shapes of step 2 do not fit, and the spike 11ᵀ, without 1/d,
    makes every matrix rank one in effect. Square matrices, δ and the two scales are this reading.

    Source: beaglehole2024, Appendix G; the default ε₁, ε₂ and shift are the paper's.

    Args:
        n: samples and input dimension.
        gamma: balance γ, share of label 1, in (0, 1].
        generator: source of X⁽¹⁾, X̃⁽²⁾ and Z, in this order.
        epsilon1: isotropic part of the covariance.
        epsilon2: deviation of the noise on all inputs.
        delta: tempering δ of the inverse, greater than 0.
        label_shift: added to every label.

    Returns:
        x (n, d = n) and y (n,).

    Raises:
        UserError: if γ is not in (0, 1] or leaves no sample with label 1, or δ is not positive.
    """
    if not 0 < gamma <= 1 or round(gamma * n) == 0:
        raise UserError(f"gamma: {gamma} of {n} samples, wanted 1/{n} to 1; set it so.")
    if not delta > 0:
        raise UserError(f"delta: {delta}, wanted a positive number; the inverse is singular at 0.")
    ones = round(gamma * n)
    first, other = (_spiked_gaussian(n, epsilon1, generator) for _ in range(2))
    noise = generator.standard_normal((n, n))
    _, singular, right = np.linalg.svd(first)  # S₁ is the square of these: Gram, not data
    left = np.linalg.svd(other)[0]
    second = (left / (singular**2 + delta)) @ right
    x = np.concatenate([first[:ones], second[ones:]]) + epsilon2 * noise
    y = np.where(np.arange(n) < ones, 1.0, 0.0) + label_shift
    return x, y


def _spiked_gaussian(n: int, epsilon: float, generator: np.random.Generator) -> np.ndarray:
    """Rows from N(0, 11ᵀ/d + ε I)/√n, (n, d = n)."""
    spike = generator.standard_normal((n, 1)) / np.sqrt(n)
    return (spike + np.sqrt(epsilon) * generator.standard_normal((n, n))) / np.sqrt(n)
