"""The ledger: what the papers claim, read from `claims/<key>.yaml` and checked.

The schema, `workflow/schemas/claims.schema.yaml`, describes every key and holds the defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from feature_alignment.errors import UserError
from feature_alignment.pipeline.config import check_against_schema, load_schema, read_yaml

# What each comparator needs besides `why`; a key of another comparator is a mistake.
_NEEDS = MappingProxyType(
    {
        "near": {"tolerance"},
        "one_draw": {"tolerance"},
        "above": {"low"},
        "below": {"high"},
        "between": {"low", "high"},
    }
)
_LIMITS = {"tolerance", "low", "high"}
_AGAINST_PAPER = {"near", "one_draw"}

EACH_SEED = "seed"
"""Value of `Criterion.each`: the mean over the draws of each seed must pass."""


@dataclass(frozen=True)
class Criterion:
    """What must hold for a claim to count as reproduced, or as partly reproduced.

    Attributes:
        comparator: near, one_draw, above, below or between.
        why: why this tolerance or bound.
        each: whether every value must pass, not their mean; or `EACH_SEED`.
        tolerance: largest distance to the paper's number, in its unit.
        low: lower bound.
        high: upper bound.
    """

    comparator: str
    why: str
    each: bool | str
    tolerance: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Claim:
    """One number or statement of a paper; the schema describes each attribute."""

    id: str
    paper: str
    place: str
    statement: str
    quote: str
    reading: str
    paper_value: float | None
    unit: str
    figure: str
    select: Mapping[str, Any]
    criterion: Criterion
    lowest_preset: str
    data: str
    note: str
    relative_to: Mapping[str, Any] | None = None
    combine: str | None = None
    over: str | None = None
    partly: Criterion | None = None


def load_ledger(folder: Path, schema: Path) -> tuple[Claim, ...]:
    """Read and check all ledgers of a folder.

    Args:
        folder: the folder with one `<key>.yaml` for each paper.
        schema: the ledger's JSON schema, as YAML.

    Returns:
        The claims, papers in alphabetical order, in each paper's own order.

    Raises:
        UserError: if a ledger does not fit the schema or contradicts itself; names file, claim
            and key.
    """
    claims: list[Claim] = []
    seen: dict[str, Path] = {}
    for path in sorted(folder.glob("*.yaml")):
        for claim in _read_ledger(path, load_schema(schema)):
            if claim.id in seen:
                raise UserError(
                    f"{path}: claim {claim.id}: id: used twice, first in {seen[claim.id]}; "
                    "give one of them another name."
                )
            seen[claim.id] = path
            claims.append(claim)
    if not claims:
        raise UserError(f"{folder}: holds no ledger; a ledger is a file named <paper>.yaml.")
    return tuple(claims)


def _read_ledger(path: Path, schema: dict[str, Any]) -> list[Claim]:
    ledger = read_yaml(path)
    properties = schema["properties"]
    # The claims are checked one by one, so that an error can name the claim and not its number.
    whole = {**schema, "properties": {**properties, "claims": {"type": "array", "minItems": 1}}}
    check_against_schema(ledger, whole, lambda _: str(path))
    if ledger["paper"] != path.stem:
        raise UserError(
            f"{path}: paper: found {ledger['paper']!r}, but the file's name says {path.stem!r}; "
            "make them the same."
        )
    return [
        _read_claim(entry, f"{path}: claim {_name(entry, number)}", ledger["paper"], properties)
        for number, entry in enumerate(ledger["claims"], start=1)
    ]


def _name(entry: Any, number: int) -> str:
    named = isinstance(entry, dict) and "id" in entry
    return str(entry["id"]) if named else f"number {number}"


def _read_claim(entry: Any, where: str, paper: str, properties: dict[str, Any]) -> Claim:
    schema = properties["claims"]["items"]
    check_against_schema(entry, schema, lambda _: where)
    values = {**_defaults(schema), **entry}
    for key in ("criterion", "partly"):
        if key in values:
            full = {**_defaults(schema["properties"][key]), **values[key]}
            values[key] = _checked_criterion(Criterion(**full), f"{where}: {key}")
    claim = Claim(paper=paper, **values)
    _check_consistency(claim, where)
    return claim


def _defaults(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema["properties"].items()
    return {key: value["default"] for key, value in properties if "default" in value}


def _checked_criterion(criterion: Criterion, where: str) -> Criterion:
    needs = _NEEDS[criterion.comparator]
    for key in sorted(_LIMITS):
        given = getattr(criterion, key) is not None
        if given and key not in needs:
            raise UserError(
                f"{where}.{key}: {criterion.comparator} does not use it; take it away, or choose "
                "another comparator."
            )
        if not given and key in needs:
            raise UserError(f"{where}.{key}: missing; {criterion.comparator} needs it.")
    if criterion.comparator == "between" and criterion.low >= criterion.high:
        raise UserError(
            f"{where}.low: found {criterion.low}, which is not below high, {criterion.high}."
        )
    if criterion.each and criterion.comparator == "one_draw":
        raise UserError(f"{where}.each: one_draw judges all draws together; take each away.")
    return criterion


def _check_consistency(claim: Claim, where: str) -> None:
    for key in ("id", "figure"):
        value = getattr(claim, key)
        if not value.startswith((f"{claim.paper}.", f"{claim.paper}_")):
            raise UserError(f"{where}: {key}: {value!r} does not begin with {claim.paper}.")
    if (claim.relative_to is None) != (claim.combine is None):
        missing = "combine" if claim.combine is None else "relative_to"
        raise UserError(f"{where}: {missing}: missing; relative_to and combine go together.")
    if claim.reading != "qualitative" and claim.paper_value is None:
        raise UserError(
            f"{where}: paper_value: missing; a claim read as {claim.reading} has a number, "
            "one without is qualitative."
        )
    if claim.partly is not None and claim.criterion.each:
        raise UserError(
            f"{where}: partly: criterion.each already says what partly means, at least half; "
            "take one of them away."
        )
    for criterion in filter(None, (claim.criterion, claim.partly)):
        if criterion.comparator in _AGAINST_PAPER and claim.paper_value is None:
            raise UserError(
                f"{where}: paper_value: missing; {criterion.comparator} compares with it."
            )
