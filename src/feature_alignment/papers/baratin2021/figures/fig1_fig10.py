"""baratin2021, Figures 1 and 10: tangent-kernel eigenfunctions on the disk dataset."""

from collections.abc import Hashable
from typing import Any

import pandas as pd

from feature_alignment.papers.baratin2021.parameters import Disk
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

RANKS = (1, 2, 3, 4, 5, 10, 20)
CLAIMS: dict[Hashable, str] = {0: "fig1.ratio_at_start", 2000: "fig1.ratio_after_training"}
"""The claim about the ratio of eigenvalues, by iteration."""


def points(settings: Settings) -> list[Point]:
    """Both readings of "6-layer deep": six linear layers, as in the figure, and six hidden ones."""
    section = settings[Disk]
    default = section.but(six_hidden_seeds=5)  # constant: not part of this network's run
    hidden = default.but(linear_layers=section.linear_layers + 1, seeds=section.six_hidden_seeds)
    return [Point("default", default), Point("six_hidden", hidden)]


def table(runs: Runs) -> FigureTable:
    """All metrics, and the eigenfunctions of seed 0 at every measured step."""
    run = runs["default"]
    names = [f"eigenfunctions/step{step}" for step in _ratio(run.metrics).index]
    return FigureTable(runs.metrics, {name: run.array(name) for name in names})


def _ratio(frame: pd.DataFrame) -> pd.Series:
    """λ_20/λ_1 by measured step, mean over seeds."""
    return rows_where(frame, metric="eigenvalue_ratio_20").groupby("step")["value"].mean()


def draw(table: FigureTable) -> Picture:
    """A grid of images: iterations as rows, ranks as columns."""
    ratio = _ratio(table.rows(point="default"))
    figure, axes = new_figure(len(ratio), len(RANKS), 1.15 * len(RANKS) + 0.7, 1.2 * len(ratio))
    for row, (step, share) in zip(axes, ratio.items(), strict=True):
        functions = table.arrays[f"eigenfunctions/step{step}"]  # (20, m, m)
        for ax, rank in zip(row, RANKS, strict=True):
            image = functions[rank - 1]
            limit = abs(image).max()
            place = {"extent": (-1, 1, -1, 1), "origin": "lower"}
            ax.imshow(image, cmap="PuOr_r", vmin=-limit, vmax=limit, **place)
            _draw_boundary(ax, linewidth=0.5)
            ax.set(xticks=[], yticks=[])
            ax.grid(False)
        text = f"iteration {step}\n$\\lambda_{{20}}/\\lambda_1$ = {100 * share:.2g} %"
        text += f"\n{table.paper(CLAIMS[step], '.1%').replace('%', ' %')}" if step in CLAIMS else ""
        row[0].set_ylabel(text, fontsize=7)
    for ax, rank in zip(axes[0], RANKS, strict=True):
        ax.set_title(f"$u_{{{rank}}}$")
    return figure


def _draw_boundary(ax: Axes, **style: Any) -> None:
    from matplotlib.patches import Circle

    from feature_alignment.data.synthetic import DISK_RADIUS

    look = {"fill": False, "linestyle": "--", "edgecolor": COLOURS["paper"], "zorder": 3}
    ax.add_patch(Circle((0, 0), DISK_RADIUS, **look, **style))


def dataset_table(runs: Runs) -> FigureTable:
    """The share of training points inside the disk for each seed, seed 0's points, the grid."""
    from feature_alignment.data.synthetic import disk_labels, grid

    (run,) = runs.values()
    x_grid = grid(run.parameters["grid"])
    arrays = {"x_grid": x_grid, "y_grid": disk_labels(x_grid)}
    arrays |= {name: run.array(name) for name in ("x", "y")}
    chosen = rows_where(run.metrics, metric="inside_share").reset_index(drop=True)
    return FigureTable(chosen, arrays)


def draw_dataset(table: FigureTable) -> Picture:
    """Two scatter plots with the class boundary."""
    figure, axes = new_figure(1, 2, width=7.0, height=3.7)
    panels = ("", "training points", 2.5), ("_grid", "grid", 1.5)
    for ax, (suffix, title, size) in zip(axes[0], panels, strict=True):
        x, y = table.arrays[f"x{suffix}"], table.arrays[f"y{suffix}"]
        for label, name in ((1, "inside"), (-1, "outside")):
            shown = {"color": COLOURS[name], "markersize": size, "label": f"y = {'+−'[label < 0]}1"}
            ax.plot(*x[y == label].T, "o" if name == "inside" else "x", **shown)
        _draw_boundary(ax)
        ax.set(xlabel="$x_1$", ylabel="$x_2$", aspect="equal", xlim=(-1.03, 1.03))
        ax.set(ylim=(-1.03, 1.03), xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        ax.set_title(f"{title}, n = {len(x)}")
    panel_letters(*axes[0])
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


FIGURES = (
    Figure(
        name="fig1",
        title="Eigenfunctions of the tangent kernel take the shape of the classes",
        caption="Eigenfunctions of the centred tangent kernel on a grid over the square, by rank "
        "of their eigenvalue (columns) at several iterations of gradient descent (rows), for seed "
        "0; the circle is the class boundary. Each has a range of colours of its own, and its "
        "sign is arbitrary. Beside each row: the ratio of the 20th to the first eigenvalue, mean "
        "over seeds. The table also has networks with one layer more.",
        points=points,
        table=table,
        draw=draw,
    ),
    Figure(
        name="fig10",
        title="The disk dataset",
        caption="A: the training points of seed 0, uniform on the square, labelled +1 inside "
        "the disk of half the square's area and −1 outside it. B: the grid on which the "
        "tangent kernel is evaluated, with the same labels.",
        points=lambda settings: points(settings)[:1],
        table=dataset_table,
        draw=draw_dataset,
    ),
)
