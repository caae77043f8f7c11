"""beaglehole2024, Figure 12: SLO that adapts its speeds to the layers' UC-NFC."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.papers.beaglehole2024.figures.curves import draw_curve, last_rows
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import new_figure, sequence_colours
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Adaptive SLO raises the least aligned layers"
CAPTION = (
    "UC-NFC of each hidden layer, training and test loss on the chain-monomial task of rank 3: "
    "adaptive SLO (solid) and gradient descent (dashed). The initialisation scale 0.1 is given to "
    "the first layer and the readout (top) or to all layers (bottom); the paper does not say. "
    "Lines are means over seeds, bands one standard deviation either way, of the logarithm for the "
    "losses."
)
EXPERIMENT = "beaglehole2024_adaptive_slo"
RATES = {"slo": 0.05, "gd": 0.25}
READINGS = {"ends": "first layer and readout scaled", "all": "all layers scaled"}
STYLES = {"slo": "-", "gd": "--"}


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each optimizer and each reading of the initialisation scale."""
    return [
        Point(
            EXPERIMENT,
            f"{optimizer}_{reading}",
            {"optimizer": optimizer, "learning_rate": rate, "scaled_layers": reading},
        )
        for reading in READINGS
        for optimizer, rate in RATES.items()
    ]


def table(runs: Runs) -> FigureTable:
    """UC-NFC, C-NFC and losses, and each run's UC-NFC over layers.

    Of the last values `nfc_layers_min`, `nfc_layers_mean`, `nfc_layers_max` and `nfc_layers_spread`
    (largest minus smallest); `nfc_layers_highest` is the largest of any layer at any time.
    """
    frame = runs.metrics
    rows = frame[frame["metric"].isin(["nfc", "nfc_mean_subtracted", "centred_nfc", "loss"])]
    nfc = rows[rows["metric"] == "nfc"]
    last = last_rows(nfc)
    by_run = last.groupby(["point", "seed", "step", "split"])["value"]
    measures = {"min": by_run.min(), "mean": by_run.mean(), "max": by_run.max()}
    measures["spread"] = measures["max"] - measures["min"]
    derived = [
        values.reset_index().assign(metric=f"nfc_layers_{name}", layer="all")
        for name, values in measures.items()
    ]
    highest = nfc.groupby(["point", "seed", "split"])["value"].max().reset_index()
    derived.append(
        highest.assign(metric="nfc_layers_highest", layer="all", step=int(last["step"].max()))
    )
    return FigureTable(pd.concat([rows, *derived], ignore_index=True))


def draw(table: FigureTable) -> "Figure":
    """Readings down; UC-NFC and losses across."""
    figure, axes = new_figure(len(READINGS), 3, width=10.5, height=5.6)
    frame = table.frame
    layers = sorted(frame.loc[frame["metric"] == "nfc", "layer"].unique())
    for row, (reading, title) in zip(axes, READINGS.items(), strict=True):
        for ax in row[1:]:
            ax.set_yscale("log")
        for optimizer, style in STYLES.items():
            run = frame[frame["point"] == f"{optimizer}_{reading}"]
            for number, (layer, colour) in enumerate(
                zip(layers, sequence_colours(len(layers)), strict=True), start=1
            ):
                label = f"layer {number}" if optimizer == "slo" else None
                rows = run[(run["metric"] == "nfc") & (run["layer"] == layer)]
                draw_curve(row[0], rows, colour, label, linestyle=style)
            for ax, split in zip(row[1:], ("train", "test"), strict=True):
                rows = run[(run["metric"] == "loss") & (run["split"] == split)]
                name = {"slo": "SLO", "gd": "gradient descent"}[optimizer]
                draw_curve(ax, rows, sequence_colours(1)[0], name, linestyle=style)
                ax.set(title=f"{split} loss", ylabel=f"{split} loss")
        row[0].set(title=f"UC-NFC: {title}", ylabel="UC-NFC", ylim=(0, 1.02))
    axes[0, 0].legend()
    axes[0, 1].legend()
    for ax in axes[-1]:
        ax.set_xlabel("step")
    return figure
