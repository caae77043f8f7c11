"""Judge claims: the paper's number, ours, a verdict and its reason in words.

A claim is never tuned to pass: the ledger and `rules` alone decide. Values that are not finite are
errors. If a table, made with other settings, has no rows of a claim's kind, the claim is not
testable. Neither is a pass.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pandas as pd

from feature_alignment.pipeline.claims import rules
from feature_alignment.pipeline.claims.ledger import Claim, Select, load_ledger
from feature_alignment.pipeline.claims.rules import AGREEMENT, NEAR, PARTLY, Finding, Outcome
from feature_alignment.pipeline.claims.selection import (
    MissingRowsError,
    claim_remarks,
    claim_values,
)
from feature_alignment.pipeline.config import PRESETS
from feature_alignment.pipeline.marks import STAND_IN
from feature_alignment.pipeline.spec import Spec

log = logging.getLogger(__name__)

NO_ROWS = "the figure, with these settings, does not show it"
"""The start of a reason if rows are missing; with a preset's own settings, a ledger's mistake."""
NO_DATA = "needs the real data; this figure shows a stand-in"
CLOSE = "what decides is within one standard error"
"""Part of a reason if other seeds could well change a verdict by the mean."""
EMBEDDED = "embedded"
_OF_CLAIM = ("id", "kind", "paper", "place", "figure", "statement", "paper_value")
_OF_VERDICT = ("verdict", "reason", "agreeing", "units", "p_value", "ours", "sd", "seeds")
_OF_RESULT = ("name", "preset", "changed")
_FURTHER = ("unit", "criterion", "data", "spread")
_TO_DRAW = ("low", "high", "least", "most", "by_seed")
COLUMNS = (*_OF_CLAIM, *_OF_VERDICT, *_OF_RESULT, *_FURTHER, *_TO_DRAW)
"""The columns of claims.csv; the data dictionary, `pipeline/metrics.yaml`, explains them."""


@dataclass(frozen=True)
class Verdict(Finding):
    """The verdict on one claim, and the numbers behind it; see `COLUMNS`, None for empty ones."""

    ours: float | None = None
    sd: float | None = None
    seeds: int = 0
    low: float | None = None
    high: float | None = None
    least: float | None = None
    most: float | None = None
    by_seed: tuple[float, ...] = ()


def evaluate(claim: Claim, table: pd.DataFrame, preset: str, data_is_real: bool) -> Verdict:
    """Judge one claim on its figure's table, which shows real (or synthetic) data or a stand-in.

    With a column `stand_in`, claims that only real data can decide are judged on rows of real data.

    Raises:
        UserError: if the table lacks a column that the claim names, or its rows are ambiguous, not
            finite, or cannot be combined.
    """
    if PRESETS.index(preset) < PRESETS.index(claim.lowest_preset):
        reason = f"needs the sizes of preset {claim.lowest_preset} or larger; this is {preset}"
        return Verdict(Outcome.NOT_TESTABLE, reason)
    no_data = claim.data == "real" and not data_is_real
    if no_data:
        table = table[table[STAND_IN] == 0] if STAND_IN in table else table[:0]
    try:
        values = claim_values(claim, table)
        finding = _judge(claim, values)
        if finding.outcome is Outcome.FAILS and claim.corrected is not None:
            finding = _judge_corrected(claim, claim.corrected, table, finding)
    except MissingRowsError as error:
        if no_data:
            return Verdict(Outcome.NOT_TESTABLE, NO_DATA)
        # With custom settings, such as fewer steps or one dataset less.
        return Verdict(Outcome.NOT_TESTABLE, f"{NO_ROWS}: {error.problem}")
    reason = "; ".join([finding.reason, *claim_remarks(claim, table)])
    return Verdict(**{**vars(finding), "reason": reason}, **_numbers(claim, values))


def _numbers(claim: Claim, values: pd.Series) -> dict[str, Any]:
    per_seed = values.groupby(level="seed", sort=True).mean()
    spread = values if _by_draw(claim) else per_seed
    low, high = (end if math.isfinite(end) else None for end in _zone(claim, values))
    return {
        "ours": float(per_seed.mean()),
        "sd": float(spread.std(ddof=1)) if len(spread) > 1 else None,
        "seeds": len(per_seed),
        "low": low,
        "high": high,
        "least": float(values.min()),
        "most": float(values.max()),
        "by_seed": tuple(map(float, per_seed)),
    }


def _by_draw(claim: Claim) -> bool:
    return claim.single_network and claim.over is not None


def _judge(claim: Claim, values: pd.Series) -> Finding:
    demand = _demand(claim)
    if claim.each:
        holds = pd.Series([keeps(claim, value) for value in values.to_numpy()], values.index)
        if claim.kind == "mathematics":
            return rules.judge_cases(holds, demand)
        return rules.judge_agreement(holds, demand, _units(claim))
    seeds = values.groupby(level="seed").mean()
    mean, error = float(seeds.mean()), cast(float, seeds.sem())  # NaN with one seed
    if claim.criterion.comparator == "near":
        number, single = cast(float, claim.paper_value), claim.single_network
        found = rules.judge_number(values, number, claim.half_unit, claim.from_one, single)
    else:
        nearer = min(_band(claim), key=lambda bound: abs(mean - bound))
        found = rules.judge_size(mean, keeps(claim, mean), nearer, claim.from_one, demand)
    low, high = _zone(claim, values)
    # Where `reproduced` ends, and where `partly` does.
    if min(abs(mean - end) for end in (low, high, *_ends_of_partly(claim, low, high))) < error:
        return replace(found, reason=f"{found.reason}; {CLOSE}, {error:.2g}")
    return found


def _units(claim: Claim) -> str:
    return f"pairs of seed and {claim.independent}" if claim.independent else "seeds"


def _judge_corrected(
    claim: Claim, differs: Select, table: pd.DataFrame, printed: Finding
) -> Finding:
    form = claim.but(select={**claim.select, **differs})
    found = _judge(form, claim_values(form, table))
    reason = f"{printed.reason} as printed, {found.reason} as corrected"
    mended = found.outcome is Outcome.HOLDS
    return Finding(Outcome.HOLDS_AS_CORRECTED if mended else Outcome.FAILS, reason)


def _zone(claim: Claim, values: pd.Series) -> tuple[float, float]:
    if claim.criterion.comparator != "near" or claim.criterion.tolerance is not None:
        return _band(claim)
    number, single = cast(float, claim.paper_value), claim.single_network
    reach, _ = rules.near_reach(values, number, claim.half_unit, claim.from_one, single)
    return number - reach, number + reach


def _ends_of_partly(claim: Claim, low: float, high: float) -> tuple[float, float]:
    """How far `partly` reaches, given the ends of `reproduced`."""
    if claim.criterion.comparator == "near":
        number = cast(float, claim.paper_value)
        missed = rules.partly_reach(number, claim.from_one)
        return min(low, number - missed), max(high, number + missed)
    below, above = (
        rules.partly_reach(end, claim.from_one) if math.isfinite(end) else 0.0
        for end in (low, high)
    )
    return low - below, high + above


def _band(claim: Claim) -> tuple[float, float]:
    criterion = claim.criterion
    if criterion.comparator == "near":
        # `load_ledger` has checked both.
        number, tolerance = cast(float, claim.paper_value), cast(float, criterion.tolerance)
        return number - tolerance, number + tolerance
    low = -math.inf if criterion.low is None else criterion.low
    return low, math.inf if criterion.high is None else criterion.high


def keeps(claim: Claim, value: float) -> bool:
    """Whether a value meets the criterion; what is a bound but for rounding is not beyond it."""
    low, high = _band(claim)
    if claim.criterion.comparator in ("above", "below"):
        return low < value < high and not any(math.isclose(value, end) for end in (low, high))
    return rules.at_most(low - value, 0.0) and rules.at_most(value - high, 0.0)


def _demand(claim: Claim) -> str:
    criterion = claim.criterion
    match criterion.comparator:
        case "near":
            near = "near" if criterion.tolerance is None else f"within {criterion.tolerance:g} of"
            return f"{near} the paper's {claim.paper_value:g}"
        case "above":
            return f"above {criterion.low:g}"
        case "below":
            return f"below {criterion.high:g}"
    return f"between {criterion.low:g} and {criterion.high:g}"


def describe_criterion(claim: Claim) -> str:
    """What must hold for a claim to be reproduced, and to be partly so, in words.

    Example: "the mean above 3; partly: misses the bound by at most 25 % of it".
    """
    demand = _demand(claim)
    if claim.kind == "mathematics":
        return f"each value {demand}"
    if claim.each:
        most = f"most of them in more {_units(claim)} than by chance"
        return f"{100 * AGREEMENT:g} % of the values {demand}, and {most}; partly: only the latter"
    of = "of it, or of its distance from 1 if that is less" if claim.from_one else "of it"
    if claim.criterion.comparator != "near":
        return f"the mean {demand}; partly: misses the bound by at most {100 * PARTLY:g} % {of}"
    near = f"{100 * NEAR:g} % {of}, or half a unit in its last digit"
    near += ", or two standard errors" if claim.single_network else ""
    return f"the mean {demand}, by {near}; partly: by {100 * PARTLY:g} %"


def evaluate_all(
    ledger: Iterable[Claim], tables: Mapping[str, pd.DataFrame], spec: Spec
) -> pd.DataFrame:
    """Judge the claims about the figures that have tables: a row with `COLUMNS` for each.

    `spec` is the result of `Plan.selection_spec`, with preset, changes and data of the figures.
    Errors are those of `evaluate`.
    """
    rows = []
    for claim in ledger:
        if claim.figure not in tables:
            continue
        about = spec["figures"][claim.figure]
        real = all(source != EMBEDDED for _, source in about["datasets"])
        verdict = evaluate(claim, tables[claim.figure], spec["preset"], real)
        named = {EMBEDDED: "embedded stand-in"}
        told = [f"{name}: {named.get(source, source)}" for name, source in about["datasets"]]
        spread = f"sd over {'draws' if _by_draw(claim) else 'seeds'} (n − 1)"
        rows.append(
            {key: getattr(claim, key) for key in (*_OF_CLAIM, "unit")}
            | vars(verdict)
            | {key: spec[key] for key in ("name", "preset")}
            | {
                "verdict": str(verdict.outcome),
                "changed": "; ".join(about["changed"]),
                "criterion": describe_criterion(claim),
                "data": "; ".join(told) or "generated",
                "spread": "" if verdict.sd is None else spread,
                "by_seed": " ".join(f"{value:.6g}" for value in verdict.by_seed),
            }
        )
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = ("paper_value", "ours", "sd", "p_value", "low", "high", "least", "most")
    others = {"seeds": int, "agreeing": "Int64", "units": "Int64"}
    return frame.astype(dict.fromkeys(numbers, float) | others)


def judge_claims(
    spec: Spec, table_files: Sequence[str | Path], ledgers: Sequence[Path], verdicts_file: Path
) -> pd.DataFrame:
    """Judge every claim about some figures, whose tables are `<figure>.csv`, and write a CSV.

    `spec` is the result of `Plan.selection_spec`; the ledgers are papers' `claims.yaml`. Errors are
    those of `load_ledger` and `evaluate`.
    """
    tables = {path.stem: pd.read_csv(path, low_memory=False) for path in map(Path, table_files)}
    verdicts = evaluate_all(load_ledger(ledgers), tables, spec)
    missing = verdicts["reason"].str.startswith(NO_ROWS) & (verdicts["changed"] == "")
    for claim, why in verdicts.loc[missing, ["id", "reason"]].itertuples(index=False):
        why = why.rstrip(".")
        log.warning("claim %s: %s; mend its select, or raise its lowest_preset.", claim, why)
    write_verdicts(verdicts, verdicts_file)
    return verdicts


def write_verdicts(verdicts: pd.DataFrame, path: Path) -> None:
    """Write the verdicts as CSV; the same verdicts give the same bytes on every system.

    Numbers keep six significant digits, so that last-bit differences between machines vanish.
    """
    text = verdicts.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    path.write_bytes(text.encode("utf-8"))
