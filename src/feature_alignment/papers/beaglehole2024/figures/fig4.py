"""beaglehole2024, Figure 4: feature correlations under gradient descent and SLO."""

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.papers.beaglehole2024.figures.curves import (
    change_between,
    draw_curve,
    last_rows,
)
from feature_alignment.papers.beaglehole2024.figures.slo import (
    OPTIMIZERS,
    effect_of_scale,
    first_layer_rows,
    last_matrix,
    optimizer_points,
    scales_of,
)
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import (
    describe,
    new_figure,
    panel_label,
    sequence_colours,
    show_matrix,
)
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Speed Limited Optimization learns features at every initialisation scale"
CAPTION = (
    "First layer of a ReLU network on the chain-monomial task, for several scales of its "
    "initialisation, with gradient descent (A) and SLO (B): UC-NFC, C-NFC, the C/UC ratio "
    "tr(W̄ᵀW̄W̄ᵀKW̄) / tr(WᵀWWᵀKW) and the training loss, means over seeds and bands of one standard "
    "deviation either way (of the logarithm for the loss). NFM and AGOP after training at the "
    "largest scale (seed 0), each divided by its largest entry, with gradient descent (C) and SLO "
    "(D); titles give mean ± standard deviation over seeds of their cosine similarity with the "
    "EGOP."
)
CURVES = {
    "nfc": "UC-NFC",
    "centred_nfc": "C-NFC",
    "centred_uncentred_ratio": "C/UC ratio",
    "loss": "training loss",
}
FURTHER = (
    "nfc_mean_subtracted",
    "centred_nfc_mean_subtracted",
    "nfm_egop",
    "agop_egop",
    "nfm_identity",
    "agop_identity",
    "weight_change",
    "initial_over_final_norm",
)


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each optimizer."""
    return optimizer_points()


def table(runs: Runs) -> FigureTable:
    """Measures of the first layer, how they depend on the scale, and the matrices of C and D.

    `centred_uncentred_ratio_step_up`: how much the last C/UC ratio grows from one scale to the
    next smaller one, which the column `scale` names.
    """
    rows = first_layer_rows(runs, [*CURVES, *FURTHER])
    ratio = last_rows(rows[rows["metric"] == "centred_uncentred_ratio"])
    scales = scales_of(rows)
    group = ["point", "seed", "layer", "split", "metric"]
    steps_up = [
        change_between(ratio, "scale", large, small, group, "step_up").assign(scale=small)
        for large, small in itertools.pairwise(scales)
    ]
    effect = effect_of_scale(rows, ["nfc", "centred_nfc"])
    arrays = {
        f"{optimizer}/{name}": last_matrix(runs[optimizer].arrays, scales[0], name)
        for optimizer in OPTIMIZERS
        for name in ("nfm", "agop")
    }
    return FigureTable(pd.concat([rows, *steps_up, effect], ignore_index=True), arrays)


def draw(table: FigureTable) -> "Figure":
    """Curves of both optimizers in two rows, their matrices in a third."""
    figure, axes = new_figure(3, 4, width=11.0, height=8.0)
    frame = table.frame
    scales = scales_of(frame)
    colours = sequence_colours(len(scales))
    for row, letter, (optimizer, title) in zip(axes, "AB", OPTIMIZERS.items(), strict=False):
        for ax, (metric, name) in zip(row, CURVES.items(), strict=True):
            rows = frame[
                (frame["point"] == optimizer)
                & (frame["metric"] == metric)
                & (frame["split"] == "train")
            ]
            if metric == "loss":
                ax.set_yscale("log")
            else:
                ax.set_ylim(0, 1.02)
            for scale, colour in zip(scales, colours, strict=True):
                draw_curve(ax, rows[rows["scale"] == scale], colour, f"{scale:g}")
            ax.set(title=f"{name}, {title}", ylabel=name)
        panel_label(row[0], letter)
    for ax in axes[1]:
        ax.set_xlabel("step")
    axes[0, 0].legend(title="scale of layer 1", ncols=2)
    panels = [(optimizer, name) for optimizer in OPTIMIZERS for name in ("nfm", "agop")]
    for ax, (optimizer, name) in zip(axes[2], panels, strict=True):
        matrix = table.arrays[f"{optimizer}/{name}"]
        label = "entry / largest entry" if ax is axes[2, -1] else None
        show_matrix(ax, matrix / matrix.max(), 1.0, label, diverging=True)
        similarity = last_rows(
            frame[
                (frame["point"] == optimizer)
                & (frame["metric"] == f"{name}_egop")
                & (frame["scale"] == scales[0])
            ]
        )["value"]
        ax.set_title(
            f"{name.upper()}, {OPTIMIZERS[optimizer]}\n"
            f"$\\rho(\\cdot, \\mathrm{{EGOP}})$ = {describe(similarity)}"
        )
    panel_label(axes[2, 0], "C")
    panel_label(axes[2, 2], "D")
    return figure
