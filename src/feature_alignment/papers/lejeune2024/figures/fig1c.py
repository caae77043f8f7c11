"""lejeune2024, the question of Section 4: average against final tangent features."""

from typing import TYPE_CHECKING, Any

from feature_alignment.papers.lejeune2024.figures.digit_points import fewer_images
from feature_alignment.pipeline.figures.drawing import draw_points
from feature_alignment.pipeline.figures.figure import Figure, Point, Settings
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, panel_label
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "few-binarised": ("base: width 128, depth 3", {}),
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


def points(settings: Settings) -> list[Point]:
    """One point for each changed setting."""
    base = fewer_images(settings)
    return [Point(name, base.but(**change)) for name, (_, change) in CHANGES.items()]


def table(runs: Runs) -> FigureTable:
    """The metrics of the panels."""
    return FigureTable(rows_where(runs.metrics, metric=list(PANELS)).reset_index(drop=True))


def draw(table: FigureTable) -> "Picture":
    """One panel for each measure, settings as rows."""
    figure, axes = new_figure(1, 3, width=10.0, height=3.2)
    places = {name: text for name, (text, _) in CHANGES.items()}
    colours = dict.fromkeys(CHANGES, COLOURS["binarised"])
    for ax, (metric, label), letter in zip(axes[0], PANELS.items(), "ABC", strict=True):
        draw_points(ax, table.rows(metric=metric), places, colours, horizontal=True)
        ax.set_xlabel(label)
        if metric.endswith("cosine"):
            ax.set_xlim(right=1)
        panel_label(ax, letter)
    for ax in axes[0, 1:]:
        ax.tick_params(labelleft=False)
    return figure


FIGURES = (
    Figure(
        name="fig1c",
        title="Average and final tangent features",
        caption="Kernels of the tangent features at the end of training and of their average along "
        "its straight path, for networks trained on binarised targets of as many images as the "
        "kernels have, the fewer images of Figure 1b. A: their cosine similarity. B: the ratio of "
        "their Frobenius norms. C: cosine similarity of the average kernel with the initial one, "
        "which is 1 where features do not move. Each row changes one setting of the first (at "
        "depth 4 also the learning rate, since 0.1 can diverge). Dots are seeds, upright bars "
        "their mean, with one standard deviation either way from four seeds on.",
        points=points,
        table=table,
        draw=draw,
    ),
)
