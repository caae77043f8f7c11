"""Pictures of a multiverse: a matrix of claims and settings, and specification curves."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from feature_alignment.pipeline.claims.ledger import Claim
from feature_alignment.pipeline.figures.style import COLOURS, new_figure
from feature_alignment.pipeline.multiverse.judge import counted_of

FAR = 100  # positive values that differ by more than this factor get a logarithmic axis
HOLDS = {1: COLOURS["test"], 0: COLOURS["reference"]}


def draw_matrix(summary: pd.DataFrame, effects: pd.DataFrame, settings: Sequence[str]) -> Picture:
    """Draw how much the share in which each claim (row) holds differs by each setting's value.

    "n/a" marks settings of which only one value is left in the universes that count.
    """
    if effects.empty:
        return _nothing()
    claims = list(summary["claim"])
    single = effects[effects["setting"].isin(settings)]
    table = single.pivot_table(
        "share", "claim", "setting", aggfunc=lambda s: s.max() - s.min() if len(s) > 1 else np.nan
    )
    values = table.reindex(index=claims, columns=list(settings)).to_numpy()
    width = 3.4 + 0.7 * len(settings)
    figure, axes = new_figure(1, 1, width=width, height=1.2 + 0.24 * len(claims))
    ax = axes[0, 0]
    image = ax.imshow(values, vmin=0, vmax=1, cmap="Greys", aspect="auto")
    for row, column in np.argwhere(np.isnan(values)):
        ax.text(column, row, "n/a", fontsize=6, ha="center", va="center")
    ax.set_xticks(range(len(settings)), [_short(key) for key in settings], rotation=35, ha="right")
    shown = summary[["claim", "holding", "universes"]].fillna(0)
    names = [
        f"{str(claim).partition('.')[2]}  {holding:.0f}/{universes:.0f}"
        for claim, holding, universes in shown.to_numpy()
    ]
    ax.set_yticks(range(len(claims)), names)
    ax.grid(visible=False)
    figure.colorbar(image, ax=ax, label="difference")
    return figure


def draw_curves(judged: pd.DataFrame, settings: Sequence[str], ledger: Sequence[Claim]) -> Picture:
    """Draw our sorted values for each claim, with the settings that produced them below."""
    by_id = {claim.id: claim for claim in ledger}
    shown = counted_of(judged)
    if shown.empty:
        return _nothing()
    groups = list(shown.groupby("claim", sort=False))
    columns = min(3, len(groups))
    rows = math.ceil(len(groups) / columns)
    levels = [(key, level) for key in settings for level in sorted(shown[key].unique())]
    height = 1.6 + 0.13 * len(levels)
    figure, axes = new_figure(2 * rows, columns, width=3.4 * columns, height=rows * height)
    ratios = [1.3, 0.13 * len(levels) + 0.3] * rows
    axes[0, 0].get_gridspec().set_height_ratios(ratios)
    for ax in axes.flat:
        ax.set_axis_off()
    for place, (name, of_claim) in enumerate(groups):
        row, column = divmod(place, columns)
        ordered = of_claim.sort_values(["ours", "universe"])
        _draw_values(axes[2 * row, column], ordered, by_id[str(name)])
        _draw_settings(axes[2 * row + 1, column], ordered, levels, column == 0)
    return figure


def _nothing() -> Picture:
    figure, axes = new_figure(1, 1, width=5, height=1.2)
    axes[0, 0].set_axis_off()
    axes[0, 0].text(0.5, 0.5, "No universe counts.", ha="center", va="center")
    return figure


def _draw_values(ax: Axes, ordered: pd.DataFrame, claim: Claim) -> None:
    ax.set_axis_on()
    place = np.arange(len(ordered))
    colours = [HOLDS[int(holds)] for holds in ordered["holds"]]
    logarithmic = 0 < ordered["ours"].min() * FAR < ordered["ours"].max()
    shown = ordered["ours"] if logarithmic else _without_outliers(ordered["ours"])
    ax.scatter(place, shown, c=colours, s=9)
    default = (ordered["universe"] == 0).to_numpy()
    ax.scatter(place[default], shown[default], s=42, facecolors="none", edgecolors="k")
    for bound in (claim.paper_value, claim.criterion.low, claim.criterion.high):
        if bound is not None:
            style = "-" if bound == claim.paper_value else ":"
            ax.axhline(bound, color=COLOURS["paper"], linewidth=0.8, linestyle=style)
    if logarithmic:
        ax.set_yscale("log")
    ax.set_title(claim.id.partition(".")[2], fontsize=7)
    ax.set_xticks([])


def _without_outliers(values: pd.Series) -> pd.Series:
    """The values; those above `FAR` times the 90 % quantile of their sizes are put at the edge."""
    sizes = values.abs()
    if sizes.quantile(0.9) == 0:
        return values
    edge = 1.2 * sizes[sizes <= FAR * sizes.quantile(0.9)].max()
    return values.clip(-edge, edge)


def _draw_settings(
    ax: Axes, ordered: pd.DataFrame, levels: Sequence[tuple[str, str]], labelled: bool
) -> None:
    ax.set_axis_on()
    for height, (key, level) in enumerate(levels):
        taken = np.flatnonzero((ordered[key] == level).to_numpy())
        ax.scatter(taken, np.full(len(taken), -height), marker="|", s=14, c=COLOURS["paper"])
    names = [f"{_short(key)} = {level}" for key, level in levels] if labelled else []
    ax.set_yticks(-np.arange(len(levels)) if labelled else [], names, fontsize=5.5)
    ax.set_xticks([])
    ax.set_ylim(-len(levels) + 0.5, 0.5)


def _short(key: str) -> str:
    return key.rpartition(".")[2]
