"""baratin2021, Figure 9: minimum-norm interpolators scatter with the features' anisotropy."""

from feature_alignment.papers.baratin2021.parameters import Interpolators
from feature_alignment.pipeline.figures.drawing import draw_curve
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, one_point
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs

SHOWN = 5  # scales whose solutions are shown, evenly spaced among those that were run
CURVES = {
    "error": ("test error", "paper"),
    "norm_bound": ("bound, A = Id", "norm bound"),
    "optimal_bound": ("bound, optimal A", "optimal bound"),
}


def table(runs: Runs) -> FigureTable:
    """All metrics, and the solutions of seed 0."""
    (run,) = runs.values()
    names = [f"solutions/{scale}" for scale in run.parameters["scales"]]
    return FigureTable(run.metrics, {name: run.array(name) for name in names})


def draw(table: FigureTable) -> Picture:
    """Solutions on the left, a narrow panel for each scale; error and bounds on the right."""
    figure, axes = new_figure(1, SHOWN + 1, width=11.0, height=3.6)
    *left, right = axes[0]
    right.get_gridspec().set_width_ratios([1.5] * SHOWN + [6])
    _draw_solutions(left, table)
    right.set_yscale("log")
    for metric, (label, colour) in CURVES.items():
        draw_curve(right, table.rows(metric=metric), colour, label, x="scale", marker=".")
    ends = [table.rows(metric=f"optimal_bound_{end}") for end in ("least", "most")]
    least, most = (rows.groupby("scale")["value"].mean() for rows in ends)
    band = {"color": COLOURS["optimal bound"], "alpha": 0.15, "linewidth": 0}
    right.fill_between(least.index, least, most, label="the same, any eigenvectors", **band)
    right.set(
        xlabel="feature scaling factor c", ylabel="classification error; bounds on the complexity"
    )
    right.legend()
    panel_letters(left[0], right)
    return figure


def _draw_solutions(axes: list[Axes], table: FigureTable) -> None:
    scales = sorted(table.rows(metric="error")["scale"].unique())
    shown = [scales[round(i * (len(scales) - 1) / (SHOWN - 1))] for i in range(SHOWN)]
    arrays = [table.arrays[f"solutions/{scale}"] for scale in shown]
    limits = [1.15 * max(abs(array[:, axis]).max() for array in arrays) for axis in (0, 1)]
    tick = float(f"{0.7 * limits[0]:.0e}")  # one significant digit
    for ax, scale, solutions in zip(axes, shown, arrays, strict=True):
        ax.plot(*solutions.T, ".", color=COLOURS["train"], markersize=2)
        ax.set(xlim=(-limits[0], limits[0]), ylim=(-limits[1], limits[1]))
        ratio = table.values("spread_ratio", scale=scale, seed=0).item()
        ax.set_title(f"c = {scale:g}\nratio {ratio:.1f}")
        ax.set_xticks([-tick, 0, tick], [f"−{tick:g}", "0", f"{tick:g}"], fontsize=7)
        ax.tick_params(labelleft=ax is axes[0])
    axes[0].set_ylabel("along $\\varphi_{10}$")
    axes[SHOWN // 2].set_xlabel("along $\\varphi_1$, magnified")  # five would run into one another


FIGURE = Figure(
    name="fig9",
    title="The ℓ² norm bounds interpolators badly on anisotropic features",
    caption="Minimum-norm interpolators of random subsets, as the feature scaling factor c goes "
    "from 0 (white features) towards 1 (the features themselves). A: the centred solutions in the "
    "plane of the modes φ₁ and φ₁₀, counted from 0, one point for each subset, for seed 0; all "
    "panels have the same two scales, of which that of φ₁ is magnified; above each, the ratio of "
    "the spread along φ₁₀ to that along φ₁, by standard deviations. B: error on the other points "
    "and two bounds on the complexity, with A = Id and with the optimal rescaling, means over "
    "subsets; geometric means over seeds with a band of one standard deviation of the logarithm, "
    "or of fewer than four seeds each seed. The wide band is the range of the optimal bound over "
    "all eigenvectors of eigenvalues that are equal to rounding, which most are where c < 1.",
    points=one_point(Interpolators),
    table=table,
    draw=draw,
)
