"""A claim as a strip: the criterion's zone, the paper's number, each seed, their mean and range."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

_NUMBERS = ("paper_value", "low", "high", "least", "most", "ours")
_MARGIN = 0.08
_SPAN = 100


def strip(*rows: Mapping[Any, Any]) -> dict[str, Any] | None:
    """What to draw of one claim, from its rows of claims.csv in one result or several, if anything.

    `lanes` has each row's numbers, None for missing ones, and its `seeds`; `least` and `most` are
    the extremes of all rows; `logarithmic` is whether the axis is; and `place` maps a number to its
    place in per cent of the strip's width.
    """
    lanes = [_lane(row) for row in rows]
    if not any(lane["seeds"] for lane in lanes):
        return None
    known = [lane[key] for lane in lanes for key in _NUMBERS if lane[key] is not None]
    least, most = min(known), max(known)
    logarithmic = least > 0 and most > _SPAN * least
    scale = math.log10 if logarithmic else float
    margin = _MARGIN * (scale(most) - scale(least)) or 1.0
    low, width = scale(least) - margin, scale(most) - scale(least) + 2 * margin

    def place(value: float) -> float:
        return round(100 * (scale(value) - low) / width, 1)

    ends = {"least": least, "most": most, "logarithmic": logarithmic}
    return {"lanes": lanes, **ends, "place": place}


def _lane(row: Mapping[Any, Any]) -> dict[str, Any]:
    seeds = str(row["by_seed"]).split() if row["seeds"] > 0 else []
    numbers = {key: None if pd.isna(row[key]) else float(row[key]) for key in _NUMBERS}
    return {**numbers, "seeds": [float(value) for value in seeds]}
