"""How the two sides of a statement are compared."""

import numpy as np
from numpy.typing import ArrayLike

from feature_alignment.pipeline.checks import Check, check_of

BOUND_RATIO = "bound_ratio"
"""Metric: the smaller side of an inequality divided by the larger, at most 1."""


def relative_deviation(found: ArrayLike, expected: ArrayLike) -> float:
    """Largest |found − expected|, relative to the largest |expected|."""
    found, expected = np.asarray(found), np.asarray(expected)
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def equation(statement: str, found: ArrayLike, expected: ArrayLike, form: str = "stated") -> Check:
    """The check that two sides of an equation agree."""
    return check_of(statement, relative_deviation(found, expected), form)


def misprint(
    statement: str, printed: ArrayLike, corrected: ArrayLike, expected: ArrayLike
) -> list[Check]:
    """The checks that a printed form misses what is expected and a corrected form meets it."""
    forms = {"printed": printed, "corrected": corrected}
    return [equation(statement, side, expected, form) for form, side in forms.items()]


def inequality(statement: str, smaller: float, larger: float) -> Check:
    """The check that one side of an inequality is at most the other, both positive."""
    return check_of(statement, smaller / larger, metric=BOUND_RATIO)
