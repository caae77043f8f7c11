"""baratin2021, Figures 4 and 13: alignment on easy and on difficult examples, and depth."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from feature_alignment.papers.baratin2021.figures import training_curves as curves
from feature_alignment.papers.baratin2021.parameters import DepthStudy, Difficulty
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_curve
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import broken_axis, new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

SPLITS = ("easy", "difficult")
SEEDS_SHOWN = 5  # in Figure 13, a column each
DIFFICULT = {"random_labels": "random labels", "kmnist": "KMNIST"}
RANKED = {  # metrics of `hierarchy_numbers`, by split, whose trend with depth is measured
    "easy": ("maximum",),
    "both": (
        *("ratio_of_maxima", "largest_ratio", "ratio_high_iterations", "ratio_high_decades"),
        *("onset_step", "rise_decades", "rise_rate"),
        *("onset_step_after_epoch", "rise_decades_after_epoch", "rise_rate_after_epoch"),
    ),
}


def points(settings: Settings) -> list[Point]:
    """One point for each kind of difficult example."""
    # The depth study belongs to another figure: its settings must not cause reruns here.
    common = settings[Difficulty].but(depth_study=DepthStudy())
    return [Point("random_labels", common), Point("kmnist", common.but(difficult_dataset="kmnist"))]


def table(runs: Runs) -> FigureTable:
    """All metrics, and the summaries of each seed's curves."""
    return FigureTable(pd.concat([runs.metrics, _summed(runs)], ignore_index=True))


def _summed(runs: Runs, by: Sequence[str] = ("point", "seed")) -> pd.DataFrame:
    p = next(iter(runs.values())).parameters
    epoch = (p["easy_samples"] + p["difficult_samples"]) / p["batch_size"]  # the same in all runs
    return curves.summary(runs.metrics, partial(hierarchy_numbers, epoch=epoch), by)


def draw(table: FigureTable) -> Picture:
    """Alignments, their ratio and accuracies (rows) for each kind of difficult example."""
    figure, axes = new_figure(3, 2, width=7.2, height=7.0)
    for left, right in axes[:2]:
        right.sharey(left)
    for column, (point, difficult) in zip(axes.T, DIFFICULT.items(), strict=True):
        alignment, ratio, accuracy = column
        rows = table.rows(point=point, metric="label_alignment")
        draw_splits(alignment, rows)
        draw_ratio(ratio, rows)
        draw_splits(accuracy, table.rows(point=point, metric="accuracy"))
        alignment.set_title(f"{table.dataset} and {difficult}")
        accuracy.set(xlabel="iteration", ylim=(0, 1.02))
    labels = "label alignment (CKA)", "easy / difficult", "training accuracy"
    for ax, label in zip(axes[:, 0], labels, strict=True):
        ax.set_ylabel(label)
    for ax in axes[:2, 0]:
        ax.set_ylim(bottom=0)
    axes[0, 0].legend()
    panel_letters(*axes[:, 0])
    return figure


def depth_points(settings: Settings) -> list[Point]:
    """One point for each depth."""
    section = settings[Difficulty]
    study = section.depth_study
    # The list of depths must not cause reruns.
    common = section.but(**study.plain() | {"linear_layers": 2, "depth_study": DepthStudy()})
    return [
        Point(f"depth{depth}", common.but(linear_layers=depth), {"depth": depth})
        for depth in sorted(study.linear_layers)
    ]


def depth_table(runs: Runs) -> FigureTable:
    """All metrics with their depth, the summaries of curves, and their trends with depth."""
    summed = _summed(runs, by=("point", "depth", "seed"))
    return FigureTable(pd.concat([runs.metrics, summed, depth_trends(summed)], ignore_index=True))


def depth_trends(summed: pd.DataFrame) -> pd.DataFrame:
    """Spearman correlation with depth of the numbers of `hierarchy_numbers`, for each seed.

    A number that is the same at all depths has trend 0. `remark` names the depths that lack a
    number and so are not in its trend.

    Source: baratin2021, caption of Figure 13 and Section 3.5, which state trends in words.
    """
    common = {"point": "comparison", "step": summed["step"].max(), "layer": "all"}
    rows = []
    for (split, metric, seed), group in summed.groupby(["split", "metric", "seed"]):
        if metric not in RANKED.get(str(split), ()):
            continue
        differs = group["value"].nunique() > 1  # the ranks of equal numbers have no correlation
        value = group["depth"].rank().corr(group["value"].rank()) if differs else 0.0
        own = {"seed": seed, "split": split, "metric": f"{metric}_depth_spearman", "value": value}
        depths = {*summed.loc[summed["seed"] == seed, "depth"]} - {*group["depth"]}
        if names := ", ".join(f"{depth:.0f}" for depth in sorted(depths)):
            own["remark"] = f"without depth {names} in some seeds, where {metric} has no value"
        rows.append(common | own)
    return pd.DataFrame(rows)


def draw_depths(table: FigureTable) -> Picture:
    """Alignments for each depth (rows) and seed (columns); all ratios in the last column."""
    alignment = table.rows(metric="label_alignment")
    depths, every = sorted(alignment["depth"].unique()), sorted(alignment["seed"].unique())
    seeds = every[:SEEDS_SHOWN]
    width, height = 2.0 * (len(seeds) + 1) + 0.5, 1.5 * len(depths) + 0.5
    figure, axes = new_figure(len(depths), len(seeds) + 1, width, height)
    more = f"; {len(seeds)} of {len(every)} seeds" if len(every) > len(seeds) else ""
    figure.suptitle(f"{table.dataset} and random labels{more}")
    for ax in axes[1:, -1]:
        ax.sharey(axes[0, -1])
    top = 1.05 * alignment["value"].max()
    for row, depth in zip(axes, depths, strict=True):
        rows = rows_where(alignment, depth=depth)
        for ax, seed in zip(row[:-1], seeds, strict=True):
            draw_splits(ax, rows_where(rows, seed=seed))
            ax.set_ylim(0, top)
            ax.label_outer()
        draw_ratio(row[-1], rows)
        row[0].set_ylabel(f"depth {depth:.0f}\nCKA")
    for ax, seed in zip(axes[0], seeds, strict=False):
        ax.set_title(f"seed {seed}")
    axes[0, -1].set_title("easy / difficult" + (", all seeds" if more else ""))
    for ax in axes[-1]:
        ax.set_xlabel("iteration")
    axes[0, -1].set_ylim(bottom=0)
    axes[0, 0].legend(fontsize=7)
    panel_letters(*axes[:, 0])
    return figure


def hierarchy_numbers(curve: curves.Curve, epoch: float) -> curves.Numbers:
    """Numbers that summarise how alignment on easy examples differs from that on difficult ones.

    The definitions are this project's, see metrics.yaml. Runs whose ratio is still high at the end
    tie at the top; before `epoch`, the iteration that ends the first epoch, deep networks are slow.
    Comparisons of the two splits have the split "both".

    Source: baratin2021, Section 3.4 ("the ratio between both alignments"), caption of Figure 13.
    """
    easy, difficult = (curve("label_alignment", split=split) for split in SPLITS)
    found = {}
    for split, alignment in zip(SPLITS, (easy, difficult), strict=True):
        found[split, "maximum"] = alignment.max()
        found[split, "rise"] = alignment.max() - alignment[0]
        found[split, "half_rise_step"] = _reached(alignment, 0.5)
    easily, hardly = (curve("accuracy", split=split) for split in SPLITS)
    ratio = easy / difficult
    high = ratio.index[ratio >= ratio.max() / 2]
    censored = high[-1] == ratio.index[-1]
    begin = 0 if censored else high[0]
    values = _rise(easy) | {
        "ratio_of_maxima": easy.max() / difficult.max(),
        "largest_ratio": ratio.max(),
        "half_rise_delay": found["difficult", "half_rise_step"] - found["easy", "half_rise_step"],
        "ratio_high_iterations": high[-1] - begin,
        "ratio_high_decades": np.log10((1 + high[-1]) / (1 + begin)),
        "ratio_high_censored": float(censored),
    }
    if (late := easy[easy.index >= epoch]).size:  # a short run can end before
        values |= {f"{metric}_after_epoch": value for metric, value in _rise(late).items()}
    values["accuracy_lead"] = (easily - hardly).drop(index=0).mean()
    return found | {("both", metric): value for metric, value in values.items()}


def _rise(curve: pd.Series) -> dict[str, float]:
    onset, late = _reached(curve, 0.1), _reached(curve, 0.9)
    decades = np.log10((1 + late) / (1 + onset))
    values = {"onset_step": onset, "rise_decades": decades}
    # A coarse schedule can have the whole rise between two measurements.
    return {**values, "rise_rate": (curve[late] - curve[onset]) / decades} if decades else values


def _reached(curve: pd.Series, share: float) -> int:
    """The first step at which a curve has made a share of its rise from start to maximum."""
    level = curve.iloc[0] + share * (curve.max() - curve.iloc[0])
    return int(curve.index[curve >= level][0])


def draw_splits(ax: Axes, rows: pd.DataFrame) -> None:
    """One metric of one point on easy and on difficult examples, by iteration."""
    broken_axis(ax, rows["step"])
    for split in SPLITS:
        draw_curve(ax, rows_where(rows, split=split), split, f"{split} examples")


def draw_ratio(ax: Axes, alignment: pd.DataFrame) -> None:
    """Ratio of one point's alignment on easy examples to that on difficult ones."""
    broken_axis(ax, alignment["step"])
    wide = alignment.pivot(index=["seed", "step"], columns="split", values="value")
    draw_curve(ax, (wide["easy"] / wide["difficult"]).rename("value").reset_index(), "paper")


FIGURES = (
    Figure(
        name="fig4",
        title="The tangent kernel aligns with easy examples first",
        caption="An MLP trained on easy digits together with difficult examples: digits with "
        "random labels (left) or KMNIST characters (right). Rows: alignment (CKA) of the tangent "
        "kernel with the training labels, on a hundred easy and a hundred difficult training "
        "examples (fewer at small presets); the ratio of the two; accuracy on the easy and the "
        f"difficult training examples. {OVER_SEEDS} Iterations on a logarithmic axis from the "
        "first measured one on.",
        points=points,
        table=table,
        draw=draw,
    ),
    Figure(
        name="fig13",
        title="Depth magnifies the difference between easy and difficult examples",
        caption="MLPs of several depths (rows; number of linear layers) trained on easy digits "
        "together with digits of random labels, for several seeds of images, initialisation and "
        "mini-batches (columns, at most five): alignment (CKA) of the tangent kernel with the "
        "training labels on easy and difficult training examples. Last column: the ratio of the "
        f"two, of all seeds. {OVER_SEEDS} Iterations on a logarithmic axis from the first measured "
        "one on.",
        points=depth_points,
        table=depth_table,
        draw=draw_depths,
    ),
)
