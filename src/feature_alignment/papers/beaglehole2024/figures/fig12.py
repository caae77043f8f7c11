"""beaglehole2024, Figure 12: SLO that adapts its speeds to the layers' UC-NFC."""

import pandas as pd

from feature_alignment.papers.beaglehole2024.figures.curves import last_rows, tidy
from feature_alignment.papers.beaglehole2024.parameters import AdaptiveSLO
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_curve, draw_paper
from feature_alignment.pipeline.figures.figure import Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

OPTIMIZERS = {  # name, learning rate, look, and whose gradient's norm SLO divides by
    "slo": ("SLO", 0.05, "speed limited", "layer"),
    "slo_global": ("SLO, whole gradient", 0.05, "whole gradient", "global"),
    "gd": ("gradient descent", 0.25, "gradient descent", "layer"),
}
READINGS = {
    "ends": "first layer and readout scaled",
    "all": "all layers scaled",
    "first": "first layer scaled",
}


def points(settings: Settings) -> list[Point]:
    """One point for each optimizer and reading of the scale; `slo_global` has one reading only."""
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
    """UC-NFC, C-NFC and losses, and summaries of each run's UC-NFC over layers (metrics.yaml)."""
    rows = rows_where(runs.metrics, metric=["nfc", "nfc_mean_subtracted", "centred_nfc", "loss"])
    nfc = rows_where(rows, metric="nfc")
    by_run = ["point", "seed", "split"]
    layers = last_rows(nfc).groupby(by_run)["value"].agg(["min", "mean", "max"])
    layers["spread"] = layers["max"] - layers["min"]
    layers["highest"] = nfc.groupby(by_run)["value"].max()
    derived = tidy(layers.add_prefix("nfc_layers_"), step=nfc["step"].max())
    return FigureTable(pd.concat([rows, derived], ignore_index=True))


def draw(table: FigureTable) -> Picture:
    """Readings as rows, the layers' UC-NFC and the losses as columns; a curve per optimizer."""
    layers = sorted(table.rows(metric="nfc")["layer"].unique())
    shown = [{"metric": "nfc", "layer": layer} for layer in layers]
    shown += [{"metric": "loss", "split": split} for split in ("train", "test")]
    titles = [f"UC-NFC, layer {number}" for number in range(1, len(layers) + 1)]
    titles += ["training loss", "test loss"]
    figure, axes = new_figure(len(READINGS), len(shown), width=13.0, height=7.6)
    for row, (reading, reading_title) in zip(axes, READINGS.items(), strict=True):
        for ax, where in zip(row, shown, strict=True):
            ax.set(yscale="log") if "split" in where else ax.set_ylim(0, 1.02)
            rows = table.rows(reading=reading, **where)
            for optimizer, curve in rows.groupby("optimizer", sort=False):
                name, _, look, _ = OPTIMIZERS[str(optimizer)]
                draw_curve(ax, curve, look, name)
        row[0].set_ylabel(reading_title.replace(" and ", "\nand "))
        for ax in row[: len(layers)]:
            suffix = "" if reading == "ends" else f"_{reading}"
            draw_paper(ax, table.of_claim(f"fig12.slo_layers_high{suffix}"))
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    panel_letters(*axes[:, 0])
    for ax in axes[-1]:
        ax.set_xlabel("step")
    return figure


FIGURE = Figure(
    name="fig12",
    title="Adaptive SLO raises the least aligned layers",
    caption="UC-NFC of each hidden layer, training and test loss on the chain-monomial task "
    "of rank 3: adaptive SLO (solid), the same divided by the norm of the whole gradient "
    "(dotted, in A), and gradient descent (dashed). The initialisation scale 0.1 is given to "
    "the first layer and the readout (A), to all layers (B) or to the first (C); the paper "
    "does not say. Black dotted lines are bounds on the lowest layer at the last step of SLO. Each "
    f"loss has a range of its own. {OVER_SEEDS}",
    points=points,
    table=table,
    draw=draw,
)
