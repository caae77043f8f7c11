"""Penalties on singular values of feature transformations; joint and effective ones, numerically.

A penalty is a function ω on [1, ∞), increasing from ω(1) = 0, that maps arrays to arrays. Closed
forms for the paper's examples are in `adaptive_scales`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import numpy as np

from feature_alignment.errors import check_kind

Penalty = Callable[[np.ndarray], np.ndarray]

_CHUNK = 2048  # values minimised at a time, which bounds memory when penalties are nested
_POWERS = 2.0 ** np.arange(501)  # range of the search: squares of much larger scales overflow
_RESOLUTION = 1e-9  # the search is linear in z − 1 below this and logarithmic above

_UNIT_GRID = np.linspace(0, 1, 257)
# Denser at both ends, where the minimum of a joint penalty often is.
_CROWDED_GRID = np.sin(np.pi * np.linspace(0, 1, 129) / 2) ** 2

_GOLDEN = (np.sqrt(5) - 1) / 2
_SECTIONS = 80  # 0.618^80 < 1e-16: the bracket has shrunk to rounding error
_CANDIDATES = 3  # number of local minima on the grid that are refined for each row


@dataclass(frozen=True)
class PowerPenalty:
    """Penalty ω(v) = |v − 1|^p.

    Source: LeJeune & Alemohammad 2024, Section 3; p = 2 and p = 1 are ω₁ and ω₂ of Figure 2.

    Raises:
        ValueError: if p is not a positive number.

    Example:
        >>> PowerPenalty(2)(np.array([1.0, 4.0]))
        array([0., 9.])
    """

    p: float

    def __post_init__(self) -> None:
        check_kind("p", self.p, Real, "a number above 0")
        if not self.p > 0:
            raise ValueError(f"p: {self.p} is out of range; it must be above 0.")

    def __call__(self, v: np.ndarray) -> np.ndarray:
        """ω(v), in the shape of v."""
        return np.abs(np.asarray(v, dtype=float) - 1) ** self.p


def logarithmic_penalty(v: np.ndarray) -> np.ndarray:
    """Penalty ω(v) = v² − 1 − 2 log v (v > 0), whose scales are those of factorised gradient flow.

    The model M₁WM₂ started at (I, 0, I) keeps M₁ᵀM₁ − WWᵀ = I, so each of its scales is
    s = √(1 + σ²), the scale of this penalty.

    Source: LeJeune & Alemohammad 2024, Section 3 (the class); the identity is this project's.

    Example:
        >>> logarithmic_penalty(np.array([1.0, 2.0])).round(6)
        array([0.      , 1.613706])
    """
    v = np.asarray(v, dtype=float)
    return v**2 - 1 - 2 * np.log(v)


def rigid_penalty(v: np.ndarray) -> np.ndarray:
    """Characteristic function of {1}: 0 at v = 1 and ∞ elsewhere, for a transformation held fixed.

    Source: LeJeune & Alemohammad 2024, Section 3.2 (Model A, the final matrix).

    Example:
        >>> rigid_penalty(np.array([1.0, 2.0]))
        array([ 0., inf])
    """
    return np.where(np.asarray(v, dtype=float) == 1, 0.0, np.inf)


def joint_penalty(first: Penalty, second: Penalty) -> Penalty:
    """Joint penalty (ω₁ ⊕ ω₂)(v) = min over 1 ≤ z ≤ v of ω₁(z) + ω₂(v/z).

    The result is itself a penalty; it raises ValueError for v below 1. The search, on a grid, can
    miss the lowest of several valleys.

    Source: LeJeune & Alemohammad 2024, Section 3.2.

    Raises:
        ValueError: if ω₁ or ω₂ is not 0 at 1.

    Example:
        >>> joint = joint_penalty(PowerPenalty(2), PowerPenalty(1))
        >>> joint(np.array([1.0, 1.2])).round(6)
        array([0.  , 0.04])
    """
    _check_zero_at_one(first)
    _check_zero_at_one(second)
    return lambda v: joint_split(first, second, v)[1]


def joint_split(first: Penalty, second: Penalty, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A minimiser z and the minimum over 1 ≤ z ≤ v of ω₁(z) + ω₂(v/z).

    z is the first transformation's share of the joint scales v, which may have any shape.

    Source: LeJeune & Alemohammad 2024, Section 3.2 (joint penalty) and Lemma 5.

    Raises:
        ValueError: if a scale is below 1.
    """
    v = np.asarray(v, dtype=float)
    if not (v >= 1).all():  # NaN is not
        raise ValueError(f"v: {v.min()}; a joint penalty is defined on v ≥ 1.")

    def splits(v: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        return lambda u: np.minimum(v**u, v)  # from 1 to v; rounding must not take v/z below 1

    return _minimise(lambda z, v: first(z) + second(v / z), splits, _CROWDED_GRID, v)


def effective_penalty(omega: Penalty) -> Penalty:
    """Effective penalty ω̃(v) = min over z ≥ 1 of ω(z) + v²/z², a function of v ≥ 0.

    It is increasing and concave in v², and v² + o(v²) near 0 if ω is positive above 1; unlike ω it
    is 0 at v = 0. It raises ValueError for negative v, and if ω grows too slowly for a minimum
    below z = 2^500. The search, on a grid, can miss the lowest of several valleys.

    Source: LeJeune & Alemohammad 2024, Section 3.2 and Proposition 3.

    Raises:
        ValueError: if ω is not 0 at 1 or decreases somewhere.

    Example:
        >>> effective_penalty(PowerPenalty(2))(np.array([5.0])).round(5)
        array([6.24653])
    """
    heights = _heights(omega)
    return lambda v: _minimise_over_scale(omega, heights, v)[1]


def adaptive_scale(omega: Penalty, norm: np.ndarray) -> np.ndarray:
    """Scale s = argmin over z ≥ 1 of ω(z) + ‖β‖²/z² by which features along β grow.

    1/s² is the slope of ω̃ with respect to ‖β‖². One of the minimisers is returned, in the shape of
    `norm`, to a relative precision of about 1e-8: the objective is flat at its minimum. The search,
    on a grid, can miss the lowest of several valleys.

    Source: LeJeune & Alemohammad 2024, Theorem 1.

    Raises:
        ValueError: if ω is not a penalty, a norm is negative, or no minimum is below z = 2^500.

    Example:
        >>> adaptive_scale(PowerPenalty(1), np.array([0.5, 2.0])).round(6)
        array([1., 2.])
    """
    return _minimise_over_scale(omega, _heights(omega), norm)[0]


def _minimise_over_scale(
    omega: Penalty, heights: np.ndarray, v: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    v = np.asarray(v, dtype=float)
    if not (v >= 0).all():  # NaN is not
        raise ValueError(f"v: {v.min()}; an effective penalty is defined on v ≥ 0.")

    def scales(part: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        # No minimum lies beyond a scale where ω alone exceeds a value already seen.
        seen = np.minimum.accumulate(heights + (part / _POWERS) ** 2, axis=1)
        enough = heights > seen
        if not enough.any(axis=1).all():
            raise ValueError(
                f"the penalty stays below {heights[-1]:.4g} up to 2^{len(_POWERS) - 1}, too slow "
                f"for v = {part.max():.4g}: the minimum over scales is not attained."
            )
        largest = _POWERS[enough.argmax(axis=1)]
        span = np.log1p((largest - 1) / _RESOLUTION)[:, None]  # (m, 1)
        return lambda u: 1 + _RESOLUTION * np.expm1(u * span)

    return _minimise(lambda z, v: omega(z) + (v / z) ** 2, scales, _UNIT_GRID, v)


def _minimise(
    cost: Callable[[np.ndarray, np.ndarray], np.ndarray],
    scales: Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]],
    grid: np.ndarray,
    v: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Minimising scales z and minima of cost(z, v), in the shape of v, one chunk at a time.

    For v (m, 1), `scales` gives the function from u in [0, 1], (m, q), to z.
    """
    flat, found = v.ravel(), []
    for start in range(0, max(len(flat), 1), _CHUNK):
        part = flat[start : start + _CHUNK]
        scale = scales(part[:, None])
        u, minimum = minimise_rows(lambda u, v, z=scale: cost(z(u), v), grid, part)
        found.append(np.stack([scale(u[:, None])[:, 0], minimum]))  # (2, m)
    scaled, minima = np.concatenate(found, axis=1).reshape(2, *v.shape)
    return scaled, minima


def minimise_rows(
    objective: Callable[[np.ndarray, np.ndarray], np.ndarray], grid: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Global minimisers u in [0, 1] and minima, (m,) each, of u ↦ objective(u, row) for every row.

    Evaluates a grid (g,), ascending from 0 to 1, then refines each row's best three valleys by
    golden sections. A valley between neighbouring grid points can be missed. A minimum at a grid
    point or an end is found exactly; of several equal ones the first is returned. The objective
    takes u (m, q) and rows (m, 1) and returns (m, q), finite or not.

    Raises:
        ValueError: if the objective is NaN somewhere on the grid.
    """
    rows = rows[:, None]  # (m, 1)
    values = objective(np.broadcast_to(grid, (len(rows), len(grid))), rows)  # (m, g)
    if np.isnan(values).any():
        raise ValueError("the penalty is not a number somewhere; it must be defined on v ≥ 1.")
    padded = np.pad(values, ((0, 0), (1, 1)), constant_values=np.inf)
    valley = (values <= padded[:, :-2]) & (values <= padded[:, 2:])
    order = np.argsort(np.where(valley, values, np.inf), axis=1, kind="stable")
    best = order[:, :_CANDIDATES]  # (m, q)
    low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, len(grid) - 1)]
    refined = _golden_section(lambda u: objective(u, rows), low, high)
    candidates = np.concatenate([grid[best], refined], axis=1)  # (m, 2q)
    found = np.concatenate([np.take_along_axis(values, best, 1), objective(refined, rows)], axis=1)
    first = np.arange(len(found)), found.argmin(axis=1)
    return candidates[first], found[first]


def _golden_section(
    objective: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Midpoint of the last bracket, for brackets [low, high] of any shape."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = objective(left), objective(right)
    for _ in range(_SECTIONS):
        keep_left = at_left <= at_right
        low, high = np.where(keep_left, low, left), np.where(keep_left, right, high)
        inner = np.where(keep_left, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
        at_inner = objective(inner)
        left, right = np.where(keep_left, (inner, left), (right, inner))
        at_left, at_right = np.where(keep_left, (at_inner, at_left), (at_right, at_inner))
    return (low + high) / 2


def _heights(omega: Penalty) -> np.ndarray:
    # ω at the powers of 2, which bound where a minimum can lie.
    _check_zero_at_one(omega)
    try:
        with np.errstate(over="ignore"):
            heights = omega(_POWERS)
    except (TypeError, ValueError) as error:  # such as `max` or `if` of an array
        raise ValueError(f"the penalty takes no arrays ({error}); it must map them.") from error
    if np.isnan(heights).any():
        raise ValueError("the penalty is not a number somewhere above 1; it must increase.")
    if (heights[1:] < heights[:-1]).any():
        raise ValueError("the penalty decreases somewhere above 1; it must increase.")
    return heights


def _check_zero_at_one(omega: Penalty) -> None:
    check_kind("penalty", omega, Callable, "a function that maps arrays")
    found = omega(np.array([1.0]))
    if np.shape(found) != (1,):
        raise ValueError(
            f"the penalty gives {found!r} for one number in an array; it must map arrays."
        )
    at_one = float(found[0])
    if at_one != 0:
        raise ValueError(f"the penalty is {at_one} at 1; it must be 0 there.")
