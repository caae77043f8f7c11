"""Curves over training with their spread over seeds, and numbers derived from such curves."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def draw_curve(
    ax: "Axes", rows: "pd.DataFrame", colour: str, label: str | None = None, **style: Any
) -> None:
    """Draw the mean over seeds against the step, in a band of one standard deviation either way.

    On an axis that is already logarithmic, mean and deviation are those of the logarithms, or the
    band could reach below zero. The deviation has n − 1 in its denominator; of a single seed
    there is no band.

    Args:
        ax: where to draw.
        rows: tidy rows of one quantity, one for each seed and step.
        colour: of line and band.
        label: for the legend.
        style: further properties of the line.

    Raises:
        ValueError: if there is no row, several for one seed and step, or a value that is not
            positive on a logarithmic axis.
    """
    import numpy as np

    if rows.empty:
        raise ValueError(f"no rows to draw for the curve {label!r}.")
    if rows.duplicated(["seed", "step"]).any():
        raise ValueError(f"the curve {label!r} has several values for one seed and step.")
    logarithmic = ax.get_yscale() == "log"
    if logarithmic and not (rows["value"] > 0).all():
        raise ValueError(f"the curve {label!r} is not positive, and its axis is logarithmic.")
    forward, back = (np.log, np.exp) if logarithmic else (np.asarray, np.asarray)
    by_step = rows.assign(value=forward(rows["value"])).groupby("step")["value"]
    mean, deviation = by_step.mean(), by_step.std(ddof=1).fillna(0.0)
    ax.plot(mean.index, back(mean), color=colour, label=label, **style)
    low, high = back(mean - deviation), back(mean + deviation)
    ax.fill_between(mean.index, low, high, color=colour, alpha=0.2, linewidth=0)


def last_rows(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The rows of a table's last step."""
    return frame[frame["step"] == frame["step"].max()]


def spread_over(frame: "pd.DataFrame", column: str, by: Sequence[str]) -> "pd.DataFrame":
    """How far a metric's values differ along a column: the largest minus the smallest.

    Args:
        frame: tidy rows, one for each value of `column` in each group; `step` does not count.
        column: the column along which values are compared, such as the initialisation scale.
        by: the columns that make the groups, `seed` and `metric` among them.

    Returns:
        Tidy rows at the table's last step, with metrics named `<metric>_<column>_spread`.
    """
    values = frame.groupby(list(by))["value"]
    spread = (values.max() - values.min()).reset_index()
    return spread.assign(
        metric=spread["metric"] + f"_{column}_spread", step=int(frame["step"].max())
    )


def change_between(
    frame: "pd.DataFrame", column: str, first: Any, second: Any, by: Sequence[str], name: str
) -> "pd.DataFrame":
    """How much a metric's value changes from one value of a column to another.

    Args:
        frame: tidy rows, one in each group for each of the two values.
        column: the column that tells them apart, such as `step` or the initialisation scale.
        first: its value to start from.
        second: its value to end at.
        by: the columns that make the groups, `seed` and `metric` among them.
        name: put behind the metrics' names, after an underscore.

    Returns:
        Tidy rows of the value at `second` minus that at `first`, at the table's last step.
    """
    start, end = (
        frame[frame[column] == value].set_index(list(by))["value"] for value in (first, second)
    )
    change = (end - start).reset_index()
    return change.assign(metric=change["metric"] + f"_{name}", step=int(frame["step"].max()))
