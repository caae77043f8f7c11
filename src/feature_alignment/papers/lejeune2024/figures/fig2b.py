"""lejeune2024, around Section 3.2: where the solution is of low rank, and where that helps."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import COLOURS, new_figure
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Rank and predictions of adaptive features, by the solver and by training"
CAPTION = (
    "Deviation of the weights from their initial values, for one network and four ways to fit: "
    "ridgeless regression with its initial tangent features, the adaptive solver (ω₁), its "
    "factorised model trained by SGD, and the network trained by SGD. Left: singular values of the "
    "first layer's deviation, relative to the largest; mean over seeds. Middle: effective rank of "
    "each layer's deviation. Right: squared test error relative to that of the mean. Dots are "
    "seeds. Top: a quadratic function of one direction of 20; bottom: two digit classes."
)
EXPERIMENT = "lejeune2024_low_rank"
TASKS = {"single-index": "single index", "digits": "two digits"}
MODELS = {
    "ridgeless": "ridgeless",
    "solver": "adaptive, solver",
    "factorised": "factorised, SGD",
    "full": "network, SGD",
}


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each task."""
    return [Point(EXPERIMENT, task, {"task": task}) for task in TASKS]


def table(runs: Runs) -> FigureTable:
    """All metrics, and the singular values of the first layer, averaged over seeds."""
    arrays = {}
    for task in TASKS:
        for model in MODELS:
            spectra = [
                values / values.max()
                for name, values in sorted(runs[task].arrays.items())
                if name.endswith(f"/{model}/1")
            ]
            arrays[f"{task}/{model}"] = np.mean(spectra, axis=0)
    return FigureTable(runs.metrics, arrays)


def draw(table: FigureTable) -> "Figure":
    """Tasks as rows; spectrum, rank and error as columns."""
    figure, axes = new_figure(2, 3, width=10.0, height=5.4)
    for (spectrum, rank, error), (task, title) in zip(axes, TASKS.items(), strict=True):
        for model, label in MODELS.items():
            values = table.arrays[f"{task}/{model}"]
            index = np.arange(1, len(values) + 1)
            spectrum.plot(index, values, color=COLOURS[model], label=label)
        spectrum.set(xscale="log", yscale="log", ylim=(1e-4, 1.5))
        spectrum.set(xlabel="index", ylabel=f"{title}\n$\\sigma_j / \\sigma_1$, first layer")
        layers = sorted(
            table.frame.loc[table.frame["metric"] == "effective_rank", "layer"].unique()
        )
        _draw_ranks(rank, table, task, layers)
        _draw_errors(error, table, task)
    axes[0, 0].legend()
    return figure


def _draw_ranks(ax: "Axes", table: FigureTable, task: str, layers: list[Any]) -> None:
    for place, layer in enumerate(layers):
        for number, model in enumerate(MODELS):
            where = {"point": task, "model": model, "layer": layer}
            values = table.values("effective_rank", **where)
            at = place + 0.2 * (number - 1.5)
            ax.plot([at] * len(values), values, ".", color=COLOURS[model])
    ax.set_xticks(range(len(layers)), [f"layer {i + 1}" for i in range(len(layers))])
    ax.set(ylabel="effective rank", ylim=(0, None))


def _draw_errors(ax: "Axes", table: FigureTable, task: str) -> None:
    for place, model in enumerate(MODELS):
        values = table.values("nmse", point=task, model=model)
        ax.bar(place, values.mean(), color=COLOURS[model], alpha=0.75)
        ax.plot([place] * len(values), values, ".", color=COLOURS["paper"], markersize=3)
    ax.set_xticks(range(len(MODELS)), [label.replace(", ", ",\n") for label in MODELS.values()])
    ax.tick_params(axis="x", labelsize=7)
    ax.set_ylabel("test error / variance")
