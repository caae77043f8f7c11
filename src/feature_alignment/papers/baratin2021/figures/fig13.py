"""baratin2021, Figure 13: effect of depth on the alignment with easy and difficult examples."""

from typing import TYPE_CHECKING

import pandas as pd

from feature_alignment.papers.baratin2021.figures.difficulty_curves import (
    draw_ratio,
    draw_splits,
    hierarchy_numbers,
)
from feature_alignment.papers.baratin2021.figures.training_curves import OVER_SEEDS, summary
from feature_alignment.papers.baratin2021.parameters import DepthStudy, Difficulty
from feature_alignment.pipeline.figures.figure import Figure, Point, Settings
from feature_alignment.pipeline.figures.style import new_figure
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

RANKED = {
    ("easy", "maximum"),
    ("both", "ratio_of_maxima"),
    ("both", "largest_ratio"),
    ("both", "ratio_high_iterations"),
    ("both", "ratio_high_decades"),
    ("both", "onset_step"),
    ("both", "rise_decades"),
    ("both", "rise_rate"),
}
"""Splits and metrics of `hierarchy_numbers` whose trend with depth is measured."""


def points(settings: Settings) -> list[Point]:
    """One point for each depth."""
    section = settings[Difficulty]
    study = section.depth_study
    # The list of depths must not make the runs anew.
    common = section.but(**study.plain() | {"linear_layers": 2, "depth_study": DepthStudy()})
    return [
        Point(f"depth{depth}", common.but(linear_layers=depth), {"depth": depth})
        for depth in sorted(study.linear_layers)
    ]


def table(runs: Runs) -> FigureTable:
    """All metrics with their depth, the summaries of curves, and their trends with depth."""
    metrics = runs.metrics
    summed = summary(metrics, hierarchy_numbers, by=("point", "depth", "seed"))
    return FigureTable(pd.concat([metrics, summed, depth_trends(summed)], ignore_index=True))


def depth_trends(summed: pd.DataFrame) -> pd.DataFrame:
    """Spearman correlation over depths of the numbers that sum up the curves, for each seed.

    Source: baratin2021, caption of Figure 13 and Section 3.5, which state trends in words.

    Args:
        summed: the numbers of `hierarchy_numbers`, as tidy rows with the column depth.

    Returns:
        Tidy rows of the point "comparison": metric `<metric>_depth_spearman`, which is 0 for a
        metric that is the same at all depths: it has no trend.
    """
    common = {"point": "comparison", "step": summed["step"].max(), "layer": "all"}
    rows = []
    for (split, metric, seed), group in summed.groupby(["split", "metric", "seed"]):
        if (split, metric) not in RANKED:
            continue
        differs = group["value"].nunique() > 1  # the ranks of equal numbers have no correlation
        value = group["depth"].rank().corr(group["value"].rank()) if differs else 0.0
        own = {"seed": seed, "split": split, "metric": f"{metric}_depth_spearman", "value": value}
        rows.append(common | own)
    return pd.DataFrame(rows)


def draw(table: FigureTable) -> "Picture":
    """Alignments for each depth (rows) and seed (columns), and the ratios beside them."""
    alignment = table.rows(metric="label_alignment")
    depths, seeds = sorted(alignment["depth"].unique()), sorted(alignment["seed"].unique())
    width, height = 2.0 * (len(seeds) + 1) + 0.5, 1.5 * len(depths) + 0.5
    figure, axes = new_figure(len(depths), len(seeds) + 1, width, height)
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
    axes[0, -1].set_title("easy / difficult")
    for ax in axes[-1]:
        ax.set_xlabel("iteration")
    axes[0, 0].legend(fontsize=7)
    return figure


FIGURES = (
    Figure(
        name="fig13",
        title="Depth magnifies the difference between easy and difficult examples",
        caption="MLPs of several depths (rows; number of linear layers) trained on easy digits "
        "together with digits of random labels, for several seeds of initialisation and "
        "mini-batches (columns): alignment (CKA) of the tangent kernel with the training labels on "
        f"easy and difficult training examples. Last column: the ratio of the two. {OVER_SEEDS} "
        "Iterations on a logarithmic axis from 5 on.",
        points=points,
        table=table,
        draw=draw,
    ),
)
