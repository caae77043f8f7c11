"""Curves and points over seeds, drawn by seaborn with one convention for all figures.

From `BAND_SEEDS` seeds on, a mean is drawn with one standard deviation (n − 1) either way; of
fewer, each seed is drawn beside the mean; of one, the seed alone. On a logarithmic axis mean and
deviation are those of the logarithms. So an axis gets its scale before anything is drawn on it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

BAND_SEEDS = 4
"""The smallest number of seeds whose standard deviation is drawn."""
_CATEGORY_WIDTH = 0.8
"""Share of a category's width over which seaborn spreads its groups."""


def describe_seeds(frame: "pd.DataFrame") -> str:
    """What the lines of a figure say about its seeds, in a few words for its footer.

    Where points have different numbers of seeds, it names the range; points of one seed are left
    out of it, since a table's derived rows often have one.

    Args:
        frame: the figure's tidy table.

    Returns:
        The words; none if the table has no column `seed`.

    Example:
        >>> import pandas as pd
        >>> describe_seeds(pd.DataFrame({"seed": [0, 1, 2, 0]}))
        'n = 3 seeds; curves: mean and each seed'
        >>> describe_seeds(pd.DataFrame({"seed": range(5)}))
        'n = 5 seeds; curves: mean ± sd'
    """
    if "seed" not in frame:
        return ""
    by = frame["point"] if "point" in frame else [0] * len(frame)
    counts = frame.groupby(by)["seed"].nunique()
    least, most = counts[counts > 1].min(), counts.max()
    if not most > 1:
        return "1 seed"
    if least >= BAND_SEEDS:
        drawn = "mean ± sd"
    elif most < BAND_SEEDS:
        drawn = "mean and each seed"
    else:
        drawn = f"mean ± sd, of fewer than {BAND_SEEDS} mean and each seed"
    number = f"{most}" if least == most else f"{least} to {most}"
    return f"n = {number} seeds; curves: {drawn}"


def rows_of(frame: "pd.DataFrame", **where: object) -> "pd.DataFrame":
    """The rows in which the given columns have the given values.

    Raises:
        KeyError: if there is no such row.
    """
    for column, value in where.items():
        frame = frame[frame[column] == value]
    if frame.empty:
        raise KeyError(f"the table has no rows where {where}")
    return frame


def draw_curve(
    ax: "Axes",
    rows: "pd.DataFrame",
    colour: str,
    label: str | None = None,
    *,
    x: str = "step",
    y: str = "value",
    **style: Any,
) -> None:
    """Draw the mean over seeds as a line, and the seeds as a band or as thin lines.

    Args:
        ax: where to draw; its scale is already set.
        rows: tidy rows of one quantity, one for each seed and place on the x axis.
        colour: of everything drawn.
        label: for the legend.
        x: the column of the x axis.
        y: the column of the values.
        style: further properties of the line.

    Raises:
        ValueError: if there is no row, several for one seed and place, or a value that is not
            positive on a logarithmic axis.
    """
    import seaborn

    if rows.empty:
        raise ValueError(f"no rows to draw for the curve {label!r}.")
    if rows.duplicated(["seed", x]).any():
        raise ValueError(f"the curve {label!r} has several values for one seed and {x}.")
    _check_positive(rows[y], ax.get_yscale(), f"the curve {label!r}")
    labels = ax.get_xlabel(), ax.get_ylabel()
    seeds = rows["seed"].nunique()
    # Crosses consist of edges alone, and seaborn's are white.
    style = {"color": colour, "markeredgecolor": colour, **style}
    common = {"data": rows, "x": x, "y": y, "ax": ax, "legend": False}
    if 1 < seeds < BAND_SEEDS:
        thin = {**style, "linewidth": 0.6, "alpha": 0.5, "marker": ""}
        seaborn.lineplot(**common, units="seed", estimator=None, **thin)
    errorbar = "sd" if seeds >= BAND_SEEDS else None
    band = {"linewidth": 0} if errorbar else None
    seaborn.lineplot(**common, errorbar=errorbar, err_kws=band, label=label, **style)
    _restore_labels(ax, *labels)


def draw_points(
    ax: "Axes",
    rows: "pd.DataFrame",
    places: Mapping[Any, str],
    colours: Mapping[Any, str],
    *,
    by: str = "point",
    group: str | None = None,
    value: str = "value",
    horizontal: bool = False,
) -> None:
    """Draw a dot for each seed and a bar at their mean, category by category.

    Groups within a category stand side by side, and are named in the legend.

    Args:
        ax: where to draw; its scale is already set.
        rows: tidy rows, one for each seed, category and group.
        places: tick labels by category, from the left or from the top.
        colours: colours by group, or by category if there are no groups.
        by: the column of the categories.
        group: the column of the groups.
        value: the column of the values.
        horizontal: whether categories go down and values across.

    Raises:
        ValueError: if no row is of a category, or a value is not positive on a logarithmic axis.
    """
    import seaborn

    rows = rows[rows[by].isin(list(places))]
    if rows.empty:
        raise ValueError(f"no rows to draw for {by} in {list(places)}.")
    _check_positive(rows[value], ax.get_xscale() if horizontal else ax.get_yscale(), value)
    labels = ax.get_xlabel(), ax.get_ylabel()
    x, y = (value, by) if horizontal else (by, value)
    common = {"data": rows, "x": x, "y": y, "hue": group or by, "orient": "xy"[horizontal]}
    common |= {"order": list(places), "hue_order": list(colours), "palette": dict(colours)}
    common |= {"legend": False, "ax": ax}
    spread = _CATEGORY_WIDTH * (1 - 1 / len(colours)) if group else False
    seaborn.stripplot(**common, jitter=False, dodge=group is not None, size=3.5, alpha=0.6)
    seaborn.pointplot(
        **common,
        dodge=spread,
        errorbar="sd" if rows["seed"].nunique() >= BAND_SEEDS else None,
        err_kws={"linewidth": 1},
        linestyle="none",
        marker="|" if horizontal else "_",
        markersize=9,
        markeredgewidth=2,
    )
    for name, colour in colours.items() if group else ():
        ax.plot([], [], "o", color=colour, label=str(name))
    axis = ax.yaxis if horizontal else ax.xaxis
    axis.set_ticks(range(len(places)), list(places.values()))
    _restore_labels(ax, *labels)


def _check_positive(values: "pd.Series", scale: str, what: str) -> None:
    # seaborn would leave such values out without a word.
    if scale == "log" and not (values > 0).all():
        raise ValueError(f"{what} is not positive, and its axis is logarithmic.")


def _restore_labels(ax: "Axes", xlabel: str, ylabel: str) -> None:
    """Take back the axis labels that seaborn makes of column names."""
    ax.set_xlabel(xlabel, visible=True)
    ax.set_ylabel(ylabel, visible=True)
