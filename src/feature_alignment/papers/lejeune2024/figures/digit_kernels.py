"""lejeune2024, Figures 1 and 3: kernels adapted to an easy and to a difficult target."""

import numpy as np

from feature_alignment.papers.lejeune2024.parameters import DigitRegression
from feature_alignment.pipeline.figures import style
from feature_alignment.pipeline.figures.figure import Figure, Picture, points_by
from feature_alignment.pipeline.figures.style import COLOURS
from feature_alignment.pipeline.figures.table import FigureTable, Runs

TARGETS = ("linear", "binarised")
KERNELS = {"initial": "$K_0$", "adapted": "$K$", "label": "$K_{\\hat{y}}$"}
COVERED = 99.5  # percentage of a kernel's entries that its colour range covers

target_points = points_by(DigitRegression, "targets", TARGETS)
"""The linear targets are the control of Figure 3."""


def kernel_table(runs: Runs) -> FigureTable:
    """All metrics, and the kernels of seed 0."""
    arrays = {
        f"{targets}/{kernel}": runs[targets].array(f"kernel/{kernel}")
        for targets in TARGETS
        for kernel in KERNELS
    }
    return FigureTable(runs.metrics, arrays)


def draw_kernels(table: FigureTable) -> Picture:
    """Heat maps of initial, adapted and label kernel (columns) for each target (rows)."""
    figure, axes = style.new_figure(2, 3, width=9.5, height=6.0)
    for column, (kernel, title) in zip(axes.T, KERNELS.items(), strict=True):
        both = [table.arrays[f"{targets}/{kernel}"] for targets in TARGETS]
        largest = max(float(np.percentile(abs(matrix), COVERED)) for matrix in both)
        for ax, matrix in zip(column, both, strict=True):
            style.show_matrix(ax, matrix, largest, title, diverging=kernel == "label")
            ax.set_title(f"{kernel} kernel")
    for row, targets in zip(axes, TARGETS, strict=True):
        similarity = style.describe(table.values("label_similarity", point=targets))
        paper = table.paper(f"fig1.similarity_{targets}")
        row[0].set_ylabel(f"{table.dataset}, {targets} targets")
        row[1].set_title(f"adapted kernel\nsimilarity {similarity}{paper}")
    style.panel_letters(*axes.flat)
    return figure


def difficulty_table(runs: Runs) -> FigureTable:
    """All metrics, and the curves of seed 0 for the binarised targets."""
    curves = ("target", "kernel_diagonal")
    return FigureTable(runs.metrics, {name: runs["binarised"].array(name) for name in curves})


def draw_difficulty(table: FigureTable) -> Picture:
    """Targets on the left, residual and kernel diagonal on the right."""
    y, diagonal = table.arrays["target"], table.arrays["kernel_diagonal"]
    index = np.arange(len(y))
    figure, axes = style.new_figure(1, 2, width=8.0, height=3.0)
    left, right = axes[0]
    left.plot(index, np.sign(y), color=COLOURS["easy"], label="sign y")
    left.plot(index, y, ":", color=COLOURS["paper"], label="y")
    left.set(xlabel="training point, in order of y", ylabel="target")
    left.legend(loc="lower center", ncols=2, bbox_to_anchor=(0.5, 1.0))
    figure.suptitle(table.dataset)
    style.panel_letters(left, right)
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
        name="fig1",
        title="A more difficult task yields higher label-kernel alignment",
        caption="Kernels on digit images in order of the target y, for seed 0: the initial kernel "
        "K₀, the adapted kernel K and the label kernel of a network trained on the linear targets "
        "y (top) and on the binarised targets sign y (bottom). Each kernel has one colour "
        "range for both targets, which covers 99.5 % of its entries (the paper's end at 4, 10 and "
        "2). The cosine similarity is that of K with the label kernel, mean ± standard deviation "
        "over seeds, or of fewer than four seeds each.",
        points=target_points,
        table=kernel_table,
        draw=draw_kernels,
    ),
    Figure(
        name="fig3",
        title="The adapted kernel reveals difficult structure",
        caption="The network trained on binarised targets, at the kernel's training points in "
        "order of y, for seed 0. A: the targets sign y (solid) and y (dotted). B: the "
        "residual sign y − y (dashed) and the diagonal of the adapted kernel (crosses), which is "
        "large near y = 0.",
        points=target_points,
        table=difficulty_table,
        draw=draw_difficulty,
    ),
)
