"""baratin2021, Figure 10: the disk dataset."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import COLOURS, new_figure
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "The disk dataset"
CAPTION = (
    "Left: the training points of seed 0, uniform on the square, labelled +1 inside the disk of "
    "half the square's area and −1 outside it. Right: the grid on which the tangent kernel is "
    "evaluated, with the same labels."
)
EXPERIMENT = "baratin2021_disk"
POINT = "default"


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """The point of Figure 1, whose data this figure shows."""
    return [Point(EXPERIMENT, POINT)]


def table(runs: Runs) -> FigureTable:
    """The share of training points inside the disk for each seed, seed 0's points, the grid."""
    from feature_alignment.data.synthetic import disk_labels, grid

    run = runs[POINT]
    metrics: pd.DataFrame = run.metrics
    chosen = metrics[metrics["metric"] == "inside_share"].reset_index(drop=True)
    x_grid = grid(run.spec["parameters"]["grid"])
    arrays = {name: run.arrays[f"seed0/{name}"] for name in ("x", "y")}
    return FigureTable(chosen, {**arrays, "x_grid": x_grid, "y_grid": disk_labels(x_grid)})


def draw(table: FigureTable) -> "Figure":
    """Two scatter plots with the class boundary."""
    from matplotlib.patches import Circle

    from feature_alignment.data.synthetic import DISK_RADIUS

    figure, axes = new_figure(1, 2, width=7.0, height=3.7)
    for ax, suffix, title, size in zip(
        axes[0], ("", "_grid"), ("training points", "grid"), (2.5, 1.5), strict=True
    ):
        x, y = table.arrays[f"x{suffix}"], table.arrays[f"y{suffix}"]
        for label, name in ((1, "inside"), (-1, "outside")):
            points_of = x[y == label]
            ax.plot(
                *points_of.T, "o", color=COLOURS[name], markersize=size, label=f"y = {label:+d}"
            )
        ax.add_patch(Circle((0, 0), DISK_RADIUS, fill=False, linestyle="--"))
        ax.set(xlabel="$x_1$", ylabel="$x_2$", aspect="equal", xlim=(-1.03, 1.03))
        ax.set(ylim=(-1.03, 1.03), xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        ax.set_title(f"{title}, n = {len(x)}")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure
