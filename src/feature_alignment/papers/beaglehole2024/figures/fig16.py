"""beaglehole2024, Figure 16: what a network that recognises eyeglasses attends to."""

from feature_alignment.papers.beaglehole2024.figures.matrices import show_row
from feature_alignment.papers.beaglehole2024.parameters import CelebA
from feature_alignment.pipeline.figures.figure import Figure, Picture, one_point
from feature_alignment.pipeline.figures.style import describe, new_figure
from feature_alignment.pipeline.figures.table import FigureTable, Runs

PANELS = {
    "nfm": ("F", None),
    "agop": ("G", "diagonal_correlation"),
    "random_conjugate": ("WᵀQW", "diagonal_correlation_random"),
}
"""Matrices, and the metric of the correlation with the first."""


def table(runs: Runs) -> FigureTable:
    """All that was measured, and the diagonals of seed 0."""
    (run,) = runs.values()
    return FigureTable(run.metrics, {name: run.array(f"{name}_diagonal") for name in PANELS})


def draw(table: FigureTable) -> Picture:
    """Three images side by side."""
    figure, axes = new_figure(1, len(PANELS), width=9.0, height=3.2)
    images = [table.arrays[name].mean(axis=-1) for name in PANELS]  # (height, width)
    show_row(axes[0], images, diverging=False)
    for ax, (matrix, metric) in zip(axes[0], PANELS.values(), strict=True):
        correlation = f", correlation {describe(table.values(metric))}" if metric else ""
        ax.set_title(f"diagonal of {matrix}{correlation}")
    return figure


FIGURES = (
    Figure(
        name="fig16",
        title="NFM and AGOP of a network that recognises eyeglasses",
        caption="Diagonals of the first layer's NFM F = WᵀW, its AGOP G = WᵀKW, and WᵀQW with a "
        "random symmetric Q of the spectrum of K (seed 0), as images, mean over channels, each "
        "divided by its largest entry. Titles give Pearson's correlation of each diagonal with "
        "that of F, mean ± standard deviation over seeds, and for Q over several draws.",
        points=one_point(CelebA, "glasses"),
        table=table,
        draw=draw,
    ),
)
