"""Closed forms of the penalties of LeJeune & Alemohammad 2024, Figure 2.

ω₁(v) = (v − 1)² and ω₂(v) = |v − 1| are `penalties.PowerPenalty` with p = 2 and 1. Where an
equation must be solved, it has the form t(1 + t)^a = c in the excess t = s − 1 of a scale over 1,
which keeps full precision near s = 1.
"""

import numpy as np

EFFECTIVE_JOINT_THRESHOLD = (1 + np.sqrt(3)) / (2 * np.sqrt(2))
"""Below this v (0.96593) the effective joint penalty is the effective square penalty."""

_NEWTON_STEPS = 60
_NEWTON_PRECISION = 1e-9
"""Relative change at which the steps end: the error squares, so the last step leaves rounding."""


def effective_square_penalty(v: np.ndarray) -> np.ndarray:
    """ω̃₁(v) = (z − 1)(2z − 1) with z³(z − 1) = v², for v ≥ 0; ~2v for large v.

    Source: LeJeune & Alemohammad 2024, Figure 2 (ω₁ = (v − 1)²); the closed form is this project's.

    Example:
        >>> effective_square_penalty(np.array([1.0, 5.0])).round(5)
        array([0.6695 , 6.24653])
    """
    t = excess_root(3, np.asarray(v, dtype=float) ** 2)
    return t * (2 * t + 1)


def effective_absolute_penalty(v: np.ndarray) -> np.ndarray:
    """ω̃₂(v) = v² where 2v² ≤ 1, else (3/2)(2v²)^{1/3} − 1, for v ≥ 0.

    Source: LeJeune & Alemohammad 2024, Figure 2 (ω₂ = |v − 1|); the closed form is this project's.

    Example:
        >>> effective_absolute_penalty(np.array([0.5, 5.0])).round(5)
        array([0.25   , 4.52605])
    """
    square = np.asarray(v, dtype=float) ** 2
    return np.where(2 * square <= 1, square, 1.5 * np.cbrt(2 * square) - 1)


def effective_joint_penalty(v: np.ndarray) -> np.ndarray:
    """ω̃₃(v), v ≥ 0: ω̃₁ up to 0.96593, then (s − 1)(4s − 1) − 1 with v = 2 s^{5/2} (s − 1)^{3/2}.

    ~2√(2v) for large v.

    Source: LeJeune & Alemohammad 2024, Figure 2 (ω̃₃); the closed form is this project's.

    Example:
        >>> effective_joint_penalty(np.array([1.0, 5.0])).round(5)
        array([0.669  , 3.36743])
    """
    v = np.asarray(v, dtype=float)
    t = excess_root(5 / 3, np.cbrt(v**2 / 4))
    return np.where(
        v <= EFFECTIVE_JOINT_THRESHOLD, effective_square_penalty(v), t * (4 * t + 3) - 1
    )


def excess_root(a: float, c: np.ndarray) -> np.ndarray:
    """Root t ≥ 0 of t(1 + t)^a = c, for a ≥ 1 and any c ≥ 0, by Newton's method.

    The left side is convex and increasing, and the start is not below the root: the iteration
    falls monotonically onto it.

    Example:
        >>> excess_root(1, np.array([0.0, 6.0]))
        array([0., 2.])
    """
    t = np.minimum(c, c ** (1 / (1 + a)))
    for _ in range(_NEWTON_STEPS):
        power, before = (1 + t) ** (a - 1), t
        t = t - (t * (1 + t) * power - c) / (power * (1 + (1 + a) * t))
        if np.allclose(t, before, rtol=_NEWTON_PRECISION, atol=0):
            break
    return t
