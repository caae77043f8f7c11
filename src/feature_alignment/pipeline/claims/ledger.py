"""The ledger: what a paper claims, read from its `claims.yaml` and checked.

How a tolerance is chosen, always from what the paper states and never from our results:
(1) what follows from definitions must hold to numerical accuracy;
(2) where the paper's number is one run or one draw of a procedure that it pins down, it must be a
plausible single draw from ours (one_draw), give or take half a unit in its last digit;
(3) where the paper leaves settings open, or ours were chosen among several by its number, and
where that is read off a figure, our mean must come within 10 % of it, or within half a unit in its
last digit if that is more (near), and counts as partly within 25 %;
(4) where the paper says in words that something grows, or is larger, it must do so in each seed;
(5) where it says that two matrices are alike, their cosine similarity must exceed 0.9, and counts
as partly above 0.7; each other reading of words is explained by the claim's `why`;
(6) the size of an effect on a dataset is judged on that dataset only (data: real), its direction
and what is said of networks in general on any.
"""

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from feature_alignment.errors import UserError, suggestion
from feature_alignment.pipeline.config import Preset, read_yaml
from feature_alignment.pipeline.dictionary import check_claims
from feature_alignment.pipeline.parameters import Section, check

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

Text = Annotated[str, Field(min_length=1)]
Select = dict[str, str | bool | int | float | list[Any]]


class Criterion(Section):
    """What must hold for a claim to count as reproduced, or as partly reproduced.

    Attributes:
        comparator: near: the distance to the paper's number is at most `tolerance`. one_draw: the
            paper's number is one random draw; it lies within two standard deviations, plus
            `tolerance`, of the mean of our draws, of which at least five are needed. above: more
            than `low`. below: less than `high`. between: from `low` to `high`.
        why: why this tolerance or bound.
        each: whether every single value must pass, each seed's and each draw's (see `Claim.over`),
            not the mean over seeds; or `seed`, where the mean over the draws of each seed must.
            Then all makes the claim reproduced, at least half makes it partly reproduced.
        tolerance: for near and one_draw, in the unit of the paper's number.
        low: for above and between.
        high: for below and between.
    """

    comparator: Literal["near", "one_draw", "above", "below", "between"]
    why: Text
    each: Literal[True, False, "seed"] = False
    tolerance: float | None = Field(default=None, ge=0)
    low: float | None = None
    high: float | None = None


class Claim(Section):
    """One number or statement of a paper.

    Attributes:
        id: unique name, paper.figure.quantity; fig_<name> is for what is no figure of the paper.
        place: where the paper says it.
        statement: what the paper claims, in our own words.
        quote: a short verbatim phrase of the paper; mathematics in plain letters.
        reading: whether the number is stated in the paper, read off one of its figures, taken from
            its released code, or the statement is in words only.
        figure: the figure whose tidy table is read.
        select: column and value (or list of values) of the rows to read; `step` may be last.
        lowest_preset: the smallest preset whose sizes can decide the claim.
        data: whether only the real data can decide the claim, or any data can.
        paper_value: the paper's number in the unit of `unit`, or none where it gives none.
        unit: unit of the number and of the selected values; 1 for a pure number.
        note: a finding about the claim, or how our measurement differs from the paper's.
        relative_to: the rows to compare with, written as what differs from `select`. They are
            compared seed by seed, by the means over a seed's draws; or draw by draw where
            `criterion.each` is true and both sides have the same draws.
        combine: how a selected value and the one it is compared with become one number.
        over: a column that tells apart several values of one seed, its draws: random ones, layers
            or datasets.
        partly: a weaker criterion, under which the claim counts as partly reproduced.
    """

    id: str = Field(pattern=r"^[a-z]+([0-9]{4})?\.fig([0-9]+[a-z]*|_[a-z_]+)\.[a-z0-9_]+$")
    paper: str
    place: Text
    statement: Text
    quote: str = Field(min_length=1, max_length=240)
    reading: Literal["stated", "read_off_figure", "released_code", "qualitative"]
    figure: str
    select: Select = Field(min_length=1)
    criterion: Criterion
    lowest_preset: Preset
    data: Literal["real", "any"]
    paper_value: float | None = None
    unit: str = "1"
    note: str = ""
    relative_to: Annotated[Select, Field(min_length=1)] | None = None
    combine: Literal["ratio", "difference"] | None = None
    over: str | None = None
    partly: Criterion | None = None


class _Ledger(Section):
    claims: tuple[Any, ...] = Field(min_length=1, strict=False)


def load_ledger(files: Sequence[Path]) -> tuple[Claim, ...]:
    """Read and check papers' ledgers, `claims.yaml` in folders named by the papers' keys.

    Raises:
        UserError: if a ledger has a wrong key or value, or contradicts itself; names file, claim
            and key.
    """
    claims: list[Claim] = []
    seen: dict[str, Path] = {}
    for path in files:
        # The claims are checked one by one, so that an error can name the claim, not its number.
        entries = check(_Ledger, read_yaml(path), lambda _, path=path: str(path)).claims
        for number, entry in enumerate(entries, start=1):
            claim = _read_claim(entry, number, path)
            if claim.id in seen:
                raise UserError(
                    f"{path}: claim {claim.id}: id: used twice, first in {seen[claim.id]}; "
                    "give one of them another name."
                )
            seen[claim.id] = path
            claims.append(claim)
    return tuple(claims)


def check_ledgers(files: Sequence[Path], figures: Sequence[str]) -> None:
    """Check every claim of papers' ledgers, that it is about one of the figures and known metrics.

    Raises:
        UserError: as `load_ledger`, or if a claim's figure does not exist, or its metric is not
            described, see `check_claims`.
    """
    for path in files:
        claims = load_ledger([path])
        check_claims(claims)
        for claim in claims:
            if claim.figure not in figures:
                raise UserError(
                    f"{path}: claim {claim.id}: figure: unknown figure {claim.figure!r}; "
                    f"{suggestion(claim.figure, figures)}."
                )


def _read_claim(entry: Any, number: int, path: Path) -> Claim:
    name = f"number {number}"
    if isinstance(entry, dict):
        name, entry = entry.get("id", name), {"paper": path.parent.name, **entry}
    where = f"{path}: claim {name}"
    claim: Claim = check(Claim, entry, lambda _: where)
    if claim.paper != path.parent.name:
        raise UserError(
            f"{where}: paper: found {claim.paper!r}; leave it out, it is the folder's name."
        )
    _check_criterion(claim.criterion, f"{where}: criterion")
    if claim.partly is not None:
        _check_criterion(claim.partly, f"{where}: partly")
    _check_consistency(claim, where)
    return claim


def _check_criterion(criterion: Criterion, where: str) -> None:
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
    low, high = criterion.low, criterion.high
    if low is not None and high is not None and low >= high:
        raise UserError(f"{where}.low: found {low:g}, which is not below high, {high:g}.")
    if criterion.each and criterion.comparator == "one_draw":
        raise UserError(f"{where}.each: one_draw judges all draws together; take each away.")


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
