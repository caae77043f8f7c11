"""What Figures 5, 6 and 8-10 of beaglehole2024 share: their runs, tables and drawing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from feature_alignment.papers.beaglehole2024.figures.curves import (
    change_between,
    draw_curve,
    spread_over,
)
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import new_figure, sequence_colours
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXPERIMENT = "beaglehole2024_spectra"
DECAYS = {"flat": None, "inverse": 1, "inverse_square": 2}
SPECTRA = {
    "flat": r"$\lambda_k = 1$",
    "inverse": r"$\lambda_k = 1/(1+k)$",
    "inverse_square": r"$\lambda_k = 1/(1+k^2)$",
}
LAYERS = {"layers.0": "layer 1", "layers.1": "layer 2"}
EARLY = 20
"""The step that stands for "early in training", or the first measured one after it; the paper does
not say. All figures' runs have 800."""
CORRELATIONS = ("nfc", "centred_nfc")


CAPTION = (
    "Gradient descent on the chain-monomial task, with inputs whose covariance has {eigenvalues}, "
    "for several scales of the first layer's initialisation: UC-NFC and C-NFC of both hidden "
    "layers, and training and test loss divided by the largest one in the panel. Lines are means "
    "over seeds, bands one standard deviation either way."
)
"""Of Figures 8-10."""


def spectrum_points(names: Sequence[str]) -> list[Point]:
    """The experiment points of some spectra, each for all initialisation scales."""
    return [Point(EXPERIMENT, name, {"decay": DECAYS[name]}) for name in names]


def chosen_rows(runs: Runs, metrics: Sequence[str]) -> pd.DataFrame:
    """The rows of some metrics; the column `curve` tells spectrum, scale and layer apart."""
    frame = runs.metrics
    frame = frame[frame["metric"].isin(metrics)].reset_index(drop=True)
    curve = frame["point"] + " " + frame["scale"].map("{:g}".format) + " " + frame["layer"]
    return frame.assign(curve=curve)


def early_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the step that stands for early in training."""
    steps = frame["step"]
    return frame[steps == steps[steps >= min(EARLY, steps.max())].min()]


def correlation_table(runs: Runs) -> FigureTable:
    """UC-NFC, C-NFC and losses of one spectrum, and what its claims are about.

    `nfc_rise` is UC-NFC at the end minus that at the start. `nfc_scale_spread` and
    `centred_nfc_scale_spread` are the largest minus the smallest mean over time among the
    initialisation scales; the mean leaves the start out, where C-NFC is not defined. With
    `_early` behind their names they compare the values at one early step instead.
    """
    rows = chosen_rows(
        runs, [*CORRELATIONS, *(f"{name}_mean_subtracted" for name in CORRELATIONS), "loss"]
    )
    correlations = rows[rows["metric"].isin(CORRELATIONS)]
    last = rows["step"].max()
    rise = change_between(
        correlations[correlations["metric"] == "nfc"],
        "step",
        0,
        last,
        ["point", "curve", "scale", "seed", "layer", "split", "metric"],
        "rise",
    )
    group = ["point", "seed", "layer", "split", "metric"]
    means = correlations[correlations["step"] > 0].groupby([*group, "scale"])["value"].mean()
    spread = spread_over(means.reset_index().assign(step=last), "scale", group)
    early = spread_over(early_rows(correlations).assign(step=last), "scale", group)
    early = early.assign(metric=early["metric"] + "_early")
    return FigureTable(pd.concat([rows, rise, spread, early], ignore_index=True))


def draw_correlations(table: FigureTable) -> "Figure":
    """UC-NFC and C-NFC by layer (rows), and the losses, one curve for each scale."""
    figure, axes = new_figure(2, 3, width=10.0, height=5.4)
    frame = table.frame
    for row, (layer, title) in zip(axes, LAYERS.items(), strict=True):
        for ax, metric, name in zip(row, CORRELATIONS, ("UC-NFC", "C-NFC"), strict=False):
            rows = frame[(frame["metric"] == metric) & (frame["layer"] == layer)]
            draw_scales(ax, rows)
            ax.set(title=f"{name}, {title}", ylim=(0, 1.02), ylabel=name)
    for ax, split in zip(axes[:, 2], ("train", "test"), strict=True):
        rows = frame[(frame["metric"] == "loss") & (frame["split"] == split)]
        draw_scales(ax, rows.assign(value=rows["value"] / rows["value"].max()))
        ax.set(title=f"{split} loss", ylim=(0, 1.02), ylabel="loss / largest loss")
    axes[0, 0].legend(title="scale of layer 1")
    for ax in axes[-1]:
        ax.set_xlabel("step")
    return figure


def draw_layers_by_spectrum(table: FigureTable, metric: str, ylabel: str) -> "Figure":
    """One metric by layer (rows) and spectrum (columns), one curve for each scale."""
    frame = table.frame[table.frame["metric"] == metric]
    spectra = [name for name in SPECTRA if (frame["point"] == name).any()]
    figure, axes = new_figure(2, len(spectra), width=3.4 * len(spectra), height=5.4)
    for row, (layer, title) in zip(axes, LAYERS.items(), strict=True):
        for ax, spectrum in zip(row, spectra, strict=True):
            draw_scales(ax, frame[(frame["layer"] == layer) & (frame["point"] == spectrum)])
            ax.set(title=f"{SPECTRA[spectrum]}, {title}", ylim=(0, 1.02))
        row[0].set_ylabel(ylabel)
    axes[0, 0].legend(title="scale of layer 1")
    for ax in axes[-1]:
        ax.set_xlabel("step")
    return figure


def draw_scales(ax: "Axes", rows: pd.DataFrame) -> None:
    """One curve for each initialisation scale, the largest scale darkest."""
    scales = sorted(rows["scale"].unique(), reverse=True)
    for scale, colour in zip(scales, sequence_colours(len(scales)), strict=True):
        draw_curve(ax, rows[rows["scale"] == scale], colour, f"{scale:g}")
