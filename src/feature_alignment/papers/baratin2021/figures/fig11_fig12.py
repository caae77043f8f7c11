"""baratin2021, Figures 11 and 12: alignment with the labels by architecture, centred and not."""

from functools import partial

from feature_alignment.papers.baratin2021.figures import training_curves as curves
from feature_alignment.papers.baratin2021.parameters import Classification
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_curve
from feature_alignment.pipeline.figures.figure import Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import broken_axis, new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

TITLES = {"mlp": "MLP, MNIST", "vgg19-random0": "VGG19, CIFAR-10", "resnet18": "ResNet18, CIFAR-10"}


def points(settings: Settings) -> list[Point]:
    """One point for each architecture, without random labels; VGG19's is that of Figure 2.

    The MLP has its own steps and seeds, and Figure 4's learning rate.
    """
    own = settings[Classification].mlp.plain()
    mlp = curves.classifier(settings, model="mlp", dataset="mnist", learning_rate=0.02, **own)
    resnet = curves.classifier(settings, model="resnet18")
    return [Point("mlp", mlp), curves.vgg19(settings, 0), Point("resnet18", resnet)]


def table(runs: Runs, metric: str) -> FigureTable:
    """Accuracies and alignments of the whole network, and the alignments' gains (metrics.yaml)."""

    def numbers(curve: curves.Curve) -> dict[str, float]:
        values = curve(metric)
        first, last = values.iloc[0], values.iloc[-1]
        late = values[values.index >= curves.AXIS_BEGIN].iloc[0]
        return {f"{metric}_gain": last / first, f"{metric}_gain_from_10": last / late}

    rows = rows_where(runs.metrics, layer="all", metric=("accuracy", metric))
    return curves.with_summary(rows, numbers)


def draw(table: FigureTable, metric: str, label: str) -> Picture:
    """The alignment on test images, one panel for each architecture."""
    figure, axes = new_figure(1, len(TITLES), width=3.0 * len(TITLES) + 0.6, height=2.8)
    for ax, (point, title) in zip(axes[0], TITLES.items(), strict=True):
        rows = table.rows(point=point, metric=metric, split="test")
        broken_axis(ax, rows["step"])
        draw_curve(ax, rows, "test")
        ax.set(title=title, xlabel="iteration")
        ax.set_ylim(bottom=0)
    axes[0, 0].set_ylabel(label)
    panel_letters(*axes[0])
    return figure


def _figure(name: str, title: str, caption: str, metric: str, label: str) -> Figure:
    drawn = partial(draw, metric=metric, label=label)
    return Figure(name, title, caption, points, partial(table, metric=metric), drawn)


FIGURES = (
    _figure(
        "fig11",
        "The tangent kernel aligns with the labels in every architecture",
        "Centred kernel alignment of the tangent kernel with the labels, on test images, during "
        "the training of an MLP on MNIST and of VGG19 and ResNet18 on CIFAR-10. The axis begins "
        f"at iteration 0, before the first update. {OVER_SEEDS}",
        "label_alignment",
        "CKA, test",
    ),
    _figure(
        "fig12",
        "Alignment with the labels, without centring",
        "As Figure 11, for the kernel of features that are not centred: alignment of the tangent "
        "kernel with the labels, on test images, during the training of an MLP on MNIST and of "
        "VGG19 and ResNet18 on CIFAR-10.",
        "label_alignment_uncentred",
        "uncentred alignment, test",
    ),
)
