"""baratin2021, Figure 8: Fourier decomposition of a random network's kernel eigenvectors."""

import numpy as np

from feature_alignment.papers.baratin2021.parameters import Fourier
from feature_alignment.pipeline.figures import style
from feature_alignment.pipeline.figures.figure import Figure, Picture, one_point
from feature_alignment.pipeline.figures.table import FigureTable, Runs

SHOWN = (0, 5, 20)
PAPER_RATIO = 0.004


def table(runs: Runs) -> FigureTable:
    """All metrics, the eigenvalues of all seeds, and the eigenvectors of seed 0."""
    (run,) = runs.values()
    arrays = {
        "eigenvalues": run.stacked("eigenvalues"),
        "functions": run.array("functions"),
        "magnitudes": run.array("magnitudes"),
    }
    return FigureTable(run.metrics, arrays)


def draw(table: FigureTable) -> Picture:
    """Fourier magnitudes, some eigenvectors and the eigenvalues."""
    figure, axes = style.new_figure(1, 3, width=10.0, height=3.2)
    fourier, vectors, spectrum = axes[0]
    magnitudes, functions = table.arrays["magnitudes"], table.arrays["functions"]
    style.show_matrix(
        fourier, magnitudes, 1, "magnitude", xticklabels=5, yticklabels=5, square=False
    )
    fourier.invert_yaxis()
    fourier.set(xlabel="eigenvector", ylabel="frequency")
    x = np.linspace(0, 1, len(functions))
    for index, colour in zip(SHOWN, style.sequence_colours(len(SHOWN)), strict=True):
        vectors.plot(x, functions[:, index], color=colour, label=f"{index}")
    vectors.set(xlabel="x", ylabel="eigenvector", xlim=(0, 1))
    vectors.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.14))
    eigenvalues = table.arrays["eigenvalues"]  # (seeds, n − 1)
    index = np.arange(1, eigenvalues.shape[1] + 1)
    relative = eigenvalues / eigenvalues[:, :1]
    # Not as a curve with a band: rounding makes some of the smallest negative.
    spectrum.plot(index, relative.T, color=style.COLOURS["reference"], linewidth=0.5, alpha=0.5)
    spectrum.plot(index, np.median(relative, axis=0), color=style.COLOURS["train"], label="median")
    spectrum.plot(10, PAPER_RATIO, "x", color=style.COLOURS["paper"], markersize=7, label="paper")
    spectrum.set(xlabel="rank j", ylabel="$\\lambda_j / \\lambda_1$", yscale="log")
    spectrum.legend()
    style.panel_letters(*axes[0])
    return figure


FIGURES = (
    Figure(
        name="fig8",
        title="Eigenvectors of a random network's kernel are ordered by frequency",
        caption="Eigendecomposition of the centred tangent kernel of an untrained MLP on equally "
        "spaced points of [0, 1]. A: magnitude of each Fourier frequency (in periods over the "
        "interval) in each eigenvector, by index from 0 in order of decreasing eigenvalue, for "
        "seed 0. B: the eigenvectors 0, 5 and 20 of seed 0, with mean square one. C: eigenvalues "
        "relative to the largest, a thin line for each seed; the mark is the paper's 4 ‰ at the "
        "tenth.",
        points=one_point(Fourier),
        table=table,
        draw=draw,
    ),
)
