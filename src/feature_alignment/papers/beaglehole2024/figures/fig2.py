"""beaglehole2024, Figure 2: centred and uncentred correlations across architectures."""

from textwrap import fill
from typing import Literal

import pandas as pd

from feature_alignment.data.registry import DATASETS
from feature_alignment.papers.beaglehole2024.figures import networks
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_curve
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where
from feature_alignment.pipeline.marks import DIVERGED

SETTINGS = {"mlp": "released", "vgg": "released", "gpt": "text"}
CONVERGED = 0.1
WHEN: dict[str, tuple[str, Literal["-", ":"]]] = {"early": ("o", "-"), "late": ("s", ":")}
"""Marker and line in panel B."""


def points(settings: Settings) -> list[Point]:
    """The networks of Figures 13-15."""
    return [*networks.mlp_points(settings), *networks.other_points(settings)]


def table(runs: Runs) -> FigureTable:
    """Correlations over training, and the quantities in the claims (metrics.yaml).

    If some datasets are real, averages and shares use only those.
    """
    rows = rows_where(runs.metrics, metric=[*networks.MEASURES, DIVERGED])
    rows = rows[~rows["layer"].str.startswith("head.")]  # for VGG-11, convolutions only
    excess = networks.centred_excess(rows)
    both = networks.ends(pd.concat([rows, excess], ignore_index=True))
    real = networks.of_real_data(pd.concat([both, rows[rows["metric"] == DIVERGED]]), runs)
    whole = networks.without_diverged(real, by="settings")
    group = ["network", "settings", "seed", "layer", "split", "metric"]
    mlp = rows_where(whole, network="mlp").groupby(group, sort=False)
    means = mlp["value"].mean().reset_index()
    averages = means.assign(point="mean", dataset="mean", series=means["layer"], step=0)
    parts = [rows, excess, both, averages, _depth_gains(both), _converged_shares(whole)]
    return FigureTable(networks.with_remark(pd.concat(parts, ignore_index=True), runs))


def _depth_gains(both: pd.DataFrame) -> pd.DataFrame:
    """How much more C-NFC exceeds UC-NFC early in the last layer (or block) than in the first."""
    rows = rows_where(both, metric="centred_excess_early").copy()
    # For a transformer the block counts: "blocks.0.attention.query" -> 0, and query.
    block = rows["layer"].str.extract(r"blocks\.(\d+)\.attention\.(\w+)")
    order = pd.factorize(rows["layer"])[0]
    rows["depth"] = block[0].astype(float).fillna(pd.Series(order, index=rows.index))
    rows["kind"] = block[1].fillna("")
    group = ["point", "network", "dataset", "settings", "seed", "split", "kind"]
    ordered = rows.sort_values("depth", kind="stable").groupby(group, sort=False)["value"]
    gains = (ordered.last() - ordered.first()).reset_index()
    return gains.assign(
        metric="depth_gain_early", step=0, layer="all", series=gains["point"] + " " + gains["kind"]
    ).drop(columns="kind")


def _converged_shares(both: pd.DataFrame) -> pd.DataFrame:
    rows = rows_where(both, metric="centred_excess_late")
    group = ["network", "settings", "seed", "split"]
    near = rows.assign(value=(rows["value"].abs() < CONVERGED).astype(float))
    shares = near.groupby(group, sort=False)["value"].mean().reset_index()
    return shares.assign(
        metric="converged_share", point="all", dataset="all", layer="all", step=0, series="all"
    )


def draw(table: FigureTable) -> Picture:
    """A and B in the first row, C and D side by side below."""
    frame = table.frame
    figure, axes = new_figure(4, 6, width=12.0, height=8.0)
    datasets = networks.datasets_of(frame)
    first = rows_where(frame, network="mlp", dataset=datasets[0], settings=SETTINGS["mlp"])
    layers = networks.layers_of(first, "layers.")
    for number, (ax, layer) in enumerate(zip(axes[0], layers, strict=False), start=1):
        networks.draw_both_correlations(ax, first, layer)
        ax.set(title=f"layer {number}", xlabel="epoch")
    _draw_average(axes[0, 5], frame, networks.averaged(frame))
    vgg = rows_where(frame, network="vgg", settings=SETTINGS["vgg"])
    cells = list(axes[1:, :3].flat)
    convolutions = networks.layers_of(vgg, "features.")
    for number, (ax, layer) in enumerate(zip(cells, convolutions, strict=False), start=1):
        networks.draw_both_correlations(ax, vgg, layer)
        ax.set(title=f"convolution {number}", xlabel="epoch")
    cells[-1].axis("off")
    _draw_legend(cells[-1], axes[0, 0], frame)
    gpt = rows_where(frame, network="gpt")
    for row, ax_row in enumerate(axes[1:]):
        for ax, name in zip(ax_row[3:], networks.ATTENTION, strict=True):
            networks.draw_both_correlations(ax, gpt, f"blocks.{row}.attention.{name}")
            ax.set(title=f"block {row + 1}, {name}", xlabel="step")
    panel_letters(axes[0, 0], axes[0, 5], axes[1, 0], axes[1, 3])
    for ax in (*axes[:, 0], *axes[1:, 3]):
        ax.set_ylabel("correlation")
    axes[0, 0].set_ylabel(f"MLP, {DATASETS[datasets[0]].title}\ncorrelation")
    axes[2, 0].set_ylabel("VGG-11, CIFAR-10\ncorrelation")
    axes[2, 3].set_ylabel("transformer\nShakespeare characters\ncorrelation")
    return figure


def _draw_average(ax: Axes, frame: pd.DataFrame, datasets: list[str]) -> None:
    rows = rows_where(frame, point="mean", settings=SETTINGS["mlp"])
    layers = networks.layers_of(rows, "layers.")
    numbers = dict(zip(layers, range(1, len(layers) + 1), strict=True))
    rows = rows.assign(number=rows["layer"].map(numbers))
    for metric, look in networks.LOOKS.items():
        for when, (marker, line) in WHEN.items():
            chosen = rows_where(rows, metric=f"{metric}_{when}")
            style = {**look, "marker": marker, "markersize": 4, "linestyle": line}
            draw_curve(ax, chosen, x="number", **style)
    ax.set(ylim=(0, 1.02), yticks=[0, 0.5, 1], xlabel="layer", xticks=list(numbers.values()))
    ax.set_title(f"mean of {len(datasets)} datasets")


def _draw_legend(ax: Axes, curves: Axes, frame: pd.DataFrame) -> None:
    """The legend of all panels' colours, and of B's lines, epochs and missing datasets."""
    from matplotlib.lines import Line2D

    datasets = networks.averaged(frame)
    handles, labels = curves.get_legend_handles_labels()
    for when, (marker, style) in WHEN.items():
        handles.append(Line2D([], [], color=COLOURS["reference"], marker=marker, linestyle=style))
        own = {"metric": f"nfc_{when}", "dataset": datasets, "settings": SETTINGS["mlp"]}
        epochs = sorted(rows_where(frame, network="mlp", **own)["step"].unique())
        labels.append(f"B, {when}: epoch {' or '.join(f'{epoch:.0f}' for epoch in epochs)}")
    names = ", ".join(DATASETS[name].title for name in datasets)
    told = filter(None, [f"B: mean of {names}", networks.left_out(datasets)])
    title = "\n".join(fill(line, 26) for line in told)
    ax.legend(handles, labels, loc="center", title=title, title_fontsize="small")


FIGURE = Figure(
    name="fig2",
    title="The centred correlation is above the uncentred one across architectures",
    caption="UC-NFC and C-NFC (A) in each layer of a ReLU network with five hidden layers on "
    "the first configured dataset; (B) in its layers, averaged over the datasets in the "
    "legend, early, at the first measurement after an epoch at the full learning rate, and "
    "late, at the last, at the epochs in the legend; (C) in the convolutions of VGG-11 "
    "without batch norm on CIFAR-10; (D) in the query, key and value layers of a transformer "
    "on Shakespeare characters, one block a row. A-C with the settings of the released code, "
    f"whose first epoch is at learning rate 1e-4. {OVER_SEEDS} {networks.UNCOUNTED}",
    points=points,
    table=table,
    draw=draw,
)
