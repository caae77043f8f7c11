"""Curves over training: numbers derived from them."""

from collections.abc import Sequence

import pandas as pd


def last_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table's last step."""
    return frame[frame["step"] == frame["step"].max()]


def spread_over(frame: pd.DataFrame, column: str, by: Sequence[str]) -> pd.DataFrame:
    """How far a metric's values differ along a column: the largest minus the smallest.

    `frame` has one row for each value of `column` in each group, which the columns `by` make
    (`seed` and `metric` among them); `step` does not count.

    Returns:
        Tidy rows at the table's last step, with metrics named `<metric>_<column>_spread`.
    """
    values = frame.groupby(list(by))["value"]
    spread = (values.max() - values.min()).reset_index()
    return spread.assign(
        metric=spread["metric"] + f"_{column}_spread", step=int(frame["step"].max())
    )


def change_between(
    frame: pd.DataFrame, column: str, first: float, second: float, by: Sequence[str], name: str
) -> pd.DataFrame:
    """How much a metric's value changes from one value of a column to another.

    `frame` has one row for either value in each group, as for `spread_over`.

    Returns:
        Tidy rows of the value at `second` minus that at `first`, at the table's last step.
    """
    start, end = (
        frame[frame[column] == value].set_index(list(by))["value"] for value in (first, second)
    )
    change = (end - start).reset_index()
    return change.assign(metric=change["metric"] + f"_{name}", step=int(frame["step"].max()))
