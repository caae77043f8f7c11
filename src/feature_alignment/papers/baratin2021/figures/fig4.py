"""baratin2021, Figure 4: alignment on easy and on difficult examples."""

from typing import TYPE_CHECKING

import pandas as pd

from feature_alignment.papers.baratin2021.figures.difficulty_curves import (
    draw_ratio,
    draw_splits,
    hierarchy_numbers,
)
from feature_alignment.papers.baratin2021.figures.training_curves import OVER_SEEDS, summary
from feature_alignment.papers.baratin2021.parameters import DepthStudy, Difficulty
from feature_alignment.pipeline.figures.figure import Figure, Point, Settings
from feature_alignment.pipeline.figures.style import new_figure
from feature_alignment.pipeline.figures.table import FigureTable, Runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

TITLES = {"random_labels": "random labels", "kmnist": "KMNIST"}


def points(settings: Settings) -> list[Point]:
    """One point for each kind of difficult example."""
    # The depth study is another figure's: its settings must not make these runs anew.
    common = settings[Difficulty].but(depth_study=DepthStudy())
    return [
        Point("random_labels", common),
        Point("kmnist", common.but(difficult_dataset="kmnist")),
    ]


def table(runs: Runs) -> FigureTable:
    """All metrics, and the numbers that sum up each seed's curves."""
    metrics = runs.metrics
    summed = summary(metrics, hierarchy_numbers)
    return FigureTable(pd.concat([metrics, summed], ignore_index=True))


def draw(table: FigureTable) -> "Picture":
    """Alignments, their ratio and accuracies (rows) for each kind of difficult example."""
    figure, axes = new_figure(3, 2, width=7.2, height=7.0)
    for column, (point, title) in zip(axes.T, TITLES.items(), strict=True):
        alignment, ratio, accuracy = column
        rows = table.rows(point=point, metric="label_alignment")
        draw_splits(alignment, rows)
        draw_ratio(ratio, rows)
        draw_splits(accuracy, table.rows(point=point, metric="accuracy"))
        alignment.set_title(title)
        alignment.set_ylim(bottom=0)
        accuracy.set(xlabel="iteration", ylim=(0, 1.02))
    labels = "label alignment (CKA)", "easy / difficult", "training accuracy"
    for ax, label in zip(axes[:, 0], labels, strict=True):
        ax.set_ylabel(label)
    axes[0, 0].legend()
    return figure


FIGURES = (
    Figure(
        name="fig4",
        title="The tangent kernel aligns with easy examples first",
        caption="An MLP trained on easy digits together with difficult examples: digits with "
        "random labels (left) or KMNIST characters (right). Rows: alignment (CKA) of the tangent "
        "kernel with the training labels, on a hundred easy and a hundred difficult training "
        "examples (fewer at small presets); the ratio of the two; accuracy on the easy and the "
        f"difficult training examples. {OVER_SEEDS} Iterations on a logarithmic axis from 5 on.",
        points=points,
        table=table,
        draw=draw,
    ),
)
