"""Relative deviations between the two sides of a paper's statements, one row for each."""

from collections.abc import Mapping

import pandas as pd

from feature_alignment.pipeline.figures.figure import Axes
from feature_alignment.pipeline.figures.style import COLOURS

MARKERS = {
    "stated": ("o", COLOURS["paper"], "the paper's form"),
    "corrected": ("o", COLOURS["easy"], "corrected"),
    "printed": ("X", COLOURS["test"], "as printed"),
}
_SMALLEST = 1e-17


def draw_deviations(ax: Axes, rows: pd.DataFrame, statements: Mapping[str, str]) -> None:
    """One marker for each row, on a logarithmic axis.

    Args:
        ax: where to draw.
        rows: columns `statement`, `form` (see `MARKERS`) and `value`.
        statements: labels by statement, from the top down.
    """
    largest = 1.0
    places = {statement: place for place, statement in enumerate(statements)}
    for form, (marker, colour, label) in MARKERS.items():
        chosen = rows[rows["form"] == form]
        # Sides that agree in every bit are drawn at the left edge.
        values = chosen["value"].clip(lower=_SMALLEST)
        largest = max(largest, values.max()) if len(values) else largest
        ax.plot(values, chosen["statement"].map(places), marker, color=colour, label=label)
    ax.set_yticks(range(len(statements)), statements.values())
    ax.set(xscale="log", xlim=(_SMALLEST / 2, 3 * largest))
    ax.invert_yaxis()
    ax.legend(loc="lower center", ncols=3, bbox_to_anchor=(0.5, 1.0))
