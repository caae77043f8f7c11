"""baratin2021, Figure 9: minimum-norm interpolators scatter with the features' anisotropy."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, panel_label
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "The ℓ² norm bounds interpolators badly on anisotropic features"
CAPTION = (
    "Minimum-norm interpolators of random subsets, as the feature scaling factor c goes from 0 "
    "(white features) towards 1 (the features themselves). Left: the centred solutions in the "
    "plane of the modes φ₁ and φ₁₀, one point for each subset, for seed 0; all panels have the "
    "same two scales, of which that of φ₁ is magnified. Right: error on the "
    "other points and two bounds on the complexity, with A = Id and with the optimal rescaling, "
    "mean over subsets and seeds, with a band of one standard deviation over seeds."
)
EXPERIMENT = "baratin2021_interpolators"
POINT = "default"
SHOWN = 5
"""Scales of which the solutions are shown, evenly spaced among those that were run."""
CURVES = {
    "error": ("test error", COLOURS["paper"]),
    "norm_bound": ("bound, A = Id", COLOURS["norm bound"]),
    "optimal_bound": ("bound, optimal A", COLOURS["optimal bound"]),
}


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point: the paper's setting."""
    return [Point(EXPERIMENT, POINT)]


def table(runs: Runs) -> FigureTable:
    """All metrics, and the solutions of seed 0."""
    run = runs[POINT]
    prefix = "seed0/solutions/"
    solutions = {
        name.removeprefix("seed0/"): array
        for name, array in run.arrays.items()
        if name.startswith(prefix)
    }
    return FigureTable(run.metrics, solutions)


def draw(table: FigureTable) -> "Figure":
    """Solutions on the left, a narrow panel for each scale; error and bounds on the right."""
    figure, axes = new_figure(1, SHOWN + 1, width=11.0, height=3.6)
    *left, right = axes[0]
    right.get_gridspec().set_width_ratios([1.5] * SHOWN + [6])
    _draw_solutions(left, table)
    _draw_curves(right, table)
    panel_label(left[0], "A")
    panel_label(right, "B")
    return figure


def _draw_solutions(axes: "list[Axes]", table: FigureTable) -> None:
    scales = sorted(float(name.partition("/")[2]) for name in table.arrays)
    shown = [scales[round(i * (len(scales) - 1) / (SHOWN - 1))] for i in range(SHOWN)]
    arrays = [table.arrays[f"solutions/{scale}"] for scale in shown]
    limits = [1.15 * max(abs(array[:, axis]).max() for array in arrays) for axis in (0, 1)]
    tick = _round(0.7 * limits[0])
    for ax, scale, solutions in zip(axes, shown, arrays, strict=True):
        ax.plot(*solutions.T, ".", color=COLOURS["train"], markersize=2)
        ax.set(xlim=(-limits[0], limits[0]), ylim=(-limits[1], limits[1]))
        ax.set_xlabel(f"$\\varphi_1$\nc = {scale:g}")
        ax.set_xticks([-tick, 0, tick], [f"−{tick:g}", "0", f"{tick:g}"], fontsize=7)
        if ax is axes[0]:
            ax.set_ylabel("$\\varphi_{10}$")
        else:
            ax.tick_params(labelleft=False)


def _round(value: float) -> float:
    """A value with one significant digit.

    Example:
        >>> _round(0.0372)
        0.04
    """
    return float(f"{value:.0e}")


def _draw_curves(ax: "Axes", table: FigureTable) -> None:
    for metric, (label, colour) in CURVES.items():
        rows = table.frame[table.frame["metric"] == metric]
        curve = rows.pivot(index="scale", columns="seed", values="value")
        mean, sd = curve.mean(axis=1), curve.std(axis=1, ddof=0)
        ax.plot(mean.index, mean, ".-", color=colour, label=label)
        ax.fill_between(mean.index, mean - sd, mean + sd, color=colour, alpha=0.2, linewidth=0)
    ax.set(xlabel="feature scaling factor c", ylabel="error, or bound", yscale="log")
    ax.legend()
