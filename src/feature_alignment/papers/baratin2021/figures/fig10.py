"""baratin2021, Figure 10: the disk dataset."""

from typing import TYPE_CHECKING

from feature_alignment.papers.baratin2021.figures.fig1 import POINT, points
from feature_alignment.pipeline.figures.figure import Figure
from feature_alignment.pipeline.figures.style import COLOURS, new_figure
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


def table(runs: Runs) -> FigureTable:
    """The share of training points inside the disk for each seed, seed 0's points, the grid."""
    from feature_alignment.data.synthetic import disk_labels, grid

    run = runs[POINT]
    x_grid = grid(run.parameters["grid"])
    arrays = {"x_grid": x_grid, "y_grid": disk_labels(x_grid)}
    arrays |= {name: run.array(name) for name in ("x", "y")}
    chosen = rows_where(run.metrics, metric="inside_share").reset_index(drop=True)
    return FigureTable(chosen, arrays)


def draw(table: FigureTable) -> "Picture":
    """Two scatter plots with the class boundary."""
    from matplotlib.patches import Circle

    from feature_alignment.data.synthetic import DISK_RADIUS

    figure, axes = new_figure(1, 2, width=7.0, height=3.7)
    panels = ("", "training points", 2.5), ("_grid", "grid", 1.5)
    for ax, (suffix, title, size) in zip(axes[0], panels, strict=True):
        x, y = table.arrays[f"x{suffix}"], table.arrays[f"y{suffix}"]
        for label, name in ((1, "inside"), (-1, "outside")):
            shown = {"color": COLOURS[name], "markersize": size, "label": f"y = {label:+d}"}
            ax.plot(*x[y == label].T, "o", **shown)
        ax.add_patch(Circle((0, 0), DISK_RADIUS, fill=False, linestyle="--"))
        ax.set(xlabel="$x_1$", ylabel="$x_2$", aspect="equal", xlim=(-1.03, 1.03))
        ax.set(ylim=(-1.03, 1.03), xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        ax.set_title(f"{title}, n = {len(x)}")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


FIGURES = (
    Figure(
        name="fig10",
        title="The disk dataset",
        caption="Left: the training points of seed 0, uniform on the square, labelled +1 inside "
        "the disk of half the square's area and −1 outside it. Right: the grid on which the "
        "tangent kernel is evaluated, with the same labels.",
        points=points,
        table=table,
        draw=draw,
    ),
)
