"""Beyond beaglehole2024, Figure 3: the predicted C-NFC for any number of samples and units."""

from typing import Any

import numpy as np
import pandas as pd

from feature_alignment.papers.beaglehole2024.figures.curves import tidy
from feature_alignment.papers.beaglehole2024.parameters import AspectRatios
from feature_alignment.pipeline.figures import style
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

PREDICTIONS = {
    "quadratic": "predicted",
    "relu": "predicted_first_order",
    "erf": "predicted_first_order",
}
OTHERS = {  # further predictions, if there are any, with marker and name
    "predicted_first_order": ("x", "first order"),
    "predicted_from_own_moments": ("+", "own moments"),
}
TITLES = {"quadratic": "quadratic", "relu": "ReLU", "erf": "erf"}


def points(settings: Settings) -> list[Point]:
    """One point for each activation."""
    own = settings[AspectRatios]
    return [
        Point("quadratic", own.but(activation="quadratic")),
        Point("relu", own.but(activation="relu")),
        Point("erf", own.but(activation="erf", weight_variance=100.0)),
    ]


def table(runs: Runs) -> FigureTable:
    """All metrics, and for each activation, prediction and ψ₂ the largest error over ψ₁."""
    metrics = runs.metrics
    parts = [metrics]
    for phi, rows in metrics.groupby("point", sort=False):
        for prediction in sorted(set(rows["metric"]) - {"observed"}):
            error = abs(_map(rows, "observed") - _map(rows, prediction)).max()
            parts.append(tidy({f"largest_error_of_{prediction}": error}, point=phi, seed=0))
    return FigureTable(pd.concat(parts, ignore_index=True))


def _map(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Means over networks and draws: ψ₁ as rows, ψ₂ as columns."""
    return rows_where(rows, metric=metric).pivot_table(index="psi1", columns="psi2", values="value")


def draw(table: FigureTable) -> Picture:
    """A row for each activation: two maps and their comparison."""
    figure, axes = style.new_figure(len(PREDICTIONS), 3, width=10.5, height=9.0)
    maps = {
        phi: [_map(table.rows(point=phi), metric) for metric in ("observed", prediction)]
        for phi, prediction in PREDICTIONS.items()
    }
    # One range for all maps, from their lowest value, rounded down to a twentieth.
    smallest = min(values.min().min() for pair in maps.values() for values in pair)
    options: dict[str, Any] = {"vmin": np.floor(20 * smallest) / 20, "annot": True, "fmt": ".2f"}
    for row, (phi, prediction) in zip(axes, PREDICTIONS.items(), strict=True):
        kind = "free probability" if prediction == "predicted" else "first order"
        titles = f"{TITLES[phi]}: observed", f"{TITLES[phi]}: {kind}"
        for ax, values, title in zip(row, maps[phi], titles, strict=False):
            named = values.rename(index="{:g}".format, columns="{:g}".format)
            label = None if ax is row[0] else "ρ"
            style.show_matrix(ax, named, 1.0, label, xticklabels=1, yticklabels=1, **options)
            ax.set(title=title, xlabel="$\\psi_2 = k/d$", ylabel="$\\psi_1 = n/d$")
        _draw_comparison(row[2], table.rows(point=phi), prediction)
    style.panel_letters(*axes[:, 0])
    return figure


def _draw_comparison(ax: Axes, rows: pd.DataFrame, prediction: str) -> None:
    observed = _map(rows, "observed")
    markers = {name: mark for name, (mark, _) in OTHERS.items() if name in set(rows["metric"])}
    markers[prediction] = "o"
    maps = {name: _map(rows, name) for name in markers}
    low = min(values.min().min() for values in (observed, *maps.values()))
    ax.plot([low, 1], [low, 1], ":", color=style.COLOURS["reference"])
    for psi2, colour in style.sequence_colours(observed.columns).items():
        for name, marker in markers.items():
            label = f"{psi2:g}" if name == prediction else None
            ax.plot(maps[name][psi2], observed[psi2], marker, color=colour, label=label)
    for name in [name for name in markers if name != prediction]:
        ax.plot([], [], markers[name], color="black", label=OTHERS[name][1])
    ax.set(xlabel="predicted ρ", ylabel="observed ρ", aspect="equal")
    ax.legend(title="$\\psi_2$", loc="center left", bbox_to_anchor=(1.0, 0.5))


FIGURE = Figure(
    name="fig_aspect_ratios",
    title="The predicted C-NFC for any ratio of samples, inputs and units",
    caption="Not in the paper. Correlation ρ of the second derivatives of centred NFM and AGOP at "
    "initialisation of one hidden layer on the high-rank task of Figure 7 with isotropic data, "
    "over ψ₁ = n/d and ψ₂ = k/d, means over networks and draws. Left: observed. Middle: predicted, "
    "for the quadratic activation by free probability with the limiting moments of R = "
    "Wᵀdiag(a²)W, the traces of its powers, for ReLU and erf to first order, from the expected "
    "PTK, which does not depend on ψ₂. Right: observed against predicted, dark to light by growing "
    "ψ₂; on the dotted line they are equal. For the quadratic also: plus signs, free probability "
    "with each network's own moments of R; crosses, first order. The first layer's pre-activations "
    "have standard deviation 10 for erf, which would be linear in effect at 1.",
    points=points,
    table=table,
    draw=draw,
)
