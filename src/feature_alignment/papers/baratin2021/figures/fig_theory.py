"""baratin2021, theory: every proposition checked numerically, including misprints."""

from feature_alignment.papers.baratin2021.parameters import Theory
from feature_alignment.pipeline.figures.drawing import ZERO, draw_deviations, draw_points
from feature_alignment.pipeline.figures.figure import Figure, Picture, one_point
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, all_metrics

EQUATIONS = {
    "prop4_spectrum": "Prop. 4: spectrum",
    "prop4_functions": "Prop. 4: eigenfunctions",
    "eq30": "eq. 30: orthonormal $u_j$",
    "lemma1": "Lemma 1: update by modes",
    "prop6": "Prop. 6: by principal components",
    "eq46": "after eq. 46: $v_j \\cdot \\delta w$",
    "prop7": "Prop. 7: iterates of regression",
    "lemma8": "Lemma 8: $K \\hat{u}_j$ and $\\hat{\\lambda}_j \\hat{u}_j$",
    "lemma8_proof": "Lemma 8, proof: $k(x, x_i)$ from $\\hat{u}_j$",
    "appendix_a52": "A.5.2: singular values of $\\Phi$",
    "prop9": "Prop. 9: iterates by modes",
    "prop9_time_constant": "Prop. 9: time constant $\\tau_j$",
    "eq5": "eq. 5: effective rank",
    "eq17": "eq. 17: spectrum in SuperNat",
    "supernat_function": "Fig. 5: SuperNat with matrices",
    "supernat_natural_gradient": "Sec. 4.1: natural gradient",
    "prop3": "Prop. 3: optimal $\\nu$",
    "eq13": "eq. 13: flow by evolving features",
    "eq88": "eq. 88: Frobenius norm and trace",
    "eq89": "eq. 89: critical $\\nu$",
    "eq81": "eq. 81: interpolator",
    "noise_covariance": "B.5: its covariance",
    "prop14": "Prop. 14: optimal $\\nu$",
    "eq74": "eq. 74: $\\delta$ from $\\epsilon$",
}
INEQUALITIES = {
    "prop10": "Prop. 10: linear class",
    "thm2": "Thm. 2: learning flow",
    "eq14": "eq. 14: by evolving features",
    "eq56": "eq. 56: margin bound",
    "eq58": "eq. 58: binary loss",
    "lemma12": "Lemma 12: multiclass",
    "thm13": "Thm. 13: linear",
}


def draw(table: FigureTable) -> Picture:
    """Equations on the left, inequalities on the right."""
    figure, axes = new_figure(1, 2, width=11.0, height=4.6)
    left, right = axes[0]
    left.get_gridspec().set_width_ratios([3, 2])
    rows = table.rows(metric="relative_deviation")
    worst = rows.groupby(["statement", "form"])["value"].max().reset_index()
    draw_deviations(left, worst, EQUATIONS)
    left.set_xlabel("largest relative deviation")
    colours = dict.fromkeys(INEQUALITIES, COLOURS["paper"])
    ratios = table.rows(metric="bound_ratio")
    draw_points(right, ratios, INEQUALITIES, colours, by="statement", horizontal=True)
    right.axvline(1, linestyle="--", color=COLOURS["reference"])
    right.set(xlabel="smaller side / larger side", xlim=(0, 1.05))
    for ax in axes[0]:
        ax.tick_params(axis="y", labelsize=7)
    panel_letters(*axes[0])
    return figure


FIGURE = Figure(
    name="fig_theory",
    title="The propositions hold, some of the printed formulas do not",
    caption="Each statement on random cases, one for each seed. A: equations; the largest relative "
    "deviation of their two sides over cases, for the paper's form where it is right, and where it "
    "is a misprint for the printed and the corrected form. Propositions 3 and 14 are compared with "
    "a numerical minimiser. B: inequalities; the smaller side divided by the larger, which must "
    "not exceed 1; each dot is a case, bars are means, with one standard deviation from four cases "
    f"on. Expectations over signs are exact, but for eq. 56. {ZERO}",
    points=one_point(Theory),
    table=all_metrics,
    draw=draw,
)
