"""lejeune2024, earlier version, Figure 4: sample complexity of adaptive tangent features."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.figures.make import FigureTable, Runs
from feature_alignment.figures.style import COLOURS, new_figure
from feature_alignment.spec import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Sample complexity of fixed, adaptive and learned features"
CAPTION = (
    "Smallest test error over epochs against the size n of the training set, for fixed tangent "
    "features (the linearised network), adaptive ones (its factorised update) and the network "
    "itself; mean and standard deviation over seeds. Left: the n samples are the same in every "
    "epoch. Right: the released code's stream, which draws n new ones from the whole training set "
    "in every epoch. Top: MLP on MNIST; bottom: CNN on CIFAR-10."
)
EXPERIMENT = "lejeune2024_sample_complexity"
DATASETS = {"mnist": ("MNIST", "mlp"), "cifar10": ("CIFAR-10", "cnn")}
SAMPLINGS = {"fixed": "n samples", "redrawn": "n samples redrawn in every epoch"}
ERROR_TICKS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MODELS = {"fixed": "fixed features", "adaptive": "adaptive features", "full": "full network"}


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
        for n, factor in _savings(by_size).items():
            rows.append({**common, "n": n, "metric": "sample_saving", "value": factor})
    return FigureTable(pd.concat([metrics, pd.DataFrame(rows)], ignore_index=True))


def _savings(by_size: pd.DataFrame) -> dict[float, float]:
    """For the smallest n: samples that fixed features need for the error of adaptive ones, over n.

    Interpolated in log n and log error between the sizes that were run. Where fixed features are as
    good at n already, it is 1; where not even the largest size reaches that error, that size
    counts, and the saving is a lower bound.
    """
    import numpy as np

    sizes, fixed = by_size.index.to_numpy(dtype=float), by_size["fixed"].to_numpy()
    smallest = sizes[0]
    wanted = by_size["adaptive"].iloc[0]
    reached = fixed <= wanted
    if reached[0]:
        needed = sizes[0]
    elif not reached.any():
        needed = sizes[-1]
    else:
        after = int(reached.argmax())
        high, low = np.log(np.maximum(fixed[[after - 1, after]], 1e-6))
        share = (high - np.log(max(wanted, 1e-6))) / (high - low)
        needed = np.exp((1 - share) * np.log(sizes[after - 1]) + share * np.log(sizes[after]))
    return {smallest: float(needed / smallest)}


def draw(table: FigureTable) -> "Figure":
    """Datasets as rows, samplings as columns."""
    figure, axes = new_figure(2, 2, width=7.5, height=5.4)
    errors = table.frame[table.frame["metric"] == "test_error"]
    for row, (dataset, (title, _)) in zip(axes, DATASETS.items(), strict=True):
        for ax, (sampling, text) in zip(row, SAMPLINGS.items(), strict=True):
            chosen = errors[(errors["dataset"] == dataset) & (errors["sampling"] == sampling)]
            _draw_panel(ax, chosen)
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
    axes[0, 0].legend()
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
