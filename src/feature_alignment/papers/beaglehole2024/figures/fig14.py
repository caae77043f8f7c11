"""beaglehole2024, Figure 14: losses and weight changes of fully connected networks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feature_alignment.data.registry import DATASETS
from feature_alignment.papers.beaglehole2024.figures.networks import (
    datasets_of,
    draw_losses,
    draw_weight_changes,
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

TITLE = "Weights of fully connected networks leave their initialisation"
CAPTION = (
    "ReLU networks with five hidden layers on image datasets (rows), with the settings of the "
    "released code (left) and of the text (right): mean squared error on training and test "
    "images, and ‖W − W₀‖ / ‖W‖ in each hidden layer. Every panel has a vertical range of its own. "
    "Lines are means over seeds, bands one standard deviation either way."
)


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """Points for each of the configured datasets, in both settings."""
    return mlp_points(experiments)


def table(runs: Runs) -> FigureTable:
    """What `trajectories` gathers; `remark` names the paper's datasets that are left out."""
    frame = trajectories(runs).frame
    return FigureTable(frame.assign(remark=left_out(datasets_of(frame))))


def draw(table: FigureTable) -> "Figure":
    """Datasets down; losses and weight changes across, for both settings."""
    frame = table.frame
    datasets = datasets_of(frame)
    layers = {name: str(number + 1) for number, name in enumerate(layers_of(frame, "layers."))}
    figure, axes = new_figure(len(datasets), 4, width=11.0, height=2.1 * len(datasets) + 0.4)
    for row, dataset in zip(axes, datasets, strict=True):
        for pair, settings in ((row[:2], "released"), (row[2:], "text")):
            rows = rows_of(frame, dataset=dataset, settings=settings)
            draw_losses(pair[0], rows)
            draw_weight_changes(pair[1], rows, layers)
            for ax in pair:
                ax.set_title(f"{DATASETS[dataset].title}, {settings} settings")
    axes[0, 0].legend()
    axes[0, 3].legend(title="hidden layer", loc="upper left")
    for ax in axes[-1]:
        ax.set_xlabel("epoch")
    return figure
