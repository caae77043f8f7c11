"""Numerical checks of papers' statements: compare two sides and record the result."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import SupportsFloat, TypeVar

import numpy as np
from numpy.typing import ArrayLike

Key = TypeVar("Key")
DEVIATION = "relative_deviation"
"""Metric: the relative deviation between the two sides of an equation."""
BOUND_RATIO = "bound_ratio"
"""Metric: the smaller side of an inequality divided by the larger, at most 1."""


@dataclass(frozen=True)
class Check:
    """One number that shows whether a statement holds; `columns` identify it among others."""

    metric: str
    value: float
    columns: Mapping[str, str] = field(default_factory=dict)


def check_of(
    statement: str, value: SupportsFloat, form: str = "stated", metric: str = DEVIATION
) -> Check:
    """The check of a statement.

    The form is "stated" for a statement as the paper has it. For a misprint it is "printed" for the
    paper's version and "corrected" for what it should be.
    """
    return Check(metric, float(value), {"statement": statement, "form": form})


def largest(values: Iterable[SupportsFloat]) -> float:
    """The largest of some numbers; NaN if any of them is, which `max` passes over."""
    return float(np.max(np.array([float(value) for value in values])))


def largest_of_each(
    worst: Mapping[Key, float], found: Mapping[Key, SupportsFloat]
) -> dict[Key, float]:
    """The larger of both numbers at each key of `found`, as `largest` has it."""
    return {key: largest([worst.get(key, 0.0), value]) for key, value in found.items()}


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
    """The checks that a printed form misses the expected values and a corrected form meets them."""
    forms = {"printed": printed, "corrected": corrected}
    return [equation(statement, side, expected, form) for form, side in forms.items()]


def inequality(statement: str, smaller: float, larger: float) -> Check:
    """The check that what is claimed to be `smaller` is at most `larger`; both are positive."""
    return check_of(statement, smaller / larger, metric=BOUND_RATIO)
