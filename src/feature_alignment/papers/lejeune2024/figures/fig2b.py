"""lejeune2024, around Section 3.2: when the solution has low rank, and when that helps."""

import numpy as np

from feature_alignment.papers.lejeune2024.parameters import LowRank
from feature_alignment.pipeline.figures.drawing import draw_points
from feature_alignment.pipeline.figures.figure import Figure, Picture, points_by
from feature_alignment.pipeline.figures.style import COLOURS, LINES, new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs

TASKS = {"single-index": "single index", "digits": "two digits, {}"}
MODELS = {
    "ridgeless": "ridgeless",
    "solver": "adaptive, solver",
    "factorised": "factorised, SGD",
    "full": "network, SGD",
}


def table(runs: Runs) -> FigureTable:
    """All metrics, and the singular values of the first layer, averaged over seeds."""
    arrays = {}
    for task in TASKS:
        for model in MODELS:
            values = runs[task].stacked(f"{model}/1")  # (seeds, rank)
            arrays[f"{task}/{model}"] = (values / values.max(axis=1, keepdims=True)).mean(axis=0)
    return FigureTable(runs.metrics, arrays)


def draw(table: FigureTable) -> Picture:
    """Tasks as rows; spectrum, rank and error as columns."""
    figure, axes = new_figure(2, 3, width=10.0, height=5.4)
    colours = {model: COLOURS[model] for model in MODELS}
    names = {model: label.replace(", ", ",\n") for model, label in MODELS.items()}
    for (spectrum, rank, error), (task, title) in zip(axes, TASKS.items(), strict=True):
        for model, label in MODELS.items():
            values = table.arrays[f"{task}/{model}"]
            index = np.arange(1, len(values) + 1)
            spectrum.plot(index, values, LINES[model], color=COLOURS[model], label=label)
        spectrum.set(xscale="log", yscale="log", ylim=(1e-4, 1.5))
        spectrum.set(
            xlabel="index",
            ylabel=f"{title.format(table.dataset)}\n$\\sigma_j / \\sigma_1$, first layer",
        )
        rows = table.rows(metric="effective_rank", point=task, model=list(MODELS))
        *layers, together = sorted(rows["layer"].unique())
        places = {layer: f"layer {number}" for number, layer in enumerate(layers, start=1)}
        places[together] = "all"
        draw_points(rank, rows, places, colours, by="layer", group="model")
        rank.set(ylabel="effective rank", ylim=(0, None))
        draw_points(error, table.rows(metric="nmse", point=task), names, colours, by="model")
        error.tick_params(axis="x", labelsize=7)
        error.set(ylabel="test error / variance", ylim=(0, None))
    axes[0, 0].legend()
    panel_letters(*axes.flat)
    return figure


FIGURE = Figure(
    name="fig2b",
    title="Rank and predictions of adaptive features, by the solver and by training",
    caption="Deviation of the weights from their initial values, for one network and four ways to "
    "fit: ridgeless regression with its initial tangent features, the adaptive solver (ω₁), its "
    "factorised model trained by SGD, and the network trained by SGD. A, D: singular values of the "
    "first layer's deviation, relative to the largest, from 10⁻⁴ on; mean over seeds. B, E: "
    "effective rank of each layer's deviation, and of all layers' as one block-diagonal matrix. C, "
    "F: squared test error relative to that of the mean. Dots are seeds, short bars their mean, "
    "with one standard deviation either way from four seeds on. A-C: a quadratic function of one "
    "direction of the inputs; D-F: two digit classes.",
    points=points_by(LowRank, "task", TASKS),
    table=table,
    draw=draw,
)
