"""Optimal scales of the transformations on both sides of a coefficient with singular value d.

Lemma 5 of LeJeune & Alemohammad 2024 leaves the problem min over s₁, s₂ ≥ 1 of
ω₁(s₁) + ω₂(s₂) + d²/(s₁s₂)². If its solution is not explicit, it is the root of t(1 + t)^a = c in
the excess t = s − 1 of a scale, a form that keeps full precision near s = 1.
"""

from dataclasses import dataclass

import numpy as np

from feature_alignment.adaptive.penalties import (
    Penalty,
    PowerPenalty,
    adaptive_scale,
    joint_penalty,
    joint_split,
    logarithmic_penalty,
    rigid_penalty,
)

SQUARE, ABSOLUTE = PowerPenalty(2), PowerPenalty(1)

EFFECTIVE_JOINT_THRESHOLD = (1 + np.sqrt(3)) / (2 * np.sqrt(2))
"""Below this v (0.96593) the effective joint penalty equals the effective square penalty."""

_NEWTON_STEPS = 60
_NEWTON_PRECISION = 1e-9
"""Relative change at which to stop: convergence is quadratic, so only rounding error remains."""


@dataclass(frozen=True)
class Scales:
    """Scales s₁, s₂ ≥ 1 and the effective penalty of ω₁ ⊕ ω₂, each of the shape of d."""

    first: np.ndarray
    second: np.ndarray
    penalty: np.ndarray


def adaptive_scales(first: Penalty, second: Penalty, d: np.ndarray) -> Scales:
    """Scales s₁, s₂ = argmin over s₁, s₂ ≥ 1 of ω₁(s₁) + ω₂(s₂) + d²/(s₁s₂)².

    Exact for the square, the absolute and the logarithmic penalty, on one side (the other rigid) or
    on both sides, and for square with absolute; otherwise by scalar search, to about 1e-8.
    d is an array, of any shape, of singular values of the coefficients B.

    The effective penalties of Figure 2 are, with the other side rigid, (z − 1)(2z − 1) with
    z³(z − 1) = d² for (v − 1)², and d² up to d² = ½, then (3/2)(2d²)^⅓ − 1, for |v − 1|. With both,
    it is the former up to d = 0.96593, then (s − 1)(4s − 1) − 1 with d = 2 s^(5/2) (s − 1)^(3/2).

    Source: LeJeune & Alemohammad 2024, Lemma 5 (eq. 3) and Theorem 2; the closed forms are ours.

    Raises:
        ValueError: if ω₁ or ω₂ is not a penalty, or some d is negative, NaN or above 1e150.
    """
    d = np.asarray(d, dtype=float)
    if not ((d >= 0) & (d < 1e150)).all():  # also for NaN
        raise ValueError(
            f"d: {d.min()} to {d.max()}; singular values are at least 0, and their squares must be "
            "finite."
        )
    s1, s2 = _scales(first, second, d)
    return Scales(s1, s2, first(s1) + second(s2) + (d / (s1 * s2)) ** 2)


def _scales(first: Penalty, second: Penalty, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if rigid_penalty in (first, second):
        return _single_scale(first, d), _single_scale(second, d)
    # With the same penalty, convex in log s, on both sides, the two scales are equal.
    if first == second == SQUARE:
        r = 1 + excess_root(5, d**2)
        return r, r
    if first == second == ABSOLUTE:
        r = np.maximum(1, (2 * d**2) ** 0.2)
        return r, r
    if first is second is logarithmic_penalty:
        r = np.sqrt(1 + excess_root(2, d**2))
        return r, r
    if (first, second) == (SQUARE, ABSOLUTE):
        return _square_absolute_scales(d)
    if (first, second) == (ABSOLUTE, SQUARE):
        s2, s1 = _square_absolute_scales(d)
        return s1, s2
    joint = adaptive_scale(joint_penalty(first, second), d)
    s1, _ = joint_split(first, second, joint)
    return s1, joint / s1


def _single_scale(omega: Penalty, d: np.ndarray) -> np.ndarray:
    """Argmin over s ≥ 1 of ω(s) + d²/s²."""
    if omega is rigid_penalty:
        return np.ones_like(d)
    if omega == SQUARE:
        return 1 + excess_root(3, d**2)
    if omega == ABSOLUTE:
        return np.maximum(1, np.cbrt(2 * d**2))
    if omega is logarithmic_penalty:
        return np.sqrt((1 + np.sqrt(1 + 4 * d**2)) / 2)
    return adaptive_scale(omega, d)


def _square_absolute_scales(d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    t = excess_root(5 / 3, np.cbrt(d**2 / 4))
    joined = d > EFFECTIVE_JOINT_THRESHOLD
    return (
        np.where(joined, 1 + t, _single_scale(SQUARE, d)),
        np.where(joined, 2 * t * (1 + t), 1.0),
    )


def excess_root(a: float, c: np.ndarray) -> np.ndarray:
    """Root t ≥ 0 of t(1 + t)^a = c, for a ≥ 1 and any c ≥ 0, by Newton's method.

    The left side is convex and increasing, so iterates that start above the root decrease to it.
    """
    t = np.minimum(c, c ** (1 / (1 + a)))
    for _ in range(_NEWTON_STEPS):
        power, before = (1 + t) ** (a - 1), t
        t = t - (t * (1 + t) * power - c) / (power * (1 + (1 + a) * t))
        if np.allclose(t, before, rtol=_NEWTON_PRECISION, atol=0):
            break
    return t
