"""beaglehole2024, Figure 1: EGOP, NFM, AGOP and a randomised AGOP on the chain-monomial task."""

from feature_alignment.papers.beaglehole2024.figures.matrices import show_row
from feature_alignment.papers.beaglehole2024.parameters import ChainMonomial
from feature_alignment.pipeline.figures.figure import Figure, Picture, one_point
from feature_alignment.pipeline.figures.style import describe, new_figure
from feature_alignment.pipeline.figures.table import FigureTable, Runs

PANELS = {
    "egop": ("EGOP", "nfm_egop"),
    "nfm": ("NFM  $F = W^\\top W$", None),
    "agop": ("AGOP  $G = W^\\top K W$", "nfc"),
    "random_conjugate_agop": ("$W^\\top Q W$", "nfc_random_conjugate"),
}
"""Titles, and the metric of the similarity with the NFM."""


def table(runs: Runs) -> FigureTable:
    """All metrics, and the four matrices of seed 0."""
    (run,) = runs.values()
    arrays = {name: run.array(name) for name in ("egop", "random_conjugate_agop")}
    arrays |= {name: run.array(f"{name}/step{run.parameters['steps']}") for name in ("nfm", "agop")}
    return FigureTable(run.metrics, arrays)


def draw(table: FigureTable) -> Picture:
    """Four heat maps in a row, as in the paper."""
    figure, axes = new_figure(1, 4, width=11.0, height=3.5)
    show_row(axes[0], [table.arrays[name] for name in PANELS])
    for ax, (title, metric) in zip(axes[0], PANELS.values(), strict=True):
        similarity = f"$\\rho(F, \\cdot)$ = {describe(table.values(metric))}" if metric else ""
        ax.set_title(f"{title}\n{similarity}")
    return figure


FIGURES = (
    Figure(
        name="fig1",
        title="The NFM and the AGOP find the task's low-rank structure",
        caption="First-layer feature matrices of a ReLU network with two hidden layers, trained by "
        "gradient descent on the chain-monomial task, each divided by its largest entry (seed 0). "
        "From left: the EGOP of the target; the NFM F = WᵀW; the AGOP G = WᵀKW; the same with K "
        "replaced by a matrix Q of equal spectrum and Haar-random eigenvectors (first draw). "
        "Titles give mean ± standard deviation over seeds of the cosine similarity with the NFM.",
        points=one_point(ChainMonomial),
        table=table,
        draw=draw,
    ),
)
