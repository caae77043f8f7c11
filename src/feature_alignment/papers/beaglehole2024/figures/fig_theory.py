"""beaglehole2024: numerical checks of Theorem 9 and of the propositions without a figure."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from feature_alignment.papers.beaglehole2024.parameters import Propositions, Theorem9
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_curve, draw_points
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import COLOURS, OKABE_ITO, new_figure, panel_label
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

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
    **{f"equation_{number}_as_printed": f"eq. {number}, printed" for number in range(12, 16)},
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
GROWING = ["one_minus_correlation", *REMAINDERS] + [
    f"theorem9_{name}_{form}"
    for name in ("covariance", "fourth_trace")
    for form in ("as_printed", "corrected")
]
"""What the table has rates in d of."""


def points(settings: Settings) -> list[Point]:
    """One point for each kernel of the theorem, one for all propositions."""
    theorem = [Point(phi, settings[Theorem9].but(activation=phi)) for phi in KERNELS]
    return [*theorem, Point("propositions", settings[Propositions])]


def table(runs: Runs) -> FigureTable:
    """All metrics, and their rates in the dimension.

    `<metric>_slope` is the slope of log(metric) against log d, by least squares over all
    dimensions, where there are two and the metric is positive; `extent` marks the rows of the
    largest dimension of a kernel, sample size and target, and of the largest width.
    """
    metrics = runs.metrics
    metrics["extent"] = ""
    growing = rows_where(metrics, metric=GROWING)
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


def draw(table: FigureTable) -> Picture:
    """Theorem 9 above; Proposition 16 and what vanishes with d; relative differences."""
    figure, axes = new_figure(3, 2, width=9.5, height=9.0)
    for ax in (*axes[0], *axes[1]):
        ax.set(xscale="log", yscale="log")
    _draw_targets(axes[0, 0], table)
    _draw_kernels(axes[0, 1], table)
    _draw_proposition_16(axes[1, 0], table)
    _draw_remainders(axes[1, 1], table)
    _draw_differences(axes[2, 0], table, IDENTITIES, "identities")
    _draw_differences(axes[2, 1], table, EQUATIONS, "traces of large matrices")
    for ax, letter in zip(axes.flat, "ABCDEF", strict=True):
        panel_label(ax, letter)
    return figure


def _draw_targets(ax: Axes, table: FigureTable) -> None:
    rows = table.rows(metric="one_minus_correlation", point="relu")
    for target, (_, colour) in TARGETS.items():
        for size, line in SAMPLE_SIZES.items():
            curve = rows_where(rows, target=target, sample_size=size)
            curve = curve[curve["value"] > 0]  # of a single sample ρ is 1
            draw_curve(ax, curve, OKABE_ITO[colour], x="dimension", linestyle=line, marker=".")
    for formula, colour in TARGETS.values():
        ax.plot([], [], color=OKABE_ITO[colour], label=f"y = {formula}")
    for size, line in SAMPLE_SIZES.items():
        ax.plot([], [], line, color=COLOURS["reference"], label=f"n = {size}")
    _label_dimensions(ax, rows, "1 − ρ", "ReLU kernel")


def _draw_kernels(ax: Axes, table: FigureTable) -> None:
    rows = table.rows(sample_size="4d log d", target="linear")
    for phi, colour in KERNELS.items():
        curve = rows_where(rows, metric="one_minus_correlation", point=phi)
        draw_curve(ax, curve, OKABE_ITO[colour], phi, x="dimension", marker=".")
    for method, marker in METHODS.items():
        network = rows_where(rows, point="relu", method=method)
        style = {"marker": marker, "linestyle": "none", "fillstyle": "none"}
        draw_curve(ax, network, COLOURS["paper"], method, x="dimension", **style)
    _label_dimensions(ax, rows, "1 − ρ", "linear target, n = 4d log d")


def _label_dimensions(ax: Axes, rows: pd.DataFrame, ylabel: str, title: str) -> None:
    ax.set(xlabel="input dimension d", ylabel=ylabel, title=title)
    dimensions = sorted(rows["dimension"].dropna().unique())
    ax.set_xticks(dimensions, [f"{d:.0f}" for d in dimensions], minor=False)
    ax.set_xticks([], minor=True)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_proposition_16(ax: Axes, table: FigureTable) -> None:
    for formula, colour, marker in (("as_printed", "vermillion", "o"), ("corrected", "blue", "s")):
        rows = table.rows(metric=f"proposition_16_agop_{formula}_norm_ratio")
        label = formula.replace("_", " ")
        draw_curve(ax, rows, OKABE_ITO[colour], label, x="width", marker=marker)
    ax.axhline(1, linestyle=":", color=COLOURS["reference"])
    ax.set(xlabel="width k", ylabel="‖formula‖ / ‖Monte-Carlo mean‖")
    ax.set_title("Proposition 16, $E[\\dot W^\\top K \\dot W]$")
    ax.legend()


def _draw_remainders(ax: Axes, table: FigureTable) -> None:
    rows = table.rows(metric=list(REMAINDERS))
    for metric, (label, colour, marker) in REMAINDERS.items():
        curve = rows_where(rows, metric=metric)
        draw_curve(ax, curve, OKABE_ITO[colour], label, x="dimension", marker=marker)
    _label_dimensions(ax, rows, "norm of what is left", "should vanish as d grows")


def _draw_differences(
    ax: Axes, table: FigureTable, statements: Mapping[str, str], title: str
) -> None:
    ax.set(xscale="log", xlabel="relative difference", title=title)
    colours = dict.fromkeys(statements, COLOURS["train"])
    rows = table.rows(metric=list(statements))
    draw_points(ax, rows, statements, colours, by="metric", horizontal=True)


FIGURES = (
    Figure(
        name="fig_theory",
        title="What the theorem and the propositions say, measured",
        caption="Checks of Theorem 9, Propositions 2, 3, 12 and 16, Lemma 13, and eq. 10, "
        "12-15, 20, 22 and 28; the table has more of them. "
        "A: 1 − ρ of the second derivatives of centred NFM and AGOP against the dimension "
        "d of data on the sphere, ReLU kernel at infinite width, for numbers of samples and "
        "targets (z² − 1 has no linear part: the theorem does not speak of it). B: the same for "
        "n = 4d log d, a linear target and the kernels of several activations; the quadratic's "
        "vanishes at right angles, which the theorem excludes. Symbols: a wide ReLU network, mean "
        "over seeds, by how its initial outputs are made zero. C: size of the formula for E[ẆᵀKẆ] "
        "over that of a Monte-Carlo mean, as printed in Proposition 16 and corrected, against the "
        "width k. D: spectral norm of the exponential's kernel minus its linearisation by eq. 10, "
        "as printed and with h″(0)/2, for n = 4d log d, and the norm of Lemma 13 for n = d log³d. "
        "E, F: relative difference of both sides, a dot for each seed and a bar at their mean: by "
        "automatic differentiation (2, 12) and finite differences (3), and against traces in large "
        f"random matrices (equations). {OVER_SEEDS} On logarithmic axes they are of the logarithm.",
        points=points,
        table=table,
        draw=draw,
    ),
)
