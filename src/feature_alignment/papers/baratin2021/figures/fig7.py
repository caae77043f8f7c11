"""baratin2021, Figure 7: output changes along singular and random directions of the parameters."""

import numpy as np
import pandas as pd

from feature_alignment.papers.baratin2021.parameters import Perturbation
from feature_alignment.pipeline.figures.drawing import draw_curve
from feature_alignment.pipeline.figures.figure import Figure, Picture, one_point
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

RANKS = (1, 50)  # of the eigenvalues compared
STAGES = {"initialisation": "before training", "trained": "after training"}


def table(runs: Runs) -> FigureTable:
    """All metrics, with the column `stage`, and `eigenvalue_ratio_50` if 50 directions exist."""
    metrics = runs.metrics
    linear = rows_where(metrics, metric="linear_change")
    first, last = (linear[linear["rank"] == rank].set_index(["seed", "step"]) for rank in RANKS)
    ratio = (last["value"] / first["value"]).dropna() ** 2
    columns = {"metric": f"eigenvalue_ratio_{RANKS[-1]}", "rank": np.nan}
    ratios = last.assign(value=ratio, **columns).reset_index()
    metrics = pd.concat([metrics, ratios[metrics.columns]], ignore_index=True)
    stage = metrics["step"].map({0: "initialisation"}).fillna("trained")
    return FigureTable(metrics.assign(stage=stage))


def draw(table: FigureTable) -> Picture:
    """Output change against the direction's number, singular ones first."""
    figure, axes = new_figure(1, 2, width=8.0, height=3.4)
    axes[0, 1].sharey(axes[0, 0])
    for ax, (stage, title) in zip(axes[0], STAGES.items(), strict=True):
        at = {"stage": stage, "split": "test"}
        singular, random = (
            table.rows(metric="output_change", direction=direction, **at)
            for direction in ("singular", "random")
        )
        random = random.assign(rank=random["rank"] + singular["rank"].max())
        ax.set_yscale("log")
        draw_curve(ax, singular, "train", "singular directions", x="rank")
        draw_curve(ax, random, "reference", "random directions", x="rank", linestyle="--")
        ratio = table.values("singular_1_over_random", **at).mean()
        floor = table.values("isotropic_floor", **at).mean()
        isotropic = floor * (random["value"] ** 2).mean() ** 0.5
        ax.axhline(isotropic, linestyle=":", color=COLOURS["paper"], label="isotropic Jacobian")
        numbers = f"first singular / random: {ratio:.0f} (at least {floor:.0f})"
        ax.set(title=f"{table.dataset}, {title}\n{numbers}", xlabel="direction")
    axes[0, 0].set_ylabel("output change")
    axes[0, 1].label_outer()
    axes[0, 0].legend()
    panel_letters(*axes[0])
    return figure


FIGURE = Figure(
    name="fig7",
    title="Only perturbations along the top singular directions matter, before training too",
    caption="Change of a VGG11's outputs on test images (root mean square over images, in units of "
    "the outputs) when its parameters move by a thousandth of their norm (unless configured "
    "otherwise), along the leading right singular vectors of the Jacobian on these images, "
    "numbered first, or along as many random directions, numbered behind them; before training "
    "(left) and after it (right). Geometric means over seeds, with a band of one standard "
    "deviation of the logarithm; of fewer than four seeds, thin lines for each seed. The first "
    "number is the ratio of the first singular direction's change to the random ones', mean over "
    "seeds. The second is the smallest that linear algebra allows, √(P/(nc)) for P parameters, n "
    "images and c outputs: that of a Jacobian without any anisotropy, whose change along each "
    "singular direction is the dotted line.",
    points=one_point(Perturbation),
    table=table,
    draw=draw,
)
