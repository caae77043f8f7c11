"""baratin2021, Figure 8: Fourier decomposition of a random network's kernel eigenvectors."""

import numpy as np
import pandas as pd

from feature_alignment.papers.baratin2021.parameters import Fourier
from feature_alignment.pipeline.figures import style
from feature_alignment.pipeline.figures.drawing import THIN
from feature_alignment.pipeline.figures.figure import Figure, Picture, one_point
from feature_alignment.pipeline.figures.table import FigureTable, Runs

SHOWN = (1, 6, 21)  # the paper's eigenvectors 0, 5 and 20, counted from 1


def table(runs: Runs) -> FigureTable:
    """All metrics, the eigenvalues of all seeds, and the eigenvectors of seed 0."""
    (run,) = runs.values()
    of_first_seed = {name: run.array(name) for name in ("functions", "magnitudes")}
    return FigureTable(run.metrics, {"eigenvalues": run.stacked("eigenvalues"), **of_first_seed})


def draw(table: FigureTable) -> Picture:
    """Fourier magnitudes, some eigenvectors and the eigenvalues."""
    figure, axes = style.new_figure(1, 3, width=10.0, height=3.2)
    fourier, vectors, spectrum = axes[0]
    magnitudes, functions = table.arrays["magnitudes"], table.arrays["functions"]
    named = pd.DataFrame(magnitudes, columns=range(1, 1 + magnitudes.shape[1]))
    style.show_matrix(fourier, named, 1, "magnitude", xticklabels=5, yticklabels=5, square=False)
    fourier.invert_yaxis()
    fourier.set(xlabel="eigenvector j", ylabel="frequency (periods)")
    x = np.linspace(0, 1, len(functions))
    for j, look in style.sequence_looks(SHOWN).items():
        line, colour = look["linestyle"], look["colour"]
        vectors.plot(x, functions[:, j - 1], line, color=colour, label=f"j = {j}")
    vectors.set(xlabel="x", ylabel="eigenvector", xlim=(0, 1))
    vectors.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    eigenvalues = table.arrays["eigenvalues"]  # (seeds, n − 1)
    index = np.arange(1, eigenvalues.shape[1] + 1)
    relative = eigenvalues / eigenvalues[:, :1]
    # Not as a curve with a band: rounding makes some of the smallest negative.
    spectrum.plot(index, relative.T, color=style.COLOURS["reference"], linewidth=THIN, alpha=0.5)
    spectrum.plot(index, np.median(relative, axis=0), color=style.COLOURS["train"], label="median")
    for ratio in table.of_claim("fig8.ratio").values():
        spectrum.plot(10, ratio, "x", color=style.COLOURS["paper"], markersize=7, label="paper")
    spectrum.set(xlabel="index j", ylabel="$\\lambda_j / \\lambda_1$", yscale="log")
    spectrum.legend()
    style.panel_letters(*axes[0])
    return figure


FIGURE = Figure(
    name="fig8",
    title="Eigenvectors of a random network's kernel are ordered by frequency",
    caption="Eigendecomposition of the centred tangent kernel of an untrained MLP on equally "
    "spaced points of [0, 1], counted from 1 by decreasing eigenvalue. A: magnitude of each "
    "Fourier frequency (in periods over the interval) in each eigenvector, for seed 0. B: the "
    "eigenvectors 1, 6 and 21 of seed 0, with mean square one; the paper, which here counts "
    "from 0, calls them 0, 5 and 20. C: eigenvalues relative to the largest, a thin line for "
    "each seed, and their median; the mark is the paper's 4 ‰ at the tenth.",
    points=one_point(Fourier),
    table=table,
    draw=draw,
)
