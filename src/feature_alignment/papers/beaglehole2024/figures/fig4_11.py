"""beaglehole2024, Figures 4 and 11: the first layer under gradient descent and SLO."""

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd

from feature_alignment.papers.beaglehole2024.figures import curves
from feature_alignment.papers.beaglehole2024.parameters import SLO
from feature_alignment.pipeline.figures import style
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_curve, draw_paper
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, points_by
from feature_alignment.pipeline.figures.table import FigureTable, Run, Runs, rows_where

OPTIMIZERS = {"gd": "gradient descent", "slo": "SLO"}
MATRICES = ("nfm", "agop")
PANELS = tuple(itertools.product(OPTIMIZERS, MATRICES))
CURVES = {
    "nfc": "UC-NFC",
    "centred_nfc": "C-NFC",
    "centred_uncentred_ratio": "C/UC ratio",
    "loss": "training loss",
}
SLO_CLAIMS = {  # the claim about SLO whose criterion is drawn, by metric
    "nfc": "fig4.slo_nfc_near_one",
    "centred_nfc": "fig4.slo_centred_nfc_near_one",
    "centred_uncentred_ratio": "fig4.slo_ratio_near_one",
    "loss": "fig4.slo_interpolates",
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
points = points_by(SLO, "optimizer", OPTIMIZERS)


def _effect_of_scale(frame: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """`<metric>_gain` of last values, from the largest scale to the smallest, and their spread."""
    last = curves.last_rows(rows_where(frame, metric=metrics))
    scales = curves.scales_of(frame)
    gain = curves.change_between(last, "scale", scales[0], scales[-1], "gain")
    return pd.concat([gain, curves.spread_over(last, "scale")], ignore_index=True)


def _last_matrix(run: Run, scale: float, name: str) -> np.ndarray:
    """A matrix of seed 0 after the last step, for one scale."""
    return run.array(f"scale{scale:g}/{name}/step{run.parameters['steps']}")


def curves_table(runs: Runs) -> FigureTable:
    """Measures of the first layer, how they depend on the scale, and the largest scale's matrices.

    The row of a `_step_up` from one scale to the next has the smaller one as its `scale`.
    """
    rows = rows_where(runs.metrics, metric=[*CURVES, *FURTHER])
    ratio = curves.last_rows(rows_where(rows, metric="centred_uncentred_ratio"))
    scales = curves.scales_of(rows)
    steps_up = [
        curves.change_between(ratio, "scale", *pair, "step_up").assign(scale=pair[1])
        for pair in itertools.pairwise(scales)
    ]
    effect = _effect_of_scale(rows, ["nfc", "centred_nfc"])
    arrays = {
        f"{optimizer}/{name}": _last_matrix(runs[optimizer], scales[0], name)
        for optimizer, name in PANELS
    }
    return FigureTable(pd.concat([rows, *steps_up, effect], ignore_index=True), arrays)


def matrices_table(runs: Runs) -> FigureTable:
    """Final similarities, how they depend on the scale, and the matrices of seed 0."""
    metrics = ["nfc", *(f"{name}_egop" for name in MATRICES)]
    rows = curves.last_rows(rows_where(runs.metrics, metric=metrics))
    arrays = {
        f"{optimizer}/{name}/{scale:g}": _last_matrix(runs[optimizer], scale, name)
        for optimizer, name in PANELS
        for scale in curves.scales_of(rows)
    }
    effect = _effect_of_scale(rows, metrics)
    return FigureTable(pd.concat([rows, effect], ignore_index=True), arrays)


def draw_curves(table: FigureTable) -> Picture:
    """Curves of both optimizers in two rows, their matrices in a third."""
    figure, axes = style.new_figure(3, 4, width=11.0, height=8.0)
    scales = curves.scales_of(table.frame)
    for row, (optimizer, title) in zip(axes, OPTIMIZERS.items(), strict=False):
        for ax, (metric, name) in zip(row, CURVES.items(), strict=True):
            set_vertical_axis(ax, metric)
            for scale, look in style.sequence_looks(scales).items():
                rows = table.rows(point=optimizer, metric=metric, split="train", scale=scale)
                draw_curve(ax, rows, label=f"{scale:g}", **look)
            ax.set_title(name)
        row[0].set_ylabel(title)
    for ax, claim in zip(axes[1], SLO_CLAIMS.values(), strict=True):
        draw_paper(ax, table.of_claim(claim))
        ax.set_xlabel("step")
    axes[0, 0].legend(title="scale of layer 1", ncols=2)
    matrices = [table.arrays[f"{optimizer}/{name}"] for optimizer, name in PANELS]
    style.show_matrices(axes[2], matrices)
    for ax, (optimizer, name) in zip(axes[2], PANELS, strict=True):
        rows = table.rows(point=optimizer, metric=f"{name}_egop", scale=scales[0])
        ax.set_title(
            f"{name.upper()}, {OPTIMIZERS[optimizer]}\n"
            f"$\\rho(\\cdot, \\mathrm{{EGOP}})$ = {style.describe(curves.last_rows(rows)['value'])}"
        )
    style.panel_letters(*axes[:, 0], axes[2, 2])
    return figure


def set_vertical_axis(ax: Axes, metric: str) -> None:
    """A logarithmic axis for losses, and one from 0 to 1 for everything else."""
    if metric == "loss":
        ax.set_yscale("log")
    else:
        ax.set_ylim(0, 1.02)


def draw_matrices(table: FigureTable) -> Picture:
    """Four rows of heat maps, with scales as columns."""
    scales = curves.scales_of(table.frame)
    figure, axes = style.new_figure(len(PANELS), len(scales), 2.4 * len(scales) + 1.0, height=10.0)
    names = [f"{optimizer}/{name}/{scale:g}" for optimizer, name in PANELS for scale in scales]
    style.show_matrices(list(axes.flat), [table.arrays[name] for name in names], shrink=0.2)
    for row, (optimizer, name) in zip(axes, PANELS, strict=True):
        for ax, scale in zip(row, scales, strict=True):
            similarity = table.values(f"{name}_egop", point=optimizer, scale=scale)
            ax.set_title(f"$\\rho(\\cdot, \\mathrm{{EGOP}})$ = {style.describe(similarity)}")
        row[0].set_ylabel(f"{name.upper()}, {OPTIMIZERS[optimizer]}")
    for ax, scale in zip(axes[0], scales, strict=True):
        ax.set_title(f"$s_0$ = {scale:g}\n{ax.get_title()}")
    style.panel_letters(*axes[:, 0])
    return figure


FIGURES = (
    Figure(
        name="fig4",
        title="Speed Limited Optimization learns features at every initialisation scale",
        caption="First layer of a ReLU network on the chain-monomial task, for several scales of "
        "its initialisation, with gradient descent (A) and SLO (B): UC-NFC, C-NFC, the C/UC ratio "
        "tr(W̄ᵀW̄W̄ᵀKW̄) / tr(WᵀWWᵀKW) and the training loss, whose ranges differ. Black dotted lines "
        "are bounds on SLO's last step. "
        f"{OVER_SEEDS} NFM and AGOP after training at the largest scale (seed 0), each divided by "
        "its largest entry, with gradient descent (C) and SLO (D); titles give mean ± standard "
        "deviation over seeds of their cosine similarity with the EGOP.",
        points=points,
        table=curves_table,
        draw=draw_curves,
    ),
    Figure(
        name="fig11",
        title="With SLO, learned features hardly depend on the initialisation scale",
        caption="First-layer NFM and AGOP after training on the chain-monomial task (seed 0), each "
        "divided by its largest entry, with gradient descent (A, B) and SLO (C, D); columns are "
        "scales s₀ of the first layer's initialisation. Titles give mean ± standard deviation over "
        "seeds of the cosine similarity with the EGOP.",
        points=points,
        table=matrices_table,
        draw=draw_matrices,
    ),
)
