"""Runs, tables and drawing shared by Figures 2 and 13-15 of beaglehole2024.

metrics.yaml describes the settings; there is no released code for the transformer.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError
from feature_alignment.papers.beaglehole2024.parameters import CharacterGPT, ImageMLP, ImageVGG
from feature_alignment.pipeline.figures.drawing import draw_curve
from feature_alignment.pipeline.figures.figure import Axes, Point, Settings
from feature_alignment.pipeline.figures.style import COLOURS, sequence_looks
from feature_alignment.pipeline.figures.table import Runs, rows_where
from feature_alignment.pipeline.marks import DIVERGED, STAND_IN
from feature_alignment.pipeline.parameters import Parameters

TEXT_RATES = {"cifar10": 0.2, "cifar100": 0.2, "svhn": 0.2, "stl10": 0.1, "gtsrb": 0.1, "mnist": 10}
RELEASED_RATES = {**TEXT_RATES, "cifar10": 2.0, "cifar100": 2.0, "svhn": 2.0}
"""Before multiplication by classes/10."""
FIRST_EPOCH_RATE = 1e-4
MNIST_EPOCHS = 50

CORRELATIONS = {"nfc": "UC-NFC", "centred_nfc": "C-NFC"}
MEASURES = (
    *CORRELATIONS,
    *(f"{name}_mean_subtracted" for name in CORRELATIONS),
    "centred_uncentred_ratio",
)
LOOKS: dict[str, dict[str, Any]] = {
    "nfc": {"colour": "uncentred", "marker": "o", "markersize": 2.5, "markerfacecolor": "white"},
    "centred_nfc": {"colour": "centred"},
}
LINES = {"released": "-", "text": "--", "unit": "--"}  # `unit`: the text's, with other pixels
HEADROOM = 1.08  # upper end of an axis over the largest value on it
WEIGHT_CHANGES = 1e-4, 2.0  # the ends of the axis of weight changes, the same in all panels
ATTENTION = ("query", "key", "value")
UNCOUNTED = (  # for captions: what `mark_diverged` draws
    "Crosses on the horizontal axis are the last measurements of networks that diverged: they are "
    "in the curves up to there, and in no average over datasets and no claim."
)


def mlp_points(settings: Settings) -> list[Point]:
    """Points for each of the configured datasets, in both settings."""
    configured, points = settings[ImageMLP], []
    for dataset in configured.datasets:
        epochs = min(configured.epochs, MNIST_EPOCHS if dataset == "mnist" else configured.epochs)
        # A run does not depend on which other datasets are configured.
        own = configured.but(dataset=dataset, datasets=[dataset], epochs=epochs)
        rate = RELEASED_RATES[dataset] * DATASETS[dataset].classes / 10
        released = {"learning_rate": rate, "first_epoch_rate": FIRST_EPOCH_RATE}
        text = {"learning_rate": TEXT_RATES[dataset], "first_epoch_rate": None}
        points += [
            _point("mlp", dataset, "released", own.but(**released)),
            _point("mlp", dataset, "text", own.but(**text)),
        ]
    return points


def trajectory_points(settings: Settings) -> list[Point]:
    """The same, and MNIST with the text's settings and pixels in [0, 1], if it is configured.

    With standardised pixels the learning rate of 10 is at the edge of stability.
    """
    points = mlp_points(settings)
    return points + [
        _point("mlp", "mnist", "unit", point.parameters.but(pixels="unit"))
        for point in points
        if point.name == "mlp_mnist_text"
    ]


def other_points(settings: Settings) -> list[Point]:
    """VGG-11 in both settings, and the transformer."""
    vgg = settings[ImageVGG].but(learning_rate=1.0)
    released = vgg.but(momentum=0.9, first_epoch_rate=FIRST_EPOCH_RATE)
    text = vgg.but(momentum=0.0, first_epoch_rate=None)
    return [
        _point("vgg", "cifar10", "released", released),
        _point("vgg", "cifar10", "text", text),
        _point("gpt", "shakespeare", "text", settings[CharacterGPT]),
    ]


def _point(network: str, dataset: str, settings: str, parameters: Parameters) -> Point:
    columns = {"network": network, "dataset": dataset, "settings": settings}
    return Point("_".join(columns.values()), parameters, columns)


def without_diverged(frame: pd.DataFrame, *, by: str = "point") -> pd.DataFrame:
    """The rows without those of networks that diverged, whose curves end before the others'.

    With `by="settings"`, a seed that diverged on one dataset is dropped for all datasets.

    Raises:
        UserError: if all networks of a point diverged.
    """
    marks, seeds = frame[frame["metric"] == DIVERGED], frame.groupby("point")["seed"].nunique()
    for point, number in marks["point"].value_counts().items():
        if number == seeds.at[point]:
            raise UserError(
                f"{point}: all of its {number} networks diverged; use a smaller learning rate."
            )
    keys = ["network", by, "seed"]
    return frame[~frame.set_index(keys).index.isin(marks.set_index(keys).index)]


def centred_excess(frame: pd.DataFrame) -> pd.DataFrame:
    """C-NFC minus UC-NFC after the start, as the metric `centred_excess` (metrics.yaml)."""
    frame = without_diverged(frame)
    index = ["point", "network", "dataset", "settings", "seed", "layer", "split", "step"]
    uncentred, centred = (
        rows_where(frame, metric=metric).set_index(index)["value"] for metric in CORRELATIONS
    )
    excess = (centred - uncentred.loc[centred.index]).reset_index()
    series = excess["point"] + " " + excess["layer"] + " " + excess["step"].astype(str)
    return excess.assign(metric="centred_excess", series=series)


def ends(frame: pd.DataFrame) -> pd.DataFrame:
    """Each metric at its run's first measurement after a full epoch, and at its last.

    They are named `<metric>_early` and `<metric>_late`. A full epoch is one at the full learning
    rate: in the released code's settings the first is slow, and nothing has moved after it. Early
    is the same step for all runs of an architecture, the latest of their first ones, or a run's
    next one, or its last. For the transformer, whose steps are not epochs, it is the first
    measurement after the start.
    """
    frame = without_diverged(frame)
    slow_epochs = frame["settings"] == "released"  # one of them, or none
    after = frame[frame["step"] > slow_epochs]
    steps = after.groupby("point")["step"]
    # Epoch 1 is measured, but the slow one is left out: the first steps of the settings differ.
    common = steps.transform("min").groupby(after["network"]).transform("max")
    from_there = after["step"].where(after["step"] >= common).groupby(after["point"])
    late = steps.transform("max")
    places = {"early": from_there.transform("min").fillna(late), "late": late}
    rows = [
        after[after["step"] == place].assign(metric=after["metric"] + f"_{name}")
        for name, place in places.items()
    ]
    both = pd.concat(rows, ignore_index=True)
    return both.assign(series=both["point"] + " " + both["layer"])


def trajectories(runs: Runs) -> pd.DataFrame:
    """Losses, accuracies, weight changes and correlations of some networks over training."""
    wanted = [*MEASURES, "weight_change", "loss", "accuracy", DIVERGED]
    rows = rows_where(runs.metrics, metric=wanted)
    changes = rows_where(rows, metric=["weight_change", "centred_uncentred_ratio", DIVERGED])
    return pd.concat([rows, ends(changes)], ignore_index=True)


def datasets_of(frame: pd.DataFrame) -> list[str]:
    """The datasets of a table's fully connected networks, in the order of the config."""
    names = frame.loc[frame["network"] == "mlp", "dataset"].unique()
    return [name for name in names if name in DATASETS]  # not "mean", where averages were added


def averaged(frame: pd.DataFrame) -> list[str]:
    """The datasets of `datasets_of` to average over: the real ones, if there are any."""
    mlp = frame[frame["network"] == "mlp"]
    return datasets_of(mlp[mlp[STAND_IN] == mlp[STAND_IN].min()])


def left_out(datasets: Sequence[str]) -> str:
    """Which of the paper's datasets an average lacks, in words; empty if none.

    Example:
        >>> left_out(["mnist", "svhn", "stl10", "gtsrb"])
        'without CIFAR-10, CIFAR-100'
    """
    missing = [DATASETS[name].title for name in TEXT_RATES if name not in datasets]
    return f"without {', '.join(missing)}" if missing else ""


def of_real_data(frame: pd.DataFrame, runs: Runs) -> pd.DataFrame:
    """The rows of each architecture's real datasets, or all rows if it has only stand-ins."""
    told = frame["point"].map(runs.stand_ins)
    return frame[told == told.groupby(frame["network"]).transform("min")]


def with_remark(frame: pd.DataFrame, runs: Runs) -> pd.DataFrame:
    """Add the columns `stand_in`, and `remark` on what the networks of these settings lack.

    Fully connected networks can lack some of the paper's datasets (stand-ins do not count if there
    are real ones), and any can have diverged. Derived rows are from `of_real_data`.
    """
    told = frame["point"].map(runs.stand_ins)
    least = told.groupby(frame["network"]).transform("min")
    frame = frame.assign(**{STAND_IN: told.fillna(least).astype(int)})
    remarks = pd.Series("", frame.index)
    for _, rows in frame.groupby(["network", "settings"]):
        words = [left_out(averaged(frame))] if "mlp" in rows["network"].array else []
        for dataset, diverged in rows[rows["metric"] == DIVERGED].groupby("dataset"):
            seeds = rows.loc[rows["dataset"] == dataset, "seed"].nunique()
            number = f"{len(diverged)} of {seeds} networks on {DATASETS[str(dataset)].title}"
            words.append(f"not counted, since diverged: {number}")
        remarks[rows.index] = "; ".join(filter(None, words))
    return frame.assign(remark=remarks)


def layers_of(frame: pd.DataFrame, prefix: str) -> list[str]:
    """Layers whose names begin with the prefix, in the order of the table."""
    return [name for name in frame["layer"].unique() if name.startswith(prefix)]


def draw_both_correlations(ax: Axes, rows: pd.DataFrame, layer: str) -> None:
    """UC-NFC and C-NFC of one layer, in a line style for each of the settings if there are two."""
    own = rows[rows["layer"] == layer]  # maybe none: a transformer can have fewer blocks
    shown = own["settings"].unique()
    told = len(shown) > 1 or "unit" in shown
    for metric, name in CORRELATIONS.items():
        for settings in shown:
            chosen = rows_where(own, metric=metric, settings=settings)
            label = f"{name}, {settings.replace('unit', 'text')}" if told else name
            line = LINES[settings] if told else "-"
            draw_curve(ax, chosen, label=label, linestyle=line, **LOOKS[metric])
    ax.set(ylim=(0, 1.02), yticks=[0, 0.5, 1])
    mark_diverged(ax, rows)


def mark_diverged(ax: Axes, rows: pd.DataFrame) -> None:
    """A cross on the horizontal axis at the last measurement of each network that diverged."""
    places = rows.loc[rows["metric"] == DIVERGED, "value"]
    if len(places):
        look = {"color": COLOURS["reference"], "clip_on": False, "label": "network diverged"}
        place = {"transform": ax.get_xaxis_transform(), "zorder": 5, "scaley": False}
        ax.plot(places, [0] * len(places), "x", **look, **place)


def draw_losses(ax: Axes, rows: pd.DataFrame) -> None:
    """Training and test loss of one point, from 0 to just above the largest value."""
    losses = rows_where(rows, metric="loss")
    for split in ("train", "test"):
        draw_curve(ax, rows_where(losses, split=split), split, split)
    ax.set(ylabel="loss", ylim=(0, HEADROOM * losses["value"].max()))
    mark_diverged(ax, rows)


def draw_weight_changes(ax: Axes, rows: pd.DataFrame, layers: Mapping[str, str]) -> None:
    """‖W − W₀‖/‖W‖ of some layers, named by `layers`, the first darkest.

    The start is omitted, as is a first epoch at a learning rate so small that nothing moves. All
    panels share one range, which is logarithmic since changes differ a hundredfold between them.
    """
    ax.set(yscale="log", ylim=WEIGHT_CHANGES, ylabel=r"$\Vert W-W_0\Vert\,/\,\Vert W\Vert$")
    changes = rows_where(rows, metric="weight_change", layer=list(layers))
    changes = changes[changes["step"] > (changes["settings"] == "released")]
    for layer, look in sequence_looks(layers).items():
        draw_curve(ax, rows_where(changes, layer=layer), label=layers[layer], **look)
    mark_diverged(ax, rows)
