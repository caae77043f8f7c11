"""Curves and points over seeds, drawn with one convention for all figures.

With at least `BAND_SEEDS` seeds, a mean is drawn with one standard deviation (n − 1) either way;
with fewer, each seed is drawn next to the mean; with one, the seed alone. On a logarithmic axis,
mean and deviation are those of the logarithms, so set an axis's scale before drawing on it.
"""

from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd

from feature_alignment.errors import UserError, check_known
from feature_alignment.pipeline.figures.figure import Axes, Picture
from feature_alignment.pipeline.figures.style import BAND_SEEDS, COLOURS, LINES
from feature_alignment.pipeline.marks import DIVERGED

THIN = 0.6  # the width of a single seed's line
OVER_SEEDS = (  # for captions: what `draw_curve` draws
    "Lines are means over seeds, with bands of one standard deviation either way, or thin lines "
    "for each of fewer than four seeds; on logarithmic axes mean and deviation are of logarithms. "
    "Symbols at 0, before the break of an axis, are the start, hollow if the line is not solid."
)
DEVIATIONS = {
    "stated": ("^", "the paper's form"),
    "corrected": ("o", "corrected"),
    "printed": ("X", "as printed"),
}
ZERO = "Differences of exactly 0 stand at 10⁻¹⁷."  # for captions
_SMALLEST = 1e-17
CRITERION = "criterion"  # the label of a bound that the paper does not state


def describe_seeds(frame: pd.DataFrame, picture: Picture, points: Collection[str] = ()) -> str:
    """How many seeds a figure's tidy table has, and how its picture draws them; empty if none.

    If it has rows of the `points`, only those count: rows derived from several often have one seed.
    Diverged networks are counted, and criteria that `draw_paper` drew are explained.
    """
    from matplotlib.collections import PathCollection, PolyCollection

    if "seed" not in frame:
        return ""
    counts = frame.groupby(frame.get("point", frame["seed"] * 0))["seed"].nunique()
    counts = counts[counts.index.isin(points)] if counts.index.isin(points).any() else counts
    least, most = counts.min(), counts.max()
    drawn = [item for ax in picture.axes for item in ax.collections]
    bands = [item for item in drawn if isinstance(item, PolyCollection)]
    logarithms = any(item.axes and item.axes.get_yscale() == "log" for item in bands)
    thin = any(line.get_linewidth() == THIN for ax in picture.axes for line in ax.lines)
    criteria = any(
        text.get_text().startswith(CRITERION) for ax in picture.axes for text in ax.texts
    )
    marks = {
        "band = mean ± sd" + ", of logarithms on logarithmic axes" * logarithms: bool(bands),
        "thin lines = single seeds": thin,
        "dots = single seeds": any(isinstance(item, PathCollection) for item in drawn),
        f"{CRITERION} = our bound for what the paper says in words": criteria,
    }
    number = f"{most if least == most else f'{least} to {most}'} seed{'s' if most > 1 else ''}"
    words = [number, *(words for words, there in marks.items() if there)]
    if diverged := int((frame["metric"] == DIVERGED).sum() if "metric" in frame else 0):
        words.append(f"{diverged} network{'s' * (diverged > 1)} diverged")
    return "; ".join(words)


def draw_curve(
    ax: Axes,
    rows: pd.DataFrame,
    colour: str,
    label: str | None = None,
    *,
    x: str = "step",
    **style: Any,
) -> None:
    """Draw the mean over seeds as a line with a band, or with thin lines for few seeds.

    On a broken axis, see `broken_axis`, values at 0 are markers, hollow if the line is not solid.

    Args:
        ax: where to draw.
        rows: tidy rows of one quantity, one for each seed and place on the x axis.
        colour: of everything drawn, or a thing of `COLOURS`, which also has its own line style.
        label: for the legend.
        x: the column of the x axis.
        style: further properties of the line.

    Raises:
        UserError: if there is no row, several for one seed and place, a value that is not positive
            on a logarithmic axis, or a colour that is none.
    """
    import seaborn
    from matplotlib.colors import is_color_like

    if not is_color_like(colour):
        check_known(f"colour: found {colour!r}", colour, COLOURS)
    if rows.duplicated(["seed", x]).any():
        raise UserError(f"the curve {label!r} has several values for one seed and {x}.")
    _check(rows, ax.get_yscale(), f"the curve {label!r}")
    style = {"linestyle": LINES.get(colour, "-"), **style}
    begins, later = rows[x] == 0, rows[x] > 0
    if ax.get_xscale() == "symlog" and begins.any() and later.any():
        draw_curve(ax, rows[later], colour, label, x=x, **style)
        fill = {} if style["linestyle"] == "-" else {"markerfacecolor": "none"}
        rows, label = rows[begins], None
        style = {**style, **fill, "marker": "o", "markersize": 4.0}
    seeds, single = rows["seed"].nunique(), rows[x].nunique() == 1
    colour = COLOURS.get(colour, colour)
    # Crosses consist only of edges, and seaborn makes edges white.
    style = {"color": colour, "markeredgecolor": colour, **style}
    if seeds >= BAND_SEEDS:
        labels = ax.get_xlabel(), ax.get_ylabel()
        common = {"data": rows, "x": x, "y": "value", "ax": ax, "legend": False, "errorbar": "sd"}
        common |= {"err_style": "bars"} if single else {"err_kws": {"linewidth": 0}}
        seaborn.lineplot(**common, label=label, **style)
        _restore_labels(ax, *labels)
        return
    if seeds > 1:
        # At a single place a line has no length, so only dots are visible.
        thin = {**style, "linewidth": THIN, "alpha": 0.5, "marker": "." if single else ""}
        for _, one in rows.sort_values(x).groupby("seed"):
            ax.plot(one[x], one["value"], **thin)
    scale = ax.yaxis.get_transform()
    means = rows["value"].map(scale.transform).groupby(rows[x]).mean()
    style = {"markeredgewidth": 0.75, **style}  # as seaborn's
    ax.plot(means.index, scale.inverted().transform(means), label=label, **style)


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
        group: the column of groups, which are drawn side by side and named in the legend.
        horizontal: whether categories go down and values across.

    Raises:
        UserError: if there is no row, or a value that is not positive on a logarithmic axis.
    """
    import seaborn

    rows = rows[rows[by].isin(list(places))]
    values, categories = (ax.xaxis, ax.yaxis) if horizontal else (ax.yaxis, ax.xaxis)
    _check(rows, values.get_scale(), f"points by {by}")
    labels = ax.get_xlabel(), ax.get_ylabel()
    x, y = ("value", by) if horizontal else (by, "value")
    common = {"data": rows, "x": x, "y": y, "hue": group or by, "orient": "xy"[horizontal]}
    common |= {"order": list(places), "hue_order": list(colours), "palette": dict(colours)}
    common |= {"legend": False, "ax": ax}
    seaborn.stripplot(**common, jitter=False, dodge=group is not None, size=3.5, alpha=0.6)
    bar = {"marker": "|" if horizontal else "_", "markersize": 9, "markeredgewidth": 2}
    bar |= {"linestyle": "none", "err_kws": {"linewidth": 1}}
    bar["errorbar"] = "sd" if rows["seed"].nunique() >= BAND_SEEDS else None
    # The groups' outermost middles: stripplot spreads groups over 0.8 of a category.
    bar["dodge"] = 0.8 * (1 - 1 / len(colours)) if group else False
    seaborn.pointplot(**common, **bar)
    for name, colour in colours.items() if group else ():
        ax.plot([], [], "o", color=colour, label=str(name), scalex=False, scaley=False)
    categories.set_ticks(range(len(places)), list(places.values()))
    _restore_labels(ax, *labels)


def draw_paper(
    ax: Axes,
    numbers: Mapping[str, float],
    scale: float = 1.0,
    colour: str = "paper",
    note: str = "",
) -> None:
    """Draw the paper's number of a claim, and the bounds of its criterion, as horizontal lines.

    Call it last: the axis keeps its limits, and numbers outside are written at its edge.

    Args:
        ax: where to draw.
        numbers: `paper_value`, its `decimals`, `low` and `high`, or some of them, as returned by
            `FigureTable.of_claim`.
        scale: the factor of the claim's values in the picture; unless it is 1, the numbers are
            written as multiples (×).
        colour: a thing of `COLOURS`, if the numbers are about only one of several.
        note: what they are about, written on a line of its own.
    """
    marks = {numbers["paper_value"]: "paper\n"} if "paper_value" in numbers else {}
    for key, sign in (("low", ">"), ("high", "<")):
        if key in numbers:
            marks[numbers[key]] = marks.get(numbers[key], f"{CRITERION}\n") + f"{sign} "
    bottom, top = sorted(ax.get_ylim())
    # Next to the axis, where they hide nothing.
    beside = {"xytext": (2, 0), "textcoords": "offset points", "va": "center", "fontsize": 6}
    beside["color"] = COLOURS[colour]
    for value, words in marks.items():
        place = min(max(scale * value, bottom), top)
        arrow = " ↑" if place < scale * value else " ↓" if place > scale * value else ""
        if not arrow:
            ax.axhline(place, linewidth=0.8, linestyle=":", zorder=1.5, color=COLOURS[colour])
        decimals = "decimals" in numbers and value == numbers["paper_value"]
        form = f".{numbers['decimals']}f" if decimals else ".3g"
        text = f"{words}{value:{form}}{'' if scale == 1 else '×'}{arrow}"
        text += f"\n{note}" * bool(note)
        ax.annotate(text, (1, place), xycoords=ax.get_yaxis_transform(), **beside)


def draw_deviations(
    ax: Axes, rows: pd.DataFrame, statements: Mapping[str, str], *, legend: bool = True
) -> None:
    """Draw relative deviations between two sides of statements as markers on a log axis.

    Rows have the columns `statement`, `form` (see `DEVIATIONS`) and `value`; `statements` has the
    labels by statement, from the top down. A legend above explains the markers.
    """
    largest = 1.0
    places = {statement: place for place, statement in enumerate(statements)}
    for form, (marker, label) in DEVIATIONS.items():
        chosen = rows[rows["form"] == form]
        # Sides that agree in every bit are drawn at the left edge.
        values = chosen["value"].clip(lower=_SMALLEST)
        largest = max(largest, values.max()) if len(values) else largest
        ax.plot(values, chosen["statement"].map(places), marker, color=COLOURS[form], label=label)
    ax.set_yticks(range(len(statements)), statements.values())
    ax.set(xscale="log", xlim=(_SMALLEST / 2, 3 * largest))
    ax.invert_yaxis()
    if legend:
        ax.legend(loc="lower center", ncols=3, bbox_to_anchor=(0.5, 1.0))


def _check(rows: pd.DataFrame, scale: str, what: str) -> None:
    """Raise a UserError for what seaborn would silently leave out."""  # noqa: DOC501
    if rows.empty:
        raise UserError(f"no rows to draw for {what}.")
    bad = rows[~(rows["value"] > 0)]
    if scale == "log" and len(bad):
        first = bad.iloc[0]
        metric, value, seed = first.get("metric", "value"), first["value"], first["seed"]
        raise UserError(
            f"{what}: metric {metric} is {value:g} at seed {seed}, which is not positive, and its "
            "axis is logarithmic."
        )


def _restore_labels(ax: Axes, xlabel: str, ylabel: str) -> None:
    """Replace the axis labels that seaborn makes from column names."""
    ax.set_xlabel(xlabel, visible=True)
    ax.set_ylabel(ylabel, visible=True)
