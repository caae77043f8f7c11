"""baratin2021, Figure 11: alignment of the tangent kernel with the labels, by architecture."""

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

TITLE = "The tangent kernel aligns with the labels in every architecture"
CAPTION = (
    "Centred kernel alignment of the tangent kernel with the labels, on test images, during the "
    "training of an MLP on MNIST and of VGG19 and ResNet18 on CIFAR-10. The axis begins at "
    "iteration 0, before the first update. Mean over seeds, bands from the smallest to the largest."
)
METRIC = "label_alignment"


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each architecture; VGG19's is that of Figure 2."""
    return architectures(experiments)


def table(runs: Runs) -> FigureTable:
    """Alignments of the whole network, and their gain."""
    return alignment_table(runs, METRIC)


def draw(table: FigureTable) -> "Figure":
    """One panel for each architecture."""
    return draw_alignment(table, METRIC, "CKA, test")
