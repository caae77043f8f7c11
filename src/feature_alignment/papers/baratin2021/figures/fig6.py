"""baratin2021, Figure 6: measures of complexity against the generalisation gap."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import COLOURS, new_figure
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Measures of complexity as networks grow and labels become random"
CAPTION = (
    "Top: generalisation gap (training minus test accuracy) and measures of complexity of networks "
    "trained until the cross-entropy is below the goal: MLPs with one hidden layer, PyTorch's and "
    "Kaiming's initial weights, by width; MLPs by share of random labels; VGG19 by channels of the "
    "first convolution. Each curve is a mean over seeds divided by its largest value in the panel; "
    "measures from margin bounds are divided by the margin first. Hollow markers: not all seeds "
    "reached the goal. Bottom: Spearman's rank correlation of each measure with the gap, both "
    "means over seeds; blue above 0.9, the dashed line. Neyshabur 2018a is arXiv:1707.09564, "
    "2018b arXiv:1805.12076, which is defined for one hidden layer only. n/a: not defined "
    "there, or the same for all networks."
)
EXPERIMENT = "baratin2021_complexity"
GAP = "generalisation_gap"
OURS = "path_complexity"
MEASURES = {
    OURS: "C, eq. 18",
    "unit_capacity_over_margin": "Neyshabur 2018b, norms",
    "unit_capacity_bound": "Neyshabur 2018b, bound",
    "pac_bayes_spectral_over_margin": "Neyshabur 2018a",
    "spectral_complexity_over_margin": "Bartlett 2017",
    "frobenius_product_over_margin": "Frobenius product",
    "spectral_product_over_margin": "spectral product",
    "l1_infinity_product_over_margin": "ℓ1,∞ product",
    "path_norm_over_margin": "path norm",
    "fisher_rao_norm": "Fisher–Rao norm",
    "distance_from_start": "‖w − w₀‖",
    "path_length": "Σ‖δw‖",
    "parameters": "parameters",
}
"""The measures that are compared, with their names in the figure."""
NAMED = {OURS, "unit_capacity_over_margin", "unit_capacity_bound"}
"""The paper's measure and that of Neyshabur et al. 2018, the only two that it finds to follow."""
LEAST_NETWORKS = 4
"""With fewer networks a panel says little: of three, chance ranks one measure in six rightly."""
FOLLOWS = 0.9
"""A measure follows the gap if its rank correlation with it is above this, as for the claims."""
PANELS = {
    "width": "hidden units",
    "width_kaiming": "hidden units (Kaiming)",
    "corruption": "share of random labels",
    "channels": "channels (VGG19)",
}
"""Panels with the label of what grows in each."""


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each network and share of random labels."""
    section = experiments[EXPERIMENT]
    mlp, vgg = section["mlp"], section["vgg19"]
    shared = {"model": "mlp", "dataset": "mnist", **mlp}
    found = [
        Point(
            EXPERIMENT,
            f"{panel}-{width}",
            {**shared, "width": width, "init": init, "random_label_share": 0},
        )
        for panel, init in (("width", "pytorch"), ("width_kaiming", "kaiming"))
        for width in mlp["widths"]
    ]
    noisy = {**shared, "width": mlp["noisy_width"], "init": "pytorch"}
    found += [
        Point(EXPERIMENT, f"corruption-{share:g}", {**noisy, "random_label_share": share})
        for share in mlp["random_label_shares"]
    ]
    images = {"model": "vgg19", "dataset": "cifar10", "init": "kaiming_zero_bias", **vgg}
    found += [
        Point(EXPERIMENT, f"channels-{width}", {**images, "width": width, "random_label_share": 0})
        for width in vgg["base_widths"]
    ]
    return found


def table(runs: Runs) -> FigureTable:
    """All metrics with their panel and place in it, and how each measure goes with the gap.

    `spearman_with_gap` is the correlation of `measure` with the gap in a panel; `rivals` counts
    the measures besides those that the paper names that follow the gap in the panel, an MLP's
    width, and in those of corruption and channels. A panel of fewer than four networks decides
    nothing and does not count, and only measures with a correlation in every panel that counts
    are judged; `remark` names the panels and the measures that are left out.
    """
    metrics = runs.metrics
    place = metrics["point"].str.rpartition("-")
    metrics.insert(1, "panel", place[0])
    metrics.insert(2, "x", place[2].astype(float))
    means = {panel: _means(metrics, panel) for panel in PANELS}
    found = {panel: _correlations(means[panel]) for panel in PANELS}
    counted = {panel for panel in PANELS if len(means[panel]) >= LEAST_NETWORKS}
    rows = [
        {"panel": panel, "metric": "spearman_with_gap", "measure": measure, "value": value}
        for panel, correlations in found.items()
        for measure, value in correlations.items()
    ]
    for panel in sorted(counted & {"width", "width_kaiming"}, key=list(PANELS).index):
        judged = [other for other in (panel, "corruption", "channels") if other in counted]
        number, remark = _rivals({other: found[other] for other in judged})
        row = {"panel": panel, "metric": "rivals", "measure": "all"}
        rows.append({**row, "value": number, "remark": remark})
    common = {"point": "comparison", "seed": 0, "step": 0, "layer": "all", "split": "train"}
    comparison = pd.DataFrame([{**common, **row} for row in rows])
    return FigureTable(pd.concat([metrics, comparison], ignore_index=True))


def _means(metrics: pd.DataFrame, panel: str) -> pd.DataFrame:
    """Means over seeds by place in the panel (rows) of the gap and of the measures (columns).

    A measure is left out where a run lacks it, because it was not fitted or by its definition.
    """
    rows = metrics[(metrics["panel"] == panel) & metrics["metric"].isin([GAP, *MEASURES])]
    values = rows.pivot(index=["x", "seed"], columns="metric", values="value")
    return values.dropna(axis="columns").groupby(level="x").mean()


def _correlations(means: pd.DataFrame) -> dict[str, float]:
    """Spearman's correlation of each measure with the gap.

    A measure that is the same at all points has no correlation, and none has if the gap is.
    """
    return {
        measure: means[measure].corr(means[GAP], method="spearman")
        for measure in MEASURES
        if measure in means and min(means[measure].nunique(), means[GAP].nunique()) > 1
    }


def _rivals(panels: Mapping[str, Mapping[str, float]]) -> tuple[int, str]:
    """How many measures follow the gap in each panel, but for those the paper names; a remark."""
    others = [measure for measure in MEASURES if measure not in NAMED]
    judged = [m for m in others if all(m in panel for panel in panels.values())]
    rivals = [m for m in judged if min(panel[m] for panel in panels.values()) > FOLLOWS]
    missing = [MEASURES[m] for m in others if m not in judged]
    remark = f"counted over {len(panels)} of 3 panels ({', '.join(panels)})"
    if missing:
        remark += f", without what has no correlation in one of them ({', '.join(missing)})"
    return len(rivals), remark


def draw(table: FigureTable) -> "Figure":
    """Panels side by side: the curves on top, the correlations below."""
    figure, axes = new_figure(2, len(PANELS), width=11.5, height=6.4)
    for column, (panel, label) in enumerate(PANELS.items()):
        _draw_curves(axes[0, column], table.frame, panel)
        axes[0, column].set_xlabel(label)
        _draw_correlations(axes[1, column], table.frame, panel, names=column == 0)
    axes[0, 0].set_ylabel("relative to the largest value")
    axes[0, 0].legend(loc="lower right", fontsize=7)
    return figure


def _colour(measure: str, correlation: float) -> str:
    if measure == OURS:
        return COLOURS["complexity"]
    return COLOURS["follower" if correlation > FOLLOWS else "reference"]


def _draw_curves(ax: "Axes", frame: pd.DataFrame, panel: str) -> None:
    means = _means(frame, panel)
    means = means / means.max()
    for measure, correlation in _correlation_of(frame, panel).items():
        ax.plot(
            means.index,
            means[measure],
            color=_colour(measure, correlation),
            linewidth=2.2 if measure == OURS else 0.8,
            zorder=3 if measure == OURS else 1,
            label=MEASURES[measure] if measure == OURS else None,
        )
    rows = frame[(frame["panel"] == panel) & (frame["metric"] == "goal_reached")]
    reached = rows.groupby("x")["value"].min()
    gap = means[GAP]
    ax.plot(gap.index, gap, color=COLOURS["paper"], linewidth=2.2, zorder=4, label="gap")
    for x, value in gap.items():
        face = COLOURS["paper"] if reached[x] else "white"
        ax.plot(x, value, "o", color=COLOURS["paper"], markerfacecolor=face, zorder=5)
    ax.set_ylim(0, 1.05)
    if panel != "corruption":
        ax.set_xscale("log", base=2)
        ax.set_xticks(gap.index, [f"{x:g}" for x in gap.index])
        ax.minorticks_off()


def _draw_correlations(ax: "Axes", frame: pd.DataFrame, panel: str, *, names: bool) -> None:
    found = _correlation_of(frame, panel)
    places = {measure: -i for i, measure in enumerate(MEASURES)}
    for measure, value in found.items():
        ax.barh(places[measure], value, height=0.7, color=_colour(measure, value))
    for measure in (measure for measure in MEASURES if measure not in found):
        ax.text(0.04, places[measure], "n/a", fontsize=6, va="center", color=COLOURS["reference"])
    ax.axvline(0, color=COLOURS["paper"], linewidth=0.8)
    ax.axvline(FOLLOWS, color=COLOURS["reference"], linewidth=0.8, linestyle="--")
    ax.set(
        xlim=(-1.05, 1.05),
        ylim=(0.4 - len(MEASURES), 0.6),
        xlabel="Spearman correlation with the gap",
    )
    ax.set_yticks(list(places.values()), list(MEASURES.values()) if names else [])


def _correlation_of(frame: pd.DataFrame, panel: str) -> dict[str, float]:
    rows = frame[(frame["panel"] == panel) & (frame["metric"] == "spearman_with_gap")]
    return dict(zip(rows["measure"], rows["value"], strict=True))
