"""What Figures 2 and 13-15 of beaglehole2024 share: their runs, tables and drawing.

Points are named network_dataset_settings. The two settings are those of the paper's text and those
of its released code, which multiplies the learning rate by classes/10 and begins with an epoch at
learning rate 1e-4; there is no released code for the transformer.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.data.registry import DATASETS
from feature_alignment.papers.beaglehole2024.figures.curves import draw_curve
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import COLOURS, sequence_colours
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MLP = "beaglehole2024_image_mlp"
VGG = "beaglehole2024_image_vgg"
GPT = "beaglehole2024_character_gpt"

TEXT_RATES = {"cifar10": 0.2, "cifar100": 0.2, "svhn": 0.2, "stl10": 0.1, "gtsrb": 0.1, "mnist": 10}
RELEASED_RATES = {**TEXT_RATES, "cifar10": 2.0, "cifar100": 2.0, "svhn": 2.0}
"""Before they are multiplied by classes/10."""
FIRST_EPOCH_RATE = 1e-4
MNIST_EPOCHS = 50
VGG_RATE = 1.0
VGG_MOMENTUM = 0.9

CORRELATIONS = {"nfc": "UC-NFC", "centred_nfc": "C-NFC"}
CORRELATION_COLOURS = {"nfc": "uncentred", "centred_nfc": "centred"}
LINES = {"released": "-", "text": "--"}
HEADROOM = 1.08
"""Upper end of an axis over the largest value on it."""
ATTENTION = ("query", "key", "value")
SLOW_EPOCHS = {"released": 1, "text": 0}
"""Epochs at `FIRST_EPOCH_RATE` that a run of each setting begins with."""


def mlp_points(experiments: Mapping[str, Any]) -> list[Point]:
    """Points for each of the configured datasets, in both settings."""
    section = experiments[MLP]
    points = []
    for dataset in section["datasets"]:
        epochs = min(section["epochs"], MNIST_EPOCHS) if dataset == "mnist" else section["epochs"]
        # A run does not depend on which other datasets there are.
        own = {"dataset": dataset, "datasets": [dataset], "epochs": epochs}
        released = RELEASED_RATES[dataset] * DATASETS[dataset].classes / 10
        settings = {
            "released": {"learning_rate": released, "first_epoch_rate": FIRST_EPOCH_RATE},
            "text": {"learning_rate": TEXT_RATES[dataset], "first_epoch_rate": None},
        }
        points += [
            Point(MLP, f"mlp_{dataset}_{name}", {**own, **chosen})
            for name, chosen in settings.items()
        ]
    return points


def vgg_points() -> list[Point]:
    """One point for each of the two settings."""
    settings = {
        "released": {"momentum": VGG_MOMENTUM, "first_epoch_rate": FIRST_EPOCH_RATE},
        "text": {"momentum": 0.0, "first_epoch_rate": None},
    }
    return [
        Point(VGG, f"vgg_cifar10_{name}", {"learning_rate": VGG_RATE, **chosen})
        for name, chosen in settings.items()
    ]


def gpt_points() -> list[Point]:
    """The one point of the transformer."""
    return [Point(GPT, "gpt_shakespeare_text")]


def chosen_rows(runs: Runs, metrics: Sequence[str]) -> pd.DataFrame:
    """The rows of some metrics; columns `network`, `dataset` and `settings` from the point."""
    frame = runs.metrics
    frame = frame[frame["metric"].isin(metrics)].reset_index(drop=True)
    parts = frame["point"].str.split("_", expand=True)
    return frame.assign(network=parts[0], dataset=parts[1], settings=parts[2])


def centred_excess(frame: pd.DataFrame) -> pd.DataFrame:
    """C-NFC minus UC-NFC after the start, as metric `centred_excess`.

    The column `series` tells the values of one seed apart: point, layer and step.
    """
    index = ["point", "network", "dataset", "settings", "seed", "layer", "split", "step"]
    uncentred, centred = (
        frame[frame["metric"] == metric].set_index(index)["value"] for metric in CORRELATIONS
    )
    excess = (centred - uncentred.loc[centred.index]).reset_index()
    series = excess["point"] + " " + excess["layer"] + " " + excess["step"].astype(str)
    return excess.assign(metric="centred_excess", series=series)


def ends(frame: pd.DataFrame) -> pd.DataFrame:
    """Each metric at its run's first measurement after a full epoch, and at its last.

    They are named `<metric>_early` and `<metric>_late`. A full epoch is one at the learning rate
    itself: in the settings of the released code the first is slow, and nothing has moved after it.
    Of the transformer, whose steps are no epochs, it is the first measurement after the start.
    """
    after = frame[frame["step"] > frame["settings"].map(SLOW_EPOCHS)]
    steps = after.groupby("point")["step"]
    early = after[after["step"] == steps.transform("min")]
    late = after[after["step"] == steps.transform("max")]
    rows = [
        part.assign(metric=part["metric"] + f"_{name}")
        for name, part in {"early": early, "late": late}.items()
    ]
    both = pd.concat(rows, ignore_index=True)
    return both.assign(series=both["point"] + " " + both["layer"])


def datasets_of(frame: pd.DataFrame) -> list[str]:
    """The datasets of a table's fully connected networks, in the order of the config."""
    names = frame.loc[frame["network"] == "mlp", "dataset"].unique()
    return [name for name in names if name in DATASETS]  # not "mean", where averages were added


def left_out(datasets: Sequence[str]) -> str:
    """Which of the paper's datasets an average lacks, in words; empty if none.

    Example:
        >>> left_out(["mnist", "svhn", "stl10", "gtsrb"])
        'without CIFAR-10, CIFAR-100'
    """
    missing = [DATASETS[name].title for name in TEXT_RATES if name not in datasets]
    return f"without {', '.join(missing)}" if missing else ""


def rows_of(frame: pd.DataFrame, **where: object) -> pd.DataFrame:
    """The rows in which the given columns have the given values."""
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame


def draw_both_correlations(ax: "Axes", rows: pd.DataFrame) -> None:
    """UC-NFC and C-NFC of one layer, in a line style for each of the settings if there are two."""
    several = rows["settings"].nunique() > 1
    for metric, name in CORRELATIONS.items():
        for settings in rows["settings"].unique():
            chosen = rows_of(rows, metric=metric, settings=settings)
            colour = COLOURS[CORRELATION_COLOURS[metric]]
            label = f"{name}, {settings}" if several else name
            draw_curve(ax, chosen, colour, label, linestyle=LINES[settings] if several else "-")
    ax.set_ylim(0, 1.02)


def draw_losses(ax: "Axes", rows: pd.DataFrame) -> None:
    """Training and test loss of one point, from 0 to just above the largest value."""
    losses = rows_of(rows, metric="loss")
    for split in ("train", "test"):
        draw_curve(ax, rows_of(losses, split=split), COLOURS[split], split)
    ax.set(ylabel="loss", ylim=(0, HEADROOM * losses["value"].max()))


def draw_weight_changes(ax: "Axes", rows: pd.DataFrame, layers: Mapping[str, str]) -> None:
    """‖W − W₀‖/‖W‖ of some layers, named by `layers`, the first darkest.

    Each panel has a range of its own: from one to the next the changes differ a hundredfold.
    """
    changes = rows_of(rows, metric="weight_change")
    changes = changes[changes["layer"].isin(layers)]
    for (layer, name), colour in zip(layers.items(), sequence_colours(len(layers)), strict=True):
        draw_curve(ax, rows_of(changes, layer=layer), colour, name)
    top = HEADROOM * changes["value"].max()
    ax.set(ylim=(0, top), ylabel=r"$\Vert W-W_0\Vert\,/\,\Vert W\Vert$")


def layers_of(frame: pd.DataFrame, prefix: str) -> list[str]:
    """Layers whose names begin so, in the order of the table."""
    names = frame["layer"].unique()
    return [name for name in names if name.startswith(prefix)]


def trajectories(runs: Runs) -> FigureTable:
    """Losses, accuracies, weight changes and correlations of some networks over training."""
    wanted = [*CORRELATIONS, *(f"{name}_mean_subtracted" for name in CORRELATIONS)]
    wanted += ["centred_uncentred_ratio", "weight_change", "loss", "accuracy"]
    rows = chosen_rows(runs, wanted)
    changes = rows[rows["metric"].isin(["weight_change", "centred_uncentred_ratio"])]
    return FigureTable(pd.concat([rows, ends(changes)], ignore_index=True))
