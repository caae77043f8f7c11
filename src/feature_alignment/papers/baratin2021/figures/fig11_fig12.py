"""baratin2021, Figures 11 and 12: alignment with the labels by architecture, centred and not."""

from functools import partial

from feature_alignment.papers.baratin2021.figures import training_curves as curves
from feature_alignment.papers.baratin2021.parameters import Classification
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_curve
from feature_alignment.pipeline.figures.figure import Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import broken_axis, new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

TITLES = {"mlp": "MLP, MNIST", "vgg19-random0": "VGG19, CIFAR-10", "resnet18": "ResNet18, CIFAR-10"}


Looks = dict[str, tuple[str, str | None]]
"""The alignments of a figure, each with its colour and its name in the legend."""


def points(settings: Settings) -> list[Point]:
    """One point for each architecture, without random labels; VGG19's is that of Figure 2.

    The MLP has its own steps and seeds, and Figure 4's learning rate.
    """
    own = settings[Classification].mlp.plain()
    mlp = curves.classifier(settings, model="mlp", dataset="mnist", learning_rate=0.02, **own)
    resnet = curves.classifier(settings, model="resnet18")
    return [Point("mlp", mlp), curves.vgg19(settings, 0), Point("resnet18", resnet)]


def table(runs: Runs, looks: Looks) -> FigureTable:
    """Accuracies and alignments of the whole network, and the alignments' gains (metrics.yaml)."""

    def numbers(curve: curves.Curve) -> dict[str, float]:
        found = {}
        for metric in looks:
            values = curve(metric)
            late = values[values.index >= curves.AXIS_BEGIN]
            found[f"{metric}_gain"] = values.iloc[-1] / values.iloc[0]
            found[f"{metric}_gain_from_10"] = late.iloc[-1] / late.iloc[0]
        return found

    rows = rows_where(runs.metrics, layer="all", metric=("accuracy", *looks))
    return curves.with_summary(rows, numbers)


def draw(table: FigureTable, looks: Looks, label: str) -> Picture:
    """The alignments on test images, one panel for each architecture."""
    figure, axes = new_figure(1, len(TITLES), width=3.0 * len(TITLES) + 0.6, height=2.8)
    for ax, (point, title) in zip(axes[0], TITLES.items(), strict=True):
        curves_of = table.rows(point=point, metric=tuple(looks), split="test")
        broken_axis(ax, curves_of["step"])
        for metric, (colour, reading) in looks.items():
            draw_curve(ax, rows_where(curves_of, metric=metric), colour, reading)
        ax.set(title=title, xlabel="iteration")
        ax.set_ylim(bottom=0)
    axes[0, 0].set_ylabel(label)
    if len(looks) > 1:
        axes[0, 0].legend()
    panel_letters(*axes[0])
    return figure


def _figure(name: str, title: str, caption: str, looks: Looks, label: str) -> Figure:
    drawn = partial(draw, looks=looks, label=label)
    return Figure(name, title, caption, points, partial(table, looks=looks), drawn)


FIGURES = (
    _figure(
        "fig11",
        "The tangent kernel aligns with the labels in every architecture",
        "Centred kernel alignment of the tangent kernel with the labels, on test images, during "
        "the training of an MLP on MNIST and of VGG19 and ResNet18 on CIFAR-10. The axis begins "
        f"at iteration 0, before the first update. {OVER_SEEDS}",
        {"label_alignment": ("test", None)},
        "CKA, test",
    ),
    _figure(
        "fig12",
        "Alignment with the labels, without centring",
        "As Figure 11, for the kernel of features that are not centred: alignment of the tangent "
        "kernel with the labels, on test images, during the training of an MLP on MNIST and of "
        "VGG19 and ResNet18 on CIFAR-10. The labels are either not centred, as the caption's YYᵀ, "
        "or centred for each class, as in Figure 11.",
        {
            "label_alignment_uncentred": ("uncentred", "labels uncentred"),
            "label_alignment_uncentred_kernel": ("centred", "labels centred"),
        },
        "uncentred alignment, test",
    ),
)
