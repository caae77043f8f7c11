"""What Figures 2 and 14 of baratin2021 share: the spectrum during training, summed up and drawn."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pandas as pd

from feature_alignment.papers.baratin2021.figures.classification_curves import (
    AXIS_BEGIN,
    SPLITS,
    curves,
    draw_accuracy,
    draw_curves,
    iteration_axis,
    summary,
)
from feature_alignment.pipeline.figures.style import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EIGENVALUES = {
    "largest_eigenvalue": ("max", COLOURS["test"]),
    "mean_eigenvalue": ("mean", COLOURS["train"]),
    "median_eigenvalue": ("median", COLOURS["easy"]),
}
TRACE_RATIOS = (5, 10, 20, 40, 80, 160)
HIGHLIGHTED = (40, 80, 160)
SMOOTHED = 3
"""Consecutive measurements whose mean says whether a curve rises or falls."""


def spectrum_summary(metrics: pd.DataFrame) -> pd.DataFrame:
    """Numbers that the paper's claims about spectra are about, for each point, seed and split.

    Before the first step eigenvalues are large; they fall within about ten iterations, and only
    then rise. So gains are counted from step 0 (`_gain`) and from the first measured step after
    iteration 10 (`_gain_from_10`), where the paper's axis begins. Likewise the lowest effective
    rank is taken relative to step 0 (`effective_rank_lowest_share`) and to the highest measured
    (`effective_rank_lowest_of_peak`).

    Args:
        metrics: tidy metrics of the points.

    Returns:
        Tidy rows at the last step: gains of the largest and the mean eigenvalue at the end;
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
    return summary(metrics, _numbers)


def _numbers(curve: Callable[..., pd.Series], split: str) -> dict[str, float]:
    rank, trace_ratio = curve("effective_rank"), curve("trace_ratio_40")
    largest, mean, median = (curve(metric) for metric in EIGENVALUES)
    accuracy = curve("accuracy", "test")
    train, test = curve("effective_rank", "train"), curve("effective_rank", "test")
    numbers = {
        "largest_eigenvalue_gain": _gain(largest, 0),
        "largest_eigenvalue_gain_from_10": _gain(largest, AXIS_BEGIN),
        "mean_eigenvalue_gain": _gain(mean, 0),
        "mean_eigenvalue_gain_from_10": _gain(mean, AXIS_BEGIN),
        "anisotropic_growth": _gain(largest, AXIS_BEGIN) / _gain(median, AXIS_BEGIN),
        "effective_rank_lowest": rank.min(),
        "effective_rank_lowest_share": rank.min() / rank.iloc[0],
        "effective_rank_lowest_of_peak": rank.min() / rank.max(),
        "effective_rank_after_peak": rank.iloc[-1] / rank[accuracy.idxmax()],
        "effective_rank_split_difference": ((test - train).abs() / train).mean(),
        "trace_ratio_40_highest": trace_ratio.max(),
    }
    if len(rank) >= SMOOTHED:
        smooth_rank, smooth_ratio = (c.rolling(SMOOTHED).mean() for c in (rank, trace_ratio))
        numbers["effective_rank_smoothed_share"] = smooth_rank.min() / rank.iloc[0]
        numbers["trace_ratio_40_smoothed_gain"] = smooth_ratio.max() - trace_ratio.iloc[0]
    late = rank.index >= AXIS_BEGIN
    # A small preset can leave too few different values for a correlation.
    if min(rank[late].nunique(), accuracy[late].nunique()) > 1:
        correlation = rank[late].rank().corr(accuracy[late].rank())
        numbers["effective_rank_accuracy_spearman"] = correlation
    return numbers


def _gain(values: pd.Series, begin: int) -> float:
    """Last value over the first one from an iteration on."""
    return values.iloc[-1] / values[values.index >= begin].iloc[0]


def draw_spectra(frame: pd.DataFrame, columns: Mapping[str, str]) -> "Figure":
    """Accuracy, eigenvalues, effective rank and trace ratios (rows) of several points (columns).

    Args:
        frame: the figure's table.
        columns: the title of each point.
    """
    figure, axes = new_figure(4, len(columns), width=3.0 * len(columns) + 0.6, height=8.2)
    for column, (point, title) in zip(axes.T, columns.items(), strict=True):
        run = frame[frame["point"] == point]
        accuracy, eigenvalues, rank, ratios = column
        draw_accuracy(accuracy, run)
        for split, line in SPLITS.items():
            for metric, (label, colour) in EIGENVALUES.items():
                values = curves(run, metric=metric, split=split)
                draw_curves(eigenvalues, values, colour, line, label if split == "train" else None)
            values = curves(run, metric="effective_rank", split=split)
            draw_curves(rank, values, COLOURS[split], line)
            for k in TRACE_RATIOS:
                values = curves(run, metric=f"trace_ratio_{k}", split=split)
                draw_curves(ratios, values, _trace_ratio_colour(k), line)
        _name_trace_ratios(ratios, run)
        accuracy.set_title(title)
        eigenvalues.set_yscale("log")
        eigenvalues.margins(y=0.2)
        ratios.set_ylim(0, 1.02)
        ratios.set_xlabel("iteration")
        for ax in column:
            iteration_axis(ax, run["step"].max())
    for row in axes[1:3]:  # one range in each row, so that columns can be compared
        for ax in row[1:]:
            ax.sharey(row[0])
        row[0].autoscale(axis="y")
    for ax in axes[2]:
        ax.set_ylim(bottom=0)
    for ax, label in zip(
        axes[:, 0], ("accuracy", "eigenvalues", "effective rank", "trace ratios"), strict=True
    ):
        ax.set_ylabel(label)
    axes[0, 0].legend(loc="upper left")
    axes[1, 0].legend(loc="best", ncols=3, columnspacing=1.0, handlelength=1.2)
    return figure


def _name_trace_ratios(ax: "Axes", run: pd.DataFrame) -> None:
    """Write each T_k beside the end of its curve, moved down where names would overlap."""
    ceiling = 1.0
    for k in reversed(TRACE_RATIOS):
        values = curves(run, metric=f"trace_ratio_{k}", split="train")
        height = min(values.iloc[-1].mean(), ceiling)
        ceiling = height - 0.07
        ax.annotate(
            f"$T_{{{k}}}$",
            (values.index[-1], height),
            xytext=(4, 0),
            textcoords="offset points",
            fontsize=7,
            color=_trace_ratio_colour(k),
            va="center",
        )


def _trace_ratio_colour(k: int) -> str:
    return COLOURS["test"] if k in HIGHLIGHTED else COLOURS["reference"]
