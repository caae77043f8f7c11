"""beaglehole2024, Figure 8: neural feature correlations in training, isotropic inputs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feature_alignment.papers.beaglehole2024.figures import spectra
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "C-NFC and UC-NFC on isotropic data"
CAPTION = spectra.CAPTION.format(eigenvalues="eigenvalues 1")


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point, with all initialisation scales."""
    return spectra.spectrum_points(["flat"])


def table(runs: Runs) -> FigureTable:
    """Correlations, losses, and what is derived from them; see `spectra.correlation_table`."""
    return spectra.correlation_table(runs)


def draw(table: FigureTable) -> "Figure":
    """Two rows, one for each layer."""
    return spectra.draw_correlations(table)
