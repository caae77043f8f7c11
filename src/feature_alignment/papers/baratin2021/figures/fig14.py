"""baratin2021, Figure 14: the plots of Figure 2 with a smaller learning rate."""

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

TITLE = "With a smaller learning rate the effective rank falls less"
CAPTION = (
    "As Figure 2, with learning rate 0.003: training of VGG19 on CIFAR-10 without and with 50 % "
    "random labels (columns). The table also has Figure 2's runs, with learning rate 0.01, to "
    "compare with."
)
SHARES = (0, 0.5)
RATE, USUAL_RATE = 0.003, 0.01


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """Each share of random labels with the smaller and with the usual learning rate."""
    return [vgg19(share, rate) for rate in (RATE, USUAL_RATE) for share in SHARES]


def table(runs: Runs) -> FigureTable:
    """The curves of the whole network, and what sums them up."""
    metrics = runs.metrics
    metrics = metrics[metrics["layer"] == "all"]
    return FigureTable(pd.concat([metrics, spectrum_summary(metrics)], ignore_index=True))


def draw(table: FigureTable) -> "Figure":
    """Four rows of curves, one column for each share."""
    titles = {
        vgg19(share, RATE).name: f"{100 * share:.0f} % random labels, learning rate {RATE}"
        for share in SHARES
    }
    return draw_spectra(table.frame, titles)
