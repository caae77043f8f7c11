"""The outcome of a numerical check."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Check:
    """One number that tells whether a statement holds.

    Attributes:
        metric: what is measured.
        value: the number.
        columns: what tells it from others of the same metric.
    """

    metric: str
    value: float
    columns: Mapping[str, str] = field(default_factory=dict)


def deviation(statement: str, value: float | torch.Tensor, form: str = "stated") -> Check:
    """The relative deviation between the two sides of a statement.

    The form is "stated" if the paper's own is checked; where that is a misprint, "printed" for it
    and "corrected" for what it should be.
    """
    columns = {"statement": statement, "form": form}
    return Check("relative_deviation", float(value), columns)
