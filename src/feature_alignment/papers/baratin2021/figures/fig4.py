"""baratin2021, Figure 4: alignment on easy and on difficult examples."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.papers.baratin2021.figures.classification_curves import iteration_axis
from feature_alignment.papers.baratin2021.figures.difficulty_curves import (
    EXPERIMENT,
    SPLITS,
    curves,
    draw_alignments,
    draw_mean,
    draw_ratio,
    hierarchy_summary,
)
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import COLOURS, new_figure
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "The tangent kernel aligns with easy examples first"
CAPTION = (
    "An MLP trained on easy digits together with difficult examples: digits with random labels "
    "(left) or KMNIST characters (right). Rows: alignment (CKA) of the tangent kernel with the "
    "training labels, on a hundred easy and a hundred difficult training examples (fewer at small "
    "presets); the ratio of the two, thin lines for single seeds; accuracy on the easy and the "
    "difficult training examples. Means over seeds, bands of one standard deviation; iterations "
    "on a logarithmic axis from 5 on."
)
POINTS = {"random_labels": "random labels", "kmnist": "KMNIST"}


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each kind of difficult example."""
    # The depth study is another figure's: its settings must not make these runs anew.
    return [
        Point(EXPERIMENT, "random_labels", {"difficult_dataset": None, "depth_study": None}),
        Point(EXPERIMENT, "kmnist", {"difficult_dataset": "kmnist", "depth_study": None}),
    ]


def table(runs: Runs) -> FigureTable:
    """All metrics, and the numbers that sum up each seed's curves."""
    metrics = runs.metrics
    return FigureTable(pd.concat([metrics, hierarchy_summary(metrics)], ignore_index=True))


def draw(table: FigureTable) -> "Figure":
    """Alignments, their ratio and accuracies (rows) for each kind of difficult example."""
    figure, axes = new_figure(3, 2, width=7.2, height=7.0)
    for column, (point, title) in zip(axes.T, POINTS.items(), strict=True):
        alignment, ratio, accuracy = column
        draw_alignments(alignment, table.frame, point)
        draw_ratio(ratio, table.frame, point)
        for split in SPLITS:
            values = curves(table.frame, "accuracy", split, point)
            draw_mean(accuracy, values, COLOURS[split])
        iteration_axis(accuracy, values.index[-1])
        accuracy.set_ylim(0, 1.02)
        alignment.set_title(title)
        accuracy.set_xlabel("iteration")
    labels = ("label alignment (CKA)", "easy / difficult", "training accuracy")
    for ax, label in zip(axes[:, 0], labels, strict=True):
        ax.set_ylabel(label)
    axes[0, 0].legend()
    return figure
