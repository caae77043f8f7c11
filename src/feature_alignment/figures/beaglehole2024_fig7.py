"""beaglehole2024, Figure 7: first-order predicted and observed C-NFC with two hidden layers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.figures.make import FigureTable, Runs
from feature_alignment.figures.style import COLOURS, new_figure
from feature_alignment.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "A first-order prediction of the C-NFC extends to depth and other activations"
CAPTION = (
    "Correlation ρ of the second derivatives of centred NFM and AGOP at initialisation, at the "
    "first layer of networks with two hidden layers, against the decay rate α of the data's "
    "covariance, whose eigenvalues are 1/(1 + k^α). Dotted: first-order prediction, from the "
    "expected PTK at infinite width in closed form. Dashed and solid: observed at the smaller and "
    "the larger width, mean and standard deviation over networks and draws. Faint lines of the "
    "same styles, without bars: predicted with the networks' mean 𝒦² in place of the squared "
    "mean."
)
EXPERIMENT = "beaglehole2024_depth_prediction"
ACTIVATIONS = ("quadratic", "relu")
TARGETS = ("low_rank", "high_rank")
LAST_IN_THE_MIDDLE = 3.0
"""Decay rates from 0 up to here, both left out, count as intermediate."""


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each activation and target."""
    return [
        Point(EXPERIMENT, f"{phi}_{target}", {"activation": phi, "target": target})
        for phi in ACTIVATIONS
        for target in TARGETS
    ]


def table(runs: Runs) -> FigureTable:
    """All metrics, and for each point, width and draw: the error and the depth of the dip."""
    metrics = runs.metrics
    parts = [metrics]
    for point, rows in metrics.groupby("point", sort=False):
        first_order = _curve(rows[rows["metric"] == "predicted"])
        parts.append(_dip(first_order, "dip_of_predicted", point))
        for size, width in zip(("smaller", "larger"), _widths(rows), strict=True):
            here = rows[rows["width"] == width]
            observed = _curve(here[here["metric"] == "observed"])
            second_order = _curve(here[here["metric"] == "predicted_with_mean_square"])
            parts.append(_dip(observed, "dip_of_observed", point, size))
            for metric, predicted in (
                ("largest_error", first_order),
                ("largest_error_with_mean_square", second_order),
            ):
                error = abs(observed - predicted).max(axis=1)
                parts.append(_summary(error, metric, point, size))
    frame = pd.concat(parts, ignore_index=True)
    return FigureTable(pd.concat([frame, _relu_against_quadratic(frame)], ignore_index=True))


def _relu_against_quadratic(frame: pd.DataFrame) -> pd.DataFrame:
    """Largest errors at the larger width, mean over targets: ReLU's minus the quadratic's."""
    rows = frame[(frame["metric"] == "largest_error") & (frame["size"] == "larger")]
    errors = rows.pivot(index="seed", columns="point", values="value")
    means = {
        phi: errors[[f"{phi}_{target}" for target in TARGETS]].mean(axis=1) for phi in ACTIVATIONS
    }
    difference = means["relu"] - means["quadratic"]
    return _summary(difference, "relu_error_minus_quadratic_error", "comparison", "larger")


def _widths(rows: pd.DataFrame) -> tuple[float, float]:
    """The smallest and the largest width."""
    return rows["width"].min(), rows["width"].max()


def _curve(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over networks, seeds down and decay rates across."""
    return rows.pivot_table(index="seed", columns="decay_rate", values="value")


def _dip(curve: pd.DataFrame, metric: str, point: str, size: str | None = None) -> pd.DataFrame:
    """The smaller value of both ends, minus the smallest at intermediate decay rates."""
    middle = [alpha for alpha in curve.columns if 0 < alpha < LAST_IN_THE_MIDDLE]
    ends = curve.iloc[:, [0, -1]].min(axis=1)
    return _summary(ends - curve[middle].min(axis=1), metric, point, size)


def _summary(values: pd.Series, metric: str, point: str, size: str | None) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "point": point,
            "seed": values.index,
            "step": 0,
            "layer": "layers.0",
            "split": "train",
            "metric": metric,
            "value": values.to_numpy(),
            "size": size,
        }
    )


def draw(table: FigureTable) -> "Figure":
    """A panel for each activation (columns) and target (rows)."""
    figure, axes = new_figure(len(TARGETS), len(ACTIVATIONS), width=8.5, height=6.0)
    for row, target in zip(axes, TARGETS, strict=True):
        for ax, phi in zip(row, ACTIVATIONS, strict=True):
            rows = table.frame[table.frame["point"] == f"{phi}_{target}"]
            rows = rows[rows["decay_rate"].notna()]
            predicted = rows[rows["metric"] == "predicted"].groupby("decay_rate")["value"].mean()
            ax.plot(predicted, ":", color=COLOURS["paper"], label="predicted, first order")
            for width, line in zip(_widths(rows), ("--", "-"), strict=True):
                here = rows[rows["width"] == width]
                observed = here[here["metric"] == "observed"].groupby("decay_rate")["value"]
                ax.errorbar(
                    observed.mean().index,
                    observed.mean(),
                    yerr=observed.std(ddof=0),
                    linestyle=line,
                    color=COLOURS["centred"],
                    capsize=2,
                    label=f"observed, k = {width:.0f}",
                )
                second = here[here["metric"] == "predicted_with_mean_square"]
                mean = second.groupby("decay_rate")["value"].mean()
                ax.plot(mean, line, color=COLOURS["reference"], linewidth=0.8)
            ax.set(ylim=(0.5, 1.02), title=f"{phi}, {target.replace('_', ' ')} target")
        row[0].set_ylabel("correlation ρ")
    for ax in axes[-1]:
        ax.set_xlabel("data decay rate α")
    axes[0, 0].legend()
    return figure
