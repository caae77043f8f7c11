"""lejeune2024, Figure 1: adapted kernel and label kernel for an easy and a difficult target."""

from typing import TYPE_CHECKING

import pandas as pd

from feature_alignment.papers.lejeune2024.figures.digit_points import (
    TARGETS,
    similarity_difference,
    target_points,
)
from feature_alignment.pipeline.figures.figure import Figure
from feature_alignment.pipeline.figures.style import describe, new_figure, show_matrix
from feature_alignment.pipeline.figures.table import FigureTable, Runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

KERNELS = ("initial", "adapted", "label")


def table(runs: Runs) -> FigureTable:
    """All metrics, the paired difference of similarities, and the kernels of seed 0."""
    metrics = runs.metrics
    name = "similarity_binarised_minus_linear"
    difference = similarity_difference(metrics, name, "binarised", "linear")
    arrays = {
        f"{targets}/{kernel}": runs[targets].array(f"kernel/{kernel}")
        for targets in TARGETS
        for kernel in KERNELS
    }
    return FigureTable(pd.concat([metrics, difference], ignore_index=True), arrays)


def draw(table: FigureTable) -> "Picture":
    """Heat maps of initial, adapted and label kernel (columns) for each target (rows)."""
    figure, axes = new_figure(2, 3, width=9.5, height=6.0)
    for (initial, adapted, label), targets in zip(axes, TARGETS, strict=True):
        matrices = [table.arrays[f"{targets}/{kernel}"] for kernel in KERNELS]
        show_matrix(initial, matrices[0], 4.0, "$K_0$")
        show_matrix(adapted, matrices[1], 10.0, "$K$")
        show_matrix(label, matrices[2], 2.0, "$K_{\\hat{y}}$", diverging=True)
        similarity = describe(table.values("label_similarity", point=targets))
        initial.set(title="initial kernel", ylabel=f"{targets} targets")
        adapted.set_title(f"adapted kernel\nsimilarity {similarity}")
        label.set_title("label kernel")
    return figure


FIGURES = (
    Figure(
        name="fig1",
        title="A more difficult task yields higher label-kernel alignment",
        caption="Kernels on digit images in order of the target y, for seed 0: the initial kernel "
        "K₀, the adapted kernel K and the label kernel of a network trained on the linear targets "
        "y (top) and on the binarised targets sign y (bottom). Colour ranges are the paper's: 4, "
        "10 and 2. The cosine similarity is that of K with the label kernel, mean ± standard "
        "deviation over seeds.",
        points=target_points,
        table=table,
        draw=draw,
    ),
)
