"""lejeune2024, around Figure 1: random labels, settings, layers, and the decomposition of K."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.papers.lejeune2024.figures.fig1 import EXPERIMENT, TARGETS
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import (
    COLOURS,
    new_figure,
    panel_label,
    sequence_colours,
)
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Around Figure 1: random labels, settings and layers"
CAPTION = (
    "A: similarity of the adapted kernel with the label kernel when the signs of some binarised "
    "targets are flipped at random; training on the kernel's images only. B: the same similarity "
    "under the settings found to reproduce Figure 1, with fewer training images, and also without "
    "biases, as the text has it; lines are the paper's numbers. C: what each layer brings "
    "to the change of the kernel along the label kernel. D: relative Frobenius residual of the "
    "best fit K ≈ aK₀ + bK_ŷ, for the settings of B. Dots are seeds, bars their mean."
)
FLIPS = (0.0, 0.05, 0.1, 0.2)
SETTINGS = {"": "as Figure 1", "few-": "fewer images", "text-": "fewer images,\nno biases"}
PAPER = {"linear": 0.17, "binarised": 0.40}


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """The points of Figure 1, and each of the other settings."""
    few = {"train_samples": experiments[EXPERIMENT]["kernel_samples"]}
    changes: dict[str, dict[str, Any]] = {"": {}, "few-": few, "text-": {**few, "bias": False}}
    found = [
        Point(EXPERIMENT, f"{prefix}{targets}", {"targets": targets, **changes[prefix]})
        for prefix in SETTINGS
        for targets in TARGETS
    ]
    flips = [
        Point(EXPERIMENT, _flip_point(f), {"targets": "binarised", "label_flips": f, **few})
        for f in FLIPS[1:]
    ]
    return found + flips


def _flip_point(share: float) -> str:
    return "few-binarised" if share == 0 else f"flips-{share}"


def table(runs: Runs) -> FigureTable:
    """All metrics, and how the similarity changes with the largest share of flipped labels."""
    metrics = runs.metrics
    metrics["flips"] = metrics["point"].map({_flip_point(share): share for share in FLIPS})
    similarity = metrics[metrics["metric"] == "label_similarity"]
    by_seed = similarity.pivot(index="seed", columns="point", values="value")
    change = by_seed[_flip_point(FLIPS[-1])] - by_seed[_flip_point(0.0)]
    rows = pd.DataFrame(
        {
            "point": "comparison",
            "seed": by_seed.index,
            "step": similarity["step"].iloc[-1],
            "layer": "all",
            "split": "train",
            "metric": "similarity_flipped_minus_unflipped",
            "value": change.to_numpy(),
        }
    )
    return FigureTable(pd.concat([metrics, rows], ignore_index=True))


def draw(table: FigureTable) -> "Figure":
    """Four panels."""
    figure, axes = new_figure(2, 2, width=8.0, height=5.6)
    _draw_flips(axes[0, 0], table)
    _draw_settings(axes[0, 1], table, "label_similarity", "similarity with the label kernel")
    for targets, value in PAPER.items():
        axes[0, 1].axhline(value, linestyle=":", color=COLOURS[targets])
    _draw_layers(axes[1, 0], table)
    _draw_settings(axes[1, 1], table, "mixture_residual", "residual of $aK_0 + bK_{\\hat{y}}$")
    axes[0, 1].legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes[1, 0].legend()
    for ax, letter in zip(axes.flat, "ABCD", strict=True):
        panel_label(ax, letter)
    return figure


def _draw_flips(ax: "Axes", table: FigureTable) -> None:
    for share in FLIPS:
        values = table.values("label_similarity", point=_flip_point(share))
        ax.plot([share] * len(values), values, ".", color=COLOURS["binarised"], alpha=0.6)
    means = [table.values("label_similarity", point=_flip_point(share)).mean() for share in FLIPS]
    ax.plot(FLIPS, means, color=COLOURS["binarised"])
    ax.set(xlabel="share of flipped labels", ylabel="similarity with the label kernel")
    ax.set_xticks(FLIPS)
    ax.set_ylim(bottom=0)


def _draw_settings(ax: "Axes", table: FigureTable, metric: str, label: str) -> None:
    for offset, targets in ((-0.2, "linear"), (0.2, "binarised")):
        for place, prefix in enumerate(SETTINGS):
            values = table.values(metric, point=f"{prefix}{targets}")
            name = f"{targets} targets" if place == 0 else None
            _bar(ax, place + offset, values, COLOURS[targets], name)
    ax.set_xticks(range(len(SETTINGS)), SETTINGS.values())
    ax.set_ylabel(label)


def _draw_layers(ax: "Axes", table: FigureTable) -> None:
    rows = table.frame[table.frame["metric"] == "label_change_share"]
    layers = sorted(rows.loc[rows["point"] == "linear", "layer"].unique())
    for place, targets in enumerate(TARGETS):
        for number, (layer, colour) in enumerate(
            zip(layers, sequence_colours(len(layers)), strict=True)
        ):
            values = table.values("label_change_share", point=targets, layer=layer)
            name = f"layer {number + 1}" if place == 0 else None
            _bar(ax, place + 0.27 * (number - 1), values, colour, name, width=0.25)
    ax.set_xticks(range(len(TARGETS)), [f"{targets} targets" for targets in TARGETS])
    ax.set_ylabel("share of the change along $K_{\\hat{y}}$")


def _bar(
    ax: "Axes", at: float, values: pd.Series, colour: str, label: str | None, width: float = 0.36
) -> None:
    ax.bar(at, values.mean(), width, color=colour, alpha=0.75, label=label)
    ax.plot([at] * len(values), values, ".", color=COLOURS["paper"], markersize=3)
