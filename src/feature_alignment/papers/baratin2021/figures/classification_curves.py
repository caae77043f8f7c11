"""Curves over training of classifiers: reading them from tables, summing them up, drawing them.

Shared by Figures 2, 3, 11, 12 and 14 of baratin2021, and free of matplotlib at import.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from feature_alignment.pipeline.figures.style import COLOURS
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXPERIMENT = "baratin2021_classification"
SPLITS = {"train": "-", "test": "--"}
"""The line of each split: the paper's."""

AXIS_BEGIN = 10
"""Where the iteration axis of the paper's plots begins."""


def vgg19(share: float, learning_rate: float = 0.01) -> Point:
    """VGG19 on CIFAR-10 with a share of random labels.

    Example:
        >>> vgg19(0.5).name, vgg19(0, 0.003).name
        ('vgg19-random50', 'vgg19-random0-lr0.003')
    """
    name = f"vgg19-random{100 * share:.0f}"
    if learning_rate != 0.01:
        name += f"-lr{learning_rate:g}"
    return Point(EXPERIMENT, name, _overrides("vgg19", "cifar10", learning_rate, share))


def resnet18() -> Point:
    """ResNet18 on CIFAR-10."""
    return Point(EXPERIMENT, "resnet18", _overrides("resnet18", "cifar10", 0.01, 0))


def mlp(experiments: Mapping[str, Any]) -> Point:
    """The MLP on MNIST, with its own steps and seeds and Figure 4's learning rate."""
    own = experiments[EXPERIMENT]["mlp"]
    return Point(EXPERIMENT, "mlp", {**_overrides("mlp", "mnist", 0.02, 0), **own})


def _overrides(model: str, dataset: str, learning_rate: float, share: float) -> dict[str, Any]:
    return {
        "model": model,
        "dataset": dataset,
        "learning_rate": learning_rate,
        "random_label_share": share,
        "mlp": None,
    }


def curves(frame: pd.DataFrame, **where: object) -> pd.DataFrame:
    """One metric over training: steps in rows, seeds in columns.

    Args:
        frame: a tidy table.
        where: values of its columns, the metric among them; layer is "all" unless given.

    Raises:
        KeyError: if there is no such row.
    """
    where = {"layer": "all", **where}
    chosen = np.logical_and.reduce([frame[column] == value for column, value in where.items()])
    if not chosen.any():
        raise KeyError(f"the table has no rows where {where}")
    return frame[chosen].pivot(index="step", columns="seed", values="value")


def layers(frame: pd.DataFrame) -> list[str]:
    """Names of the measured layers, from input to output."""
    return [layer for layer in frame["layer"].unique() if layer != "all"]


def summary(
    metrics: pd.DataFrame, numbers: Callable[[Callable[..., pd.Series], str], dict[str, float]]
) -> pd.DataFrame:
    """Numbers that sum up the curves of each point, seed and split, as tidy rows.

    Args:
        metrics: tidy metrics of one or several points.
        numbers: from a run's curves and a split to named numbers. The curves are a function
            `curve(metric, split, layer)`, split and layer being by default that split and the
            whole network, which returns values by step.

    Returns:
        Rows at the last step of their run.
    """
    rows = []
    for (point, seed), run in metrics.groupby(["point", "seed"], sort=False):
        at = {"point": point, "seed": seed, "step": run["step"].max(), "layer": "all"}
        for split in SPLITS:

            def curve(
                metric: str, split: str = split, layer: str = "all", run: pd.DataFrame = run
            ) -> pd.Series:
                return curves(run, metric=metric, split=split, layer=layer).iloc[:, 0]

            for metric, value in numbers(curve, split).items():
                rows.append({**at, "split": split, "metric": metric, "value": value})
    return pd.DataFrame(rows)


def draw_curves(
    ax: "Axes", values: pd.DataFrame, colour: str, line: str, label: str | None = None
) -> None:
    """Mean over seeds, with a band from the smallest to the largest."""
    ax.plot(values.index, values.mean(axis=1), line, color=colour, label=label)
    if values.shape[1] > 1:
        low, high = values.min(axis=1), values.max(axis=1)
        ax.fill_between(values.index, low, high, color=colour, alpha=0.2, linewidth=0)


def draw_accuracy(ax: "Axes", frame: pd.DataFrame) -> None:
    """Training and test accuracy of one point."""
    for split, line in SPLITS.items():
        accuracy = curves(frame, metric="accuracy", split=split)
        draw_curves(ax, accuracy, COLOURS["reference"], line, split)
    ax.set_ylim(0, 1.02)


def iteration_axis(ax: "Axes", last: int) -> None:
    """A logarithmic axis that is linear below the first measured step, so that it has a 0."""
    ax.set_xscale("symlog", linthresh=5)
    ax.set_xlim(-0.2, 1.05 * last)
    ticks = [0, *(10**power for power in range(1, 7) if 10**power <= last)]
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.set_xticks([], minor=True)
