"""baratin2021, Figures 2 and 14: tangent-kernel spectrum during training, by learning rate."""

from functools import partial
from typing import Any

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


def points(settings: Settings, shares: tuple[float, ...], rates: tuple[float, ...]) -> list[Point]:
    """Each share of random labels with each learning rate."""
    return [curves.vgg19(settings, share, rate) for rate in rates for share in shares]


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

    Returns:
        Gains of the largest and the mean eigenvalue at the end;
        `anisotropic_growth`, the gain from 10 of the largest over that of the median;
        `effective_rank_lowest` and its two shares; `effective_rank_after_peak`, its end over its
        value at the highest test accuracy; `effective_rank_split_difference`, the mean over
        steps of |erank_test − erank_train| / erank_train; `trace_ratio_40_highest`; where it is
        defined, `effective_rank_accuracy_spearman`, the rank correlation of effective rank and
        test accuracy from iteration 10. With three measured steps or more, so that one
        fluctuation does not decide on a direction: `effective_rank_smoothed_share`, the lowest
        mean of three consecutive measurements over step 0, and `trace_ratio_40_smoothed_gain`,
        the highest minus step 0.
    """
    rank, trace_ratio = curve("effective_rank"), curve("trace_ratio_40")
    largest, mean, median = (curve(metric) for metric in EIGENVALUES)
    accuracy = curve("accuracy", split="test")
    train, test = (curve("effective_rank", split=split) for split in curves.SPLITS)
    found = {
        "largest_eigenvalue_gain": _gain(largest, 0),
        "largest_eigenvalue_gain_from_10": _gain(largest, curves.AXIS_BEGIN),
        "mean_eigenvalue_gain": _gain(mean, 0),
        "mean_eigenvalue_gain_from_10": _gain(mean, curves.AXIS_BEGIN),
        "anisotropic_growth": _gain(largest, curves.AXIS_BEGIN) / _gain(median, curves.AXIS_BEGIN),
        "effective_rank_lowest": rank.min(),
        "effective_rank_lowest_share": rank.min() / rank.iloc[0],
        "effective_rank_lowest_of_peak": rank.min() / rank.max(),
        "effective_rank_after_peak": rank.iloc[-1] / rank.iloc[accuracy.argmax()],
        "effective_rank_split_difference": ((test - train).abs() / train).mean(),
        "trace_ratio_40_highest": trace_ratio.max(),
    }
    if len(rank) >= SMOOTHED:
        smooth_rank, smooth_ratio = (c.rolling(SMOOTHED).mean() for c in (rank, trace_ratio))
        found["effective_rank_smoothed_share"] = smooth_rank.min() / rank.iloc[0]
        found["trace_ratio_40_smoothed_gain"] = smooth_ratio.max() - trace_ratio.iloc[0]
    late = rank.index >= curves.AXIS_BEGIN
    # A small preset can leave too few different values for a correlation.
    if min(rank[late].nunique(), accuracy[late].nunique()) > 1:
        correlation = rank[late].rank().corr(accuracy[late].rank())
        found["effective_rank_accuracy_spearman"] = correlation
    return found


def _gain(values: pd.Series, begin: int) -> float:
    """Last value over the first one from an iteration on."""
    return values.iloc[-1] / values[values.index >= begin].iloc[0]


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
)
