"""lejeune2024, Figure 3: the adapted kernel is large at the difficult training points."""

from typing import TYPE_CHECKING

import numpy as np

from feature_alignment.papers.lejeune2024.figures.digit_points import target_points
from feature_alignment.pipeline.figures.figure import Figure
from feature_alignment.pipeline.figures.style import COLOURS, new_figure
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

METRICS = ("pearson_diagonal_residual", "diagonal_ratio_near_boundary")


def table(runs: Runs) -> FigureTable:
    """The two measures of each seed, and the curves of seed 0 for the binarised targets."""
    chosen = rows_where(runs.metrics, metric=METRICS).reset_index(drop=True)
    curves = ("target", "kernel_diagonal")
    return FigureTable(chosen, {name: runs["binarised"].array(name) for name in curves})


def draw(table: FigureTable) -> "Picture":
    """Targets on the left, residual and kernel diagonal on the right."""
    y, diagonal = table.arrays["target"], table.arrays["kernel_diagonal"]
    index = np.arange(len(y))
    figure, axes = new_figure(1, 2, width=8.0, height=3.0)
    left, right = axes[0]
    left.plot(index, np.sign(y), color=COLOURS["easy"], label="sign y")
    left.plot(index, y, ":", color=COLOURS["paper"], label="y")
    left.set(xlabel="training point, in order of y", ylabel="target")
    left.legend(loc="lower center", ncols=2, bbox_to_anchor=(0.5, 1.0))

    right.plot(index, np.sign(y) - y, "--", color=COLOURS["test"], label="residual sign y − y")
    right.set(xlabel="training point, in order of y", ylabel="residual")
    kernel = right.twinx()
    kernel.plot(index, diagonal, "x", color=COLOURS["binarised"], markersize=2.5, label="$K(x, x)$")
    kernel.set_ylabel("diagonal of the adapted kernel")
    kernel.grid(False)
    kernel.spines["right"].set_visible(True)
    handles = [*right.lines, *kernel.lines]
    right.legend(handles=handles, loc="lower center", ncols=2, bbox_to_anchor=(0.5, 1.0))
    return figure


FIGURES = (
    Figure(
        name="fig3",
        title="The adapted kernel reveals difficult structure",
        caption="The network trained on binarised targets, at the kernel's training points in "
        "order of y, for seed 0. Left: the targets sign y (solid) and y (dotted). Right: the "
        "residual sign y − y (dashed) and the diagonal of the adapted kernel (crosses), which is "
        "large near y = 0.",
        points=target_points,  # the linear targets are the control
        table=table,
        draw=draw,
    ),
)
