"""Scales that the transformations before and after a coefficient take, given its singular value.

Lemma 5 of LeJeune & Alemohammad 2024 leaves, for each singular value d, the scalar problem
min over s₁, s₂ ≥ 1 of ω₁(s₁) + ω₂(s₂) + d²/(s₁s₂)². Its solutions are exact where a closed form is
known, and found by `penalties.adaptive_scale` otherwise.
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
from feature_alignment.adaptive.penalty_closed_forms import EFFECTIVE_JOINT_THRESHOLD, excess_root

SQUARE, ABSOLUTE = PowerPenalty(2), PowerPenalty(1)


@dataclass(frozen=True)
class Scales:
    """Solution of the scalar problem, each entry for one singular value d.

    Attributes:
        first: s₁ ≥ 1, any shape.
        second: s₂ ≥ 1, the same shape.
        penalty: the minimum, the effective penalty of ω₁ ⊕ ω₂ at d, the same shape.
    """

    first: np.ndarray
    second: np.ndarray
    penalty: np.ndarray


def adaptive_scales(first: Penalty, second: Penalty, d: np.ndarray) -> Scales:
    """Scales s₁, s₂ = argmin over s₁, s₂ ≥ 1 of ω₁(s₁) + ω₂(s₂) + d²/(s₁s₂)².

    Exact for the square, the absolute and the logarithmic penalty, alone (the other one rigid) or
    on both sides, and for square and absolute together; otherwise by scalar search, to about 1e-8.

    Source: LeJeune & Alemohammad 2024, Lemma 5 (eq. 3) and Theorem 2; the closed forms are this
    project's.

    Args:
        first: ω₁.
        second: ω₂.
        d: singular values of the coefficients B, at least 0, any shape.

    Raises:
        ValueError: if ω₁ or ω₂ is not a penalty, or some d is negative.

    Example:
        >>> found = adaptive_scales(SQUARE, SQUARE, np.array([0.0, 5.65685425]))
        >>> found.first.round(6), found.second.round(6), found.penalty.round(6)
        (array([1., 2.]), array([1., 2.]), array([0., 4.]))
    """
    d = np.asarray(d, dtype=float)
    if (d < 0).any():
        raise ValueError(f"d: {d.min()}; singular values are at least 0.")
    s1, s2 = _scales(first, second, d)
    return Scales(s1, s2, first(s1) + second(s2) + (d / (s1 * s2)) ** 2)


def _scales(first: Penalty, second: Penalty, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    one = np.ones_like(d)
    if first is rigid_penalty and second is rigid_penalty:
        return one, one
    if second is rigid_penalty:
        return _single_scale(first, d), one
    if first is rigid_penalty:
        return one, _single_scale(second, d)
    # A penalty that is convex in log s shares the joint scale equally with itself.
    if first == second and first == SQUARE:
        r = 1 + excess_root(5, d**2)
        return r, r
    if first == second and first == ABSOLUTE:
        r = np.maximum(1, (2 * d**2) ** 0.2)
        return r, r
    if first is logarithmic_penalty and second is logarithmic_penalty:
        r = np.sqrt(1 + excess_root(2, d**2))
        return r, r
    if (first, second) == (SQUARE, ABSOLUTE):
        return _square_absolute_scales(d)
    if (first, second) == (ABSOLUTE, SQUARE):
        s2, s1 = _square_absolute_scales(d)
        return s1, s2
    joint = adaptive_scale(joint_penalty(first, second), d)
    s1 = joint_split(first, second, joint)
    return s1, joint / s1


def _single_scale(omega: Penalty, d: np.ndarray) -> np.ndarray:
    """Argmin over s ≥ 1 of ω(s) + d²/s²."""
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
