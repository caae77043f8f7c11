"""beaglehole2024, Figure 3: predicted and observed C-NFC on the alignment reversing data set."""

import pandas as pd

from feature_alignment.papers.beaglehole2024.figures.curves import network_deviations, tidy
from feature_alignment.papers.beaglehole2024.parameters import AlignmentReversing
from feature_alignment.pipeline.figures.drawing import CRITERION, THIN, draw_curve
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, panel_letters
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

READINGS = {
    "tempered": ("tempered, δ = 10⁻³", {"reading": "tempered", "delta": 1e-3}),
    "softer": ("tempered, δ = 10⁻²", {"reading": "tempered", "delta": 1e-2}),
    "square": ("square", {"reading": "square"}),
    "compact": ("compact", {"reading": "compact"}),
    "rounded": ("rounded", {"reading": "rounded"}),
}

PAPER_SIZE = 1024
LARGEST_ERROR = "fig3.prediction_error_square"
"""The claim whose criterion is drawn on both sides of the diagonals."""
_BELOW_ONE = 0.999  # at γ = 1 there is no second subset, and no adversary


def points(settings: Settings) -> list[Point]:
    """One point for each reading of Appendix G."""
    own = settings[AlignmentReversing]
    columns = {"samples": own.size}
    return [Point(name, own.but(**changes), columns) for name, (_, changes) in READINGS.items()]


def table(runs: Runs) -> FigureTable:
    """All metrics, and for each reading how well prediction and observation agree."""
    parts = [runs.metrics]
    for name in READINGS:
        parts += _comparisons(rows_where(runs.metrics, point=name), name)
    return FigureTable(pd.concat(parts, ignore_index=True))


def _comparisons(rows: pd.DataFrame, point: str) -> list[pd.DataFrame]:
    """How prediction and observation agree, by draw of the data and over draws (metrics.yaml).

    One network has no deviation between networks, one balance below 1 no rise: without these rows,
    claims on them are not testable.
    """
    observed, predicted = _curves(rows, "observed"), _curves(rows, "predicted")
    data = _curves(rows, "data_cosine")
    unshifted = {
        "data": _curves(rows, "data_cosine_unshifted"),
        "observed": _curves(rows, "observed_unshifted"),
    }
    by_draw = {
        "largest_error": abs(observed - predicted).max(axis=1),
        "range_of_observed": observed.max(axis=1) - observed.min(axis=1),
    }
    if (observed.columns.to_numpy() < _BELOW_ONE).sum() > 1:
        by_draw |= {"rise_with_balance": _rise(observed), "data_rise_with_balance": _rise(data)}
        for name, curves in unshifted.items():
            by_draw[f"{name}_rise_with_balance_unshifted"] = _rise(curves)
    networks = rows_where(rows, metric="observed")
    if networks["network"].nunique() > 1:
        between_networks = network_deviations(networks, "balance").max(axis=1)
        from_mean = abs(observed - observed.mean()).max(axis=1)
        by_draw |= {
            "largest_network_deviation": between_networks,
            "draw_over_network_deviation": from_mean / between_networks,
        }
    for term in ("unique_term_identity", "nfm_derivative_identity"):
        by_draw[f"smallest_balance_{term}"] = _curves(rows, term).iloc[:, 0]
    mean, said = observed.mean(), predicted.mean()
    over_draws = {
        "scatter_r2": 1 - ((mean - said) ** 2).sum() / ((mean - mean.mean()) ** 2).sum(),
        "largest_error_of_mean": abs(mean - said).max(),
    }
    overall = pd.DataFrame(over_draws, index=pd.Index([0], name="seed"))
    return [tidy(values, point=point) for values in (by_draw, overall)]


def _rise(curves: pd.DataFrame) -> pd.Series:
    return curves.loc[:, :_BELOW_ONE].iloc[:, -1] - curves.iloc[:, 0]


def _curves(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """A metric of the first network: seeds as rows, balances as columns."""
    return _of_first_network(rows, metric).pivot(index="seed", columns="balance", values="value")


def _of_first_network(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    chosen = rows_where(rows, metric=metric)
    return chosen[~(chosen["network"] > 0)]


def draw(table: FigureTable) -> Picture:
    """A row for each reading, with the three panels of the paper."""
    figure, axes = new_figure(len(READINGS), 3, width=9.0, height=13.5)
    size, bound = table.frame["samples"].max(), table.of_claim(LARGEST_ERROR).get("high")
    paper = "" if size == PAPER_SIZE else f" (paper {PAPER_SIZE})"
    figure.suptitle(f"n = d = k = {size:.0f}{paper}")
    for row, (name, (title, _)) in zip(axes, READINGS.items(), strict=True):
        rows = table.rows(point=name)
        _draw_draws(row[0], rows, "predicted", COLOURS["reference"])
        _draw_draws(row[1], rows, "observed", COLOURS["train"])
        mean = _curves(rows, "observed").mean()
        bars = network_deviations(rows_where(rows, metric="observed"), "balance").mean()
        row[1].errorbar(mean.index, mean, bars, fmt="none", color=COLOURS["train"], capsize=2)
        _draw_scatter(row[2], rows, bound)
        for ax in row[:2]:
            ax.set(ylim=(0, 1.03), box_aspect=1)
        row[0].set_ylabel(f"{title}\ncorrelation ρ")
        r2, error = (
            table.values(metric, point=name).item()
            for metric in ("scatter_r2", "largest_error_of_mean")
        )
        # For a flat curve R² says nothing: it compares the error with the curve's variance.
        row[2].set_title((f"$R^2$ = {r2:.3f}" if r2 > 0 else "flat") + f", error ≤ {error:.3f}")
    axes[0, 0].set_title("predicted")
    axes[0, 1].set_title("observed")
    panel_letters(*axes[:, 0])
    for ax in axes[-1, :2]:
        ax.set_xlabel("balance γ")
    axes[-1, 2].set_xlabel("predicted ρ")
    return figure


def _draw_draws(ax: Axes, rows: pd.DataFrame, metric: str, colour: str) -> None:
    """All draws and their mean: under some readings, draws differ in shape, not only in size."""
    draw_curve(ax, _of_first_network(rows, metric), colour, x="balance")
    ax.plot(_curves(rows, metric).T, color=colour, linewidth=THIN, alpha=0.5)


def _draw_scatter(ax: Axes, rows: pd.DataFrame, bound: float | None) -> None:
    observed, predicted = _curves(rows, "observed").mean(), _curves(rows, "predicted").mean()
    low = min(observed.min(), predicted.min(), 0.8) - 0.02
    ax.plot([low, 1], [low, 1], color=COLOURS["reference"])
    for error in (bound, -bound) if bound else ():
        ax.plot([low, 1], [low + error, 1 + error], ":", color=COLOURS["paper"], linewidth=0.8)
    if bound:
        corner = {"fontsize": 6, "va": "top", "transform": ax.transAxes}
        ax.text(0.03, 0.97, f"{CRITERION}\n± {bound:g}", **corner)
    ax.plot(predicted, observed, "o", color=COLOURS["train"])
    ax.set(xlim=(low, 1.01), ylim=(low, 1.01), ylabel="observed ρ", aspect="equal")
    ax.locator_params(nbins=4)


FIGURE = Figure(
    name="fig3",
    title="The C-NFC at initialisation, predicted by random matrix theory and observed",
    caption="Correlation ρ of the second derivatives of centred NFM and AGOP at initialisation on "
    "the alignment reversing data set, n = d = k, against the balance γ, the share of label 1. "
    "Left: predicted from moments of R averaged over networks. Middle: observed with one network; "
    "bars: standard deviation over networks, mean over draws of the data (seeds). Thin lines: "
    "single draws; thick: their mean, from four draws on with a band of one standard deviation "
    "either way. Right: mean observed against mean predicted, one point for each γ; dotted: how "
    "far the two may differ by our criterion; R²: what the prediction explains of the variation "
    "over γ, flat where there is none; error: the largest difference. A-E: readings of the data "
    "set's construction, whose text cannot be followed to the letter: tempered with δ = 10⁻³ and "
    "10⁻², square, compact, and rounded, with the Gram matrix in float32.",
    points=points,
    table=table,
    draw=draw,
)
