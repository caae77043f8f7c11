"""Feature matrices and their diagonals, beside each other."""

from collections.abc import Sequence

import numpy as np

from feature_alignment.pipeline.figures.figure import Axes
from feature_alignment.pipeline.figures.style import show_matrix


def show_row(
    axes: Sequence[Axes], matrices: Sequence[np.ndarray], *, diverging: bool = True
) -> None:
    """Draw matrices, each divided by its largest entry, with one colour bar behind the last."""
    for ax, matrix in zip(axes, matrices, strict=True):
        label = "entry / largest entry" if ax is axes[-1] else None
        show_matrix(ax, matrix / matrix.max(), 1.0, label, diverging=diverging)
