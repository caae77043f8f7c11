"""beaglehole2024, Figure 1: EGOP, NFM, AGOP and a randomised AGOP on the chain-monomial task."""

from feature_alignment.papers.beaglehole2024.parameters import ChainMonomial
from feature_alignment.pipeline.figures import style
from feature_alignment.pipeline.figures.figure import Figure, Picture, one_point
from feature_alignment.pipeline.figures.table import FigureTable, Runs

PANELS = {  # titles, the metric of the similarity with the NFM, and the paper's claim about it
    "egop": ("EGOP", "nfm_egop", None),
    "nfm": ("NFM  $F = W^\\top W$", None, None),
    "agop": ("AGOP  $G = W^\\top K W$", "nfc", "fig1.nfc"),
    "random_conjugate_agop": ("$W^\\top Q W$", "nfc_random_conjugate", "fig1.nfc_random_conjugate"),
}


def table(runs: Runs) -> FigureTable:
    """All metrics, and the four matrices of seed 0."""
    (run,) = runs.values()
    arrays = {name: run.array(name) for name in ("egop", "random_conjugate_agop")}
    arrays |= {name: run.array(f"{name}/step{run.parameters['steps']}") for name in ("nfm", "agop")}
    return FigureTable(run.metrics, arrays)


def draw(table: FigureTable) -> Picture:
    """Four heat maps in a row, as in the paper."""
    figure, axes = style.new_figure(1, 4, width=11.0, height=3.5)
    style.show_matrices(axes[0], [table.arrays[name] for name in PANELS])
    style.panel_letters(*axes[0])
    for ax, (title, metric, claim) in zip(axes[0], PANELS.values(), strict=True):
        text = ""
        if metric:  # in D over all draws of Q; the paper's is of one
            text = f"$\\rho(F, \\cdot)$ = {style.describe(table.values(metric))}"
        ax.set_title(f"{title}\n{text}{table.paper(claim) if claim else ''}")
    return figure


FIGURE = Figure(
    name="fig1",
    title="The NFM and the AGOP find the task's low-rank structure",
    caption="First-layer feature matrices of a ReLU network with two hidden layers, trained "
    "by gradient descent on the chain-monomial task, each divided by its largest entry (seed "
    "0). A: the EGOP of the target; B: the NFM F = WᵀW; C: the AGOP G = WᵀKW; D: the same "
    "with K replaced by a matrix Q of equal spectrum and Haar-random eigenvectors (first "
    "draw). Titles give mean ± standard deviation over seeds of the cosine similarity with "
    "the NFM, in D over seeds and draws of Q.",
    points=one_point(ChainMonomial),
    table=table,
    draw=draw,
)
