"""The outcome of a numerical check of a paper's statement."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import SupportsFloat

DEVIATION = "relative_deviation"
"""Metric: the relative deviation between the two sides of an equation."""


@dataclass(frozen=True)
class Check:
    """One number that tells whether a statement holds; `columns` tell it from others like it."""

    metric: str
    value: float
    columns: Mapping[str, str] = field(default_factory=dict)


def check_of(
    statement: str, value: SupportsFloat, form: str = "stated", metric: str = DEVIATION
) -> Check:
    """The check of a statement.

    The form is "stated" if the paper's own is checked; where that is a misprint, "printed" for it
    and "corrected" for what it should be.
    """
    return Check(metric, float(value), {"statement": statement, "form": form})
