"""beaglehole2024, Figure 16: what a network that recognises eyeglasses attends to."""

from feature_alignment.papers.beaglehole2024.parameters import CelebA
from feature_alignment.pipeline.figures import style
from feature_alignment.pipeline.figures.figure import Figure, Picture, one_point
from feature_alignment.pipeline.figures.table import FigureTable, Runs

PANELS = {  # matrices, and the metric of the correlation with the first
    "nfm": ("F", None),
    "agop": ("G", "diagonal_correlation"),
    "random_conjugate": ("WᵀQW", "diagonal_correlation_random"),
}


def table(runs: Runs) -> FigureTable:
    """All metrics, and the diagonals of seed 0."""
    (run,) = runs.values()
    return FigureTable(run.metrics, {name: run.array(f"{name}_diagonal") for name in PANELS})


def draw(table: FigureTable) -> Picture:
    """Three images side by side."""
    figure, axes = style.new_figure(1, len(PANELS), width=9.5, height=3.8)
    limit = ": cannot show the paper's contrast" if table.stand_ins else ""
    figure.suptitle(f"CelebA eyeglasses{limit}")
    images = [table.arrays[name].mean(axis=-1) for name in PANELS]  # (height, width)
    style.show_matrices(axes[0], images, diverging=False)
    for ax, (matrix, metric) in zip(axes[0], PANELS.values(), strict=True):
        ax.set_title(f"diagonal of {matrix}")
        if metric:
            paper = table.paper(f"fig16.{metric}")
            ax.set_xlabel(f"correlation with F\n{style.describe(table.values(metric), 3)}{paper}")
    style.panel_letters(*axes[0])
    return figure


FIGURE = Figure(
    name="fig16",
    title="NFM and AGOP of a network that recognises eyeglasses",
    caption="Diagonals of the first layer's NFM F = WᵀW, its AGOP G = WᵀKW, and WᵀQW with a "
    "random symmetric Q of the spectrum of K (seed 0), as images, mean over channels, each "
    "divided by its largest entry. Below stands Pearson's correlation of each diagonal with "
    "that of F, mean ± standard deviation over seeds, or of fewer than four seeds each, and "
    "for Q over several draws. On the stand-in's drawn faces the first layer is nearly of "
    "rank one, and most Q give nearly the same diagonal.",
    points=one_point(CelebA, "glasses"),
    table=table,
    draw=draw,
)
