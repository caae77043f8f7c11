"""beaglehole2024, Figures 5, 6 and 8-10: correlations in training, by spectrum of the data."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from feature_alignment.papers.beaglehole2024.figures import curves
from feature_alignment.papers.beaglehole2024.parameters import Spectra
from feature_alignment.pipeline.figures import style
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS, draw_curve, draw_paper
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.table import FigureTable, Runs, rows_where

SPECTRA = {  # decay rate and formula, by point
    "flat": (None, r"$\lambda_k = 1$"),
    "inverse": (1, r"$\lambda_k = 1/(1+k)$"),
    "inverse_square": (2, r"$\lambda_k = 1/(1+k^2)$"),
}
UNIT_VARIANCE_SCALES = (1.0, 0.01)  # compared if the covariance has trace d
TRACE_D = (
    "With dots, for scales 1 and 0.01, and not in the bound: the eigenvalues scaled to have mean "
    "1, as those of isotropic data. "
)
MARKERS = ("", ".")  # of a spectrum's curves, and of those with trace d
LAYERS = {"layers.0": "layer 1", "layers.1": "layer 2"}
EARLY = 20
"""The step that counts as "early in training", or the first measured one after it; the paper does
not say. The figures' runs have 800 steps."""
LAYER2 = "_layer2"
"""Ends the name of the point with the scale on layer 2, on whose initial correlation the first
layer's has no influence."""
CORRELATIONS = {"nfc": "UC-NFC", "centred_nfc": "C-NFC"}


def points(settings: Settings, spectra: Sequence[str] = tuple(SPECTRA)) -> list[Point]:
    """One point for each spectrum, with all initialisation scales."""
    return [Point(name, settings[Spectra].but(decay=SPECTRA[name][0])) for name in spectra]


def correlation_points(settings: Settings, spectrum: str) -> list[Point]:
    """One spectrum, its early steps with the second layer scaled, and the same with trace d.

    The last, with a covariance of the trace of isotropic data, is left out if the spectrum is flat.
    """
    (point,) = points(settings, (spectrum,))
    own = settings[Spectra].but(decay=SPECTRA[spectrum][0])
    steps = min(own.steps, -(-EARLY // own.measure_every) * own.measure_every)
    found = [point, Point(spectrum + LAYER2, own.but(scaled_layers="second", steps=steps))]
    if own.decay is not None:
        trace_d = own.but(unit_variance=True, first_layer_scales=UNIT_VARIANCE_SCALES)
        found.append(Point(f"{spectrum}_trace_d", trace_d))
    return found


def _chosen_rows(runs: Runs, metrics: Sequence[str]) -> pd.DataFrame:
    """The rows of some metrics; the column `curve` names spectrum, scale and layer."""
    frame = rows_where(runs.metrics, metric=metrics).reset_index(drop=True)
    curve = frame["point"] + " " + frame["scale"].map("{:g}".format) + " " + frame["layer"]
    return frame.assign(curve=curve)


def _early_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the step that counts as early in training, as metrics `<metric>_early`."""
    steps = frame["step"]
    early = frame[steps == steps[steps >= min(EARLY, steps.max())].min()]
    return early.assign(metric=early["metric"] + "_early", step=steps.max())


def ratio_table(runs: Runs) -> FigureTable:
    """The ratio and its correlation, its part of the uncentred NFC, and both parts early."""
    ratio, uncentred = (
        _chosen_rows(runs, [f"{name}_ratio"]) for name in ("double_centred", "centred_uncentred")
    )
    names = [*curves.keys(ratio, "metric"), "step"]
    share = ratio.merge(uncentred[[*names, "value"]], on=names, suffixes=("", "_uncentred"))
    share["value"] *= share.pop("value_uncentred")
    parts = pd.concat([ratio, share.assign(metric="double_centred_share")], ignore_index=True)
    rows = [parts, _early_rows(parts), _chosen_rows(runs, ["double_centred_nfc"])]
    return FigureTable(pd.concat(rows, ignore_index=True))


def ptk_centred_table(runs: Runs) -> FigureTable:
    """The correlation, and its change from the first measurement after the start to the last."""
    rows = _chosen_rows(runs, ["ptk_centred_nfc"])
    change = curves.change_between(rows, "step", rows["step"].min(), rows["step"].max(), "change")
    return FigureTable(pd.concat([rows, change], ignore_index=True))


def correlation_table(runs: Runs) -> FigureTable:
    """UC-NFC, C-NFC and losses of one spectrum, and the quantities in its claims (metrics.yaml).

    Means over time exclude the start, at which C-NFC is not defined. Of the network with a scaled
    second layer there are that layer's early rows alone.
    """
    subtracted = [f"{name}_mean_subtracted" for name in CORRELATIONS]
    rows = _chosen_rows(runs, [*CORRELATIONS, *subtracted, "loss"])
    early = _early_rows(rows_where(rows, metric=list(CORRELATIONS)).drop(columns="curve"))
    early = early[~early["point"].str.endswith(LAYER2) | (early["layer"] == "layers.1")]
    second = early[early["point"].str.endswith(LAYER2)]
    rows = rows[~rows["point"].str.endswith(LAYER2)]
    nfc, last = rows_where(rows, metric="nfc"), rows["step"].max()
    rise = curves.change_between(nfc, "step", 0, last, "rise")
    correlations = rows_where(rows, metric=list(CORRELATIONS)).drop(columns="curve")
    after = correlations[correlations["step"] > 0].groupby(curves.keys(correlations, "step"))
    spread = curves.spread_over(after["value"].mean().reset_index().assign(step=last), "scale")
    early_spread = curves.spread_over(early, "scale")
    names = {f"{name}_early_scale_spread": f"{name}_scale_spread_early" for name in CORRELATIONS}
    early_spread = early_spread.assign(metric=early_spread["metric"].map(names))
    equal = _at_equal_training_loss(rows_where(rows, metric="loss"))
    parts = [rows, rise, spread, second, early_spread, equal]
    return FigureTable(pd.concat(parts, ignore_index=True))


def _at_equal_training_loss(losses: pd.DataFrame) -> pd.DataFrame:
    """Test loss of each point, scale and seed at a training loss that all scales reach."""
    by_step = losses.pivot_table(
        index=["point", "seed", "scale", "step"], columns="split", values="value"
    )
    lowest = by_step["train"].groupby(["point", "seed", "scale"]).min()
    target = lowest.groupby(["point", "seed"]).max()
    reached = by_step[by_step["train"].le(target)]
    first = reached.groupby(["point", "seed", "scale"])["test"].first().rename("value")
    return first.reset_index().assign(
        metric="loss_at_equal_training_loss", split="test", layer="all", step=losses["step"].max()
    )


def draw_layers_by_spectrum(
    table: FigureTable, metric: str, ylabel: str, claim: str = ""
) -> Picture:
    """One metric by layer (rows) and spectrum (columns), one curve for each scale."""
    figure, axes = style.new_figure(2, len(SPECTRA), width=3.4 * len(SPECTRA), height=5.4)
    looks = style.sequence_looks(curves.scales_of(table.frame))
    for row, (layer, title) in zip(axes, LAYERS.items(), strict=True):
        for ax, (spectrum, (_, formula)) in zip(row, SPECTRA.items(), strict=True):
            _draw_scales(ax, table.rows(metric=metric, layer=layer, point=spectrum), looks)
            ax.set(title=f"{formula}, {title}", ylim=(0, 1.02))
            if claim:
                draw_paper(ax, table.of_claim(claim), note="(scale 1: <)")
        row[0].set_ylabel(ylabel)
    _label(figure, axes)
    return figure


def draw_correlations(table: FigureTable, claim: str) -> Picture:
    """UC-NFC and C-NFC by layer (rows), and the losses, one curve for each scale and point."""
    figure, axes = style.new_figure(2, 3, width=10.0, height=5.8)
    points = table.rows(metric="loss")["point"].unique()
    looks = style.sequence_looks(curves.scales_of(table.frame))
    figure.suptitle(f"eigenvalues of the inputs' covariance {SPECTRA[points[0]][1]}")
    for row, (layer, title) in zip(axes, LAYERS.items(), strict=True):
        for ax, (metric, name) in zip(row, CORRELATIONS.items(), strict=False):
            for point, marker in zip(points, MARKERS, strict=False):
                rows = table.rows(metric=metric, layer=layer, point=point)
                _draw_scales(ax, rows, looks, marker)
            ax.set(title=f"{name}, {title}", ylim=(0, 1.02), ylabel=name)
        draw_paper(row[0], table.of_claim(claim))
    for ax, split in zip(axes[:, 2], ("train", "test"), strict=True):
        rows = table.rows(metric="loss", split=split)
        rows["value"] /= rows.groupby("seed")["value"].transform("max")
        for point, marker in zip(points, MARKERS, strict=False):
            _draw_scales(ax, rows[rows["point"] == point], looks, marker)
        ax.set(title=f"{split} loss", ylim=(0, 1.02), ylabel="loss / largest loss")
    grey = style.COLOURS["reference"]
    if len(points) > 1:
        axes[0, 0].plot([], [], MARKERS[1], color=grey, label="mean eigenvalue 1")
    _label(figure, axes)
    return figure


def _draw_scales(
    ax: Axes, rows: pd.DataFrame, looks: Mapping[float, Mapping[str, Any]], marker: str = ""
) -> None:
    for scale in sorted(rows["scale"].unique(), reverse=True):
        label, curve = None if marker else f"{scale:g}", rows_where(rows, scale=scale)
        draw_curve(ax, curve, label=label, marker=marker, markevery=0.08, **looks[scale])


def _label(figure: Picture, axes: np.ndarray) -> None:
    style.panel_letters(*axes.flat)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    of_scales = {"title": "scale of layer 1", "ncols": len(labels)}
    figure.legend(handles, labels, loc="outside upper right", **of_scales)
    for ax in axes[-1]:
        ax.set_xlabel("step")


FIGURES = (
    Figure(
        name="fig5",
        title="The share of changed tangent features in the centred NFC grows in training",
        caption="Ratio of the double-centred to the centred NFC before normalisation, "
        "tr(W̄ᵀW̄W̄ᵀK̄W̄) / tr(W̄ᵀW̄W̄ᵀKW̄), in both hidden layers of a network trained by "
        "gradient descent on the chain-monomial task; columns are spectra of the inputs' "
        "covariance. At the last step the dotted line is a lower bound for scales 0.1 and "
        f"0.01, and an upper one for scale 1; at step {EARLY}, an upper one for all. {OVER_SEEDS}",
        points=points,
        table=ratio_table,
        draw=partial(
            draw_layers_by_spectrum,
            metric="double_centred_ratio",
            ylabel="double-centred / centred",
            claim="fig5.late",
        ),
    ),
    Figure(
        name="fig6",
        title="The PTK-centred NFC in training, by spectrum and initialisation scale",
        caption="PTK-centred NFC ρ(W₀ᵀW₀, W₀ᵀK̄W₀) in both hidden layers of a network trained by "
        "gradient descent on the chain-monomial task. Columns are spectra of the inputs' "
        "covariance: the paper's are 1/(1+k) and 1/(1+k²), the flat one is for comparison. "
        + OVER_SEEDS,
        points=points,
        table=ptk_centred_table,
        draw=partial(draw_layers_by_spectrum, metric="ptk_centred_nfc", ylabel="PTK-centred NFC"),
    ),
    *(
        Figure(
            name=name,
            title=f"C-NFC and UC-NFC on {data}",
            caption="Gradient descent on the chain-monomial task, with inputs whose covariance has "
            f"eigenvalues {eigenvalues}, for several scales of the first layer's initialisation: "
            "UC-NFC and C-NFC of both hidden layers, and training and test loss divided by the "
            "seed's largest one in the panel. The dotted line is a bound on the last step, for all "
            f"scales. {note}{OVER_SEEDS}",
            points=partial(correlation_points, spectrum=spectrum),
            table=correlation_table,
            draw=partial(draw_correlations, claim=f"{name}.nfc_high_at_end"),
        )
        for name, spectrum, eigenvalues, data, note in (
            ("fig8", "flat", "1", "isotropic data", ""),
            ("fig9", "inverse", "1/(1+k)", "data of spectrum 1/(1+k)", TRACE_D),
            ("fig10", "inverse_square", "1/(1+k²)", "data of spectrum 1/(1+k²)", TRACE_D),
        )
    ),
)
