"""baratin2021, Figure 5: SuperNat against gradient descent on noisy linear regression."""

import pandas as pd

from feature_alignment.papers.baratin2021.parameters import Supernat
from feature_alignment.pipeline.figures import style
from feature_alignment.pipeline.figures.drawing import draw_curve, draw_points
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, one_point
from feature_alignment.pipeline.figures.table import FigureTable, all_metrics, rows_where

LABELS = {
    "gd": "gradient\ndescent",
    "max": "κ\nmax",
    "fixed": "κ\nfixed",
    "literal": "κ\n= 1",
    "trace": "κ keeps\ntrace",
    "lambda_max": "κ keeps\n$\\lambda_1$",
}
EIGENVALUE_STEPS = 20
MODES = {  # the kernel's modes, with their metric and line
    "signal": ("signal", "-"),
    "largest noise": ("noise_max", ":"),
    "mean noise": ("noise_mean", "--"),
}


def draw(table: FigureTable) -> Picture:
    """Loss curves, spectrum, and the choices of κ side by side."""
    figure, axes = style.new_figure(1, 3, width=11.0, height=3.4)
    # Curves are shown at one of the learning rates.
    shown = table.rows(learning_rate=table.rows(metric="loss")["learning_rate"].iloc[0])
    _draw_losses(axes[0, 0], shown)
    axes[0, 0].set_title(f"η = {shown['learning_rate'].iloc[0]:g}")
    _draw_eigenvalues(axes[0, 1], shown)
    _draw_choices(axes[0, 2], table.rows(metric="final_loss"), _first_kappa(shown))
    style.panel_letters(*axes[0])
    return figure


def _first_kappa(frame: pd.DataFrame) -> str:
    """The choice of κ whose curves are shown, and whose control is named just `gd_decayed`."""
    return frame.loc[frame["metric"] == "loss_minus_gd", "method"].iloc[0]


def _draw_losses(ax: Axes, frame: pd.DataFrame) -> None:
    style.broken_axis(ax, frame["step"])
    kappa = _first_kappa(frame)
    for method, name, colour in (
        ("gd", "gradient descent", "gradient descent"),
        (kappa, "SuperNat", f"supernat {kappa}"),
    ):
        for split, line in (("test", "-"), ("train", "--")):
            rows = rows_where(frame, metric="loss", method=method, split=split)
            draw_curve(ax, rows, colour, f"{name}, {split}", linestyle=line)
    ax.set(xlabel="iteration", ylabel="mean squared error")
    ax.set_ylim(bottom=0)
    ax.legend(fontsize=7)


def _draw_eigenvalues(ax: Axes, frame: pd.DataFrame) -> None:
    ax.set_yscale("log")
    frame = rows_where(frame, step=range(EIGENVALUE_STEPS + 1))
    shown = {"max": "κ = max", "trace": "κ keeps the trace"}
    for method, text in ((m, shown[m]) for m in shown if m in set(frame["method"])):
        for mode, (metric, line) in MODES.items():
            rows = rows_where(frame, metric=f"log10_eigenvalue_{metric}", method=method)
            rows = rows.assign(value=10 ** rows["value"])
            draw_curve(ax, rows, f"supernat {method}", f"{mode}, {text}", linestyle=line)
    ax.set(xlabel="iteration", ylabel="eigenvalue of the kernel matrix")
    ax.set_xticks(range(0, EIGENVALUE_STEPS + 1, 5))
    ax.legend(fontsize=7, loc="lower left")


def _draw_choices(ax: Axes, rows: pd.DataFrame, first: str) -> None:
    """Dots for each choice of κ, and a diamond for the mean of descent whose steps shrink as much.

    The groups are placed as in `draw_points`.
    """
    names = {rate: f"η = {rate:g}" for rate in sorted(rows["learning_rate"].unique())[::-1]}
    rows = rows.assign(rate=rows["learning_rate"].map(names))
    colours = style.sequence_colours(names.values())
    draw_points(ax, rows, LABELS, colours, by="method", group="rate")
    means = rows.groupby(["method", "rate"])["value"].mean()
    controls = {kappa: f"gd_decayed_{kappa}" for kappa in LABELS} | {first: "gd_decayed"}
    places = {
        (controls[kappa], name): place + 0.8 * ((group + 0.5) / len(names) - 0.5)
        for place, kappa in enumerate(LABELS)
        for group, name in enumerate(names.values())
    }
    found = [(x, means[key]) for key, x in places.items() if key in means.index]
    look = {"markerfacecolor": "none", "markersize": 6, "zorder": 5}
    ax.plot(*zip(*found, strict=True), "D", color="black", label="same steps", **look)
    ax.set_ylabel("final test loss")
    ax.tick_params(axis="x", labelsize=6.5)
    ax.set_ylim(bottom=0)
    close = {"ncols": 4, "columnspacing": 1.0, "handletextpad": 0.1}
    ax.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), **close)


FIGURE = Figure(
    name="fig5",
    title="Where features may shrink SuperNat learns less noise; so do steps that shrink alike",
    caption="Linear regression with one signal feature and noise along the others. A: expected "
    "test loss (solid) and training loss (dashed) of gradient descent and SuperNat (κ such that no "
    "mode grows), both at one of C's learning rates, that of its title. B: the kernel's eigenvalue "
    "of the signal's mode (solid), of the noise modes the largest (dotted) and the geometric mean "
    "(dashed), for κ = max and for the κ that keeps the trace; geometric means over seeds. A and "
    "B: bands of one standard deviation over seeds, in B of the logarithm; of fewer than four "
    "seeds, each seed. C: test loss after the last step for each choice of κ and each learning "
    "rate η; each dot is a seed, bars are means, with one standard deviation from four seeds on. "
    "Diamonds: means of gradient descent whose steps shrink as SuperNat's kernel does with the "
    "same κ and η.",
    points=one_point(Supernat),
    table=all_metrics,
    draw=draw,
)
