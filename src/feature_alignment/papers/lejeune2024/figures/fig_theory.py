"""lejeune2024, theory: the theorems against a generic optimiser, and their misprints."""

from feature_alignment.papers.lejeune2024.parameters import Theory
from feature_alignment.pipeline.figures.drawing import ZERO, draw_deviations
from feature_alignment.pipeline.figures.figure import Figure, Picture, one_point
from feature_alignment.pipeline.figures.style import COLOURS, new_figure
from feature_alignment.pipeline.figures.table import FigureTable, all_metrics

STATEMENTS = {
    "path_average": "Sec. 2.1: average features give the change",
    "theorem1_objective": "Thm. 1: objective",
    "theorem1_transformation": "Thm. 1: $\\widehat{M}\\,\\widehat{M}^\\top$",
    "theorem1_kernel": "Thm. 1: adapted kernel",
    "theorem1_predictions": "Sec. 3.1: predictions are ridgeless",
    "theorem1_length": "Sec. 3.1, A.3.1: $s\\|\\hat\\theta - \\theta_0\\| = \\|\\hat\\beta\\|$",
    "scale_increasing": "Sec. 3.1: $s$ never falls as $\\|\\hat\\beta\\|$ grows",
    "scale_increasing_strictly": "Sec. 3.1: $s$ rises with $\\|\\hat\\beta\\|$",
    "footnote2": "footnote 2: two targets, one $\\|\\hat\\beta\\|$",
    "footnote2_multiples": "footnote 2: a target and its triple",
    "theorem2_objective_square": "Thm. 2: objective, $\\omega_1$",
    "theorem2_objective_logarithmic": "Thm. 2: objective, $s^2-1-2\\log s$",
    "theorem2_kernel": "Thm. 2: adapted kernel",
    "lemma5": "Lemma 5: objective",
    "flow_conservation": "factorised flow: $M^\\top M - WW^\\top = I$, both sides",
    "flow_kernel": "factorised flow: kernel of Thm. 2's form",
    "proposition3_increasing": "Prop. 3: increasing",
    "proposition3_quadratic": "Prop. 3: $v^2 + o(v^2)$ at $v = 10^{-4}$",
    "proposition3_concave": "Prop. 3: concave in $v^2$",
    "proposition3_conjugate": "Prop. 3, proof: conjugate",
    "proposition4_increasing": "Prop. 4: increasing",
    "diagonal_1_norm": "Sec. 3.1: diagonal $M$, 1-norm",
}
TOLERANCE = 1e-6


def draw(table: FigureTable) -> Picture:
    """One row for each statement."""
    figure, axes = new_figure(1, 1, width=7.0, height=6.0)
    ax = axes[0, 0]
    draw_deviations(ax, table.rows(metric="relative_deviation"), STATEMENTS)
    ax.axvline(TOLERANCE, linestyle="--", color=COLOURS["reference"])
    ax.set_xlabel("relative deviation")
    return figure


FIGURE = Figure(
    name="fig_theory",
    title="For penalties convex in log v the theorems hold, but for misprints; some remarks do not",
    caption="Relative deviation between the two sides of each statement for a small random "
    "network, inputs and targets, one dot for each seed, and one in all for the propositions, the "
    "scale s and the 1-norm, where nothing is random: the paper's form, or the printed and the "
    "corrected one of a misprint; the two on the factorised flow are ours. Theorems 1 and 2 and "
    "Lemma 5 are compared with descents over all entries of the transformations. Left of the "
    "dashed line, 10⁻⁶, the sides count as equal, those of Theorem 2's kernel left of 10⁻⁵; "
    "the remainder of Proposition 3 is judged by 10⁻². "
    f"Inequalities and counterexamples are not drawn. {ZERO}",
    points=one_point(Theory),
    table=all_metrics,
    draw=draw,
)
