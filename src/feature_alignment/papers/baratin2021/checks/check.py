"""The outcome of a numerical check of a statement, and how two sides of one are compared."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

DEVIATION, BOUND_RATIO = "relative_deviation", "bound_ratio"


@dataclass(frozen=True)
class Check:
    """One statement, on one case.

    Attributes:
        statement: what is checked, such as "lemma1".
        form: "stated" if the paper's own form is checked; where that is a misprint, "printed" for
            it and "corrected" for what it should be.
        metric: `DEVIATION` of the two sides of an equation, or `BOUND_RATIO`, the smaller side of
            an inequality divided by the larger, which must be at most 1.
        value: of the metric.
    """

    statement: str
    form: str
    metric: str
    value: float


def relative_deviation(found: ArrayLike, expected: ArrayLike) -> float:
    """Largest |found − expected|, relative to the largest |expected|.

    Example:
        >>> relative_deviation([1.0, 2.0], [1.0, 4.0])
        0.5
    """
    found, expected = np.asarray(found), np.asarray(expected)
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def equation(statement: str, found: ArrayLike, expected: ArrayLike, form: str = "stated") -> Check:
    """The check that two sides of an equation agree."""
    return Check(statement, form, DEVIATION, relative_deviation(found, expected))


def misprint(
    statement: str, printed: ArrayLike, corrected: ArrayLike, expected: ArrayLike
) -> list[Check]:
    """The checks that a printed form misses what is expected and a corrected form meets it."""
    return [
        equation(statement, printed, expected, "printed"),
        equation(statement, corrected, expected, "corrected"),
    ]


def inequality(statement: str, smaller: float, larger: float) -> Check:
    """The check that one side of an inequality is at most the other, both positive."""
    return Check(statement, "stated", BOUND_RATIO, smaller / larger)
