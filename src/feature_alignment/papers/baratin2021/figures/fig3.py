"""baratin2021, Figure 3: alignment of tangent features with the labels during training."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.papers.baratin2021.figures.classification_curves import (
    SPLITS,
    curves,
    draw_accuracy,
    draw_curves,
    iteration_axis,
    layers,
    summary,
    vgg19,
)
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, sequence_colours
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Tangent features align with the labels during training"
CAPTION = (
    "Training of VGG19 on CIFAR-10 with 0, 20 and 50 % random labels (columns). Rows: accuracy; "
    "centred kernel alignment (CKA) of the tangent kernel with the labels; the same for each "
    "layer's kernel, on training and on test images, from the input layer (dark) to the output "
    "layer (light). Solid: a batch of training images with the labels they are trained on, dashed: "
    "of test images with their true labels. The axis begins at iteration 0, before the first "
    "update. Mean over seeds, bands from the smallest to the largest."
)
SHARES = (0, 0.2, 0.5)


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """The points of Figure 2."""
    return [vgg19(share) for share in SHARES]


def table(runs: Runs) -> FigureTable:
    """Accuracies, alignments of the network and of each layer, and what sums them up."""
    metrics = runs.metrics
    metrics = metrics[metrics["metric"].isin(["accuracy", "label_alignment"])]
    names = layers(metrics)

    def numbers(curve: Callable[..., pd.Series], split: str) -> dict[str, float]:
        return _numbers(curve, names)

    return FigureTable(pd.concat([metrics, summary(metrics, numbers)], ignore_index=True))


def _numbers(curve: Callable[..., pd.Series], names: list[str]) -> dict[str, float]:
    """Of one split: how far alignment rises, when it is highest, and in which layers.

    `label_alignment_late_gain` is the mean over the second half of the measured steps over step 0;
    `label_alignment_learning` the highest up to the highest test accuracy;
    `label_alignment_peak_step` the step of the highest over that of the highest test accuracy;
    `layer_alignment_highest` and `_second` the highest of the two most aligned layers between the
    first and the last; `last_layer_share` the last layer's highest over that of the most aligned.
    """
    alignment, accuracy = curve("label_alignment"), curve("accuracy", "test")
    highest = [curve("label_alignment", layer=name).max() for name in names]
    second, first = sorted(highest[1:-1])[-2:]
    best = accuracy.idxmax()
    return {
        "label_alignment_late_gain": alignment.iloc[len(alignment) // 2 :].mean()
        / alignment.iloc[0],
        "label_alignment_learning": alignment[alignment.index <= best].max(),
        # From step 1, so that a best accuracy before the first update does not divide by zero.
        "label_alignment_peak_step": (alignment.idxmax() + 1) / (best + 1),
        "layer_alignment_highest": first,
        "layer_alignment_second": second,
        "last_layer_share": highest[-1] / first,
    }


def draw(table: FigureTable) -> "Figure":
    """Four rows of curves, one column for each share."""
    names = layers(table.frame)
    figure, axes = new_figure(4, len(SHARES), width=3.0 * len(SHARES) + 0.6, height=8.2)
    for column, share in zip(axes.T, SHARES, strict=True):
        run = table.frame[table.frame["point"] == vgg19(share).name]
        accuracy, total, *by_layer = column
        accuracy.set_title(f"{100 * share:.0f} % random labels")
        draw_accuracy(accuracy, run)
        for ax, (split, line) in zip(by_layer, SPLITS.items(), strict=True):
            values = curves(run, metric="label_alignment", split=split)
            draw_curves(total, values, COLOURS[split], line, split)
            for name, colour in zip(names, sequence_colours(len(names)), strict=True):
                values = curves(run, metric="label_alignment", split=split, layer=name)
                ax.plot(values.index, values.mean(axis=1), line, color=colour, linewidth=1.0)
        column[-1].set_xlabel("iteration")
        for ax in column:
            iteration_axis(ax, run["step"].max())
            ax.set_ylim(bottom=0)
    for row in axes[1:]:  # one range in each row, so that columns can be compared
        top = max(ax.get_ylim()[1] for ax in row)
        for ax in row:
            ax.set_ylim(0, top)
    labels = ("accuracy", "CKA", "CKA of layers, train", "CKA of layers, test")
    for ax, label in zip(axes[:, 0], labels, strict=True):
        ax.set_ylabel(label)
    axes[0, 0].legend(loc="upper left")
    axes[1, 0].legend(loc="upper left")
    return figure
