"""baratin2021, Figure 3: alignment of tangent features with the labels during training."""

import numpy as np
import pandas as pd

from feature_alignment.papers.baratin2021.figures import training_curves as curves
from feature_alignment.pipeline.figures import style
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_curve, draw_paper
from feature_alignment.pipeline.figures.figure import Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

SHARES = (0, 0.2, 0.5)


def points(settings: Settings) -> list[Point]:
    """The points of Figure 2."""
    return [curves.vgg19(settings, share) for share in SHARES]


def table(runs: Runs) -> FigureTable:
    """Accuracies, alignments of the network and of each layer, and their summaries."""
    metrics = rows_where(runs.metrics, metric=("accuracy", "label_alignment"))
    names = curves.layers_of(metrics)
    return curves.with_summary(metrics, lambda curve: _numbers(curve, names))


def _numbers(curve: curves.Curve, names: list[str]) -> dict[str, float]:
    """For one split: how far alignment rises, when and in which layers it peaks (metrics.yaml)."""
    alignment, accuracy = curve("label_alignment"), curve("accuracy", split="test")
    by_layer = [curve("label_alignment", layer=name) for name in names]
    highest = [values.max() for values in by_layer]
    second, first = sorted(highest[1:-1])[-2:]
    best = curves.peak(accuracy)
    steps = pd.Series(np.arange(float(len(alignment))))
    late = alignment.iloc[len(alignment) // 2 :].mean()
    return {
        "label_alignment_trend": alignment.reset_index(drop=True).rank().corr(steps),
        "label_alignment_late_gain": late / alignment.iloc[0],
        "label_alignment_learning": alignment[alignment.index < best].max(),
        "label_alignment_peak_step": curves.peak(alignment) / best,
        "layer_alignment_highest": first,
        "layer_alignment_second": second,
        "last_layer_share": highest[-1] / float(np.median(highest)),
        "layers_peak_share": curves.layers_peak_share(curve, names),
    }


def draw(table: FigureTable) -> Picture:
    """Four rows of curves, one column for each share."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    names = curves.layers_of(table.frame)
    figure, axes = style.new_figure(4, len(SHARES), width=3.0 * len(SHARES) + 0.6, height=8.2)
    for row in (axes[1], axes[2:].flat):  # one range each, so that panels can be compared
        for ax in row[1:]:
            ax.sharey(row[0])
    for column, share in zip(axes.T, SHARES, strict=True):
        run = table.rows(random_label_share=share)
        for ax in column:
            style.broken_axis(ax, run["step"])
        accuracy, total, *by_layer = column
        accuracy.set_title(f"CIFAR-10\n{100 * share:.0f} % random labels")
        curves.draw_accuracy(accuracy, run)
        for ax, (split, line) in zip(by_layer, curves.SPLITS.items(), strict=True):
            rows = rows_where(run, metric="label_alignment", split=split)
            draw_curve(total, rows_where(rows, layer="all"), split, split)
            for name, colour in style.sequence_colours(names).items():
                means = rows_where(rows, layer=name).groupby("step")["value"].mean()
                mean = means.reset_index().assign(seed=0)
                draw_curve(ax, mean, colour, linestyle=line, linewidth=1.0)
        column[-1].set_xlabel("iteration")
    labels = "accuracy", "CKA", "CKA of layers, train", "CKA of layers, test"
    for ax, label in zip(axes[:, 0], labels, strict=True):
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
    axes[0, 0].legend(loc="upper left")
    draw_paper(axes[2, 0], table.of_claim("fig3.layers_above_half"))
    layer = ScalarMappable(Normalize(1, len(names)), style.sequence_map())
    figure.colorbar(layer, ax=list(axes[2:, -1]), label="layer, from input to output")
    style.panel_letters(*axes[:, 0])
    return figure


FIGURE = Figure(
    name="fig3",
    title="Tangent features align with the labels during training",
    caption="Training of VGG19 on CIFAR-10 with 0, 20 and 50 % random labels (columns). Rows: "
    "accuracy; centred kernel alignment (CKA) of the tangent kernel with the labels; the same for "
    "each layer's kernel, on training and on test images, from the input layer (dark) to the "
    "output layer (light), means over seeds; dotted: what the paper's two best reach, with an "
    "arrow where that is beyond the axis. Solid: a batch of training images with the labels they "
    "are trained on, dashed: of test images with their true labels. The axis begins at iteration "
    "0, before the first update. Accuracy and CKA of the network: "
    f"{OVER_SEEDS[0].lower()}{OVER_SEEDS[1:]}",
    points=points,
    table=table,
    draw=draw,
)
