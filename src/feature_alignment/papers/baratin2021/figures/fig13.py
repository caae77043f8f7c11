"""baratin2021, Figure 13: effect of depth on the alignment with easy and difficult examples."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.papers.baratin2021.figures.difficulty_curves import (
    EXPERIMENT,
    SPLITS,
    draw_alignments,
    draw_ratio,
    hierarchy_summary,
)
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import new_figure
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Depth magnifies the difference between easy and difficult examples"
CAPTION = (
    "MLPs of several depths (rows; number of linear layers) trained on easy digits together with "
    "digits of random labels, for several seeds of initialisation and mini-batches (columns): "
    "alignment (CKA) of the tangent kernel with the training labels on easy and difficult "
    "training examples. Last column: the ratio of the two, thin lines for single seeds, thick for "
    "their mean. Iterations on a logarithmic axis from 5 on."
)


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each depth."""
    study = experiments[EXPERIMENT]["depth_study"]
    return [
        Point(
            EXPERIMENT,
            f"depth{depth}",
            {**study, "linear_layers": depth, "difficult_dataset": None, "depth_study": None},
        )
        for depth in sorted(study["linear_layers"])
    ]


def table(runs: Runs) -> FigureTable:
    """All metrics with their depth, the summaries of curves, and their trends with depth."""
    metrics = runs.metrics
    both = pd.concat([metrics, hierarchy_summary(metrics)], ignore_index=True)
    depths = {name: run.spec["parameters"]["linear_layers"] for name, run in runs.items()}
    both["depth"] = both["point"].map(depths)
    return FigureTable(pd.concat([both, depth_trends(both)], ignore_index=True))


def depth_trends(frame: pd.DataFrame) -> pd.DataFrame:
    """Spearman correlation over depths of the numbers that sum up the curves, for each seed.

    Source: baratin2021, caption of Figure 13 and Section 3.5, which state trends in words.

    Args:
        frame: rows of `hierarchy_summary` with the column depth, among others.

    Returns:
        Tidy rows of the point "comparison": metric `<metric>_depth_spearman`, which is 0 for a
        metric that is the same at all depths: it has no trend.
    """
    summed = {
        ("easy", "maximum"),
        ("both", "ratio_of_maxima"),
        ("both", "largest_ratio"),
        ("both", "ratio_high_iterations"),
        ("both", "ratio_high_decades"),
        ("both", "onset_step"),
        ("both", "rise_decades"),
        ("both", "rise_rate"),
    }
    rows = []
    for (split, metric, seed), group in frame.groupby(["split", "metric", "seed"], sort=True):
        if (split, metric) not in summed:
            continue
        differs = group["value"].nunique() > 1  # the ranks of equal numbers have no correlation
        rows.append(
            {
                "point": "comparison",
                "seed": seed,
                "step": frame["step"].max(),
                "layer": "all",
                "split": split,
                "metric": f"{metric}_depth_spearman",
                "value": group["depth"].rank().corr(group["value"].rank()) if differs else 0.0,
            }
        )
    return pd.DataFrame(rows)


def draw(table: FigureTable) -> "Figure":
    """Alignments for each depth (rows) and seed (columns), and the ratios beside them."""
    runs = table.frame[table.frame["split"].isin(SPLITS) & table.frame["depth"].notna()]
    depths, seeds = sorted(runs["depth"].unique()), sorted(runs["seed"].unique())
    width, height = 2.0 * (len(seeds) + 1) + 0.5, 1.5 * len(depths) + 0.5
    figure, axes = new_figure(len(depths), len(seeds) + 1, width, height)
    top = 1.05 * runs.loc[runs["metric"] == "label_alignment", "value"].max()
    for row, depth in zip(axes, depths, strict=True):
        point = f"depth{depth:.0f}"
        for ax, seed in zip(row[:-1], seeds, strict=True):
            draw_alignments(ax, runs[runs["seed"] == seed], point)
            ax.set_ylim(0, top)
            ax.label_outer()
        draw_ratio(row[-1], runs, point)
        row[0].set_ylabel(f"depth {depth:.0f}\nCKA")
    for ax, seed in zip(axes[0], seeds, strict=False):
        ax.set_title(f"seed {seed}")
    axes[0, -1].set_title("easy / difficult")
    for ax in axes[-1]:
        ax.set_xlabel("iteration")
    axes[0, 0].legend(fontsize=7)
    return figure
