"""The picture of a training's record: a panel for each quantity, curves over the steps."""

import math
from typing import TYPE_CHECKING

from feature_alignment.errors import UserError
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, sequence_colours
from feature_alignment.training.probes import WHOLE_NETWORK

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = {
    "loss": "Loss",
    "label_alignment": "Alignment of the tangent kernel with the labels",
    "effective_rank": "Effective rank of the tangent kernel",
    "largest_eigenvalue": "Largest eigenvalue",
    "trace_ratio_5": "Share of the five largest eigenvalues",
    "adapted_kernel_alignment": "Alignment of the adapted kernel with the labels",
    "adapted_kernel_change": "Adapted and initial kernel: cosine",
    "nfc": "Neural feature correlation (UC-NFC)",
    "centred_nfc": "Centred neural feature correlation (C-NFC)",
    "weight_change": "Change of the weights, ‖W − W₀‖ / ‖W‖",
}
"""Titles of the metrics that are drawn; others are in the table only."""
LOGARITHMIC = {"largest_eigenvalue"}
BETWEEN_0_AND_1 = {"trace_ratio_5", "nfc", "centred_nfc"}
LAYERS_NAMED = 12
COLUMNS = 3


def draw_record(frame: "pd.DataFrame") -> "Figure":
    """Draw a record's metrics that have a panel; the whole network in blue, layers by depth.

    Raises:
        UserError: if there is nothing to draw.
    """
    metrics = [metric for metric in PANELS if (frame["metric"] == metric).any()]
    if not metrics:
        raise UserError(f"nothing to draw: the record has none of {', '.join(PANELS)}.")
    steps = sorted(frame["step"].unique())
    columns = min(COLUMNS, len(metrics))
    rows = math.ceil(len(metrics) / columns)
    figure, axes = new_figure(rows, columns, 3.6 * columns, 2.6 * rows + 0.4)
    layers = [layer for layer in frame["layer"].unique() if layer != WHOLE_NETWORK]
    colours = dict(zip(layers, sequence_colours(len(layers)), strict=True))
    for ax, metric in zip(axes.flat, metrics, strict=False):
        _draw(ax, frame[frame["metric"] == metric], metric, colours, steps)
    for ax in axes.flat[len(metrics) :]:
        ax.set_axis_off()
    handles = {}
    for ax in axes.flat:
        handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    if len(handles) > LAYERS_NAMED:
        of_layers = [name for name in handles if name != WHOLE_NETWORK]
        shown = {WHOLE_NETWORK, of_layers[0], of_layers[-1]}
        handles = {name: handle for name, handle in handles.items() if name in shown}
    if len(handles) > 1:
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=6)
    return figure


def _decades(steps: list[int]) -> list[int]:
    """First measured step and the powers of ten after it, if the steps ask for a log axis."""
    positive = [int(step) for step in steps if step > 0]
    if len(positive) < 3 or positive[-1] < 30 * positive[0]:
        return []
    powers = (10**power for power in range(len(str(positive[-1]))))
    return [positive[0], *(power for power in powers if power >= positive[0])]


def _draw(
    ax: "Axes", rows: "pd.DataFrame", metric: str, colours: dict[str, str], steps: list[int]
) -> None:
    for layer, curve in rows.groupby("layer", sort=False):
        whole = layer == WHOLE_NETWORK
        colour = COLOURS["train"] if whole else colours[str(layer)]
        width, order = (1.5, 3) if whole else (1.0, 2)
        (line,) = ax.plot(curve["step"], curve["value"], color=colour, label=str(layer))
        line.set(linewidth=width, zorder=order, marker=".")
    if logarithmic := _decades(steps):
        # Linear up to the first measured step, so that step 0 has a place.
        ax.set_xscale("symlog", linthresh=logarithmic[0], linscale=0.3)
        ax.set_xticks([0, *logarithmic[1:]], ["0", *(f"{tick:g}" for tick in logarithmic[1:])])
        ax.set_xlim(-0.2 * logarithmic[0], 1.2 * max(steps))
    if metric in LOGARITHMIC and (rows["value"] > 0).all():
        ax.set_yscale("log")
    if metric in BETWEEN_0_AND_1:
        ax.set_ylim(min(0.0, rows["value"].min()), 1.02)
    ax.set_title(PANELS[metric])
    ax.set_xlabel("step")
