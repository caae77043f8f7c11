"""beaglehole2024, Figure 11: NFM and AGOP after training, by initialisation scale."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.papers.beaglehole2024.figures.curves import last_rows
from feature_alignment.papers.beaglehole2024.figures.slo import (
    OPTIMIZERS,
    effect_of_scale,
    first_layer_rows,
    last_matrix,
    optimizer_points,
    scales_of,
)
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import describe, new_figure, panel_label, show_matrix
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "With SLO, learned features hardly depend on the initialisation scale"
CAPTION = (
    "First-layer NFM and AGOP after training on the chain-monomial task (seed 0), each divided by "
    "its largest entry, with gradient descent (a, b) and SLO (c, d); columns are scales s₀ of the "
    "first layer's initialisation. Titles give mean ± standard deviation over seeds of the cosine "
    "similarity with the EGOP."
)
MATRICES = ("nfm", "agop")


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each optimizer."""
    return optimizer_points()


def table(runs: Runs) -> FigureTable:
    """Final similarities, how they depend on the scale, and the matrices of seed 0."""
    metrics = ["nfc", *(f"{name}_egop" for name in MATRICES)]
    rows = last_rows(first_layer_rows(runs, metrics))
    arrays = {
        f"{optimizer}/{name}/{scale:g}": last_matrix(runs[optimizer].arrays, scale, name)
        for optimizer in OPTIMIZERS
        for name in MATRICES
        for scale in scales_of(rows)
    }
    effect = effect_of_scale(rows, metrics)
    return FigureTable(pd.concat([rows, effect], ignore_index=True), arrays)


def draw(table: FigureTable) -> "Figure":
    """Four rows of heat maps, scales across."""
    scales = scales_of(table.frame)
    panels = [(optimizer, name) for optimizer in OPTIMIZERS for name in MATRICES]
    figure, axes = new_figure(len(panels), len(scales), width=2.4 * len(scales) + 1.0, height=10.0)
    for row, letter, (optimizer, name) in zip(axes, "abcd", panels, strict=True):
        for ax, scale in zip(row, scales, strict=True):
            matrix = table.arrays[f"{optimizer}/{name}/{scale:g}"]
            label = "entry / largest entry" if ax is row[-1] else None
            show_matrix(ax, matrix / matrix.max(), 1.0, label, diverging=True)
            similarity = table.values(f"{name}_egop", point=optimizer, scale=scale)
            ax.set_title(f"$s_0$ = {scale:g}\n{describe(similarity)}")
        row[0].set_ylabel(f"{name.upper()}, {OPTIMIZERS[optimizer]}")
        panel_label(row[0], letter)
    return figure
