"""lejeune2024, earlier version, Figure 4: sample complexity of adaptive tangent features."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import COLOURS, new_figure
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Sample complexity of fixed, adaptive and learned features"
CAPTION = (
    "Smallest test error over epochs against the size n of the training set, for fixed tangent "
    "features (the linearised network), adaptive ones (its factorised update) and the network "
    "itself; mean and standard deviation over seeds. Left: the n samples are the same in every "
    "epoch. Right: the released code's stream, which draws n new ones from the whole training set "
    "in every epoch. Top: MLP on MNIST, with the values of the paper's earlier version, "
    "arXiv:2308.15478, read off its figure (crosses); bottom: CNN on CIFAR-10."
)
EXPERIMENT = "lejeune2024_sample_complexity"
DATASETS = {"mnist": ("MNIST", "mlp"), "cifar10": ("CIFAR-10", "cnn")}
SAMPLINGS = {
    "kept": "the same n samples in every epoch",
    "redrawn": "n samples redrawn in every epoch",
}
ERROR_TICKS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_LEAST_ERROR = 1e-6
"""Stands for an error of 0, whose logarithm is not finite."""
MODELS = {"fixed": "fixed features", "adaptive": "adaptive features", "full": "full network"}


PUBLISHED = {
    "fixed": {125: 0.187, 500: 0.142, 2000: 0.105},
    "adaptive": {125: 0.140, 500: 0.114, 2000: 0.085},
    "full": {125: 0.068, 500: 0.043, 2000: 0.025},
}
"""Test errors on MNIST by model and n, read off Figure 4 of the earlier version."""


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each dataset, sampling and kind of model."""
    settings = experiments[EXPERIMENT]
    sizes = {
        "mlp": ("train_sizes", "test_samples"),
        "cnn": ("cnn_train_sizes", "cnn_test_samples"),
    }
    return [
        Point(
            EXPERIMENT,
            f"{dataset}-{sampling}-{model}",
            {
                "dataset": dataset,
                "network": network,
                "sampling": sampling,
                "model": model,
                "train_sizes": settings[sizes[network][0]],
                "test_samples": settings[sizes[network][1]],
            },
        )
        for dataset, (_, network) in DATASETS.items()
        for sampling in SAMPLINGS
        for model in MODELS
    ]


def table(runs: Runs) -> FigureTable:
    """All metrics, and how many times fewer samples adaptive features need than fixed ones."""
    metrics = runs.metrics
    metrics[["dataset", "sampling", "model"]] = metrics["point"].str.split("-", expand=True)
    errors = metrics[metrics["metric"] == "test_error"]
    rows = []
    for (dataset, sampling, seed), chosen in errors.groupby(["dataset", "sampling", "seed"]):
        by_size = chosen.pivot(index="n", columns="model", values="value").sort_index()
        common = {"point": "comparison", "seed": seed, "step": 0, "layer": "all", "split": "test"}
        common |= {"dataset": dataset, "sampling": sampling}
        for n, row in by_size.iterrows():
            for metric, model in (
                ("adaptive_minus_fixed", "fixed"),
                ("adaptive_minus_full", "full"),
            ):
                value = row["adaptive"] - row[model]
                rows.append({**common, "n": n, "metric": metric, "value": value})
        saving = {**common, "n": by_size.index[0]}
        factor = _saving(by_size)
        rows.append({**saving, "metric": "sample_saving", "value": factor})
        rows.append({**saving, "metric": "sample_saving_decades", "value": math.log10(factor)})
    return FigureTable(pd.concat([metrics, pd.DataFrame(rows)], ignore_index=True))


def _saving(by_size: pd.DataFrame) -> float:
    """How many times as many samples fixed features need as adaptive ones for the same error.

    The error is that of whichever is better at the smallest size n. The other one's need is
    interpolated in log n and log error between the sizes that were run, and divided by n; below 1
    it is the adaptive features that need more. Where not even the largest size reaches the error,
    that size counts, and the factor is at least so far from 1.
    """
    adaptive, fixed = by_size["adaptive"], by_size["fixed"]
    if adaptive.iloc[0] <= fixed.iloc[0]:
        return _needed(fixed, adaptive.iloc[0]) / fixed.index[0]
    return adaptive.index[0] / _needed(adaptive, fixed.iloc[0])


def _needed(errors: pd.Series, wanted: float) -> float:
    """The size at which errors by size, in increasing order, first come down to the one wanted."""
    import numpy as np

    sizes, values = np.log(errors.index.to_numpy(float)), np.log(np.maximum(errors, _LEAST_ERROR))
    level = np.log(max(wanted, _LEAST_ERROR))
    reached = np.flatnonzero(values.to_numpy() <= level)
    if not len(reached):
        return float(errors.index[-1])
    after = int(reached[0])
    if after == 0:
        return float(errors.index[0])
    high, low = values.iloc[after - 1], values.iloc[after]
    share = (high - level) / (high - low)
    return float(np.exp((1 - share) * sizes[after - 1] + share * sizes[after]))


def draw(table: FigureTable) -> "Figure":
    """Datasets as rows, samplings as columns."""
    figure, axes = new_figure(2, 2, width=7.5, height=6.2)
    errors = table.frame[table.frame["metric"] == "test_error"]
    for row, (dataset, (title, _)) in zip(axes, DATASETS.items(), strict=True):
        for ax, (sampling, text) in zip(row, SAMPLINGS.items(), strict=True):
            chosen = errors[(errors["dataset"] == dataset) & (errors["sampling"] == sampling)]
            _draw_panel(ax, chosen)
            if dataset == "mnist":
                _draw_published(ax, chosen)
            ax.set_title(f"{title}: {text}")
        limits = [limit for ax in row for limit in ax.get_ylim()]
        for ax in row:
            shown = [error for error in ERROR_TICKS if min(limits) <= error <= max(limits)]
            ax.set_yticks(shown, [str(error) for error in shown])
            ax.minorticks_off()
            ax.set_ylim(min(limits), max(limits))
        row[0].set_ylabel("test error")
    for ax in axes[1]:
        ax.set_xlabel("training samples n")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _draw_panel(ax: "Axes", errors: pd.DataFrame) -> None:
    for model, label in MODELS.items():
        by_size = errors[errors["model"] == model].groupby("n")["value"]
        mean, deviation = by_size.mean(), by_size.std(ddof=1).fillna(0.0)
        ax.errorbar(
            mean.index, mean, deviation, marker="o", capsize=2, color=COLOURS[model], label=label
        )
    ax.set(xscale="log", yscale="log")
    sizes = sorted(errors["n"].astype(int).unique())
    ax.set_xticks(sizes, [str(n) for n in sizes])


def _draw_published(ax: "Axes", errors: pd.DataFrame) -> None:
    """The published values at the sizes that are shown."""
    sizes = set(errors["n"])
    for model, values in PUBLISHED.items():
        for n, value in values.items():
            if n in sizes:
                ax.plot(n, value, "x", color=COLOURS[model], markersize=6, zorder=3)
    ax.plot([], [], "x", color=COLOURS["reference"], markersize=6, label="published, real MNIST")
