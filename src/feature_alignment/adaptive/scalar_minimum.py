"""Global minima of many scalar functions at once: a grid, then golden sections in its valleys."""

from collections.abc import Callable

import numpy as np

_GOLDEN = (np.sqrt(5) - 1) / 2
_SECTIONS = 80
"""0.618^80 < 1e-16: the bracket has shrunk to rounding."""
_CANDIDATES = 3
"""How many of a row's local minima on the grid are refined."""


def minimise_rows(
    objective: Callable[[np.ndarray, np.ndarray], np.ndarray], grid: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Global minimum of u ↦ objective(u, row) for every row, u in [0, 1].

    The grid decides which valleys are seen: a valley between two neighbouring points can be
    missed. The best three valleys of each row are refined by golden sections. A minimum at a grid
    point, an end of the interval included, is found exactly.

    Args:
        objective: takes u of shape (m, q) and rows of shape (m, 1) and returns (m, q); it may
            return infinity, but not NaN.
        grid: (g,) ascending, from 0 to 1.
        rows: (m,), the parameter of each row.

    Returns:
        The minimiser u, the first of several that are equally good, and the minimum, each (m,).

    Raises:
        ValueError: if the objective is NaN somewhere on the grid.
    """
    rows = rows[:, None]  # (m, 1)
    points = np.broadcast_to(grid, (len(rows), len(grid)))  # (m, g)
    values = objective(points, rows)  # (m, g)
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
    first = found.argmin(axis=1)[:, None]
    return (
        np.take_along_axis(candidates, first, 1)[:, 0],
        np.take_along_axis(found, first, 1)[:, 0],
    )


def _golden_section(
    objective: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Middle of the last bracket, for brackets [low, high] of any shape."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = objective(left), objective(right)
    for _ in range(_SECTIONS):
        keep_left = at_left <= at_right
        low, high = np.where(keep_left, low, left), np.where(keep_left, right, high)
        inner = np.where(keep_left, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
        at_inner = objective(inner)
        left, right = np.where(keep_left, inner, right), np.where(keep_left, left, inner)
        at_left, at_right = (
            np.where(keep_left, at_inner, at_right),
            np.where(keep_left, at_left, at_inner),
        )
    return (low + high) / 2
