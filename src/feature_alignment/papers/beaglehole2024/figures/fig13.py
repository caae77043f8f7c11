"""beaglehole2024, Figure 13: feature correlations of fully connected networks over training."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.data.registry import DATASETS
from feature_alignment.papers.beaglehole2024.figures.networks import (
    centred_excess,
    datasets_of,
    draw_both_correlations,
    layers_of,
    left_out,
    mlp_points,
    rows_of,
    trajectories,
)
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import new_figure
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Centred and uncentred correlations of fully connected networks on image datasets"
CAPTION = (
    "ReLU networks with five hidden layers, trained from PyTorch's default initialisation on image "
    "datasets (rows): UC-NFC and C-NFC of each hidden layer (columns), with the settings of the "
    "released code (solid; its first epoch is at learning rate 1e-4) and of the text (dashed). "
    "Lines are means over seeds, bands one standard deviation either way."
)


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """Points for each of the configured datasets, in both settings."""
    return mlp_points(experiments)


def table(runs: Runs) -> FigureTable:
    """What `trajectories` gathers, and C-NFC minus UC-NFC (`centred_excess`).

    `centred_excess_mean` is its mean over layers and measurements of a network.
    """
    frame = trajectories(runs).frame
    excess = centred_excess(frame)
    group = ["point", "network", "dataset", "settings", "seed", "split"]
    means = excess.groupby(group, sort=False)["value"].mean().reset_index()
    means = means.assign(metric="centred_excess_mean", layer="all", step=0)
    table = pd.concat([frame, excess, means], ignore_index=True)
    return FigureTable(table.assign(remark=left_out(datasets_of(frame))))


def draw(table: FigureTable) -> "Figure":
    """Datasets down, layers across."""
    frame = table.frame
    datasets, layers = datasets_of(frame), layers_of(frame, "layers.")
    figure, axes = new_figure(
        len(datasets), len(layers), width=2.2 * len(layers), height=1.9 * len(datasets) + 0.4
    )
    for row, dataset in zip(axes, datasets, strict=True):
        for number, (ax, layer) in enumerate(zip(row, layers, strict=True), start=1):
            draw_both_correlations(ax, rows_of(frame, dataset=dataset, layer=layer))
            ax.set_title(f"{DATASETS[dataset].title}, layer {number}")
        row[0].set_ylabel("correlation")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4)
    for ax in axes[-1]:
        ax.set_xlabel("epoch")
    return figure
