"""beaglehole2024: numerical checks of Theorem 9 and of the propositions without a figure."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from feature_alignment.papers.beaglehole2024.parameters import Propositions, Theorem9
from feature_alignment.pipeline.figures import style
from feature_alignment.pipeline.figures.drawing import (
    DEVIATIONS,
    OVER_SEEDS,
    ZERO,
    draw_curve,
    draw_deviations,
)
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

KERNELS = {"relu": "ReLU", "erf": "erf", "exponential": "exponential", "quadratic": "quadratic"}
TARGETS = {"linear": "z", "non-linear": "z + z² − 1", "no linear part": "z² − 1"}
SAMPLE_SIZES = ("d/4", "d", "4d log d", "d log³d")
METHODS = {  # marker, and a factor on the dimension, so that none hides another
    "copy subtracted": ("o", 0.94),
    "small readout": ("x", 1.06),
    "neither": ("s", 1.0),
}
IDENTITIES = {  # exact, up to rounding and to the error of finite differences
    "proposition_2": "Prop. 2",
    "proposition_12": "Prop. 12",
    "proposition_3_nfm": "Prop. 3, NFM",
    "proposition_3_agop": "Prop. 3, AGOP",
}
EQUATIONS = {
    f"equation_{number}_{'sampled' if number < 16 else 'as_printed'}": f"eq. {number}"
    for number in (*range(12, 16), 20, 22, 28)
}
MISPRINT = {"equation_28_as_printed": "equation_28_derived"}
"""The derived form holds up to terms of order 1/n in the size n of the matrices."""
REMAINDERS = {  # what should vanish as d grows
    "equation_10_rest_as_printed": ("eq. 10", "printed", "-"),
    "equation_10_rest_corrected": ("eq. 10", "corrected", "-"),
    "lemma_13_deviation_as_printed": ("Lemma 13", "printed", "--"),
    "lemma_13_deviation": ("Lemma 13", "corrected", "--"),
}
GROWING = ["one_minus_correlation", *REMAINDERS] + [
    # metrics whose rates in d are tabulated
    f"theorem9_{name}_{form}"
    for name in ("covariance", "fourth_trace")
    for form in ("as_printed", "corrected")
]


def points(settings: Settings) -> list[Point]:
    """One point for each kernel of the theorem, one for all propositions."""
    theorem = [Point(phi, settings[Theorem9].but(activation=phi)) for phi in KERNELS]
    return [*theorem, Point("propositions", settings[Propositions])]


def table(runs: Runs) -> FigureTable:
    """All metrics, with their extent, and their rates in the dimension (metrics.yaml)."""
    metrics = runs.metrics
    metrics["extent"] = ""
    growing = rows_where(metrics, metric=GROWING)
    group = ["point", "metric", "sample_size", "target"]
    largest = growing.groupby(group, dropna=False)["dimension"].transform("max")
    metrics.loc[growing.index[growing["dimension"] == largest], "extent"] = "largest"
    metrics.loc[metrics["width"] == metrics["width"].max(), "extent"] = "largest"
    slopes = growing.groupby([*group, "seed"], dropna=False)[["dimension", "value"]].apply(_slope)
    rates = slopes.rename("value").dropna().reset_index()
    rates = rates.assign(step=0, layer="all", split="train", extent="")
    rates["metric"] += "_slope"
    return FigureTable(pd.concat([metrics, rates], ignore_index=True))


def _slope(rows: pd.DataFrame) -> float:
    # With a single sample ρ is exactly 1, and a limit on samples may leave one dimension.
    if len(rows) < 2 or not (rows["value"] > 0).all():
        return math.nan
    log_d, log_value = np.log(rows["dimension"]), np.log(rows["value"])
    return float(np.polyfit(log_d, log_value, 1)[0])


def draw(table: FigureTable) -> Picture:
    """Rows: Theorem 9 by target; by kernel, Proposition 16 and remainders; differences."""
    figure, axes = style.new_figure(3, 3, width=12.0, height=9.0)
    for ax in axes[:2].flat:
        ax.set(xscale="log", yscale="log")
    for ax, (target, formula) in zip(axes[0], TARGETS.items(), strict=True):
        if ax is not axes[0, 0]:
            ax.sharey(axes[0, 0])
        _draw_target(ax, table.rows(metric="one_minus_correlation", point="relu", target=target))
        ax.set_title(f"ReLU kernel, y = {formula}")
    axes[0, 2].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    _draw_kernels(axes[1, 0], table)
    _draw_proposition_16(axes[1, 1], table)
    _draw_remainders(axes[1, 2], table)
    axes[2, 2].axis("off")
    compared = {"identities": IDENTITIES, "traces of large matrices": EQUATIONS}
    for ax, (title, statements) in zip(axes[2], compared.items(), strict=False):
        draw_deviations(ax, _deviations(table, statements), statements, legend=False)
        ax.set(xlabel="relative difference", title=title)
    axes[2, 1].set_xlim(left=1e-4)
    axes[2, 2].legend(*axes[2, 1].get_legend_handles_labels(), loc="center left")
    style.panel_letters(*axes.flat[:8])
    return figure


def _draw_target(ax: Axes, rows: pd.DataFrame) -> None:
    for size, look in style.sequence_looks(SAMPLE_SIZES).items():
        curve = rows_where(rows, sample_size=size)
        curve = curve[curve["value"] > 0]  # with a single sample ρ is 1
        draw_curve(ax, curve, label=f"n = {size}", x="dimension", marker=".", **look)
    _label_dimensions(ax, rows, "1 − ρ")


def _draw_kernels(ax: Axes, table: FigureTable) -> None:
    rows = table.rows(sample_size="4d log d", target="linear")
    for phi, look in style.sequence_looks(KERNELS).items():
        curve = rows_where(rows, metric="one_minus_correlation", point=phi)
        draw_curve(ax, curve, label=KERNELS[phi], x="dimension", marker=".", **look)
    for method, (marker, shift) in METHODS.items():
        network = rows_where(rows, point="relu", method=method)
        network = network.assign(dimension=network["dimension"] * shift)
        symbols = {"marker": marker, "linestyle": "none", "fillstyle": "none"}
        draw_curve(ax, network, "paper", method, x="dimension", **symbols)
    ax.set_title("linear target, n = 4d log d")
    _label_dimensions(ax, rows, "1 − ρ")
    ax.set_ylim(bottom=ax.get_ylim()[0] / 50)
    ax.legend(fontsize=6, ncols=2)


def _label_dimensions(ax: Axes, rows: pd.DataFrame, ylabel: str) -> None:
    ax.set(xlabel="input dimension d", ylabel=ylabel)
    dimensions = sorted(rows["dimension"].dropna().unique())
    ax.set_xticks(dimensions, [f"{d:.0f}" for d in dimensions], minor=False)
    ax.set_xticks([], minor=True)


def _draw_proposition_16(ax: Axes, table: FigureTable) -> None:
    for formula, thing in (("as_printed", "printed"), ("corrected", "corrected")):
        rows = table.rows(metric=f"proposition_16_agop_{formula}_norm_ratio")
        marker, label = DEVIATIONS[thing]
        draw_curve(ax, rows, thing, label, x="width", marker=marker)
    ax.axhline(1, linestyle=":", color=style.COLOURS["reference"])
    ax.set(xlabel="width k", ylabel="‖formula‖ / ‖Monte-Carlo mean‖")
    ax.set_title("Proposition 16, E[ẆᵀKẆ]")
    ax.legend()


def _draw_remainders(ax: Axes, table: FigureTable) -> None:
    rows = table.rows(metric=list(REMAINDERS))
    for metric, (statement, thing, line) in REMAINDERS.items():
        own, (marker, form) = rows_where(rows, metric=metric), DEVIATIONS[thing]
        label = f"{statement}, {form}"
        draw_curve(ax, own, thing, label, x="dimension", linestyle=line, marker=marker)
    ax.set_title("should vanish as d grows")
    _label_dimensions(ax, rows, "norm of what is left")
    ax.legend(fontsize=7, loc="center left", bbox_to_anchor=(0, 0.34), handlelength=3.5)


def _deviations(table: FigureTable, statements: Mapping[str, str]) -> pd.DataFrame:
    """Relative differences for `draw_deviations`, with the corrected forms of misprints."""
    rows = table.rows(metric=[*statements, *MISPRINT.values()])
    forms = dict.fromkeys(MISPRINT, "printed") | dict.fromkeys(MISPRINT.values(), "corrected")
    form = rows["metric"].map(forms).fillna("stated")
    statement = rows["metric"].replace({other: printed for printed, other in MISPRINT.items()})
    return rows_where(rows.assign(form=form, statement=statement), statement=list(statements))


FIGURE = Figure(
    name="fig_theory",
    title="What the theorem and the propositions say, measured",
    caption="Checks of Theorem 9, Propositions 2, 3, 12 and 16, Lemma 13, and eq. 10, 12-15, "
    "20, 22 and 28; the table has more of them. A-C: 1 − ρ of the second derivatives of "
    "centred NFM and AGOP against the dimension d of data on the sphere, ReLU kernel at "
    "infinite width, for numbers of samples (dark to light) and targets (z² − 1 has no linear "
    "part: the theorem does not speak of it). D: the same for n = 4d log d, a linear target "
    "and the kernels of several activations; the quadratic's vanishes at right angles, which "
    "the theorem excludes. Symbols: a wide ReLU network, mean over seeds, by how its initial "
    "outputs are made zero, or not, drawn a little beside their d. E: size of the formula for "
    "E[ẆᵀKẆ] over that of a Monte-Carlo mean, as printed in Proposition 16 and corrected, "
    "against the width k; dotted: equal. F: spectral norm of the exponential's kernel minus its "
    "linearisation by eq. 10, as printed and corrected, with h″(0)/2, for n = 4d log d, and "
    "dashed: the norm of Lemma 13 at n = d log³d, for labels that its printed form allows, and "
    "for bounded ones. G, H: relative difference of both sides, a symbol for each seed: by "
    "automatic differentiation (2, 12) and finite differences (3), and against traces in large "
    f"random matrices (equations). {ZERO} {OVER_SEEDS}",
    points=points,
    table=table,
    draw=draw,
)
