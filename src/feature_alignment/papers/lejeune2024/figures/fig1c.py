"""lejeune2024, the question of Section 4: average against final tangent features."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feature_alignment.papers.lejeune2024.figures.fig1 import EXPERIMENT
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, panel_label
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Average and final tangent features"
CAPTION = (
    "Kernels of the tangent features at the end of training and of their average along its "
    "straight path, for networks trained on binarised targets of as many images as the kernels "
    "have, the fewer images of Figure 1b. A: their cosine similarity. B: the ratio of their "
    "Frobenius norms. C: cosine similarity of the average kernel with the initial one, which is 1 "
    "where features do not move. Each row changes one setting of the first (at depth 4 also the "
    "learning rate, since 0.1 can diverge); dots are seeds, crosses their mean."
)
BASE = "few-binarised"
CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    BASE: ("base: width 128, depth 3", {}),
    "width-32": ("width 32", {"width": 32}),
    "width-256": ("width 256", {"width": 256}),
    "depth-2": ("depth 2", {"hidden_layers": 1}),
    "depth-4": ("depth 4, learning rate 0.02", {"hidden_layers": 3, "learning_rate": 0.02}),
    "rate-0.05": ("learning rate 0.05", {"learning_rate": 0.05}),
    "rate-0.02": ("learning rate 0.02", {"learning_rate": 0.02}),
    "kmnist": ("KMNIST", {"dataset": "kmnist"}),
}
PANELS = {
    "final_average_cosine": "cosine of final and average kernel",
    "final_average_scale": "norm of final over average kernel",
    "average_initial_cosine": "cosine of average and initial kernel",
}


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each changed setting."""
    few = {"train_samples": experiments[EXPERIMENT]["kernel_samples"], "targets": "binarised"}
    return [Point(EXPERIMENT, name, {**few, **change}) for name, (_, change) in CHANGES.items()]


def table(runs: Runs) -> FigureTable:
    """The metrics of the panels."""
    metrics = runs.metrics
    return FigureTable(metrics[metrics["metric"].isin(PANELS)].reset_index(drop=True))


def draw(table: FigureTable) -> "Figure":
    """One panel for each measure, settings as rows."""
    figure, axes = new_figure(1, 3, width=10.0, height=3.2)
    for ax, (metric, label), letter in zip(axes[0], PANELS.items(), "ABC", strict=True):
        _draw_panel(ax, table, metric)
        ax.set_xlabel(label)
        if metric.endswith("cosine"):
            ax.set_xlim(right=1)
        panel_label(ax, letter)
        ax.sharey(axes[0, 0])
    axes[0, 0].set_yticks(range(len(CHANGES)), [text for text, _ in CHANGES.values()])
    axes[0, 0].invert_yaxis()
    for ax in axes[0, 1:]:
        ax.tick_params(labelleft=False)
    return figure


def _draw_panel(ax: "Axes", table: FigureTable, metric: str) -> None:
    for place, name in enumerate(CHANGES):
        values = table.values(metric, point=name)
        ax.plot(values, [place] * len(values), ".", color=COLOURS["binarised"], alpha=0.6)
        ax.plot(values.mean(), place, "x", color=COLOURS["paper"])
