"""beaglehole2024, Figure 16: what a network that recognises eyeglasses attends to."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import describe, new_figure, show_matrix
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "NFM and AGOP of a network that recognises eyeglasses"
CAPTION = (
    "Diagonals of the first layer's NFM F = WᵀW, its AGOP G = WᵀKW, and WᵀQW with a random "
    "symmetric Q of the spectrum of K (seed 0), as images, mean over channels, each divided by its "
    "largest entry. Titles give Pearson's correlation of each diagonal with that of F, mean ± "
    "standard deviation over seeds, and for Q over several draws."
)
EXPERIMENT = "beaglehole2024_celeba"
POINT = "glasses"
PANELS = {"nfm": "F", "agop": "G", "random_conjugate": "WᵀQW"}
CORRELATIONS = {
    "agop": "diagonal_correlation",
    "random_conjugate": "diagonal_correlation_random",
}


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """The one point."""
    return [Point(EXPERIMENT, POINT)]


def table(runs: Runs) -> FigureTable:
    """All that was measured, and the diagonals of seed 0."""
    arrays = {name: runs[POINT].arrays[f"seed0/{name}_diagonal"] for name in PANELS}
    return FigureTable(runs.metrics, arrays)


def draw(table: FigureTable) -> "Figure":
    """Three images side by side."""
    figure, axes = new_figure(1, len(PANELS), width=9.0, height=3.2)
    for ax, (name, title) in zip(axes[0], PANELS.items(), strict=True):
        image = table.arrays[name].mean(axis=-1)  # (height, width)
        label = "entry / largest entry" if ax is axes[0, -1] else None
        show_matrix(ax, image / image.max(), 1.0, label)
        if name in CORRELATIONS:
            title += f", correlation {describe(table.values(CORRELATIONS[name]))}"
        ax.set_title(f"diagonal of {title}")
    return figure
