"""beaglehole2024, Figure 17: feature correlations under gradient descent and SLO on SVHN."""

from feature_alignment.papers.beaglehole2024.figures import fig4_11
from feature_alignment.papers.beaglehole2024.parameters import SVHNSLO
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_curve, draw_paper
from feature_alignment.pipeline.figures.figure import Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import new_figure, panel_letters, show_matrices
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

RATES = {"gd": 0.2, "slo": 0.3}
THINGS = {"gd": "gradient descent", "slo": "speed limited"}
FURTHER = (
    "accuracy",
    "nfc_mean_subtracted",
    "centred_nfc_mean_subtracted",
    "weight_change",
    "nfm_diagonal_contrast",
    "agop_diagonal_contrast",
    "diagonal_correlation",
)


def points(settings: Settings) -> list[Point]:
    """One point for each optimizer."""
    own = settings[SVHNSLO]
    return [
        Point(name, own.but(optimizer=name, learning_rate=rate)) for name, rate in RATES.items()
    ]


def table(runs: Runs) -> FigureTable:
    """Measures of the first layer, losses and accuracies, and the diagonals of seed 0."""
    rows = rows_where(runs.metrics, metric=[*fig4_11.CURVES, *FURTHER], layer=["layers.0", "all"])
    arrays = {
        f"{optimizer}/{name}": runs[optimizer].array(f"{name}_diagonal")
        for optimizer, name in fig4_11.PANELS
    }
    return FigureTable(rows, arrays)


def draw(table: FigureTable) -> Picture:
    """Curves above, diagonals below."""
    figure, axes = new_figure(2, 4, width=11.0, height=5.6)
    for ax, (metric, name) in zip(axes[0], fig4_11.CURVES.items(), strict=True):
        fig4_11.set_vertical_axis(ax, metric)
        for optimizer, label in fig4_11.OPTIMIZERS.items():
            rows = table.rows(point=optimizer, metric=metric, split="train")
            draw_curve(ax, rows, THINGS[optimizer], label)
        ax.set(title=f"SVHN, {name}", ylabel=name, xlabel="epoch")
    draw_paper(axes[0, 2], table.of_claim("fig17.slo_ratio_near_one"))
    axes[0, 0].legend()
    # Mean over channels: (height, width).
    images = [
        table.arrays[f"{optimizer}/{name}"].mean(axis=-1) for optimizer, name in fig4_11.PANELS
    ]
    show_matrices(axes[1], images, diverging=False)
    for ax, (optimizer, name) in zip(axes[1], fig4_11.PANELS, strict=True):
        ax.set_title(f"diagonal of the {name.upper()},\n{fig4_11.OPTIMIZERS[optimizer]}")
    panel_letters(axes[0, 0], axes[1, 0], axes[1, 2])
    return figure


FIGURE = Figure(
    name="fig17",
    title="Speed Limited Optimization on house numbers",
    caption="ReLU network with four hidden layers on SVHN, trained from PyTorch's default "
    "initialisation by gradient descent and by SLO. A: UC-NFC, C-NFC and C/UC ratio "
    "tr(W̄ᵀW̄W̄ᵀKW̄) / tr(WᵀWWᵀKW) of the first layer, and the training loss; the dotted line is a "
    f"bound on SLO's last epoch. {OVER_SEEDS} B, C: diagonals of the first layer's NFM and AGOP "
    "after training, as images (seed 0, mean over channels), each divided by its largest entry.",
    points=points,
    table=table,
    draw=draw,
)
