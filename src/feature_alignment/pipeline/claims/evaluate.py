"""Judge claims: the paper's number, ours, a verdict and its reason in words.

A claim is never tuned to pass: what decides is written in the ledger. Values that are not finite
are errors, and where a table, made with other settings, has no rows of a claim's kind, the claim is
not testable: neither is a pass.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import pandas as pd

from feature_alignment.errors import UserError, suggestion
from feature_alignment.pipeline.claims.ledger import EACH_SEED, Claim, Criterion
from feature_alignment.pipeline.claims.selection import (
    MissingRowsError,
    claim_remarks,
    claim_values,
)
from feature_alignment.pipeline.config import PRESETS
from feature_alignment.pipeline.spec import Spec

NO_ROWS = "the figure, with these settings, does not show it"
"""How a reason begins where rows are missing; with a preset's own settings, a ledger's mistake."""
EMBEDDED = "embedded"
LEAST_DRAWS = 5
DRAW_DEVIATIONS = 2.0
_OF_CLAIM = ("id", "paper", "place", "figure", "statement", "paper_value")
_OF_RESULT = ("name", "preset", "changed")
_FURTHER = ("unit", "criterion", "data", "spread")
COLUMNS = (*_OF_CLAIM, "ours", "sd", "seeds", "verdict", "reason", *_OF_RESULT, *_FURTHER)
"""Of claims.csv; what they mean is in the data dictionary, `pipeline/metrics.yaml`."""


class Outcome(StrEnum):
    """The word of a verdict."""

    REPRODUCED = "reproduced"
    PARTLY = "partly"
    NOT_REPRODUCED = "not reproduced"
    NOT_TESTABLE = "not testable here"


@dataclass(frozen=True)
class Verdict:
    """What came out for one claim.

    Attributes:
        outcome: the verdict's word.
        reason: why, in words and numbers.
        ours: mean of our values over seeds, in the claim's unit; None if not testable here.
        sd: standard deviation (n − 1) over seeds, or over all draws if the paper's number is
            judged as one draw; None for a single value.
        seeds: number of seeds.
    """

    outcome: Outcome
    reason: str
    ours: float | None = None
    sd: float | None = None
    seeds: int = 0


def evaluate(claim: Claim, table: pd.DataFrame, preset: str, data_is_real: bool) -> Verdict:
    """Judge one claim on its figure's table, which shows real (or synthetic) data or a stand-in.

    Raises:
        UserError: if the preset is unknown, the table lacks a column that the claim names, or
            its rows are ambiguous, not finite, or cannot be combined.
    """
    for name in (preset, claim.lowest_preset):
        if name not in PRESETS:
            raise UserError(f"preset: unknown preset {name!r}; {suggestion(name, PRESETS)}.")
    if PRESETS.index(preset) < PRESETS.index(claim.lowest_preset):
        reason = f"needs the sizes of preset {claim.lowest_preset} or larger; this is {preset}"
        return Verdict(Outcome.NOT_TESTABLE, reason)
    if claim.data == "real" and not data_is_real:
        return Verdict(Outcome.NOT_TESTABLE, "needs the real data; this figure shows a stand-in")
    try:
        values = claim_values(claim, table)
    except MissingRowsError as error:
        # With settings of one's own, such as fewer steps or one dataset less.
        return Verdict(Outcome.NOT_TESTABLE, f"{NO_ROWS}: {error.problem}")
    if claim.criterion.comparator == "one_draw" and len(values) < LEAST_DRAWS:
        reason = (
            f"the paper's number is one random draw, to be compared with at least {LEAST_DRAWS} "
            f"of ours; here there are {len(values)}"
        )
        return Verdict(Outcome.NOT_TESTABLE, reason)
    outcome, reason = _judge(claim, claim.criterion, values)
    if outcome is Outcome.NOT_REPRODUCED and claim.partly is not None:
        weaker, weaker_reason = _judge(claim, claim.partly, values)
        if weaker is not Outcome.NOT_REPRODUCED:
            outcome, reason = Outcome.PARTLY, f"{reason}, but {weaker_reason}"
    mean, sd, seeds = _summary(values, by_draw=claim.criterion.comparator == "one_draw")
    reason = "; ".join([reason, *claim_remarks(claim, table)])
    return Verdict(outcome, reason, mean, sd, seeds)


def _summary(values: pd.Series, by_draw: bool) -> tuple[float, float | None, int]:
    per_seed = values.groupby(level="seed", sort=True).mean()
    spread = values if by_draw else per_seed
    sd = float(spread.std(ddof=1)) if len(spread) > 1 else None
    return float(per_seed.mean()), sd, len(per_seed)


def _judge(claim: Claim, criterion: Criterion, values: pd.Series) -> tuple[Outcome, str]:
    if criterion.comparator == "one_draw":
        return _judge_one_draw(claim, criterion, values)
    if criterion.each:
        passed = int(sum(_holds(claim, criterion, value) for value in values))
        reason = f"{passed} of {len(values)} values are {_demand(claim, criterion)}"
        if passed == len(values):
            return Outcome.REPRODUCED, reason
        half = 2 * passed >= len(values)
        return (Outcome.PARTLY if half else Outcome.NOT_REPRODUCED), reason
    mean, _, _ = _summary(values, by_draw=False)
    if _holds(claim, criterion, mean):
        return Outcome.REPRODUCED, f"the mean {mean:.4g} is {_demand(claim, criterion)}"
    return Outcome.NOT_REPRODUCED, f"the mean {mean:.4g} is not {_demand(claim, criterion)}"


def _judge_one_draw(claim: Claim, criterion: Criterion, values: pd.Series) -> tuple[Outcome, str]:
    mean, sd, _ = _summary(values, by_draw=True)
    distance = abs(mean - _given(claim.paper_value))
    reach = DRAW_DEVIATIONS * _given(sd) + _given(criterion.tolerance)
    passed = _at_most(distance, reach)
    reason = (
        f"as one draw from ours ({mean:.4g} ± {sd:.2g}, {len(values)} draws), the paper's "
        f"{claim.paper_value:g} is {distance:.2g} away, {'within' if passed else 'beyond'} "
        f"{DRAW_DEVIATIONS:g} standard deviations and rounding ({reach:.2g})"
    )
    return (Outcome.REPRODUCED if passed else Outcome.NOT_REPRODUCED), reason


def _holds(claim: Claim, criterion: Criterion, value: float) -> bool:
    match criterion.comparator:
        case "near":
            return _at_most(abs(value - _given(claim.paper_value)), _given(criterion.tolerance))
        case "above":
            return value > _given(criterion.low)
        case "below":
            return value < _given(criterion.high)
        case "between":
            return _given(criterion.low) <= value <= _given(criterion.high)
    raise ValueError(f"claim {claim.id}: {criterion.comparator} does not judge single values")


def _given(number: float | None) -> float:
    """A number that the reading of the ledger has made sure of.

    Raises:
        ValueError: if there is none all the same.
    """
    if number is None:
        raise ValueError("a claim lacks a number that its comparator needs")
    return number


def _at_most(distance: float, limit: float) -> bool:
    # 0.95 − 0.93 is a little more than 0.02 in binary; the ledger's decimals are meant exactly.
    return bool(distance <= limit or np.isclose(distance, limit, rtol=1e-9, atol=1e-12))


def _demand(claim: Claim, criterion: Criterion) -> str:
    match criterion.comparator:
        case "near":
            return f"within {criterion.tolerance:g} of the paper's {claim.paper_value:g}"
        case "above":
            return f"above {criterion.low:g}"
        case "below":
            return f"below {criterion.high:g}"
    return f"between {criterion.low:g} and {criterion.high:g}"


def describe_criterion(claim: Claim) -> str:
    """What must hold for a claim to be reproduced, and for what it is partly so, in words.

    Example: "within 0.02 of the paper's 0.95; partly: within 0.05 of the paper's 0.95".
    """
    if claim.partly is not None:
        return f"{_whole_demand(claim, claim.criterion)}; partly: {_demand(claim, claim.partly)}"
    half = "; partly: at least half of them" if claim.criterion.each else ""
    return _whole_demand(claim, claim.criterion) + half


def _whole_demand(claim: Claim, criterion: Criterion) -> str:
    if criterion.comparator == "one_draw":
        return (
            f"the mean of our draws within {DRAW_DEVIATIONS:g} standard deviations of one draw "
            f"and {criterion.tolerance:g} of the paper's {claim.paper_value:g}"
        )
    who = {False: "", True: "each value ", EACH_SEED: "the mean of each seed "}
    return who[criterion.each] + _demand(claim, criterion)


def _describe_data(datasets: Iterable[Sequence[str]]) -> str:
    named = {EMBEDDED: "embedded stand-in"}
    return "; ".join(f"{name}: {named.get(source, source)}" for name, source in datasets) or (
        "generated"
    )


def _describe_spread(claim: Claim, verdict: Verdict) -> str:
    if verdict.sd is None:
        return ""
    by_draw = claim.criterion.comparator == "one_draw"
    return f"sd over {'draws' if by_draw else 'seeds'} (n − 1)"


def evaluate_all(
    ledger: Iterable[Claim], tables: Mapping[str, pd.DataFrame], spec: Spec
) -> pd.DataFrame:
    """Judge the claims about the figures that have tables: a row with `COLUMNS` for each.

    Args:
        ledger: the claims.
        tables: the figures' tables.
        spec: what `Plan.selection_spec` tells of the figures: preset, what was changed, data.

    Raises:
        UserError: as `evaluate`.
    """
    rows = []
    for claim in ledger:
        if claim.figure not in tables:
            continue
        about = spec["figures"][claim.figure]
        real = all(source != EMBEDDED for _, source in about["datasets"])
        verdict = evaluate(claim, tables[claim.figure], spec["preset"], real)
        found = (verdict.ours, verdict.sd, verdict.seeds, str(verdict.outcome), verdict.reason)
        made = (spec["name"], spec["preset"], "; ".join(about["changed"]))
        further = (claim.unit, describe_criterion(claim), _describe_data(about["datasets"]))
        row = (*(getattr(claim, key) for key in _OF_CLAIM), *found, *made, *further)
        rows.append((*row, _describe_spread(claim, verdict)))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype({"paper_value": float, "ours": float, "sd": float, "seeds": int})


def write_verdicts(verdicts: pd.DataFrame, path: Path) -> None:
    """Write the verdicts as CSV; the same verdicts give the same bytes on every system.

    Numbers keep six significant digits, so that last-bit differences between machines vanish.
    """
    text = verdicts.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    path.write_bytes(text.encode("utf-8"))
