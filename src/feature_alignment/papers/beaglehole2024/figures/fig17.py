"""beaglehole2024, Figure 17: feature correlations under gradient descent and SLO on SVHN."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feature_alignment.papers.beaglehole2024.figures.curves import draw_curve
from feature_alignment.papers.beaglehole2024.figures.slo import OPTIMIZERS
from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, panel_label, show_matrix
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Speed Limited Optimization on house numbers"
CAPTION = (
    "ReLU network with four hidden layers on SVHN, trained from PyTorch's default initialisation "
    "by gradient descent and by SLO. Top: UC-NFC, C-NFC and C/UC ratio "
    "tr(W̄ᵀW̄W̄ᵀKW̄) / tr(WᵀWWᵀKW) of the first layer, and the training loss; lines are means over "
    "seeds, bands one standard deviation either way (of the logarithm for the loss). Bottom: "
    "diagonals of the first layer's NFM and AGOP after training, as images (seed 0, mean over "
    "channels), each divided by its largest entry."
)
EXPERIMENT = "beaglehole2024_svhn_slo"
RATES = {"gd": 0.2, "slo": 0.3}
COLOUR = {"gd": "gradient descent", "slo": "speed limited"}
CURVES = {
    "nfc": "UC-NFC",
    "centred_nfc": "C-NFC",
    "centred_uncentred_ratio": "C/UC ratio",
    "loss": "training loss",
}
FURTHER = (
    "accuracy",
    "nfc_mean_subtracted",
    "centred_nfc_mean_subtracted",
    "weight_change",
    "nfm_diagonal_contrast",
    "agop_diagonal_contrast",
    "diagonal_correlation",
)
FIRST_LAYER = "layers.0"


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point for each optimizer."""
    return [
        Point(EXPERIMENT, name, {"optimizer": name, "learning_rate": rate})
        for name, rate in RATES.items()
    ]


def table(runs: Runs) -> FigureTable:
    """Measures of the first layer, losses and accuracies, and the diagonals of seed 0."""
    frame = runs.metrics
    wanted = frame["metric"].isin([*CURVES, *FURTHER])
    rows = frame[wanted & frame["layer"].isin([FIRST_LAYER, "all"])].reset_index(drop=True)
    arrays = {
        f"{optimizer}/{name}": runs[optimizer].arrays[f"seed0/{name}_diagonal"]
        for optimizer in OPTIMIZERS
        for name in ("nfm", "agop")
    }
    return FigureTable(rows, arrays)


def draw(table: FigureTable) -> "Figure":
    """Curves above, diagonals below."""
    figure, axes = new_figure(2, 4, width=11.0, height=5.6)
    frame = table.frame
    for ax, (metric, name) in zip(axes[0], CURVES.items(), strict=True):
        if metric == "loss":
            ax.set_yscale("log")
        else:
            ax.set_ylim(0, 1.02)
        rows = frame[(frame["metric"] == metric) & (frame["split"] == "train")]
        for optimizer, label in OPTIMIZERS.items():
            colour = COLOURS[COLOUR[optimizer]]
            draw_curve(ax, rows[rows["point"] == optimizer], colour, label)
        ax.set(title=name, ylabel=name, xlabel="epoch")
    axes[0, 0].legend()
    panel_label(axes[0, 0], "a")
    panels = [(optimizer, name) for optimizer in OPTIMIZERS for name in ("nfm", "agop")]
    for ax, (optimizer, name) in zip(axes[1], panels, strict=True):
        image = table.arrays[f"{optimizer}/{name}"].mean(axis=-1)  # (height, width)
        label = "entry / largest entry" if ax is axes[1, -1] else None
        show_matrix(ax, image / image.max(), 1.0, label)
        ax.set_title(f"diagonal of the {name.upper()},\n{OPTIMIZERS[optimizer]}")
    panel_label(axes[1, 0], "b")
    panel_label(axes[1, 2], "c")
    return figure
