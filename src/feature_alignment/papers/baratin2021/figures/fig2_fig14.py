"""baratin2021, Figures 2 and 14: tangent-kernel spectrum during training, by learning rate."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from feature_alignment.papers.baratin2021.figures import training_curves as curves
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_curve
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import COLOURS, new_figure
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

USUAL_RATE, SMALL_RATE = 0.01, 0.003
EIGENVALUES = {
    "largest_eigenvalue": ("max", COLOURS["test"]),
    "mean_eigenvalue": ("mean", COLOURS["train"]),
    "median_eigenvalue": ("median", COLOURS["easy"]),
}
TRACE_RATIOS = (5, 10, 20, 40, 80, 160)
HIGHLIGHTED = (40, 80, 160)
SMOOTHED = 3
"""Consecutive measurements whose mean says whether a curve rises or falls."""
FITTED = 0.999
"""Training accuracy that counts as the paper's 100 %, which says when gains are taken."""


def points(
    settings: Settings, shares: tuple[float, ...], rates: tuple[float, ...], late: bool = False
) -> list[Point]:
    """Each share of random labels with each learning rate."""
    return [curves.vgg19(settings, share, rate, late) for rate in rates for share in shares]


def table(runs: Runs) -> FigureTable:
    """The curves of the whole network, and what sums them up."""
    return curves.with_summary(rows_where(runs.metrics, layer="all"), numbers)


def numbers(curve: curves.Curve, split: str) -> dict[str, float]:
    """Numbers that the paper's claims about spectra are about, for one run and split.

    Before the first step eigenvalues are large; they fall within about ten iterations, and only
    then rise. So gains are counted from step 0 (`_gain`) and from the first measured step after
    iteration 10 (`_gain_from_10`), where the paper's axis begins. Likewise the lowest effective
    rank is taken relative to step 0 (`effective_rank_lowest_share`) and to the highest measured
    (`effective_rank_lowest_of_peak`).

    Directions are judged on means of three consecutive measurements, so that one fluctuation does
    not decide, and gains where the training images are fitted, if they are.

    Returns:
        Values by metric; metrics.yaml has their definitions.
    """
    rank, accuracy = curve("effective_rank"), curve("accuracy", split="test")
    learnt = curve("accuracy", split="train")
    largest, mean, median = (curve(metric) for metric in EIGENVALUES)
    train, test = (curve("effective_rank", split=split) for split in curves.SPLITS)
    late = rank.index >= curves.AXIS_BEGIN
    anisotropy = largest / median / (largest / median)[late].iloc[0]
    found = {
        "anisotropic_growth": anisotropy[late].iloc[rank[late].argmin()],
        "effective_rank_lowest": rank.min(),
        "effective_rank_lowest_share": rank.min() / rank.iloc[0],
        "effective_rank_lowest_of_peak": rank.min() / rank.max(),
        "effective_rank_highest": rank.max(),
        "effective_rank_after_peak": rank.iloc[-1] / rank.iloc[accuracy.argmax()],
        "accuracy_at_lowest_rank": learnt.iloc[rank.argmin()],
        "effective_rank_split_difference": ((test - train).abs() / train).mean(),
        "trace_ratio_40_highest": curve("trace_ratio_40").max(),
        "label_alignment_peak_step": curves.peak(curve("label_alignment")) / curves.peak(accuracy),
    }
    ends = {"gain": rank.index[-1]}
    if (learnt >= FITTED).any():
        ends["gain_fitted"] = (learnt >= FITTED).idxmax()
        found["anisotropic_growth_fitted"] = anisotropy[ends["gain_fitted"]]
    for name, end in ends.items():
        for metric, values in (("largest", largest), ("mean", mean)):
            found[f"{metric}_eigenvalue_{name}"] = values[end] / values.iloc[0]
            found[f"{metric}_eigenvalue_{name}_from_10"] = values[end] / values[late].iloc[0]
    for metric in EIGENVALUES:
        one, other = (curve(metric, split=split) for split in curves.SPLITS)
        if 0 < one.min() < one.max() and other.min() > 0:
            logs = np.log(one)
            spread = logs.max() - logs.min()
            found[f"{metric}_split_difference"] = np.abs(np.log(other) - logs).mean() / spread
    if len(rank) >= SMOOTHED:
        for metric in ("effective_rank", "effective_rank_uncentred"):
            values = curve(metric)
            lowest = values.rolling(SMOOTHED).mean().min()
            found[f"{metric}_smoothed_share"] = lowest / values.iloc[0]
        for k in HIGHLIGHTED:
            values = curve(f"trace_ratio_{k}")
            highest = values.rolling(SMOOTHED).mean().max()
            found[f"trace_ratio_{k}_smoothed_gain"] = highest - values.iloc[0]
    # A small preset can leave too few different values for a correlation.
    if min(rank[late].nunique(), accuracy[late].nunique()) > 1:
        correlation = rank[late].rank().corr(accuracy[late].rank())
        found["effective_rank_accuracy_spearman"] = correlation
    return found


def draw(table: FigureTable, rate: float) -> Picture:
    """Accuracy, eigenvalues, effective rank and trace ratios (rows) by share (columns)."""
    shown = table.rows(learning_rate=rate)
    shares = shown["random_label_share"].unique()
    figure, axes = new_figure(4, len(shares), width=3.0 * len(shares) + 0.6, height=8.2)
    for row in axes[1:3]:  # one range in each row, so that columns can be compared
        for ax in row[1:]:
            ax.sharey(row[0])
    for column, share in zip(axes.T, shares, strict=True):
        run = rows_where(shown, random_label_share=share)
        title = f"{100 * share:.0f} % random labels"
        title += "" if rate == USUAL_RATE else f", learning rate {rate:g}"
        for ax in column:
            curves.iteration_axis(ax, run["step"].max())
        _draw_column(column, run, title)
    axes[1, 0].margins(y=0.2)
    axes[1, 0].autoscale(axis="y")
    axes[2, 0].set_ylim(bottom=0)
    labels = "accuracy", "eigenvalues", "effective rank", "trace ratios"
    for ax, label in zip(axes[:, 0], labels, strict=True):
        ax.set_ylabel(label)
    axes[0, 0].legend(loc="upper left")
    axes[1, 0].legend(loc="best", ncols=3, columnspacing=1.0, handlelength=1.2)
    return figure


def _draw_column(column: list[Axes], run: pd.DataFrame, title: str) -> None:
    accuracy, eigenvalues, rank, ratios = column
    curves.draw_accuracy(accuracy, run)
    eigenvalues.set_yscale("log")
    for split, line in curves.SPLITS.items():
        rows = partial(rows_where, run, split=split)
        for metric, (label, colour) in EIGENVALUES.items():
            name = label if split == "train" else None
            draw_curve(eigenvalues, rows(metric=metric), colour, name, linestyle=line)
        draw_curve(rank, rows(metric="effective_rank"), COLOURS[split], linestyle=line)
        for k in TRACE_RATIOS:
            colour = _trace_ratio_colour(k)
            draw_curve(ratios, rows(metric=f"trace_ratio_{k}"), colour, linestyle=line)
    _name_trace_ratios(ratios, run)
    accuracy.set_title(title)
    ratios.set(ylim=(0, 1.02), xlabel="iteration")


def _name_trace_ratios(ax: Axes, run: pd.DataFrame) -> None:
    """Write each T_k beside the end of its curve, moved down where names would overlap."""
    ceiling, last = 1.0, run["step"].max()
    for k in reversed(TRACE_RATIOS):
        end = rows_where(run, metric=f"trace_ratio_{k}", split="train", step=last)["value"].mean()
        height = min(end, ceiling)
        ceiling = height - 0.07
        place: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
        colour = _trace_ratio_colour(k)
        ax.annotate(f"$T_{{{k}}}$", (last, height), fontsize=7, color=colour, **place)


def _trace_ratio_colour(k: int) -> str:
    return COLOURS["test"] if k in HIGHLIGHTED else COLOURS["reference"]


FIGURES = (
    Figure(
        name="fig2",
        title="The spectrum of the tangent kernel grows, and grows more anisotropic",
        caption="Training of VGG19 on CIFAR-10 with 0, 20 and 50 % random labels (columns), "
        "learning rate 0.01. Rows: accuracy; largest, mean and median eigenvalue of the centred "
        "tangent kernel; its effective rank; its trace ratios, in red those of the top 40, 80 and "
        "160. Solid: a batch of training images, dashed: of test images. The axis begins at "
        "iteration 0, before the first update; eigenvalues can fall until about iteration 10, "
        f"where the paper's axis begins. {OVER_SEEDS}",
        points=partial(points, shares=(0, 0.2, 0.5), rates=(USUAL_RATE,)),
        table=table,
        draw=partial(draw, rate=USUAL_RATE),
    ),
    Figure(
        name="fig14",
        title="With a smaller learning rate the effective rank falls less",
        caption="As Figure 2, with learning rate 0.003: training of VGG19 on CIFAR-10 without and "
        "with 50 % random labels (columns). The table also has Figure 2's runs, with learning "
        "rate 0.01, to compare with.",
        points=partial(points, shares=(0, 0.5), rates=(SMALL_RATE, USUAL_RATE)),
        table=table,
        draw=partial(draw, rate=SMALL_RATE),
    ),
    Figure(
        name="fig_late",
        title="When random labels are overfitted, the effective rank rises again",
        caption="As Figure 2, later in the training, of VGG19 without and with 50 % random labels "
        "(columns): the runs of Figure 2, or, where these are cut short, narrower networks on "
        f"fewer images. {OVER_SEEDS}",
        points=partial(points, shares=(0, 0.5), rates=(USUAL_RATE,), late=True),
        table=table,
        draw=partial(draw, rate=USUAL_RATE),
    ),
)
