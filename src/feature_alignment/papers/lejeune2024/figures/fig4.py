"""lejeune2024, earlier version, Figure 4: sample complexity of adaptive tangent features."""

import math
from itertools import product

import numpy as np
import pandas as pd

from feature_alignment.papers.lejeune2024.parameters import SampleComplexity
from feature_alignment.pipeline.figures.drawing import draw_curve
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

DATASETS = {"mnist": ("MNIST", "mlp"), "cifar10": ("CIFAR-10", "cnn")}
SAMPLINGS = {
    "kept": "the same n samples in every epoch",
    "redrawn": "n samples redrawn in every epoch",
}
MODELS = {"fixed": "fixed features", "adaptive": "adaptive features", "full": "full network"}
DODGE = 1.03  # factor between the positions of two models at the same n
ERROR_TICKS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
LEAST_ERROR = 1e-6  # replaces an error of 0, whose logarithm is not finite
PUBLISHED = {  # test errors on MNIST by model and n, read off Figure 4 of the earlier version
    "fixed": {125: 0.187, 500: 0.142, 2000: 0.105},
    "adaptive": {125: 0.140, 500: 0.114, 2000: 0.085},
    "full": {125: 0.068, 500: 0.043, 2000: 0.025},
}


def points(settings: Settings) -> list[Point]:
    """One point for each dataset, sampling and kind of model."""
    found = []
    for dataset, sampling, model in product(DATASETS, SAMPLINGS, MODELS):
        columns = {"dataset": dataset, "sampling": sampling, "model": model}
        parameters = settings[SampleComplexity].but(network=DATASETS[dataset][1], **columns)
        found.append(Point("-".join(columns.values()), parameters, columns))
    return found


def table(runs: Runs) -> FigureTable:
    """All metrics, and the samples that adaptive features save over fixed ones, in decades."""
    metrics = runs.metrics
    errors = rows_where(metrics, metric="test_error")
    rows = []
    for (dataset, sampling, seed), chosen in errors.groupby(["dataset", "sampling", "seed"]):
        by_size = chosen.pivot(index="n", columns="model", values="value").sort_index()
        common = {"point": "comparison", "seed": seed, "step": 0, "layer": "all", "split": "test"}
        common |= {"dataset": dataset, "sampling": sampling}
        common |= {"metric": "sample_saving_decades", "n": by_size.index[0]}
        rows.append({**common, "value": math.log10(_saving(by_size))})
    return FigureTable(pd.concat([metrics, pd.DataFrame(rows)], ignore_index=True))


def _saving(by_size: pd.DataFrame) -> float:
    """How many times more samples fixed features need than adaptive ones for the same error.

    The error is that of the better features at the smallest size n. The factor is the size at which
    the other features reach it, over n; inverted, so below 1, if adaptive features need more. If
    the largest size does not reach it either, that size counts: the factor is only a bound.
    """
    adaptive, fixed = by_size["adaptive"], by_size["fixed"]
    if adaptive.iloc[0] <= fixed.iloc[0]:
        return _needed(fixed, adaptive.iloc[0]) / fixed.index[0]
    return adaptive.index[0] / _needed(adaptive, fixed.iloc[0])


def _needed(errors: pd.Series, wanted: float) -> float:
    """The size at which errors first fall to the one wanted, by log-log interpolation."""
    least = np.minimum.accumulate(np.log(np.maximum(errors.to_numpy(float), LEAST_ERROR)))
    sizes = np.log(errors.index.to_numpy(float))
    level = np.log(max(wanted, LEAST_ERROR))
    return float(np.exp(np.interp(level, least[::-1], sizes[::-1])))


def draw(table: FigureTable) -> Picture:
    """Datasets as rows, samplings as columns."""
    figure, axes = new_figure(2, 2, width=7.5, height=6.2)
    for row, (dataset, (title, _)) in zip(axes, DATASETS.items(), strict=True):
        for ax, (sampling, text) in zip(row, SAMPLINGS.items(), strict=True):
            errors = table.rows(metric="test_error", dataset=dataset, sampling=sampling)
            _draw_panel(ax, errors)
            if dataset == "mnist":
                _draw_published(ax, errors)
            ax.set_title(f"{title}\n{text}")
        limits = [limit for ax in row for limit in ax.get_ylim()]
        for ax in row:
            shown = [error for error in ERROR_TICKS if min(limits) <= error <= max(limits)]
            ax.set_yticks(shown, [str(error) for error in shown])
            ax.minorticks_off()
            ax.set_ylim(min(limits), max(limits))
        row[0].set_ylabel("test error")
    for ax in axes[1]:
        ax.set_xlabel("training samples n")
    caveat = "The crosses are of real MNIST, the curves of its stand-in"
    title = caveat if "mnist" in table.stand_ins else None
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, title=title)
    panel_letters(*axes.flat)
    return figure


def _draw_panel(ax: Axes, errors: pd.DataFrame) -> None:
    ax.set(xscale="log", yscale="log")
    errors = errors.assign(value=errors["value"].clip(lower=LEAST_ERROR))
    for model, label in MODELS.items():
        rows = rows_where(errors, model=model)
        # Slightly apart, so that with few n the models' bars do not overlap.
        dodged = rows.assign(n=rows["n"] * DODGE ** (list(MODELS).index(model) - 1))
        draw_curve(ax, dodged, model, label, x="n", marker="o")
        ax.scatter(dodged["n"], dodged["value"], s=3, color=COLOURS[model], alpha=0.5, zorder=3)
    sizes = sorted(errors["n"].astype(int).unique())
    ax.set_xlim(sizes[0] / 1.5, sizes[-1] * 1.5)
    ax.set_xticks(sizes, [str(n) for n in sizes])


def _draw_published(ax: Axes, errors: pd.DataFrame) -> None:
    sizes = set(errors["n"])
    for place, (model, values) in enumerate(PUBLISHED.items(), start=-1):
        for n in sizes & set(values):
            x, colour = n * DODGE**place, COLOURS[model]
            ax.plot(x, values[n], "x", color=colour, markersize=6, zorder=3)
    ax.plot([], [], "x", color=COLOURS["reference"], markersize=6, label="published, real MNIST")


FIGURE = Figure(
    name="fig4",
    title="Sample complexity of fixed, adaptive and learned features",
    caption="Smallest test error over epochs against the size n of the training set, for fixed "
    "tangent features (the linearised network), adaptive ones (its factorised update, trained by "
    "SGD too, which is not the estimator of Theorem 2; Figure 2b has both) and the network itself. "
    "Lines are means over seeds of the error's logarithm; the band is one standard deviation "
    "either way; of fewer than four seeds, each is drawn thinly instead. Dots are single seeds, of "
    "which claims take the mean. Left: the n samples are the same in every epoch. Right: the "
    "released code's stream, which draws n new ones from the whole training set in every epoch. "
    "Top: MLP on MNIST, with the values of the paper's earlier version, arXiv:2308.15478, read off "
    "its figure (crosses, in both columns, though the released code draws as on the right); "
    "bottom: CNN on CIFAR-10. Models are drawn a little beside their n.",
    points=points,
    table=table,
    draw=draw,
)
