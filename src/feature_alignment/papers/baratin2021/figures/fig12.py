"""baratin2021, Figure 12: Figure 11 without centring the kernel."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feature_alignment.papers.baratin2021.figures.architecture_curves import (
    alignment_table,
    architectures,
    draw_alignment,
)
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Alignment with the labels does not need centring"
CAPTION = (
    "As Figure 11, for the kernel of features that are not centred: alignment of the tangent "
    "kernel with the labels, on test images, during the training of an MLP on MNIST and of VGG19 "
    "and ResNet18 on CIFAR-10."
)
METRIC = "label_alignment_uncentred"


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """The points of Figure 11."""
    return architectures(experiments)


def table(runs: Runs) -> FigureTable:
    """Alignments of the whole network, and their gain."""
    return alignment_table(runs, METRIC)


def draw(table: FigureTable) -> "Figure":
    """One panel for each architecture."""
    return draw_alignment(table, METRIC, "uncentred alignment, test")
