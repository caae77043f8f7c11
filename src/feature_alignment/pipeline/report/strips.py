"""A claim as a strip: the criterion's zone, the paper's number, each seed, their range and mean."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from feature_alignment.pipeline.report.wording import number_text

_NUMBERS = ("low", "high", "least", "most", "ours")
_MARGIN = 0.08
_SPAN = 100


def strip(*rows: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where on a strip, in per cent of its width, to draw what rows of claims.csv tell.

    Args:
        rows: of one claim, one for each result that is drawn; below each other on the same axis.

    Returns:
        `paper`, the place of the paper's number or None; `lanes`, for each row its `zone`, from
        and to, or None, `seeds`, their `mean`, and the `range` of all values; `ends`, the smallest
        and the largest number that is drawn; whether the axis is `logarithmic`; and all of it in
        `words`. None if no row has values.
    """
    if not any(row["seeds"] > 0 for row in rows):
        return None
    paper = _number(rows[0]["paper_value"])
    found = [{key: _number(row[key]) for key in _NUMBERS} | {"seeds": _seeds(row)} for row in rows]
    marks = [paper, *(lane[key] for lane in found for key in _NUMBERS)]
    known = [mark for mark in marks if mark is not None]
    least, most = min(known), max(known)
    logarithmic = least > 0 and most > _SPAN * least
    scale = math.log10 if logarithmic else float
    margin = _MARGIN * (scale(most) - scale(least)) or 1.0
    low, high = scale(least) - margin, scale(most) + margin

    def place(value: float | None) -> float | None:
        return None if value is None else round(100 * (scale(value) - low) / (high - low), 1)

    return {
        "paper": place(paper),
        "lanes": [_lane(lane, place) for lane in found],
        "ends": (number_text(least), number_text(most)),
        "logarithmic": logarithmic,
        "words": "; ".join(_words(lane) for lane in found),
    }


def _lane(lane: Mapping[str, Any], place: Callable[[float | None], float | None]) -> dict[str, Any]:
    low, high = place(lane["low"]), place(lane["high"])
    judged = low is not None or high is not None
    return {
        "zone": (0 if low is None else low, 100 if high is None else high) if judged else None,
        "seeds": [place(value) for value in lane["seeds"]],
        "range": (place(lane["least"]), place(lane["most"])),
        "mean": place(lane["ours"]),
    }


def _words(lane: Mapping[str, Any]) -> str:
    low, high, least, most = (number_text(lane[key]) for key in ("low", "high", "least", "most"))
    return f"asked for {low} to {high}, found {least} to {most}"


def _seeds(row: Mapping[str, Any]) -> Sequence[float]:
    return [float(value) for value in str(row["by_seed"]).split()] if row["seeds"] > 0 else []


def _number(value: Any) -> float | None:
    return None if value is None or value == "" or math.isnan(value) else float(value)
