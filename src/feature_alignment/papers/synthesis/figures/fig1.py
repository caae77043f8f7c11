"""synthesis, Figure 1: the quantities of three papers on the same trainings."""

from itertools import product

import pandas as pd

from feature_alignment.papers.synthesis.figures.derived import QUANTITIES, derived_rows
from feature_alignment.papers.synthesis.parameters import Runs as RunsParameters
from feature_alignment.pipeline.figures import style
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_curve
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

DATASETS = {"mlp": "mnist", "vgg": "cifar10", "gpt": "shakespeare"}
TITLES = {
    "mlp": "MLP\nMNIST",
    "vgg": "VGG11\nCIFAR-10",
    "gpt": "transformer\nShakespeare characters",
}
OPTIMIZERS = {
    "gd": ("gradient descent", style.COLOURS["gradient descent"]),
    "slo": ("SLO", style.COLOURS["speed limited"]),
}
MARKERS = {"gd": "o", "slo": "s"}  # in panel B
SHARES = {0.0: ("-", "true labels"), 0.5: ("--", "50 % random")}


def points(settings: Settings) -> list[Point]:
    """Each network with each optimizer, with and without random labels."""
    found = []
    for network, optimizer, share in product(DATASETS, OPTIMIZERS, SHARES):
        columns = {"network": network, "optimizer": optimizer, "random_label_share": share}
        own = settings[RunsParameters].but(dataset=DATASETS[network], **columns)
        found.append(Point(f"{network}-{optimizer}-random{100 * share:.0f}", own, columns))
    return found


def table(runs: Runs) -> FigureTable:
    """The runs' metrics, and the rows that `derived_rows` derives from them."""
    metrics = runs.metrics
    return FigureTable(pd.concat([metrics, derived_rows(metrics)], ignore_index=True))


def draw(table: FigureTable) -> Picture:
    """Quantities as rows, networks as columns; on the right, what moves first, and together."""
    figure, axes = style.new_figure(len(QUANTITIES), len(DATASETS) + 2, width=14.0, height=11.0)
    for row, (quantity, name) in zip(axes, QUANTITIES.items(), strict=True):
        for ax, network in zip(row, DATASETS, strict=False):
            _draw_curves(ax, table.rows(network=network, layer="all", metric=quantity))
        row[0].set_ylabel(name)
    for column, title in zip(axes.T, TITLES.values(), strict=False):
        column[0].set_title(title)
        column[-1].set_xlabel("update")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    for ax in axes[:, len(DATASETS) :].flat:
        ax.remove()
    # A separate grid, whose margins do not affect the rows on the left.
    right = axes[0, 0].get_gridspec()[:, len(DATASETS) :].subgridspec(2, 1)
    half, matrix = right.subplots()
    _draw_half_changes(half, table.rows(metric="half_change_step"))
    _draw_correlations(matrix, table)
    style.panel_letters(axes[0, 0], half, matrix)
    return figure


def _draw_curves(ax: Axes, rows: pd.DataFrame) -> None:
    style.broken_axis(ax, rows["step"])
    looks = product(OPTIMIZERS.items(), SHARES.items())
    for (optimizer, (name, colour)), (share, (line, labels)) in looks:
        own = rows_where(rows, optimizer=optimizer, random_label_share=share)
        draw_curve(ax, own, colour, f"{name}, {labels}", linestyle=line)


def _draw_half_changes(ax: Axes, rows: pd.DataFrame) -> None:
    """A symbol for each optimizer at the median over its seeds, hollow with random labels."""
    ax.set_xscale("log")
    medians = rows.groupby(["network", "random_label_share", "optimizer", "quantity"])["value"]
    medians = medians.median().reset_index()
    heights = {quantity: place for place, quantity in enumerate(QUANTITIES)}
    for offset, (network, colour) in enumerate(style.sequence_colours(DATASETS).items(), start=-1):
        ax.plot([], [], "o", color=colour, label=TITLES[network].partition("\n")[0])
        for share, optimizer in product(SHARES, OPTIMIZERS):
            own = rows_where(
                medians, network=network, random_label_share=share, optimizer=optimizer
            )
            y = own["quantity"].map(heights) + 0.25 * offset
            fill = "white" if share else colour
            marker = MARKERS[optimizer]
            ax.plot(own["value"], y, marker, markerfacecolor=fill, markeredgecolor=colour)
    for label, marker, fill in (("SLO", MARKERS["slo"], "black"), ("50 % random", "o", "white")):
        ax.plot([], [], marker, markerfacecolor=fill, markeredgecolor="black", label=label)
    ax.set_yticks(range(len(QUANTITIES)), list(QUANTITIES.values()))
    ax.set(ylim=(len(QUANTITIES) - 0.5, -0.5), xlabel="update at which half of the change is made")
    close = {"columnspacing": 1.0, "handletextpad": 0.1}
    ax.legend(loc="upper center", bbox_to_anchor=(0.4, -0.11), ncols=5, **close)


def _draw_correlations(ax: Axes, table: FigureTable) -> None:
    """Below the diagonal within runs, means over runs; above it across runs of one network."""
    matrix = pd.DataFrame(1.0, index=list(QUANTITIES), columns=list(QUANTITIES))
    within = table.rows(metric="spearman")
    across = table.rows(metric="spearman_across", network=list(DATASETS))
    for rows, (row, column) in ((within, ("other", "quantity")), (across, ("quantity", "other"))):
        for pair in rows.groupby([row, column])["value"].mean().reset_index().to_dict("records"):
            matrix.loc[pair[row], pair[column]] = pair["value"]
    named = matrix.rename(index=QUANTITIES, columns=QUANTITIES)
    every = {"xticklabels": 1, "yticklabels": 1}
    style.show_matrix(ax, named, 1.0, None, diverging=True, annot=True, fmt=".2f", **every)
    ax.tick_params(axis="x", labelrotation=90)
    ax.set(xlabel="below the diagonal: over a run's steps\nabove: over runs of a network")


FIGURE = Figure(
    name="fig1",
    title="Spectrum, alignments, feature correlations and complexity on the same trainings",
    caption="Three networks (columns), trained by gradient descent and by Speed Limited "
    "Optimization (SLO), on true labels and with half of them random. (A) Effective rank and "
    "label CKA of the tangent kernel, label CKA of the adapted kernel, whose features are "
    "averaged from the initial parameters to the present ones, UC-NFC and C-NFC as means over "
    "layers, complexity C of the path so far, and test minus training loss, the test labels "
    f"being true ones; each panel has a vertical range of its own. {OVER_SEEDS} Both optimizers "
    "start from the same networks, so that symbols at 0 lie upon each other. (B) The update "
    "at which each quantity is half as far from its first value as it ever gets; medians over "
    "seeds, circles of gradient descent, squares of SLO, hollow with random labels. "
    "(C) Rank correlations: below the diagonal over the measured steps of a run, means over "
    "runs; above it over the last values of a network's runs, means over networks.",
    points=points,
    table=table,
    draw=draw,
)
