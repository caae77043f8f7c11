"""beaglehole2024, Figure 5: the double-centred NFC's share in the centred NFC, in training."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.papers.beaglehole2024.figures.spectra import (
    SPECTRA,
    chosen_rows,
    draw_layers_by_spectrum,
    early_rows,
    spectrum_points,
)
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "The share of changed tangent features in the centred NFC grows in training"
CAPTION = (
    "Ratio of the double-centred to the centred NFC before normalisation, "
    "tr(W̄ᵀW̄W̄ᵀK̄W̄) / tr(W̄ᵀW̄W̄ᵀKW̄), in both hidden layers of a network trained by gradient descent "
    "on the chain-monomial task; columns are spectra of the inputs' covariance. Lines are means "
    "over seeds, bands one standard deviation either way."
)


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each spectrum, with all initialisation scales."""
    return spectrum_points(list(SPECTRA))


def table(runs: Runs) -> FigureTable:
    """The ratio, the correlation that it is part of, and `double_centred_ratio_early`."""
    rows = chosen_rows(runs, ["double_centred_ratio", "double_centred_nfc"])
    early = early_rows(rows[rows["metric"] == "double_centred_ratio"])
    early = early.assign(metric="double_centred_ratio_early", step=rows["step"].max())
    return FigureTable(pd.concat([rows, early], ignore_index=True))


def draw(table: FigureTable) -> "Figure":
    """Layers down, spectra across."""
    return draw_layers_by_spectrum(table, "double_centred_ratio", "double-centred / centred")
