"""lejeune2024, Figure 2: effective penalties are sub-quadratic."""

import numpy as np
import pandas as pd

from feature_alignment.adaptive import penalties
from feature_alignment.adaptive.adaptive_scales import ABSOLUTE, SQUARE, adaptive_scales
from feature_alignment.adaptive.penalties import Penalty, rigid_penalty
from feature_alignment.pipeline.figures.figure import Figure, Picture
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs

# Each penalty, those on both sides of which it is the joint one, and its marker.
PENALTIES: dict[str, tuple[Penalty, tuple[Penalty, Penalty], str]] = {
    "omega1": (SQUARE, (SQUARE, rigid_penalty), "o"),
    "omega2": (ABSOLUTE, (ABSOLUTE, rigid_penalty), "s"),
    "omega3": (penalties.joint_penalty(SQUARE, ABSOLUTE), (SQUARE, ABSOLUTE), "^"),
}
LINEAR_GRID = np.linspace(0, 5, 201)
LOGARITHMIC_GRID = np.geomspace(1e-2, 1e2, 81)
SMALL_V, LARGE_V = 0.01, 1e4


def table(runs: Runs) -> FigureTable:
    """Penalties on two grids by numerical minimisation, and their behaviour at both ends."""
    v = np.union1d(LINEAR_GRID, LOGARITHMIC_GRID)
    above_one = v[v >= 1]  # where every ω is defined
    common = {"point": "theory", "seed": 0, "step": 0, "layer": "all", "split": "all"}
    parts = []
    for name, (omega, sides, _) in PENALTIES.items():
        effective = penalties.effective_penalty(omega)
        values, closed_form = effective(v), adaptive_scales(*sides, v).penalty
        for metric, at, value in (
            ("penalty", above_one, omega(above_one)),
            ("effective", v, values),
            ("small_v_ratio", SMALL_V, effective(np.array([SMALL_V])) / SMALL_V**2),
            ("penalty_tail_exponent", LARGE_V, _exponent(omega, LARGE_V)),
            ("tail_exponent", LARGE_V, _exponent(effective, LARGE_V)),
            ("closed_form_error", np.nan, np.abs(values - closed_form).max()),
        ):
            at, value = np.atleast_1d(at), np.atleast_1d(value)
            rows = {**common, "penalty": name, "v": at, "metric": metric, "value": value}
            parts.append(pd.DataFrame(rows))
    return FigureTable(pd.concat(parts, ignore_index=True))


def _exponent(penalty: Penalty, v: float) -> float:
    """Local growth exponent d log ω / d log v, by a central difference over a factor 1.01²."""
    low, high = penalty(v * np.array([1 / 1.01, 1.01]))
    return float(np.log(high / low) / np.log(1.01**2))


def draw(table: FigureTable) -> Picture:
    """Two panels with the same curves."""
    figure, axes = new_figure(1, 2, width=8.0, height=3.2)
    for ax, grid in zip(axes[0], (LINEAR_GRID, LOGARITHMIC_GRID), strict=True):
        for number, (name, (_, _, marker)) in enumerate(PENALTIES.items(), start=1):
            for metric, line, text in (
                ("penalty", "--", f"$\\omega_{number}$"),
                ("effective", "-", f"$\\tilde{{\\omega}}_{number}$"),
            ):
                curve = table.rows(penalty=name, metric=metric)
                curve = curve[curve["v"].between(grid[0], grid[-1])]
                marks = {"marker": marker, "markevery": 0.12, "markersize": 3.5}
                ax.plot(curve["v"], curve["value"], line, color=COLOURS[name], label=text, **marks)
        ax.plot(grid, grid**2, ":", color=COLOURS["paper"], label="$v^2$")
        ax.set(xlabel="$v$", ylabel="penalty")
    left, right = axes[0]
    left.set(xlim=(0, 5), ylim=(0, 8))
    right.set(xscale="log", yscale="log", ylim=(1e-4, 1e4))
    left.legend(ncols=2)
    panel_letters(left, right)
    return figure


FIGURE = Figure(
    name="fig2",
    title="Effective penalties are sub-quadratic",
    caption="Penalties ω on the singular values of a feature transformation (dashed) and the "
    "effective penalties ω̃ on those of the coefficients that they amount to (solid), for "
    "ω₁(v) = (v − 1)², ω₂(v) = |v − 1| and ω₃(v) = (ω₁ ⊕ ω₂)(v), the least ω₁(z) + ω₂(v/z) "
    "over 1 ≤ z ≤ v, drawn from v = 1 on, where it is defined. Each ω̃ is like v² (dotted) "
    "near 0 and grows more slowly for large v. A: linear axes; B: logarithmic axes.",
    points=lambda settings: [],  # theory only
    table=table,
    draw=draw,
)
