"""beaglehole2024, Figure 7: first-order predicted and observed C-NFC with two hidden layers."""

from itertools import product

import numpy as np
import pandas as pd

from feature_alignment.papers.beaglehole2024.figures.curves import network_deviations, tidy
from feature_alignment.papers.beaglehole2024.parameters import DepthPrediction
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_curve
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import COLOURS, PALETTE, new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

LAYER = "layers.0"
ACTIVATIONS = ("quadratic", "relu")
TARGETS = ("low_rank", "high_rank")
LAST_IN_THE_MIDDLE = 3.0  # decay rates strictly between 0 and this count as intermediate
MEAN_SQUARE = "predicted_with_mean_square"  # of several networks
LINES = {  # colour, line, symbol and shift in α of the two widths, and the paper's width
    "smaller": (PALETTE["sky blue"], "--", "o", -0.04, 128),
    "larger": (PALETTE["vermillion"], "-", "s", 0.04, 1024),
}
PAPER_SAMPLES = 128
TITLES = {"quadratic": "quadratic", "relu": "ReLU"}


def points(settings: Settings) -> list[Point]:
    """One point for each activation and target."""
    own, found = settings[DepthPrediction], []
    for phi, target in product(ACTIVATIONS, TARGETS):
        columns = {"activation": phi, "target": target}
        parameters = own.but(**columns)
        found.append(Point(f"{phi}_{target}", parameters, columns | {"samples": own.samples}))
    return found


def table(runs: Runs) -> FigureTable:
    """All metrics, and how predicted and observed ρ compare at each width (metrics.yaml)."""
    metrics = runs.metrics
    parts = [metrics]
    group = ["point", "activation", "target"]
    for (point, phi, target), rows in metrics.groupby(group, sort=False):
        first_order = _curve(rows_where(rows, metric="predicted"))
        rank = _curve(rows_where(rows, metric="expected_kernel_rank"))
        parts += [
            tidy({"expected_kernel_rank_step": step}, LAYER, point=point, decay_rate=alpha)
            for alpha, step in rank.diff(axis=1).iloc[:, 1:].items()
        ]
        for size, width in zip(LINES, rows["width"].agg(["min", "max"]), strict=True):
            here = rows_where(rows, width=width)
            seen = rows_where(here, metric="observed")
            observed, error_of_mean, networks = _curve(seen), None, seen["network"].nunique()
            of_networks = {}
            if networks > 1:
                error_of_mean = network_deviations(seen, "decay_rate") / (networks - 1) ** 0.5
                second_order = abs(observed - _curve(rows_where(here, metric=MEAN_SQUARE)))
                of_networks["largest_error_with_mean_square"] = second_order.max(axis=1)
            values = {
                "largest_error": abs(observed - first_order).max(axis=1),
                "error_over_constant": _error_over_constant(observed, first_order),
                "observed_without_decay": observed.iloc[:, 0],
                "observed_with_largest_decay": observed.iloc[:, -1],
                **_dip(observed, error_of_mean, "dip_of_observed"),
                **of_networks,
            }
            if phi == "relu":  # the quadratic's φ′ is linear
                linearised = _curve(rows_where(rows, metric="predicted_linearised"))
                values |= {
                    "largest_error_linearised": abs(observed - linearised).max(axis=1),
                    "error_over_constant_linearised": _error_over_constant(observed, linearised),
                }
            if size == "larger":  # the prediction is for infinite width
                values |= _dip(first_order, None, "dip_of_predicted")
            where = {"point": point, "activation": phi, "target": target, "size": size}
            parts.append(tidy(values, LAYER, **where))
    frame = pd.concat(parts, ignore_index=True)
    differences = [_relu_against_quadratic(frame, name) for name in ("", "_linearised")]
    return FigureTable(pd.concat([frame, *differences], ignore_index=True))


def _error_over_constant(observed: pd.DataFrame, predicted: pd.DataFrame) -> pd.Series:
    residual = ((observed - predicted) ** 2).sum(axis=1)
    of_constant = observed.sub(observed.mean(axis=1), axis=0).pow(2).sum(axis=1)
    return (residual / of_constant) ** 0.5


def _relu_against_quadratic(frame: pd.DataFrame, prediction: str) -> pd.DataFrame:
    """Largest errors at the larger width, mean over targets: ReLU's minus the quadratic's."""
    relu, quadratic = (
        rows_where(frame, metric=metric, size="larger", activation=phi).groupby("seed")["value"]
        for phi, metric in (("relu", f"largest_error{prediction}"), ("quadratic", "largest_error"))
    )
    metric = f"relu{prediction}_error_minus_quadratic_error"
    values = {metric: relu.mean() - quadratic.mean()}
    return tidy(values, LAYER, point="comparison", size="larger")


def _curve(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over networks: seeds as rows, decay rates as columns."""
    return rows.pivot_table(index="seed", columns="decay_rate", values="value")


def _dip(curve: pd.DataFrame, error: pd.DataFrame | None, metric: str) -> dict[str, pd.Series]:
    """The smaller value of the two ends minus the smallest between, and its excess over the error.

    Nothing without rates between, and no excess without a standard error of the curve.
    """
    rates = curve.columns.to_numpy(float)
    middle = curve.loc[:, (rates > 0) & (rates < LAST_IN_THE_MIDDLE)]
    if middle.empty:
        return {}
    dip = curve.iloc[:, [0, -1]].min(axis=1) - middle.min(axis=1)
    if error is None:
        return {metric: dip}
    errors = error.loc[middle.index, middle.columns].to_numpy()
    lowest = middle.to_numpy().argmin(axis=1)
    noise = np.take_along_axis(errors, lowest[:, None], axis=1)[:, 0]
    return {metric: dip, f"{metric}_margin": dip - noise}


def draw(table: FigureTable) -> Picture:
    """A panel for each activation (columns) and target (rows)."""
    figure, axes = new_figure(len(TARGETS), len(ACTIVATIONS), width=8.5, height=6.8)
    for row, target in zip(axes, TARGETS, strict=True):
        for ax, phi in zip(row, ACTIVATIONS, strict=True):
            _draw_panel(ax, table.rows(activation=phi, target=target))
            ax.set_title(f"{TITLES[phi]}, {target.replace('_', ' ')} target")
        row[0].set_ylabel("correlation ρ")
    for column in axes.T:  # one range, up to a little more than 1, for both targets
        bottom = min(ax.get_ylim()[0] for ax in column)
        for ax in column:
            ax.set_ylim(bottom, 1 + 0.05 * (1 - bottom))
    for ax in axes[-1]:
        ax.set_xlabel("data decay rate α")
    samples = table.frame["samples"].max()
    title = f"n = d = {samples:.0f}{_paper(samples, PAPER_SAMPLES)}"
    lines = axes[0, 1].get_legend_handles_labels()
    figure.legend(*lines, loc="outside upper center", ncols=2, title=title)
    panel_letters(*axes.flat)
    return figure


def _paper(here: float, paper: int) -> str:
    return "" if here == paper else f" (paper {paper})"


def _draw_panel(ax: Axes, rows: pd.DataFrame) -> None:
    for metric, line, label in (
        ("predicted", ":", "predicted, first order"),
        ("predicted_linearised", "-.", "predicted, φ′ linearised"),
    ):
        if metric in set(rows["metric"]):
            mean = _curve(rows_where(rows, metric=metric)).mean()
            ax.plot(mean, line, color=COLOURS["paper"], label=label, zorder=4)
    for width, size in zip(rows["width"].agg(["min", "max"]), LINES, strict=True):
        colour, line, marker, shift, paper = LINES[size]
        name = f"k = {width:.0f}{_paper(width, paper)}"
        seen = rows_where(rows, metric="observed", width=width)
        seen = seen.assign(decay_rate=seen["decay_rate"] + shift)
        by_draw = seen.groupby(["seed", "decay_rate"])["value"].mean().reset_index()
        look = {"linestyle": line, "marker": marker}
        draw_curve(ax, by_draw, colour, f"observed, {name}", x="decay_rate", **look)
        mean, bars = _curve(seen).mean(), network_deviations(seen, "decay_rate").mean()
        ax.errorbar(mean.index, mean, bars, fmt="none", color=colour, capsize=2)
        if MEAN_SQUARE in set(rows["metric"]):
            second = _curve(rows_where(rows, metric=MEAN_SQUARE, width=width)).mean()
            label = f"predicted with mean $\\mathcal{{K}}^2$, {name}"
            ax.plot(second, line, color=colour, label=label, linewidth=0.8)


FIGURE = Figure(
    name="fig7",
    title="A first-order prediction of the C-NFC extends to depth and other activations",
    caption="Correlation ρ of the second derivatives of centred NFM and AGOP at initialisation, at "
    "the first layer of networks with two hidden layers, against the decay rate α of the data's "
    "covariance, whose eigenvalues are 1/(1 + k^α); each activation has its own vertical range. "
    "Dotted: first-order prediction, from the expected PTK at infinite width in closed form; "
    "dash-dotted: the same with ReLU's φ′ linearised. Symbols: observed at the smaller (dashed) "
    "and the larger width (solid), mean over networks; bars: standard deviation between networks, "
    "mean over draws of the data (seeds). The widths are drawn a little to the left and right of "
    "their α. Thinner lines without symbols in the widths' colours: predicted with the networks' "
    f"mean 𝒦² in place of the squared mean. Predictions are means over draws. {OVER_SEEDS}",
    points=points,
    table=table,
    draw=draw,
)
