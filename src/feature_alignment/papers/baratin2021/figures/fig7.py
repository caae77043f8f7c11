"""baratin2021, Figure 7: output changes along singular and random directions of the parameters."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import COLOURS, new_figure
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Only perturbations along the top singular directions matter, before training too"
CAPTION = (
    "Change of a VGG11's outputs on test images (root mean square over images, in units of the "
    "outputs) when its parameters move by a thousandth of their norm (unless configured "
    "otherwise), along the leading right singular vectors of the Jacobian on these images or "
    "along as many random directions; before training (left) and after it (right). Thin lines "
    "are seeds, the thick one is their mean. The first number is the ratio of the first singular "
    "direction's change to the random ones', mean over seeds. The second is the smallest that "
    "linear algebra allows, √(P/(nc)) for P parameters, n images and c outputs: that of a Jacobian "
    "without any anisotropy, whose change along each singular direction is the dotted line."
)
EXPERIMENT = "baratin2021_perturbation"
POINT = "default"
RANKS = (1, 50)
"""Of the eigenvalues that are compared."""


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point: the network before and after training."""
    return [Point(EXPERIMENT, POINT)]


def table(runs: Runs) -> FigureTable:
    """All metrics, with the column `stage`: initialisation or trained.

    `eigenvalue_ratio_50` is the 50th eigenvalue of the tangent kernel over the first, from the
    squares of `linear_change`; it is there if as many directions are.
    """
    metrics = runs[POINT].metrics
    linear = metrics[metrics["metric"] == "linear_change"]
    first, last = (linear[linear["rank"] == rank].set_index(["seed", "step"]) for rank in RANKS)
    ratio = (last["value"] / first["value"]).dropna() ** 2
    columns = {"metric": f"eigenvalue_ratio_{RANKS[-1]}", "rank": np.nan}
    ratios = last.assign(value=ratio, **columns).reset_index()
    metrics = pd.concat([metrics, ratios[metrics.columns]], ignore_index=True)
    stage = metrics["step"].map({0: "initialisation"}).fillna("trained")
    return FigureTable(metrics.assign(stage=stage))


def draw(table: FigureTable) -> "Figure":
    """Output change against the direction's number, singular ones first."""
    figure, axes = new_figure(1, 2, width=8.0, height=3.4)
    axes[0, 1].sharey(axes[0, 0])
    for ax, stage in zip(axes[0], ("initialisation", "trained"), strict=True):
        chosen = table.frame[(table.frame["stage"] == stage) & (table.frame["split"] == "test")]
        singular, random = _changes(chosen, "singular"), _changes(chosen, "random")
        random.index += singular.index[-1]
        for changes, colour, label in (
            (singular, COLOURS["train"], "singular directions"),
            (random, COLOURS["reference"], "random directions"),
        ):
            ax.plot(changes.index, changes, color=colour, linewidth=0.5, alpha=0.5)
            ax.plot(changes.index, changes.mean(axis=1), color=colour, label=label)
        ratio = table.values("singular_1_over_random", stage=stage, split="test").mean()
        floor = table.values("isotropic_floor", stage=stage, split="test").mean()
        isotropic = floor * (random**2).to_numpy().mean() ** 0.5
        ax.axhline(isotropic, linestyle=":", color=COLOURS["paper"], label="isotropic Jacobian")
        title = {"initialisation": "before training", "trained": "after training"}[stage]
        ax.set_title(f"{title}\nfirst singular / random: {ratio:.0f} (at least {floor:.0f})")
        ax.set(xlabel="direction", yscale="log")
    axes[0, 0].set_ylabel("output change")
    axes[0, 1].label_outer()
    axes[0, 0].legend()
    return figure


def _changes(frame: pd.DataFrame, direction: str) -> pd.DataFrame:
    """Output changes: ranks in rows, seeds in columns."""
    chosen = (frame["metric"] == "output_change") & (frame["direction"] == direction)
    return frame[chosen].pivot(index="rank", columns="seed", values="value")
