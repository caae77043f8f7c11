"""lejeune2024, Figure 1: adapted kernel and label kernel for an easy and a difficult target."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import describe, new_figure, show_matrix
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "A more difficult task yields higher label-kernel alignment"
CAPTION = (
    "Kernels on digit images in order of the target y, for seed 0: the initial kernel K₀, the "
    "adapted kernel K and the label kernel of a network trained on the linear targets y (top) and "
    "on the binarised targets sign y (bottom). Colour ranges are the paper's: 4, 10 and 2. The "
    "cosine similarity is that of K with the label kernel, mean ± standard deviation over seeds."
)
EXPERIMENT = "lejeune2024_digit_regression"
TARGETS = ("linear", "binarised")


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each kind of target."""
    return [Point(EXPERIMENT, targets, {"targets": targets}) for targets in TARGETS]


def table(runs: Runs) -> FigureTable:
    """All metrics, the paired difference of similarities, and the kernels of seed 0."""
    metrics = runs.metrics
    similarity = metrics[metrics["metric"] == "label_similarity"]
    by_seed = similarity.pivot(index="seed", columns="point", values="value")
    difference = pd.DataFrame(
        {
            "point": "comparison",
            "seed": by_seed.index,
            "step": similarity["step"].iloc[0],
            "layer": "all",
            "split": "train",
            "metric": "similarity_binarised_minus_linear",
            "value": (by_seed["binarised"] - by_seed["linear"]).to_numpy(),
        }
    )
    arrays = {
        f"{targets}/{name}": runs[targets].arrays[f"seed0/kernel/{name}"]
        for targets in TARGETS
        for name in ("initial", "adapted", "label")
    }
    return FigureTable(pd.concat([metrics, difference], ignore_index=True), arrays)


def draw(table: FigureTable) -> "Figure":
    """Heat maps of initial, adapted and label kernel (columns) for each target (rows)."""
    figure, axes = new_figure(2, 3, width=9.5, height=6.0)
    for row, targets in zip(axes, TARGETS, strict=True):
        initial, adapted, label = row
        kernels = {
            name: table.arrays[f"{targets}/{name}"] for name in ("initial", "adapted", "label")
        }
        show_matrix(initial, kernels["initial"], 4.0, "$K_0$")
        show_matrix(adapted, kernels["adapted"], 10.0, "$K$")
        show_matrix(label, kernels["label"], 2.0, "$K_{\\hat{y}}$", diverging=True)
        similarity = table.values("label_similarity", point=targets)
        initial.set_title("initial kernel")
        initial.set_ylabel(f"{targets} targets")
        adapted.set_title(f"adapted kernel\nsimilarity {describe(similarity)}")
        label.set_title("label kernel")
    return figure
