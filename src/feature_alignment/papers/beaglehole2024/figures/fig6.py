"""beaglehole2024, Figure 6: the PTK-centred NFC in training."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.papers.beaglehole2024.figures.curves import change_between
from feature_alignment.papers.beaglehole2024.figures.spectra import (
    SPECTRA,
    chosen_rows,
    draw_layers_by_spectrum,
    spectrum_points,
)
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "The PTK-centred NFC in training, by spectrum and initialisation scale"
CAPTION = (
    "PTK-centred NFC ρ(W₀ᵀW₀, W₀ᵀK̄W₀) in both hidden layers of a network trained by gradient "
    "descent on the chain-monomial task. Columns are spectra of the inputs' covariance: the "
    "paper's are 1/(1+k) and 1/(1+k²), the flat one is for comparison. Lines are means over seeds, "
    "bands one standard deviation either way."
)


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each spectrum, with all initialisation scales."""
    return spectrum_points(list(SPECTRA))


def table(runs: Runs) -> FigureTable:
    """The correlation, and its change from the first measurement after the start to the last."""
    rows = chosen_rows(runs, ["ptk_centred_nfc"])
    group = ["point", "curve", "scale", "seed", "layer", "split", "metric"]
    change = change_between(rows, "step", rows["step"].min(), rows["step"].max(), group, "change")
    return FigureTable(pd.concat([rows, change], ignore_index=True))


def draw(table: FigureTable) -> "Figure":
    """Layers down, spectra across."""
    return draw_layers_by_spectrum(table, "ptk_centred_nfc", "PTK-centred NFC")
