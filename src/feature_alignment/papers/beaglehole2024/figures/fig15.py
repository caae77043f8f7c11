"""beaglehole2024, Figure 15: losses and weight changes of VGG-11 and of a transformer."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feature_alignment.papers.beaglehole2024.figures.networks import (
    ATTENTION,
    draw_losses,
    draw_weight_changes,
    gpt_points,
    layers_of,
    rows_of,
    trajectories,
    vgg_points,
)
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import new_figure, panel_label
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Weights of VGG-11 and of a transformer leave their initialisation"
CAPTION = (
    "(A) VGG-11 without batch norm on CIFAR-10, with the settings of the released code (its first "
    "epoch is at learning rate 1e-4) and of the text: mean squared error, and ‖W − W₀‖ / ‖W‖ of "
    "convolutions and of the hidden linear layers. (B) Transformer on Shakespeare characters: "
    "cross-entropy per character in nats, and ‖W − W₀‖ / ‖W‖ of its query, key and value layers. "
    "Every panel has a vertical range of its own. Lines are means over seeds, bands, where there "
    "are several seeds, one standard deviation either way."
)


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """VGG-11 in both settings, and the transformer."""
    return [*vgg_points(), *gpt_points()]


def table(runs: Runs) -> FigureTable:
    """What `trajectories` gathers."""
    return trajectories(runs)


def draw(table: FigureTable) -> "Figure":
    """VGG-11 in two rows, the transformer in a third."""
    frame = table.frame
    figure, axes = new_figure(3, 4, width=11.0, height=6.6)
    convolutions, linear = layers_of(frame, "features."), layers_of(frame, "head.")
    half = len(convolutions) // 2
    groups = {
        f"convolutions 1-{half}": _numbered(convolutions[:half], 1),
        f"convolutions {half + 1}-{2 * half}": _numbered(convolutions[half:], half + 1),
        "hidden linear layers": _numbered(linear, 1),
    }
    for row, settings in zip(axes, ("released", "text"), strict=False):
        rows = rows_of(frame, network="vgg", settings=settings)
        draw_losses(row[0], rows)
        row[0].set_title(f"VGG-11, {settings} settings")
        for ax, (title, layers) in zip(row[1:], groups.items(), strict=True):
            draw_weight_changes(ax, rows, layers)
            ax.set_title(title)
            ax.legend()
        for ax in row:
            ax.set_xlabel("epoch")
    rows = rows_of(frame, network="gpt")
    draw_losses(axes[2, 0], rows)
    axes[2, 0].set(title="transformer", ylabel="loss (nats per character)")
    for ax, name in zip(axes[2, 1:], ATTENTION, strict=True):
        layers = [layer for layer in layers_of(rows, "blocks.") if layer.endswith(name)]
        draw_weight_changes(ax, rows, _numbered(layers, 1))
        ax.set_title(f"{name} layers")
    axes[2, 1].legend(title="block")
    axes[0, 0].legend()
    for ax in axes[2]:
        ax.set_xlabel("step")
    panel_label(axes[0, 0], "A")
    panel_label(axes[2, 0], "B")
    return figure


def _numbered(layers: list[str], first: int) -> dict[str, str]:
    return {layer: str(number) for number, layer in enumerate(layers, start=first)}
