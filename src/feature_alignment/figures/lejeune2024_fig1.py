"""lejeune2024, Figure 1: adapted kernel and label kernel for an easy and a difficult target."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from feature_alignment.figures.make import FigureTable, Runs
from feature_alignment.figures.style import new_figure, show_matrix
from feature_alignment.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "A more difficult task yields higher label-kernel alignment"
CAPTION = (
    "Kernels on digit images in order of the target y, for seed 0. Left: the initial kernel K₀. "
    "Middle: the adapted kernel K and the label kernel of a network trained on the linear targets "
    "y. Right: the same for the binarised targets sign y. Colour ranges are the paper's: 4, 10 "
    "and 2. Titles give the cosine similarity of K with the label kernel, mean ± standard "
    "deviation over seeds."
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
    """Five heat maps: the initial kernel, then adapted and label kernel for each target."""
    figure, axes = new_figure(1, 5, width=13.0, height=2.9)
    initial, *rest = axes[0]
    show_matrix(initial, table.arrays["linear/initial"], 4.0, "$K_0$")
    initial.set_title("initial kernel")
    for index, targets in enumerate(TARGETS):
        adapted, label = rest[2 * index : 2 * index + 2]
        similarity = table.values("label_similarity", point=targets)
        show_matrix(adapted, table.arrays[f"{targets}/adapted"], 10.0, "$K$")
        adapted.set_title(
            f"{targets} targets: adapted kernel\n"
            f"similarity {similarity.mean():.2f} ± {similarity.std(ddof=1):.2f}"
        )
        show_matrix(label, table.arrays[f"{targets}/label"], 2.0, "$K_{\\hat{y}}$", diverging=True)
        label.set_title(f"{targets} targets: label kernel")
    return figure
