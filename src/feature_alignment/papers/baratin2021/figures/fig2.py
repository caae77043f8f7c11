"""baratin2021, Figure 2: tangent-kernel spectrum during training, with and without label noise."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.papers.baratin2021.figures.classification_curves import vgg19
from feature_alignment.papers.baratin2021.figures.spectrum_curves import (
    draw_spectra,
    spectrum_summary,
)
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "The spectrum of the tangent kernel grows, and grows more anisotropic"
CAPTION = (
    "Training of VGG19 on CIFAR-10 with 0, 20 and 50 % random labels (columns), learning rate "
    "0.01. Rows: accuracy; largest, mean and median eigenvalue of the centred tangent kernel; its "
    "effective rank; its trace ratios, in red those of the top 40, 80 and 160. Solid: a batch of "
    "training images, dashed: of test images. The axis begins at iteration 0, before the first "
    "update; eigenvalues can fall until about iteration 10, where the paper's axis begins. Mean "
    "over seeds, bands from the smallest to the largest."
)
SHARES = (0, 0.2, 0.5)


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each share of random labels."""
    return [vgg19(share) for share in SHARES]


def table(runs: Runs) -> FigureTable:
    """The curves of the whole network, and what sums them up."""
    metrics = runs.metrics
    metrics = metrics[metrics["layer"] == "all"]
    return FigureTable(pd.concat([metrics, spectrum_summary(metrics)], ignore_index=True))


def draw(table: FigureTable) -> "Figure":
    """Four rows of curves, one column for each share."""
    titles = {vgg19(share).name: f"{100 * share:.0f} % random labels" for share in SHARES}
    return draw_spectra(table.frame, titles)
