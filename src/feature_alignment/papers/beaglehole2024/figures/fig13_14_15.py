"""beaglehole2024, Figures 13-15: correlations, losses and weight changes over training."""

from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from feature_alignment.data.registry import DATASETS
from feature_alignment.papers.beaglehole2024.figures import networks
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_paper
from feature_alignment.pipeline.figures.figure import Figure, Picture
from feature_alignment.pipeline.figures.style import new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs

CLAIMS = {"released": "", "text": "_text"}
"""The suffixes of the claims' names, by settings."""


def table(runs: Runs) -> FigureTable:
    """The rows of `trajectories`; `remark` names the paper's datasets that are missing."""
    return FigureTable(networks.with_remark(networks.trajectories(runs), runs))


def excess_table(runs: Runs) -> FigureTable:
    """The same, and C-NFC minus UC-NFC, `centred_excess` (metrics.yaml)."""
    frame = networks.trajectories(runs)
    excess = networks.centred_excess(frame)
    group = ["point", "network", "dataset", "settings", "seed", "split"]
    means = excess.groupby(group, sort=False)["value"].mean().reset_index()
    means = means.assign(metric="centred_excess_mean", layer="all", step=0)
    every = pd.concat([frame, excess, means], ignore_index=True)
    return FigureTable(networks.with_remark(every, runs))


def draw_correlations(table: FigureTable) -> Picture:
    """Datasets as rows, with another one for MNIST with pixels in [0, 1]; layers as columns."""
    frame = table.frame
    datasets, layers = networks.datasets_of(frame), networks.layers_of(frame, "layers.")
    unit = frame["settings"] == "unit"
    rows = {DATASETS[name].title: frame[(frame["dataset"] == name) & ~unit] for name in datasets}
    rows |= {"MNIST in [0, 1]": frame[unit]} if unit.any() else {}
    figure, axes = new_figure(
        len(rows), len(layers), width=2.2 * len(layers), height=1.9 * len(rows) + 0.4
    )
    for row, (name, own) in zip(axes, rows.items(), strict=True):
        for number, (ax, layer) in enumerate(zip(row, layers, strict=True), start=1):
            networks.draw_both_correlations(ax, own, layer)
            ax.set_title(f"layer {number}")
        row[0].set_ylabel(f"{name}\ncorrelation")
    title = networks.left_out(datasets) or None
    figure.legend(**_all_labelled(axes), loc="outside upper center", ncols=5, title=title)
    panel_letters(*axes[:, 0])
    for ax in axes[-1]:
        ax.set_xlabel("epoch")
    return figure


def draw_mlp(table: FigureTable) -> Picture:
    """Datasets as rows; losses and weight changes as columns, for both settings."""
    datasets = networks.datasets_of(table.frame)
    layers = _numbered(networks.layers_of(table.frame, "layers."))
    figure, axes = new_figure(len(datasets), 4, width=11.0, height=2.1 * len(datasets) + 0.4)
    for row, dataset in zip(axes, datasets, strict=True):
        for pair, settings in ((row[:2], "released"), (row[2:], "text")):
            rows = table.rows(dataset=dataset, settings=settings)
            networks.draw_losses(pair[0], rows)
            networks.draw_weight_changes(pair[1], rows, layers)
            for ax in pair:
                ax.set_title(f"{settings} settings")
            if dataset in networks.averaged(table.frame):  # as in the claim
                draw_paper(pair[1], table.of_claim(f"fig14.mlp_weights_move{CLAIMS[settings]}"))
        row[0].set_ylabel(f"{DATASETS[dataset].title}\nloss")
    figure.suptitle(networks.left_out(datasets))
    figure.legend(**_all_labelled(axes[:, ::2]), loc="outside upper left", ncols=3)
    names = {**_all_labelled(axes[:1, 3:]), "title": "hidden layer"}
    figure.legend(**names, loc="outside upper right", ncols=len(layers))
    panel_letters(*axes[:, 0])
    for ax in axes[-1]:
        ax.set_xlabel("epoch")
    return figure


def draw_others(table: FigureTable) -> Picture:
    """VGG-11 in two rows, the transformer in a third."""
    figure, axes = new_figure(3, 4, width=11.0, height=6.6)
    convolutions = networks.layers_of(table.frame, "features.")
    half = len(convolutions) // 2
    groups = {
        f"convolutions 1-{half}": _numbered(convolutions[:half]),
        f"convolutions {half + 1}-{2 * half}": _numbered(convolutions[half:], half + 1),
        "hidden linear layers": _numbered(networks.layers_of(table.frame, "head.")),
    }
    for row, settings in zip(axes, ("released", "text"), strict=False):
        rows = table.rows(network="vgg", settings=settings)
        networks.draw_losses(row[0], rows)
        row[0].set_title(f"VGG-11, {settings} settings")
        row[0].set_ylabel("CIFAR-10\nloss")
        for ax, (title, layers) in zip(row[1:], groups.items(), strict=True):
            networks.draw_weight_changes(ax, rows, layers)
            draw_paper(ax, table.of_claim(f"fig15.vgg_weights_move{CLAIMS[settings]}"))
            ax.set_title(title)
        for ax in row:
            ax.set_xlabel("epoch")
    rows = table.rows(network="gpt")
    networks.draw_losses(axes[2, 0], rows)
    axes[2, 0].set(title="transformer", ylabel="Shakespeare characters\nloss (nats)")
    for ax, name in zip(axes[2, 1:], networks.ATTENTION, strict=True):
        layers = [layer for layer in networks.layers_of(rows, "blocks.") if layer.endswith(name)]
        networks.draw_weight_changes(ax, rows, _numbered(layers))
        draw_paper(ax, table.of_claim("fig15.gpt_weights_move"))
        ax.set_title(f"{name} layers")
    axes[2, 1].legend(title="block")
    axes[0, 0].legend()
    for ax in axes[0, 1:]:
        ax.legend(ncols=2, loc="lower right")
    for ax in axes[2]:
        ax.set_xlabel("step")
    panel_letters(*axes[:, 0])
    return figure


def _all_labelled(axes: np.ndarray) -> dict[str, list[Any]]:
    """Handles and labels for a legend, with each label of the panels once."""
    pairs = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in axes.flat]
    named = {label: handle for handle, label in chain.from_iterable(pairs)}
    return {"handles": [*named.values()], "labels": [*named]}


def _numbered(layers: list[str], first: int = 1) -> dict[str, str]:
    return {layer: str(number) for number, layer in enumerate(layers, start=first)}


FIGURES = (
    Figure(
        name="fig13",
        title="Centred and uncentred correlations of fully connected networks on image datasets",
        caption="ReLU networks with five hidden layers, trained from PyTorch's default "
        "initialisation on image datasets (rows): UC-NFC and C-NFC of each hidden layer (columns), "
        "with the settings of the released code (solid; its first epoch is at learning rate 1e-4) "
        f"and of the text (dashed; for MNIST also with pixels in [0, 1]). {OVER_SEEDS} "
        f"{networks.UNCOUNTED}",
        points=networks.trajectory_points,
        table=excess_table,
        draw=draw_correlations,
    ),
    Figure(
        name="fig14",
        title="How far the weights of fully connected networks move from their initialisation",
        caption="ReLU networks with five hidden layers on image datasets (rows), with the settings "
        "of the released code (left) and of the text (right): mean squared error on training and "
        "test images, and ‖W − W₀‖ / ‖W‖ in each hidden layer after the start and a slow first "
        "epoch, on one logarithmic axis from 10⁻⁴ on, below which changes are cut off. The black "
        "dotted line is a bound on the mean over all layers and real datasets, not on each, at the "
        f"last epoch and at full length only. {OVER_SEEDS} {networks.UNCOUNTED}",
        points=networks.trajectory_points,
        table=table,
        draw=draw_mlp,
    ),
    Figure(
        name="fig15",
        title="How far the weights of VGG-11 and of a transformer move from their initialisation",
        caption="VGG-11 without batch norm on CIFAR-10, with the settings of the released code (A; "
        "its first epoch is at learning rate 1e-4) and of the text (B): mean squared error, and "
        "‖W − W₀‖ / ‖W‖ of convolutions and of the hidden linear layers. (C) Transformer on "
        "Shakespeare characters: cross-entropy per character in nats, and ‖W − W₀‖ / ‖W‖ of its "
        "query, key and value layers. Weight changes are of the steps after the start and a slow "
        "first epoch, on one logarithmic axis from 10⁻⁴ on, below which changes are cut off. The "
        "black dotted line is a bound on the mean over layers at the last step, of VGG-11 at full "
        f"length only. {OVER_SEEDS} {networks.UNCOUNTED}",
        points=networks.other_points,
        table=table,
        draw=draw_others,
    ),
)
