"""Feature matrices and their diagonals, beside each other."""

from collections.abc import Sequence

import numpy as np

from feature_alignment.pipeline.figures.figure import Axes
from feature_alignment.pipeline.figures.style import show_matrix


def show_matrices(
    axes: Sequence[Axes],
    matrices: Sequence[np.ndarray],
    *,
    diverging: bool = True,
    shrink: float = 0.8,
) -> None:
    """Draw matrices, each divided by its largest entry, with one colour bar for all."""
    meshes = [
        show_matrix(ax, matrix / matrix.max(), 1.0, None, diverging=diverging)
        for ax, matrix in zip(axes, matrices, strict=True)
    ]
    figure = axes[0].figure
    figure.colorbar(meshes[0], ax=list(axes), label="entry / largest entry", shrink=shrink)
