"""baratin2021, Figure 10: the disk dataset."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.figures.make import FigureTable, Runs
from feature_alignment.figures.style import COLOURS, new_figure
from feature_alignment.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "The disk dataset"
CAPTION = (
    "The training points of seed 0, uniform on the square, labelled +1 inside the disk of half "
    "the square's area and −1 outside it."
)
EXPERIMENT = "baratin2021_disk"
POINT = "default"


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """The point of Figure 1, whose data this figure shows."""
    return [Point(EXPERIMENT, POINT)]


def table(runs: Runs) -> FigureTable:
    """The share of training points inside the disk for each seed, and the points of seed 0."""
    run = runs[POINT]
    metrics: pd.DataFrame = run.metrics
    chosen = metrics[metrics["metric"] == "inside_share"].reset_index(drop=True)
    return FigureTable(chosen, {name: run.arrays[f"seed0/{name}"] for name in ("x", "y")})


def draw(table: FigureTable) -> "Figure":
    """A scatter plot with the class boundary."""
    from matplotlib.patches import Circle

    from feature_alignment.data.synthetic import DISK_RADIUS

    figure, axes = new_figure(1, 1, width=3.6, height=3.7)
    ax = axes[0, 0]
    x, y = table.arrays["x"], table.arrays["y"]
    for label, name in ((1, "inside"), (-1, "outside")):
        chosen = x[y == label]
        ax.plot(*chosen.T, "o", color=COLOURS[name], markersize=2.5, label=f"y = {label:+d}")
    ax.add_patch(Circle((0, 0), DISK_RADIUS, fill=False, linestyle="--"))
    ax.set(xlabel="$x_1$", ylabel="$x_2$", aspect="equal", xlim=(-1, 1), ylim=(-1, 1))
    ax.set(xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    ax.legend(loc="upper center", ncols=2, bbox_to_anchor=(0.5, 1.12))
    return figure
