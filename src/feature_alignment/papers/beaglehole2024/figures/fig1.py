"""beaglehole2024, Figure 1: EGOP, NFM, AGOP and a randomised AGOP on the chain-monomial task."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import describe, new_figure, show_matrix
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "The NFM and the AGOP find the task's low-rank structure"
CAPTION = (
    "First-layer feature matrices of a ReLU network with two hidden layers, trained by gradient "
    "descent on the chain-monomial task, each divided by its largest entry (seed 0). From left: "
    "the EGOP of the target; the NFM F = WᵀW; the AGOP G = WᵀKW; the same with K replaced by a "
    "matrix Q of equal spectrum and Haar-random eigenvectors (first draw). Titles give mean ± "
    "standard deviation over seeds of the cosine similarity with the NFM."
)
EXPERIMENT = "beaglehole2024_chain_monomial"
POINT = "default"


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point: the paper's setting."""
    return [Point(EXPERIMENT, POINT)]


def table(runs: Runs) -> FigureTable:
    """All metrics, and the four matrices of seed 0."""
    run = runs[POINT]
    last = f"step{run.metrics['step'].max()}"
    names = {name: name for name in ("egop", "random_conjugate_agop")}
    names |= {name: f"{name}/{last}" for name in ("nfm", "agop")}
    matrices = {name: run.arrays[f"seed0/{stored}"] for name, stored in names.items()}
    return FigureTable(run.metrics, matrices)


def draw(table: FigureTable) -> "Figure":
    """Four heat maps in a row, as in the paper."""
    panels = [
        ("egop", "EGOP", "nfm_egop"),
        ("nfm", "NFM  $F = W^\\top W$", None),
        ("agop", "AGOP  $G = W^\\top K W$", "nfc"),
        ("random_conjugate_agop", "$W^\\top Q W$", "nfc_random_conjugate"),
    ]
    figure, axes = new_figure(1, 4, width=11.0, height=3.5)
    for ax, (name, title, metric) in zip(axes[0], panels, strict=True):
        matrix = table.arrays[name]
        label = "entry / largest entry" if ax is axes[0, -1] else None
        show_matrix(ax, matrix / matrix.max(), 1.0, label, diverging=True)
        ax.set_title(title + (_similarity(table, metric) if metric else "\n"))
    return figure


def _similarity(table: FigureTable, metric: str) -> str:
    return f"\n$\\rho(F, \\cdot)$ = {describe(table.values(metric))}"
