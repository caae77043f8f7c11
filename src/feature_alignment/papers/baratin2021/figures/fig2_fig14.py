"""baratin2021, Figures 2 and 14: tangent-kernel spectrum during training, by learning rate."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from feature_alignment.papers.baratin2021.figures import training_curves as curves
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_curve, draw_paper
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import COLOURS, broken_axis, new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

USUAL_RATE, SMALL_RATE = 0.01, 0.003
EIGENVALUES = {
    "largest_eigenvalue": ("max", "largest eigenvalue"),
    "mean_eigenvalue": ("mean", "mean eigenvalue"),
    "median_eigenvalue": ("median", "median eigenvalue"),
}
CLAIMS: dict[tuple[str, float], dict[str, str]] = {
    ("fig2", 0.0): {
        "effective rank": "fig2.effective_rank_clean",
        "trace ratios": "fig2.trace_ratio_40",
    },
    ("fig2", 0.5): {"effective rank": "fig2.effective_rank_random50"},
    ("fig14", 0.0): {"effective rank": "fig14.lowest_rank"},
    ("fig_late", 0.0): {"eigenvalues": "fig_late.largest_eigenvalue_from_10"},
}
"""The claim that is drawn in a row, by figure and share of random labels."""
ABOVE: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 0.97)}
OVERLAID = {"accuracy": "accuracy", "eigenvalues": "largest_eigenvalue"}
OVERLAID |= {"effective rank": "effective_rank", "trace ratios": "trace_ratio_40"}
"""The rows, and the metric drawn at the usual learning rate behind each row's curves."""
HIGHLIGHTED = (40, 80, 160)
TRACE_RATIOS = dict.fromkeys((5, 10, 20), "reference") | dict.fromkeys(HIGHLIGHTED, "paper")
"""The key of the colour of each T_k, by k."""
SMOOTHED = 3  # consecutive measurements averaged to decide whether a curve rises or falls
FITTED = 0.999
"""Training accuracy that counts as the paper's 100 %, at which gains are taken."""


def points(
    settings: Settings, shares: tuple[float, ...], rates: tuple[float, ...], late: bool = False
) -> list[Point]:
    """One point for each share of random labels and each learning rate."""
    return [curves.vgg19(settings, share, rate, late) for rate in rates for share in shares]


def table(runs: Runs) -> FigureTable:
    """The curves of the whole network, and their summaries."""
    return curves.with_summary(rows_where(_used(runs.metrics), layer="all"), numbers)


def late_table(runs: Runs) -> FigureTable:
    """The same, with the share of layers whose alignment is highest when the test accuracy is."""
    metrics = _used(runs.metrics)
    names = curves.layers_of(metrics)

    def more(curve: curves.Curve) -> dict[str, float]:
        return numbers(curve) | {"layers_peak_share": curves.layers_peak_share(curve, names)}

    return FigureTable(rows_where(curves.with_summary(metrics, more).frame, layer="all"))


def _used(metrics: pd.DataFrame) -> pd.DataFrame:
    """The metrics without other readings of the alignment, which are in the runs' own tables."""
    return metrics[~metrics["metric"].str.startswith("label_alignment_")]


def numbers(curve: curves.Curve) -> dict[str, float]:
    """The quantities in the paper's claims about spectra (metrics.yaml), for one run and split.

    Eigenvalues are large before the first step; they fall within ten to about a hundred iterations,
    and only then rise. Gains are therefore counted both from step 0 and from the first measured
    step of the paper's axis, which begins at iteration 10.
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
        "effective_rank_lowest_step": curves.peak(-rank) / curves.peak(accuracy),
        "effective_rank_highest": rank.max(),
        "effective_rank_at_peak_share": rank.iloc[accuracy.argmax()] / rank.iloc[0],
        "effective_rank_after_peak": rank.iloc[-1] / rank.iloc[accuracy.argmax()],
        "accuracy_at_lowest_rank": learnt.iloc[rank.argmin()],
        "effective_rank_split_difference": ((test - train).abs() / train).mean(),
        "trace_ratio_40_highest": curve("trace_ratio_40").max(),
        "label_alignment_highest": curve("label_alignment").max(),
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
        found["effective_rank_accuracy_spearman"] = rank[late].rank().corr(accuracy[late].rank())
    return found


def draw(table: FigureTable, rate: float, name: str) -> Picture:
    """Accuracy, eigenvalues, effective rank and trace ratios (rows) by share (columns)."""
    shares = table.rows(learning_rate=rate)["random_label_share"].unique()
    figure, axes = new_figure(4, len(shares), width=3.0 * len(shares) + 0.6, height=8.4)
    for row in axes[1:3]:  # one range in each row, so that columns can be compared
        for ax in row[1:]:
            ax.sharey(row[0])
    own = "" if rate == USUAL_RATE else f", learning rate {rate:g}"
    for column, share in zip(axes.T, shares, strict=True):
        run = table.rows(random_label_share=share, learning_rate=rate)
        column[0].set_title(f"CIFAR-10{own}\n{100 * share:.0f} % random labels")
        for ax in column:
            broken_axis(ax, run["step"])
        column[1].set_yscale("log")
        if own:
            usual = table.rows(random_label_share=share, learning_rate=USUAL_RATE, split="train")
            for ax, metric in zip(column, OVERLAID.values(), strict=True):
                label = f"train, rate {USUAL_RATE:g}"
                draw_curve(ax, rows_where(usual, metric=metric), "other rate", label)
        _draw_column(column, run)
    axes[1, 0].margins(y=0.2)
    axes[1, 0].autoscale(axis="y")
    axes[2, 0].set_ylim(bottom=0)
    for share, column in zip(shares, axes.T, strict=True):
        run = table.rows(random_label_share=share, learning_rate=rate, split="train")
        rows = dict(zip(OVERLAID, column, strict=True))
        _draw_paper(table, run, rows, CLAIMS.get((name, share), {}))
    for ax, label in zip(axes[:, 0], OVERLAID, strict=True):
        ax.set_ylabel(label)
    axes[0, 0].legend(loc="upper left")
    axes[1, 0].legend(handles=axes[1, 0].get_legend_handles_labels()[0][-3:], ncols=3, **ABOVE)
    panel_letters(*axes[:, 0])
    return figure


def _draw_column(column: Sequence[Axes], run: pd.DataFrame) -> None:
    accuracy, eigenvalues, rank, ratios = column
    curves.draw_accuracy(accuracy, run)
    for split, line in curves.SPLITS.items():
        rows = partial(rows_where, run, split=split)
        for metric, (label, thing) in EIGENVALUES.items():
            name = label if split == "train" else None
            draw_curve(eigenvalues, rows(metric=metric), thing, name, linestyle=line)
        draw_curve(rank, rows(metric="effective_rank"), split, split)
        for k, thing in TRACE_RATIOS.items():
            draw_curve(ratios, rows(metric=f"trace_ratio_{k}"), thing, linestyle=line)
    _name_trace_ratios(ratios, run)
    ratios.set(ylim=(0, 1.02), xlabel="iteration")


def _draw_paper(
    table: FigureTable, run: pd.DataFrame, rows: Mapping[str, Axes], claims: Mapping[str, str]
) -> None:
    """Draw the claimed values, relative to where the run's curves on training images begin.

    Figure 14's lowest rank is drawn relative to the highest, since ranks depend on the width.
    """
    for row, claim in claims.items():
        numbers, scale = table.of_claim(claim), 1.0
        if row == "effective rank" and numbers.get("paper_value", 0) > 1:  # not a share
            highest = table.of_claim("fig14.highest_rank")["paper_value"]
            numbers = {"paper_value": numbers["paper_value"] / highest}
            scale = rows_where(run, metric=OVERLAID[row]).groupby("step")["value"].mean().max()
        if numbers.get("low", 0) > 1 or numbers.get("high", 1) < 1:  # a factor or a share
            shown = rows_where(run, metric=OVERLAID[row]).set_index(["step", "seed"])["value"]
            if rows[row].get_yscale() == "log":
                curve = shown.map(np.log).groupby("step").mean().map(np.exp)
            else:
                curve = shown.groupby("step").mean()
            scale = curve[curve.index >= (curves.AXIS_BEGIN if "from_10" in claim else 0)].iloc[0]
        draw_paper(rows[row], numbers, scale, note="$T_{40}$" * (row == "trace ratios"))


def _name_trace_ratios(ax: Axes, run: pd.DataFrame) -> None:
    """Write each T_k where its curve begins, without overlaps and above the break of the axis."""
    begin, lowest = run["step"].min(), 0.06
    middle = run.loc[run["step"] > 0, "step"].min() / 2
    heights = {}
    for k in TRACE_RATIOS:
        rows = rows_where(run, metric=f"trace_ratio_{k}", split="train", step=begin)
        heights[k] = max(rows["value"].mean(), lowest)
        lowest = heights[k] + 0.07
    for k, height in reversed(heights.items()):
        text = {"fontsize": 6.5, "ha": "center", "va": "center", "color": COLOURS[TRACE_RATIOS[k]]}
        ax.text(middle, height, f"$T_{{{k}}}$", **text)


FIGURES = (
    Figure(
        name="fig2",
        title="The spectrum of the tangent kernel grows, and grows more anisotropic",
        caption="Training of VGG19 on CIFAR-10 with 0, 20 and 50 % random labels (columns), "
        "learning rate 0.01. Rows: accuracy; largest, mean and median eigenvalue of the centred "
        "tangent kernel; its effective rank; its trace ratios, in black those of the top 40, 80 "
        "and 160. Solid: a batch of training images, dashed: of test images. The axis begins at "
        "iteration 0, before the first update, the paper's near iteration 10; eigenvalues can fall "
        "at first, and grow later. Dotted lines: what the paper states of the "
        "first column's lowest effective rank, as a share of that at iteration 0, and highest T₄₀, "
        "and of the last one's rank, all of full width: narrower networks are not judged by them; "
        f"an arrow: beyond the axis. {OVER_SEEDS}",
        points=partial(points, shares=(0, 0.2, 0.5), rates=(USUAL_RATE,)),
        table=table,
        draw=partial(draw, rate=USUAL_RATE, name="fig2"),
    ),
    Figure(
        name="fig14",
        title="With a smaller learning rate the effective rank falls less",
        caption="As Figure 2, with learning rate 0.003: training of VGG19 on CIFAR-10 without and "
        "with 50 % random labels (columns). Light blue, dash-dotted: Figure 2's runs, with "
        "learning rate 0.01, on training images: accuracy, largest eigenvalue, effective rank and "
        "T₄₀. Dotted: the lowest effective rank in the paper's plot, of a VGG19 of full width, as "
        f"a share of the highest; narrower networks are not judged by it. {OVER_SEEDS}",
        points=partial(points, shares=(0, 0.5), rates=(SMALL_RATE, USUAL_RATE)),
        table=table,
        draw=partial(draw, rate=SMALL_RATE, name="fig14"),
    ),
    Figure(
        name="fig_late",
        title="The spectrum with and without random labels, longer where Figure 2 is cut short",
        caption="As Figure 2, of VGG19 without and with 50 % random labels (columns): the runs of "
        "Figure 2, or, where these are cut short, later in the training of narrower networks on "
        "fewer images. Dotted line: what the paper states of the largest eigenvalue once the "
        "training images are fitted, as a multiple of the first measured from iteration 10 on. "
        f"{OVER_SEEDS}",
        points=partial(points, shares=(0, 0.5), rates=(USUAL_RATE,), late=True),
        table=late_table,
        draw=partial(draw, rate=USUAL_RATE, name="fig_late"),
    ),
)
