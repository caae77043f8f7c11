"""baratin2021, Figure 6: measures of complexity against the generalisation gap."""

from collections.abc import Iterable, Mapping
from itertools import groupby

import numpy as np
import pandas as pd

from feature_alignment.papers.baratin2021.parameters import (
    Complexity,
    ComplexityMLP,
    ComplexityVGG19,
)
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

GAP = "generalisation_gap"
OURS = "path_complexity"
MEASURES = {  # the measures that are compared, with their names in the figure
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
FOLLOWERS = (OURS, "unit_capacity_over_margin")
"""The paper's measure and Neyshabur et al. 2018's, the only two it finds to follow the gap."""
NAMED = {*FOLLOWERS, "unit_capacity_bound"}
BOOTSTRAP_SAMPLES = 200
LEAST_NETWORKS = 4
"""With fewer networks a panel says little: with three, one ranking in six is right by chance."""
FOLLOWS = 0.9
"""A measure follows the gap if its rank correlation with it is above this, as in the claims."""
PANELS = {  # panels with the label of what grows in each
    "width": "hidden units",
    "width_kaiming": "hidden units (Kaiming)",
    "corruption": "share of random labels",
    "channels": "channels",
}
TITLES = dict.fromkeys(PANELS, "MLP, MNIST") | {"channels": "VGG19, CIFAR-10"}


def points(settings: Settings) -> list[Point]:
    """One point for each network and share of random labels."""
    section = settings[Complexity]
    own, images = section.mlp, section.vgg19
    # The other networks' settings must not cause reruns.
    mlp = section.but(model="mlp", dataset="mnist", seeds=own.seeds, vgg19=ComplexityVGG19())
    vgg = section.but(model="vgg19", dataset="cifar10", seeds=images.seeds, mlp=ComplexityMLP())
    vgg = vgg.but(init="kaiming_zero_bias")
    return [
        *(_point("width", w, mlp.but(width=w, init="pytorch")) for w in own.widths),
        *(_point("width_kaiming", w, mlp.but(width=w, init="kaiming")) for w in own.widths),
        *(
            _point("corruption", s, mlp.but(width=own.noisy_width, random_label_share=s))
            for s in own.random_label_shares
        ),
        *(_point("channels", w, vgg.but(width=w)) for w in images.base_widths),
    ]


def _point(panel: str, x: float, parameters: Complexity) -> Point:
    return Point(f"{panel}-{x:g}", parameters, {"panel": panel, "x": float(x)})


def table(runs: Runs) -> FigureTable:
    """All metrics with their panel and place in it, and how measures follow the gap (metrics.yaml).

    `rivals` and `only_named_follow` are judged over a panel of MLP widths together with those of
    corruption and channels, by the measures with a correlation in every panel that counts; `remark`
    names these panels and the measures left out.
    """
    metrics = runs.metrics
    values = {panel: _values(metrics, panel) for panel in PANELS}
    found = {panel: _correlations(_mean(values[panel])) for panel in PANELS}
    counted = [panel for panel in PANELS if len(_mean(values[panel])) >= LEAST_NETWORKS]
    # Seeded for each table: the same table gives the same share.
    rng = np.random.default_rng(0)
    samples = [
        {panel: _correlations(_mean(_resampled(values[panel], rng))) for panel in counted}
        for _ in range(BOOTSTRAP_SAMPLES)
    ]
    rows = [
        {"panel": panel, "metric": "spearman_with_gap", "measure": measure, "value": value}
        for panel, correlations in found.items()
        for measure, value in correlations.items()
    ]
    for panel in (panel for panel in ("width", "width_kaiming") if panel in counted):
        judged = [other for other in (panel, "corruption", "channels") if other in counted]
        number, remark = _rivals({other: found[other] for other in judged})
        alone = [_only_named({other: sample[other] for other in judged}) for sample in samples]
        row = {"panel": panel, "measure": "all", "remark": remark}
        rows.append({**row, "metric": "rivals", "value": number})
        rows.append({**row, "metric": "only_named_follow", "value": np.mean(alone)})
    for panel in counted:
        gap = values[panel][GAP].unstack("seed")
        own = (gap - gap.mean()).sem(axis=1).pow(2).mean()
        noise = (own * len(gap) / (len(gap) - 1)) ** 0.5  # since seeds' means are removed
        if noise > 0:  # NaN with one seed
            span = gap.mean(axis=1).max() - gap.mean(axis=1).min()
            row = {"panel": panel, "metric": "gap_range_over_noise", "measure": "all"}
            rows.append({**row, "value": span / noise})
    common = {"point": "comparison", "seed": 0, "step": 0, "layer": "all", "split": "train"}
    comparison = pd.DataFrame([{**common, **row} for row in rows])
    return FigureTable(pd.concat([metrics, comparison], ignore_index=True))


def _values(metrics: pd.DataFrame, panel: str) -> pd.DataFrame:
    """The gap and the measures common to all runs (columns), by place in the panel and seed."""
    rows = rows_where(metrics, panel=panel, metric=(GAP, *MEASURES))
    return rows.pivot(index=["x", "seed"], columns="metric", values="value").dropna(axis="columns")


def _mean(values: pd.DataFrame) -> pd.DataFrame:
    return values.groupby(level="x").mean()


def _resampled(values: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """A bootstrap sample of the seeds, the same seeds at each place."""
    seeds = values.index.unique("seed")
    return pd.concat([values.xs(seed, level="seed") for seed in rng.choice(seeds, len(seeds))])


def _correlations(means: pd.DataFrame) -> dict[str, float]:
    """Spearman's correlation of each measure with the gap, omitted if either is constant."""
    # Of nine networks many have exactly 0.9, which rounding must not move across FOLLOWS.
    found = means.rank().corr()[GAP].dropna().round(12)
    return {measure: found[measure] for measure in MEASURES if measure in found}


def _rivals(panels: Mapping[str, Mapping[str, float]]) -> tuple[int, str]:
    """How many measures other than those the paper names follow the gap in each panel; a remark."""
    others = [measure for measure in MEASURES if measure not in NAMED]
    judged = [m for m in others if all(m in panel for panel in panels.values())]
    rivals = [m for m in judged if min(panel[m] for panel in panels.values()) > FOLLOWS]
    missing = [MEASURES[m] for m in others if m not in judged]
    remark = f"counted over {len(panels)} of 3 panels ({', '.join(panels)})"
    if missing:
        remark += f", without what has no correlation in one of them ({', '.join(missing)})"
    return len(rivals), remark


def _only_named(panels: Mapping[str, Mapping[str, float]]) -> bool:
    """Whether the measures that the paper names follow the gap in each panel, and no others do."""
    named = [panel[m] for panel in panels.values() for m in FOLLOWERS if m in panel]
    return min(named, default=0) > FOLLOWS and not _rivals(panels)[0]


def draw(table: FigureTable) -> Picture:
    """Panels side by side: the curves on top, the correlations below."""
    figure, axes = new_figure(2, len(PANELS), width=11.5, height=6.4)
    for (top, bottom), (panel, label) in zip(axes.T, PANELS.items(), strict=True):
        means = _mean(_values(table.frame, panel))
        found = _correlations(means)
        _draw_curves(top, table, panel, found)
        top.set(xlabel=label, title=TITLES[panel])
        _draw_correlations(bottom, found, judged=len(means) >= LEAST_NETWORKS)
        if len(means) < LEAST_NETWORKS:
            bottom.set_title(f"not judged: {len(means)} networks", fontsize=8)
    panel_letters(*axes.flat)
    for ax in axes[1, 1:]:
        ax.set_yticklabels([])
    axes[0, 0].set_ylabel("relative to the largest value")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


def _colour(measure: str, correlation: float) -> str:
    if measure == OURS:
        return COLOURS["complexity"]
    return COLOURS["follower" if correlation > FOLLOWS else "reference"]


def _draw_curves(ax: Axes, table: FigureTable, panel: str, found: Mapping[str, float]) -> None:
    values = _values(table.frame, panel)
    means, spread = _mean(values), values[GAP].groupby(level="x").std()
    scale = means.max().where(means.max() > 0, 1)  # where nothing is learnt, no gap is above 0
    means, spread = means / scale, spread / scale[GAP]
    for measure, correlation in found.items():
        ours, colour = measure == OURS, _colour(measure, correlation)
        label, width = (MEASURES[OURS], 2.2) if ours else (None, 0.8)
        ax.plot(means[measure], color=colour, linewidth=width, zorder=1 + ours, label=label)
    either_way = pd.concat([means[GAP] - spread, means[GAP] + spread])
    low = min(0, means.min().min(), either_way.min())
    top = max(1, either_way.max()) + 0.05
    _number_curves(ax, means[list(found)].iloc[-1], top)
    reached = table.rows(panel=panel, metric="goal_reached").groupby("x")["value"].min() > 0
    gap, black = means[GAP], COLOURS["paper"]
    ax.plot(gap, "o-", color=black, linewidth=2.2, zorder=4, label="gap")
    bars = {"fmt": "none", "ecolor": black, "elinewidth": 0.8, "zorder": 4}
    ax.errorbar(gap.index, gap, spread, **bars)
    ax.plot(gap[~reached], "o", color=black, markerfacecolor="white", zorder=5)
    ax.set_ylim(low - 0.05 * (low < 0), top)
    if panel != "corruption":
        ax.set_xscale("log", base=2)
        named = gap.index[:: -2 if len(gap) > 6 else -1]  # of many, every second from the last
        ax.set_xticks(gap.index, [f"{x:g}" if x in named else "" for x in gap.index])
        ax.minorticks_off()


def _number_curves(ax: Axes, ends: pd.Series, top: float) -> None:
    """Write the numbers of the measures next to the ends of their curves, without overlaps.

    Curves that end together share a text. A line leads from the edge of the axes to one that had to
    move.
    """
    numbers = pd.Series({measure: 1 + list(MEASURES).index(measure) for measure in ends.index})
    together = {end: _ranges(own) for end, own in numbers.groupby(ends.round(2))}
    places = _apart(np.array(list(together)), gap=0.04 * top, top=top)
    for place, (end, text) in zip(places, together.items(), strict=True):
        look = {"transform": ax.get_yaxis_transform(), "clip_on": False}
        ax.text(1.04, place, text, fontsize=6, va="center", **look)
        leader = {"linewidth": 0.4, "color": COLOURS["reference"], "scalex": False}
        ax.plot((1.0, 1.035), (end, place), scaley=False, **leader, **look)


def _ranges(ascending: Iterable[int]) -> str:
    """Whole numbers in few words.

    Example:
        >>> _ranges([1, 3, 4, 5, 8])
        '1, 3–5, 8'
    """
    runs = groupby(enumerate(ascending), lambda pair: pair[1] - pair[0])
    ends = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{own[0]}–{own[-1]}" if own[1:] else f"{own[0]}" for own in ends)


def _apart(ascending: np.ndarray, gap: float, top: float) -> np.ndarray:
    """The nearest places, in least squares, at least a gap apart, then moved to at most the top.

    Example:
        >>> _apart(np.array([0.0, 0.5, 0.5]), gap=0.2, top=0.55).round(2).tolist()
        [0.0, 0.35, 0.55]
    """
    from scipy.optimize import isotonic_regression

    steps = gap * np.arange(len(ascending))
    return np.minimum(isotonic_regression(ascending - steps).x + steps, top - steps[::-1])


def _draw_correlations(ax: Axes, found: Mapping[str, float], judged: bool) -> None:
    for place, measure in enumerate(MEASURES):
        if measure in found:
            value = found[measure]
            colour = _colour(measure, value)
            # Hatched if there are too few networks to judge.
            (bar,) = ax.barh(place, value, height=0.7, color=colour)
            if not judged:
                bar.set(facecolor="white", edgecolor=colour, hatch="//////")
        else:
            ax.text(0.04, place, "n/a", fontsize=6, va="center", color=COLOURS["reference"])
    ax.axvline(0, color=COLOURS["paper"], linewidth=0.8)
    ax.axvline(FOLLOWS, color=COLOURS["reference"], linewidth=0.8, linestyle="--")
    ax.set(xlim=(-1.05, 1.05), ylim=(len(MEASURES) - 0.4, -0.6))
    ax.set_xlabel("Spearman correlation with the gap")
    names = [f"{name}  {number}" for number, name in enumerate(MEASURES.values(), start=1)]
    ax.set_yticks(range(len(MEASURES)), names)


FIGURE = Figure(
    name="fig6",
    title="Measures of complexity as networks grow and labels become random",
    caption="A-D: generalisation gap (training minus test accuracy) and measures of complexity of "
    "networks trained until the cross-entropy is below the goal: MLPs with one hidden layer, "
    "PyTorch's and Kaiming's initial weights, by width; MLPs by share of random labels; VGG19 by "
    "channels of the first convolution. Each curve is a mean over seeds divided by its largest "
    "value in the panel, the gap with a standard deviation over seeds either way, also of two or "
    "three; measures from margin bounds are divided by the margin first. Hollow markers: not all "
    "seeds reached the goal. Numbers beside the curves are those of the measures below, of curves "
    "that end together in one text. E-H: Spearman's rank "
    "correlation of each measure with the gap, both means over seeds; hatched where fewer than "
    "four networks decide nothing. In all panels measure 1 is vermilion, those with a correlation "
    "above 0.9, the dashed line, are blue, the others grey, and the gap is black. Neyshabur 2018a "
    "is arXiv:1707.09564, 2018b arXiv:1805.12076, which is defined for one hidden layer only. n/a: "
    "not defined there, or not for every network (a margin below 0), or the same for all.",
    points=points,
    table=table,
    draw=draw,
)
