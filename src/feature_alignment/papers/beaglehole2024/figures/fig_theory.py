"""beaglehole2024: numerical checks of Theorem 9 and of the propositions without a figure."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import COLOURS, OKABE_ITO, new_figure, panel_label
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "What the theorem and the propositions say, measured"
CAPTION = (
    "Checks of Theorem 9, Propositions 2, 3, 12 and 16, Lemma 13, and eq. 10, 20, 22 and 28; means "
    "over seeds. A: 1 − ρ of the second derivatives of centred NFM and AGOP against the dimension "
    "d of data on the sphere, ReLU kernel at infinite width, for numbers of samples and targets "
    "(z² − 1 has no linear part: the theorem does not speak of it). B: the same for n = 4d log d, "
    "a linear target and the kernels of several activations; the quadratic's vanishes at right "
    "angles, which the theorem excludes. Symbols: a wide ReLU network, by how its initial outputs "
    "are made zero. C: size of the formula for E[ẆᵀKẆ] over that of a Monte-Carlo mean, as printed "
    "in Proposition 16 and corrected, against the width k. D: spectral norm of the exponential's "
    "kernel minus its linearisation by eq. 10, as printed and with h″(0)/2, for n = 4d log d, and "
    "the norm of Lemma 13 for n = d log³d. E, F: relative difference of both sides, one symbol per "
    "seed: by automatic differentiation (2, 12) and finite differences (3), and against traces in "
    "large random matrices (equations)."
)
THEOREM, PROPOSITIONS = "beaglehole2024_theorem9", "beaglehole2024_propositions"
KERNELS = {
    "relu": "blue",
    "erf": "orange",
    "exponential": "bluish green",
    "quadratic": "reddish purple",
}
TARGETS = {
    "linear": ("z", "blue"),
    "non-linear": ("z + z² − 1", "orange"),
    "no linear part": ("z² − 1", "vermillion"),
}
SAMPLE_SIZES = {"d/4": ":", "d": "-.", "4d log d": "--", "d log³d": "-"}
METHODS = {"copy subtracted": "o", "small readout": "x", "neither": "s"}
IDENTITIES = {
    "proposition_2": "Prop. 2",
    "proposition_12": "Prop. 12",
    "proposition_3_nfm": "Prop. 3, NFM",
    "proposition_3_agop": "Prop. 3, AGOP",
}
"""Exact, up to rounding and to the error of finite differences."""
EQUATIONS = {
    "equation_20_as_printed": "eq. 20, printed",
    "equation_22_as_printed": "eq. 22, printed",
    "equation_28_as_printed": "eq. 28, printed",
    "equation_28_derived": "eq. 28, derived",
}
"""Up to terms of the inverse size of the matrices."""
REMAINDERS = {
    "equation_10_rest_as_printed": ("eq. 10, printed", "vermillion", "o"),
    "equation_10_rest_corrected": ("eq. 10, with h″(0)/2", "blue", "s"),
    "lemma_13_deviation": ("Lemma 13", "bluish green", "^"),
}
"""What should vanish as d grows."""


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each kernel of the theorem, one for all propositions."""
    theorem = [Point(THEOREM, phi, {"activation": phi}) for phi in KERNELS]
    return [*theorem, Point(PROPOSITIONS, "propositions")]


def table(runs: Runs) -> FigureTable:
    """All metrics, and their rates in the dimension.

    `<metric>_slope` is the slope of log(metric) against log d, by least squares over all
    dimensions, where there are two and the metric is positive; `extent` marks the rows of the
    largest dimension of a kernel, sample size and target, and of the largest width.
    """
    metrics = runs.metrics
    metrics["extent"] = ""
    growing = metrics[metrics["metric"].isin(["one_minus_correlation", *REMAINDERS])]
    group = ["point", "metric", "sample_size", "target"]
    largest = growing.groupby(group, dropna=False)["dimension"].transform("max")
    metrics.loc[growing.index[growing["dimension"] == largest], "extent"] = "largest"
    metrics.loc[metrics["width"] == metrics["width"].max(), "extent"] = "largest"
    slopes = [
        {**dict(zip([*group, "seed"], key, strict=True)), "value": _slope(rows)}
        for key, rows in growing.groupby([*group, "seed"], dropna=False)
    ]
    rates = (
        pd.DataFrame(slopes)
        .dropna(subset="value")
        .assign(step=0, layer="all", split="train", extent="")
    )
    rates["metric"] += "_slope"
    return FigureTable(pd.concat([metrics, rates], ignore_index=True))


def _slope(rows: pd.DataFrame) -> float:
    # Of a single sample ρ is 1 exactly, and a limit on samples may leave one dimension.
    if len(rows) < 2 or not (rows["value"] > 0).all():
        return math.nan
    log_d, log_value = np.log(rows["dimension"]), np.log(rows["value"])
    return float(np.polyfit(log_d, log_value, 1)[0])


def draw(table: FigureTable) -> "Figure":
    """Theorem 9 above; Proposition 16 and what vanishes with d; relative differences."""
    figure, axes = new_figure(3, 2, width=9.5, height=9.0)
    frame = table.frame
    _draw_targets(axes[0, 0], frame[frame["point"] == "relu"])
    _draw_kernels(axes[0, 1], frame)
    _draw_proposition_16(axes[1, 0], frame)
    _draw_remainders(axes[1, 1], frame)
    _draw_differences(axes[2, 0], frame, IDENTITIES, "identities")
    _draw_differences(axes[2, 1], frame, EQUATIONS, "traces of large matrices")
    for ax, letter in zip(axes.flat, "ABCDEF", strict=True):
        panel_label(ax, letter)
    return figure


def _curve(rows: pd.DataFrame, by: str, **where: str) -> pd.Series:
    """Mean over seeds of the chosen rows, by a column."""
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return rows.groupby(by)["value"].mean()


def _draw_targets(ax: "Axes", rows: pd.DataFrame) -> None:
    rows = rows[rows["metric"] == "one_minus_correlation"]
    for target, (_, colour) in TARGETS.items():
        for size, line in SAMPLE_SIZES.items():
            curve = _curve(rows, "dimension", target=target, sample_size=size)
            ax.plot(curve, line, color=OKABE_ITO[colour], marker=".")
    for formula, colour in TARGETS.values():
        ax.plot([], [], color=OKABE_ITO[colour], label=f"y = {formula}")
    for size, line in SAMPLE_SIZES.items():
        ax.plot([], [], line, color=COLOURS["reference"], label=f"n = {size}")
    _label_dimensions(ax, rows, "1 − ρ", "ReLU kernel")


def _draw_kernels(ax: "Axes", frame: pd.DataFrame) -> None:
    rows = frame[(frame["sample_size"] == "4d log d") & (frame["target"] == "linear")]
    for phi, colour in KERNELS.items():
        infinite = rows[rows["metric"] == "one_minus_correlation"]
        curve = _curve(infinite, "dimension", point=phi)
        ax.plot(curve, color=OKABE_ITO[colour], marker=".", label=phi)
    for method, marker in METHODS.items():
        network = _curve(rows, "dimension", point="relu", method=method)
        ax.plot(network, marker, color=COLOURS["paper"], fillstyle="none", label=method)
    _label_dimensions(ax, rows, "1 − ρ", "linear target, n = 4d log d")


def _label_dimensions(ax: "Axes", rows: pd.DataFrame, ylabel: str, title: str) -> None:
    ax.set(xscale="log", yscale="log", xlabel="input dimension d", ylabel=ylabel, title=title)
    dimensions = sorted(rows["dimension"].dropna().unique())
    ax.set_xticks(dimensions, [f"{d:.0f}" for d in dimensions], minor=False)
    ax.set_xticks([], minor=True)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_proposition_16(ax: "Axes", frame: pd.DataFrame) -> None:
    for formula, colour, marker in (
        ("as_printed", "vermillion", "o"),
        ("corrected", "blue", "s"),
    ):
        metric = f"proposition_16_agop_{formula}_norm_ratio"
        curve = _curve(frame, "width", metric=metric)
        label = formula.replace("_", " ")
        ax.plot(curve, marker=marker, color=OKABE_ITO[colour], label=label)
    ax.axhline(1, linestyle=":", color=COLOURS["reference"])
    ax.set(xscale="log", yscale="log", xlabel="width k", ylabel="‖formula‖ / ‖Monte-Carlo mean‖")
    ax.set_title("Proposition 16, $E[\\dot W^\\top K \\dot W]$")
    ax.legend()


def _draw_remainders(ax: "Axes", frame: pd.DataFrame) -> None:
    for metric, (label, colour, marker) in REMAINDERS.items():
        curve = _curve(frame, "dimension", metric=metric)
        ax.plot(curve, marker=marker, color=OKABE_ITO[colour], label=label)
    rows = frame[frame["metric"].isin(REMAINDERS)]
    _label_dimensions(ax, rows, "norm of what is left", "should vanish as d grows")


def _draw_differences(
    ax: "Axes", frame: pd.DataFrame, statements: Mapping[str, str], title: str
) -> None:
    for position, metric in enumerate(statements):
        values = frame.loc[frame["metric"] == metric, "value"]
        ax.plot(values, [position] * len(values), "o", color=COLOURS["train"], fillstyle="none")
    ax.set_yticks(range(len(statements)), list(statements.values()))
    ax.invert_yaxis()
    ax.set(xscale="log", xlabel="relative difference, one symbol per seed", title=title)
