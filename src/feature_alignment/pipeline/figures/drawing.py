"""Curves and points over seeds, drawn by seaborn with one convention for all figures.

From `BAND_SEEDS` seeds on, a mean is drawn with one standard deviation (n − 1) either way; of
fewer, each seed is drawn beside the mean; of one, the seed alone. On a logarithmic axis mean and
deviation are those of the logarithms, so an axis needs its scale before anything is drawn on it.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from feature_alignment.errors import UserError
from feature_alignment.pipeline.figures.figure import Axes

BAND_SEEDS = 4
"""The smallest number of seeds whose standard deviation is drawn."""
OVER_SEEDS = (
    "Lines are means over seeds, with bands of one standard deviation either way, or thin lines "
    "for each of fewer than four seeds."
)
"""For captions: what `draw_curve` draws."""


def describe_seeds(frame: pd.DataFrame) -> str:
    """How many seeds a figure's tidy table has and how they are drawn; empty if it has none.

    Where its points differ in this, points of one seed do not count: derived rows often have one.

    Example:
        >>> describe_seeds(pd.DataFrame({"seed": [0, 1, 2, 0]}))
        'n = 3 seeds; curves: mean and each seed'
    """
    if "seed" not in frame:
        return ""
    counts = frame.groupby(frame.get("point", frame["seed"] * 0))["seed"].nunique()
    least, most = counts[counts > 1].min(), counts.max()
    if not most > 1:
        return "1 seed"
    words = "mean ± sd" if most >= BAND_SEEDS else "mean and each seed"
    if least < BAND_SEEDS <= most:
        words += f", of fewer than {BAND_SEEDS} mean and each seed"
    return f"n = {most if least == most else f'{least} to {most}'} seeds; curves: {words}"


def draw_curve(
    ax: Axes,
    rows: pd.DataFrame,
    colour: str,
    label: str | None = None,
    *,
    x: str = "step",
    y: str = "value",
    **style: Any,
) -> None:
    """Draw the mean over seeds as a line, with a band, or few seeds as thin lines beside it.

    Args:
        ax: where to draw.
        rows: tidy rows of one quantity, one for each seed and place on the x axis.
        colour: of everything drawn.
        label: for the legend.
        x: the column of the x axis.
        y: the column of the values.
        style: further properties of the line.

    Raises:
        UserError: if there is no row, several for one seed and place, or a value that is not
            positive on a logarithmic axis.
    """
    import seaborn

    if rows.duplicated(["seed", x]).any():
        raise UserError(f"the curve {label!r} has several values for one seed and {x}.")
    _check(rows, y, ax.get_yscale(), f"the curve {label!r}")
    labels = ax.get_xlabel(), ax.get_ylabel()
    seeds = rows["seed"].nunique()
    # Crosses consist of edges alone, and seaborn's are white.
    style = {"color": colour, "markeredgecolor": colour, **style}
    common = {"data": rows, "x": x, "y": y, "ax": ax, "legend": False}
    if 1 < seeds < BAND_SEEDS:
        # At a single place a line has no length, and only dots can be seen.
        marker = "." if rows[x].nunique() == 1 else ""
        thin = {**style, "linewidth": 0.6, "alpha": 0.5, "marker": marker}
        seaborn.lineplot(**common, units="seed", estimator=None, **thin)
    common |= {"errorbar": "sd" if seeds >= BAND_SEEDS else None, "err_kws": {"linewidth": 0}}
    seaborn.lineplot(**common, label=label, **style)
    _restore_labels(ax, *labels)


def draw_points(
    ax: Axes,
    rows: pd.DataFrame,
    places: Mapping[Any, str],
    colours: Mapping[Any, str],
    *,
    by: str = "point",
    group: str | None = None,
    horizontal: bool = False,
) -> None:
    """Draw a dot for each seed and a bar at their mean, for each category.

    Args:
        ax: where to draw.
        rows: tidy rows, one for each seed, category and group.
        places: tick labels by category, from the left or from the top.
        colours: colours by group, or by category if there are no groups.
        by: the column of the categories.
        group: the column of groups to stand side by side, named in the legend.
        horizontal: whether categories go down and values across.

    Raises:
        UserError: if there is no row, or a value that is not positive on a logarithmic axis.
    """
    import seaborn

    rows = rows[rows[by].isin(list(places))]
    values, categories = (ax.xaxis, ax.yaxis) if horizontal else (ax.yaxis, ax.xaxis)
    _check(rows, "value", values.get_scale(), f"points by {by}")
    labels = ax.get_xlabel(), ax.get_ylabel()
    x, y = ("value", by) if horizontal else (by, "value")
    common = {"data": rows, "x": x, "y": y, "hue": group or by, "orient": "xy"[horizontal]}
    common |= {"order": list(places), "hue_order": list(colours), "palette": dict(colours)}
    common |= {"legend": False, "ax": ax}
    seaborn.stripplot(**common, jitter=False, dodge=group is not None, size=3.5, alpha=0.6)
    # The groups' outermost middles: stripplot spreads groups over 0.8 of a category.
    dodge = 0.8 * (1 - 1 / len(colours)) if group else False
    bar = {"marker": "|" if horizontal else "_", "markersize": 9, "markeredgewidth": 2}
    bar |= {"linestyle": "none", "err_kws": {"linewidth": 1}}
    bar["errorbar"] = "sd" if rows["seed"].nunique() >= BAND_SEEDS else None
    bar["dodge"] = dodge
    seaborn.pointplot(**common, **bar)
    for name, colour in colours.items() if group else ():
        ax.plot([], [], "o", color=colour, label=str(name), scalex=False, scaley=False)
    categories.set_ticks(range(len(places)), list(places.values()))
    _restore_labels(ax, *labels)


def _check(rows: pd.DataFrame, y: str, scale: str, what: str) -> None:
    """Raise a UserError at what seaborn would leave out without a word."""  # noqa: DOC501
    if rows.empty:
        raise UserError(f"no rows to draw for {what}.")
    bad = rows[~(rows[y] > 0)]
    if scale == "log" and len(bad):
        first = bad.iloc[0]
        metric, value, seed = first.get("metric", y), first[y], first["seed"]
        raise UserError(
            f"{what}: metric {metric} is {value:g} at seed {seed}, which is not positive, and its "
            "axis is logarithmic."
        )


def _restore_labels(ax: Axes, xlabel: str, ylabel: str) -> None:
    """Take back the axis labels that seaborn makes of column names."""
    ax.set_xlabel(xlabel, visible=True)
    ax.set_ylabel(ylabel, visible=True)
