"""What Figures 11 and 12 of baratin2021 share: alignment during training, by architecture."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.papers.baratin2021.figures.classification_curves import (
    AXIS_BEGIN,
    curves,
    draw_curves,
    iteration_axis,
    mlp,
    resnet18,
    summary,
    vgg19,
)
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import COLOURS, new_figure
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {
    "mlp": "MLP, MNIST",
    vgg19(0).name: "VGG19, CIFAR-10",
    "resnet18": "ResNet18, CIFAR-10",
}


def architectures(experiments: Mapping[str, Any]) -> list[Point]:
    """The MLP on MNIST, VGG19 and ResNet18 on CIFAR-10, without random labels."""
    return [mlp(experiments), vgg19(0), resnet18()]


def alignment_table(runs: Runs, metric: str) -> FigureTable:
    """Accuracies and alignments of the whole network, and the alignments' gains.

    Args:
        runs: the architectures' runs.
        metric: which alignment.

    Returns:
        The rows of both, and for each seed and split the last value over that of step 0
        (`<metric>_gain`) and over that of the first step from 10 (`<metric>_gain_from_10`),
        where the paper's axis begins.
    """
    metrics = runs.metrics
    metrics = metrics[(metrics["layer"] == "all") & metrics["metric"].isin(["accuracy", metric])]

    def numbers(curve: Callable[..., pd.Series], split: str) -> dict[str, float]:
        values = curve(metric)
        late = values[values.index >= AXIS_BEGIN]
        return {
            f"{metric}_gain": values.iloc[-1] / values.iloc[0],
            f"{metric}_gain_from_10": values.iloc[-1] / late.iloc[0],
        }

    return FigureTable(pd.concat([metrics, summary(metrics, numbers)], ignore_index=True))


def draw_alignment(table: FigureTable, metric: str, label: str) -> "Figure":
    """The alignment on test images, one panel for each architecture."""
    figure, axes = new_figure(1, len(TITLES), width=3.0 * len(TITLES) + 0.6, height=2.8)
    for ax, (point, title) in zip(axes[0], TITLES.items(), strict=True):
        run = table.frame[table.frame["point"] == point]
        draw_curves(ax, curves(run, metric=metric, split="test"), COLOURS["test"], "-")
        ax.set_title(title)
        ax.set_xlabel("iteration")
        ax.set_ylim(bottom=0)
        iteration_axis(ax, run["step"].max())
    axes[0, 0].set_ylabel(label)
    return figure
