"""baratin2021, Figure 5: SuperNat against gradient descent on noisy linear regression."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, panel_label
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Rescaling features freezes the noise, if the features may shrink"
CAPTION = (
    "Linear regression with one signal feature and noise along the others. A: expected test loss "
    "of gradient descent and SuperNat (κ such that no mode grows), mean over seeds with a band "
    "of one standard deviation; the training loss is dashed. B: the kernel's eigenvalue of the "
    "signal's mode (solid) and of the noise modes (dashed), geometric means over modes and "
    "seeds, for κ = max and for the κ that keeps the trace. C: test loss after the last step for "
    "each choice of κ and each learning rate η; each point is a seed, bars are means."
)
EXPERIMENT = "baratin2021_supernat"
POINT = "default"
LABELS = {
    "gd": "gradient\ndescent",
    "max": "max",
    "fixed": "fixed",
    "literal": "1",
    "trace": "trace",
    "lambda_max": "$\\lambda_1$",
}
EIGENVALUE_STEPS = 20


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point: all methods and learning rates share their problems."""
    return [Point(EXPERIMENT, POINT)]


def table(runs: Runs) -> FigureTable:
    """All metrics."""
    return FigureTable(runs[POINT].metrics)


def draw(table: FigureTable) -> "Figure":
    """Loss curves, spectrum, and the choices of κ side by side."""
    figure, axes = new_figure(1, 3, width=11.0, height=3.4)
    shown = table.frame.loc[table.frame["metric"] == "loss", "learning_rate"].iloc[0]
    _draw_losses(axes[0, 0], table, shown)
    _draw_eigenvalues(axes[0, 1], table, shown)
    _draw_choices(axes[0, 2], table)
    for ax, letter in zip(axes[0], "ABC", strict=True):
        panel_label(ax, letter)
    return figure


def _colour(method: str) -> str:
    return COLOURS["gradient descent" if method == "gd" else f"supernat {method}"]


def _curve(table: FigureTable, metric: str, split: str, method: str, rate: float) -> Any:
    """Values of a metric, one row for each step and one column for each seed."""
    frame = table.frame
    chosen = (frame["metric"] == metric) & (frame["split"] == split)
    chosen &= (frame["method"] == method) & (frame["learning_rate"] == rate)
    return frame[chosen].pivot(index="step", columns="seed", values="value")


def _draw_losses(ax: "Axes", table: FigureTable, rate: float) -> None:
    for method, text in (("gd", "gradient descent"), ("max", "SuperNat")):
        colour = _colour(method)
        test = _curve(table, "loss", "test", method, rate)
        mean, sd = test.mean(axis=1), test.std(axis=1)
        ax.plot(test.index, mean, color=colour, label=text)
        ax.fill_between(test.index, mean - sd, mean + sd, color=colour, alpha=0.2, linewidth=0)
        train = _curve(table, "loss", "train", method, rate).mean(axis=1)
        ax.plot(train.index, train, "--", color=colour, linewidth=1)
    ax.set_xscale("symlog", linthresh=1)
    ax.set(xlabel="iteration", ylabel="mean squared error", ylim=(0, 1.2), xlim=(0, None))
    ax.legend()


def _draw_eigenvalues(ax: "Axes", table: FigureTable, rate: float) -> None:
    for method, text in (("max", "κ = max"), ("trace", "κ keeps the trace")):
        for which, line in (("signal", "-"), ("noise_mean", "--")):
            curve = _curve(table, f"log10_eigenvalue_{which}", "train", method, rate).mean(axis=1)
            curve = curve[curve.index <= EIGENVALUE_STEPS]
            ax.plot(
                curve.index,
                10**curve,
                line,
                color=_colour(method),
                label=f"{which.removesuffix('_mean')}, {text}",
            )
    ax.set(xlabel="iteration", ylabel="eigenvalue of the kernel matrix", yscale="log")
    ax.set_xticks(range(0, EIGENVALUE_STEPS + 1, 5))
    ax.legend(fontsize=7)


def _draw_choices(ax: "Axes", table: FigureTable) -> None:
    rates = sorted(table.frame["learning_rate"].unique(), reverse=True)
    width = 0.8 / len(rates)
    for place, rate in enumerate(rates):
        for index, method in enumerate(LABELS):
            values = table.values("final_loss", method=method, learning_rate=rate)
            x = index + (place - (len(rates) - 1) / 2) * width
            spread = [x + 0.15 * width * (i % 3 - 1) for i in range(len(values))]
            alpha = 1 - 0.7 * place / len(rates)
            ax.plot(spread, values, ".", color=_colour(method), markersize=3, alpha=alpha)
            mean = values.mean()
            ax.plot([x - 0.4 * width, x + 0.4 * width], [mean, mean], color=COLOURS["paper"])
    text = ", ".join(f"{rate:g}" for rate in rates)
    ax.set_xticks(range(len(LABELS)), LABELS.values())
    ax.set(xlabel=f"κ of SuperNat; in each group η = {text}", ylabel="final test loss")
    ax.set_ylim(bottom=0)
