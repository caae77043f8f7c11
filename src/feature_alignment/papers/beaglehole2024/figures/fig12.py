"""beaglehole2024, Figure 12: SLO that adapts its speeds to the layers' UC-NFC."""

import pandas as pd

from feature_alignment.papers.beaglehole2024.figures.curves import last_rows
from feature_alignment.papers.beaglehole2024.parameters import AdaptiveSLO
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_curve
from feature_alignment.pipeline.figures.figure import Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import new_figure, sequence_colours
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

OPTIMIZERS = {
    "slo": ("SLO", 0.05, "-", "layer"),
    "slo_global": ("SLO, whole gradient", 0.05, ":", "global"),
    "gd": ("gradient descent", 0.25, "--", "layer"),
}
"""Name, learning rate, line, and whose gradient's norm SLO divides by."""
READINGS = {
    "ends": "first layer and readout scaled",
    "all": "all layers scaled",
    "first": "first layer scaled",
}


def points(settings: Settings) -> list[Point]:
    """One point for each optimizer and reading of the scale; the whole gradient's norm for one."""
    return [
        Point(
            f"{optimizer}_{reading}",
            settings[AdaptiveSLO].but(
                optimizer=optimizer.removesuffix("_global"),
                learning_rate=rate,
                scaled_layers=reading,
                gradient_norm=norm,
            ),
            {"optimizer": optimizer, "reading": reading},
        )
        for reading in READINGS
        for optimizer, (_, rate, _, norm) in OPTIMIZERS.items()
        if norm == "layer" or reading == "ends"
    ]


def table(runs: Runs) -> FigureTable:
    """UC-NFC, C-NFC and losses, and each run's UC-NFC over layers.

    Of the last values `nfc_layers_min`, `nfc_layers_mean`, `nfc_layers_max` and `nfc_layers_spread`
    (largest minus smallest); `nfc_layers_highest` is the largest of any layer at any time.
    """
    rows = rows_where(runs.metrics, metric=["nfc", "nfc_mean_subtracted", "centred_nfc", "loss"])
    nfc = rows_where(rows, metric="nfc")
    by_run = last_rows(nfc).groupby(["point", "seed", "split"])["value"]
    measures = {"min": by_run.min(), "mean": by_run.mean(), "max": by_run.max()}
    measures["spread"] = measures["max"] - measures["min"]
    measures["highest"] = nfc.groupby(["point", "seed", "split"])["value"].max()
    derived = [
        values.reset_index().assign(
            metric=f"nfc_layers_{name}", layer="all", step=nfc["step"].max()
        )
        for name, values in measures.items()
    ]
    return FigureTable(pd.concat([rows, *derived], ignore_index=True))


def draw(table: FigureTable) -> Picture:
    """Readings down; UC-NFC and losses across."""
    figure, axes = new_figure(len(READINGS), 3, width=10.5, height=8.2)
    frame, layers = table.frame, sorted(table.rows(metric="nfc")["layer"].unique())
    colours = sequence_colours(len(layers))
    for row, (reading, title) in zip(axes, READINGS.items(), strict=True):
        for ax, split in zip(row[1:], ("train", "test"), strict=True):
            ax.set(title=f"{split} loss", ylabel=f"{split} loss", yscale="log")
        for optimizer, (name, _, line, _) in OPTIMIZERS.items():
            run = frame[(frame["optimizer"] == optimizer) & (frame["reading"] == reading)]
            if run.empty:
                continue
            for number, (layer, colour) in enumerate(zip(layers, colours, strict=True), start=1):
                label = f"layer {number}" if optimizer == "slo" else None
                rows = rows_where(run, metric="nfc", layer=layer)
                draw_curve(row[0], rows, colour, label, linestyle=line)
            for ax, split in zip(row[1:], ("train", "test"), strict=True):
                rows = rows_where(run, metric="loss", split=split)
                draw_curve(ax, rows, colours[0], name, linestyle=line)
        row[0].set(title=f"UC-NFC: {title}", ylabel="UC-NFC", ylim=(0, 1.02))
    axes[0, 0].legend()
    axes[0, 1].legend()
    for ax in axes[-1]:
        ax.set_xlabel("step")
    return figure


FIGURES = (
    Figure(
        name="fig12",
        title="Adaptive SLO raises the least aligned layers",
        caption="UC-NFC of each hidden layer, training and test loss on the chain-monomial task of "
        "rank 3: adaptive SLO (solid), the same divided by the norm of the whole gradient "
        "(dotted), and gradient descent (dashed). The initialisation scale 0.1 is given to the "
        "first layer and the readout (top), to all layers (middle) or to the first (bottom); the "
        f"paper does not say. {OVER_SEEDS} Of losses, mean and deviation are of the logarithm.",
        points=points,
        table=table,
        draw=draw,
    ),
)
