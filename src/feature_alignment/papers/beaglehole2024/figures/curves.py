"""Numbers derived from curves over training or over a setting."""

from collections.abc import Mapping
from typing import Any

import pandas as pd


def last_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table's last step."""
    return frame[frame["step"] == frame["step"].max()]


def network_deviations(rows: pd.DataFrame, x: str) -> pd.DataFrame:
    """Standard deviation (`ddof=0`) between networks: seeds as rows, values of x as columns."""
    return rows.groupby(["seed", x])["value"].std(ddof=0).unstack()


def tidy(
    values: Mapping[str, pd.Series] | pd.DataFrame, layer: str = "all", step: int = 0, **where: Any
) -> pd.DataFrame:
    """Tidy rows of values by metric, with their index and `where` as columns."""
    rows = pd.DataFrame(values).melt(ignore_index=False, var_name="metric").reset_index()
    return rows.assign(layer=layer, step=step, split="train", **where)


def scales_of(frame: pd.DataFrame) -> list[float]:
    """The initialisation scales of the first layer, from large to small."""
    return sorted(frame["scale"].dropna().unique(), reverse=True)


def keys(frame: pd.DataFrame, column: str) -> list[str]:
    """The columns whose values are equal in rows that differ in the given column alone.

    `step` is not among them: the table has a single step, or `step` is the column.
    """
    return frame.columns.drop([column, "step", "value"], errors="ignore").tolist()


def spread_over(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """The spread of a metric's values along a column: the largest minus the smallest.

    The rows are at the table's last step, with metrics named `<metric>_<column>_spread`. A single
    value has no spread, and no row.
    """
    values = frame.groupby(keys(frame, column))["value"]
    spread = (values.max() - values.min())[values.size() > 1].reset_index()
    return spread.assign(
        metric=spread["metric"] + f"_{column}_spread", step=int(frame["step"].max())
    )


def change_between(
    frame: pd.DataFrame, column: str, first: float, second: float, name: str
) -> pd.DataFrame:
    """A metric's values at the second value of a column minus those at the first.

    The rows are at the table's last step, with metrics named `<metric>_<name>`; there are none if
    the two values are the same.
    """
    start, end = (
        frame[frame[column] == value].set_index(keys(frame, column))["value"]
        for value in (first, second)
    )
    change = (end - start).reset_index()
    if first == second:
        change = change[:0]
    return change.assign(metric=change["metric"] + f"_{name}", step=int(frame["step"].max()))
