"""baratin2021, Figure 1: tangent-kernel eigenfunctions on the disk dataset, during training."""

from typing import TYPE_CHECKING

from feature_alignment.papers.baratin2021.parameters import Disk
from feature_alignment.pipeline.figures.figure import Figure, Point, Settings
from feature_alignment.pipeline.figures.style import new_figure
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Picture

POINT = "default"
RANKS = (1, 2, 3, 4, 5, 10, 20)


def points(settings: Settings) -> list[Point]:
    """One point: the paper's setting."""
    return [Point(POINT, settings[Disk])]


def table(runs: Runs) -> FigureTable:
    """All metrics, and the eigenfunctions of seed 0 at every measured step."""
    run = runs[POINT]
    names = [f"eigenfunctions/step{step}" for step in _ratio(run.metrics).index]
    return FigureTable(run.metrics, {name: run.array(name) for name in names})


def _ratio(frame: "pd.DataFrame") -> "pd.Series":
    """λ_20/λ_1 by measured step, mean over seeds."""
    return rows_where(frame, metric="eigenvalue_ratio_20").groupby("step")["value"].mean()


def draw(table: FigureTable) -> "Picture":
    """A grid of images: iterations down, ranks across."""
    from matplotlib.patches import Circle

    from feature_alignment.data.synthetic import DISK_RADIUS

    ratio = _ratio(table.frame)
    figure, axes = new_figure(len(ratio), len(RANKS), 1.15 * len(RANKS) + 0.7, 1.2 * len(ratio))
    for row, (step, share) in zip(axes, ratio.items(), strict=True):
        functions = table.arrays[f"eigenfunctions/step{step}"]  # (20, m, m)
        for ax, rank in zip(row, RANKS, strict=True):
            image = functions[rank - 1]
            limit = abs(image).max()
            place = {"extent": (-1, 1, -1, 1), "origin": "lower"}
            ax.imshow(image, cmap="PuOr_r", vmin=-limit, vmax=limit, **place)
            ax.add_patch(Circle((0, 0), DISK_RADIUS, fill=False, linewidth=0.5, linestyle="--"))
            ax.set(xticks=[], yticks=[])
            ax.grid(False)
        text = f"iteration {step}\n$\\lambda_{{20}}/\\lambda_1$ = {100 * share:.2g} %"
        row[0].set_ylabel(text, fontsize=7)
    for ax, rank in zip(axes[0], RANKS, strict=True):
        ax.set_title(f"$u_{{{rank}}}$")
    return figure


FIGURES = (
    Figure(
        name="fig1",
        title="Eigenfunctions of the tangent kernel take the shape of the classes",
        caption="Eigenfunctions of the centred tangent kernel on a grid over the square, by rank "
        "of their eigenvalue (columns) at several iterations of gradient descent (rows), for seed "
        "0; the circle is the class boundary. Beside each row: the ratio of the 20th to the first "
        "eigenvalue, mean over seeds.",
        points=points,
        table=table,
        draw=draw,
    ),
)
