"""Figure of a training's record: one panel per quantity, with curves over the steps."""

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pandas as pd

from feature_alignment.errors import UserError
from feature_alignment.pipeline.figures import style
from feature_alignment.training.probes import WHOLE_NETWORK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = {
    "loss": "Loss",
    "label_alignment": "Alignment of the tangent kernel with the labels",
    "effective_rank": "Effective rank of the tangent kernel",
    "largest_eigenvalue": "Largest eigenvalue",
    "trace_ratio_5": "Share of the five largest eigenvalues",
    "kernel_change": "Tangent kernel and initial one: cosine",
    "adapted_kernel_alignment": "Alignment of the adapted kernel with the labels",
    "adapted_kernel_change": "Adapted and initial kernel: cosine",
    "nfc": "Neural feature correlation (UC-NFC)",
    "centred_nfc": "Centred neural feature correlation (C-NFC)",
    "path_complexity": "Path complexity C",
    "weight_change": "Change of the weights, ‖W − W₀‖ / ‖W‖",
}
"""Titles of the metrics that are drawn; others are in the table only, if any of these exists."""
LOGARITHMIC = {"largest_eigenvalue"}
BETWEEN_0_AND_1 = {"trace_ratio_5", "nfc", "centred_nfc"}
LINES = (("-", "solid"), ("--", "dashed"), (":", "dotted"), ("-.", "dash-dotted"))
"""Lines of the splits, and their names."""
LAYERS_NAMED = 12
COLUMNS = 3
FAR = 30  # the step axis is broken and logarithmic if steps > 0 differ by this factor or more


def draw_record(frame: pd.DataFrame) -> "Figure":
    """Draw a record's metrics that have a title, or all if none has; the whole network in blue.

    Layers are coloured by depth. Matplotlib's settings are restored afterwards.

    Raises:
        UserError: if there is nothing to draw.
    """
    import matplotlib  # which measuring does not need

    with matplotlib.rc_context():
        return _drawn(frame)


def _drawn(frame: pd.DataFrame) -> "Figure":
    found = frame["metric"].unique()
    metrics = [metric for metric in PANELS if metric in found] or list(found)
    if not metrics:
        raise UserError("nothing to draw: the record has no rows.")
    steps = frame["step"]
    later = steps[steps > 0]
    broken = later.nunique() > 2 and later.max() >= FAR * later.min()
    columns = min(COLUMNS, len(metrics))
    rows = math.ceil(len(metrics) / columns)
    figure, axes = style.new_figure(rows, columns, 3.6 * columns, 2.6 * rows + 0.4)
    colours = style.sequence_colours(_by_depth(frame["layer"].unique()))
    looks = dict(zip(frame["split"].unique(), itertools.cycle(LINES), strict=False))
    for ax, metric in zip(axes.flat, metrics, strict=False):
        rows = frame[frame["metric"] == metric]
        _draw(ax, rows, metric, colours, looks, steps if broken else None)
        if not broken and steps.nunique() > 1:  # the same in all, also where the first is missing
            margin = 0.05 * (steps.max() - steps.min())
            ax.set_xlim(steps.min() - margin, steps.max() + margin)
    for ax in axes.flat[len(metrics) :]:
        ax.set_axis_off()
    lines = [line for ax in axes.flat for line in ax.get_lines() if line.get_gid()]
    drawn = {line.get_gid(): line for line in reversed(lines)}  # the first of each is solid
    named = [name for name in (WHOLE_NETWORK, *colours) if name in drawn]
    splits = ", ".join(f"{split}: {name}" for split, (_, name) in looks.items())
    title = plain(splits) if len(looks) > 1 else None
    if len(named) > LAYERS_NAMED:
        of_layers = [name for name in named if name != WHOLE_NETWORK]
        named = [name for name in named if name in (WHOLE_NETWORK, of_layers[0], of_layers[-1])]
        told = f"{len(of_layers)} layers, of which the first and the last are named"
        title = f"{told}; {title}" if title else told
    if len(named) > 1:
        # Matplotlib leaves out names that begin with an underscore.
        names = [plain(f" {name}" if name.startswith("_") else name) for name in named]
        handles = [drawn[name] for name in named]
        figure.legend(handles, names, loc="outside lower center", ncols=6, title=title)
    return figure


def plain(name: str) -> str:
    """A name as Matplotlib shows it, without taking it for mathematics."""
    return name.replace("$", r"\$")


def _by_depth(names: Iterable[str]) -> list[str]:
    """Layers in the order of their modules in a record; parts of one next to it."""
    places = {name: i for i, name in enumerate(names) if name != WHOLE_NETWORK}

    def place(name: str) -> tuple[int, int]:
        around = [place for other, place in places.items() if name.startswith(f"{other}.")]
        return min(around, default=places[name]), places[name]

    return sorted(places, key=place)


def _draw(
    ax: "Axes",
    rows: pd.DataFrame,
    metric: str,
    colours: dict[str, str],
    looks: dict[str, tuple[str, str]],
    broken_at: "pd.Series | None",
) -> None:
    before = (rows["step"] == 0) & (broken_at is not None)
    for (layer, split, _), curve in rows.groupby(["layer", "split", before], sort=False):
        whole = layer == WHOLE_NETWORK
        colour = style.COLOURS["train"] if whole else colours[str(layer)]
        width, order = (1.5, 3) if whole else (1.0, 2)
        (line,) = ax.plot(curve["step"], curve["value"], looks[str(split)][0], color=colour)
        line.set(linewidth=width, zorder=order, marker=".", gid=str(layer))
    if broken_at is not None:
        style.broken_axis(ax, broken_at)
    if metric in LOGARITHMIC and (rows["value"] > 0).all():
        ax.set_yscale("log")
    if metric in BETWEEN_0_AND_1:
        ax.set_ylim(min(0.0, rows["value"].min()), 1.02)
    ax.set_title(PANELS.get(metric) or plain(metric))
    ax.set_xlabel("step")
