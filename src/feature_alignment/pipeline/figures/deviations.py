"""Relative deviations between the two sides of a paper's statements, one row for each."""

from collections.abc import Mapping

import pandas as pd

from feature_alignment.pipeline.figures.figure import Axes
from feature_alignment.pipeline.figures.style import COLOURS

MARKERS = {
    "stated": ("^", "the paper's form"),
    "corrected": ("o", "corrected"),
    "printed": ("X", "as printed"),
}
_SMALLEST = 1e-17
ZERO = "Differences of exactly 0 stand at 10⁻¹⁷."  # for captions


def draw_deviations(
    ax: Axes, rows: pd.DataFrame, statements: Mapping[str, str], *, legend: bool = True
) -> None:
    """One marker for each row, on a logarithmic axis; a legend above explains them.

    Rows have the columns `statement`, `form` (see `MARKERS`) and `value`; the labels are by
    statement, from the top down.
    """
    largest = 1.0
    places = {statement: place for place, statement in enumerate(statements)}
    for form, (marker, label) in MARKERS.items():
        chosen = rows[rows["form"] == form]
        # Sides that agree in every bit are drawn at the left edge.
        values = chosen["value"].clip(lower=_SMALLEST)
        largest = max(largest, values.max()) if len(values) else largest
        ax.plot(values, chosen["statement"].map(places), marker, color=COLOURS[form], label=label)
    ax.set_yticks(range(len(statements)), statements.values())
    ax.set(xscale="log", xlim=(_SMALLEST / 2, 3 * largest))
    ax.invert_yaxis()
    if legend:
        ax.legend(loc="lower center", ncols=3, bbox_to_anchor=(0.5, 1.0))
