"""The ledger: what a paper claims, read from its `claims.yaml` and checked.

`pipeline/claims/rules.py` turns values into verdicts by the same rules for every claim. What a
claim adds to them is chosen from what the paper says, never from our results: "two matrices are
alike" is read as a cosine above 0.9, and the claim's `why` explains every other reading of words.
The size of an effect on a dataset, and statements about one or several datasets, are judged on the
real data only (data: real); statements about networks in general, on any data. A criterion that is
changed later keeps its former version, the date and the reason (`was`).
"""

import datetime
import difflib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from feature_alignment.errors import UserError, check_known
from feature_alignment.pipeline.config import Preset
from feature_alignment.pipeline.dictionary import Text, describe, dictionaries, read_dictionary
from feature_alignment.pipeline.papers import paper_folder
from feature_alignment.pipeline.parameters import Section, check
from feature_alignment.pipeline.yaml_files import read_yaml

# What each comparator needs; a key of another comparator is a mistake.
_NEEDS: dict[str, set[str]] = {
    "near": set(),
    "above": {"low", "why"},
    "below": {"high", "why"},
    "between": {"low", "high", "why"},
}

Select = dict[str, str | bool | int | float | list[Any]]


class Criterion(Section):
    """What must hold; `pipeline/claims/rules.py` says how often, and what counts as partly.

    Attributes:
        comparator: near: at the paper's number. above: more than `low`. below: less than `high`.
            between: from `low` to `high`.
        why: the reason for this bound or tolerance; a number near by the rules needs none.
        each: whether single values are judged, of each seed and each draw (see `Claim.over`),
            rather than the mean over seeds. In mathematics each value must pass anyway.
        tolerance: for near in mathematics: the numerical accuracy, in the unit of the number.
        low: for above and between.
        high: for below and between.
    """

    comparator: Literal["near", "above", "below", "between"]
    why: str = ""
    each: bool = False
    tolerance: float | None = Field(default=None, ge=0)
    low: float | None = None
    high: float | None = None


class Was(Section):
    """A former criterion of a claim: until when, what it was, and why it was changed."""

    date: datetime.date
    criterion: Text
    reason: Text


class Claim(Section):
    """One number or statement of a paper.

    Attributes:
        id: unique name, paper.figure.quantity; fig_<name> for anything but a figure of the paper.
        paper: its key.
        place: where the paper says it.
        statement: what the paper claims, in our own words.
        quote: a short verbatim phrase of the paper; mathematics in plain letters.
        kind: number: one that the paper states. comparison: a direction, a comparison, or a size
            in words. mathematics: a theorem or formula, or a consequence of one. ours: a control,
            a precondition, our own question or reading, another version's number; never counted
            among the paper's.
        reading: whether the number is stated in the paper, read off one of its figures, taken from
            its released code, or the statement is in words only.
        figure: the figure whose tidy table is read.
        select: column and value (or list of values) of the rows to read; `step` may be last.
        criterion: what must hold for the claim to be reproduced.
        lowest_preset: the smallest preset whose sizes can decide the claim.
        data: whether only the real data can decide the claim, or any data can.
        paper_value: the paper's number in the unit of `unit`, or None if it gives none.
        decimals: digits that the paper prints after the decimal point, if the last ones are zeros.
        single_network: whether the paper's number is a single network's, or a single draw's.
        from_one: whether nearness is relative to the distance from 1 if that is less than the
            number or bound itself: for cosines, correlations, shares, and ratios said to be 1.
        unit: unit of the number and of the selected values; 1 for a pure number.
        note: a finding about the claim, or how our measurement differs from the paper's.
        finding: a sentence for the first screen of the report; few claims have one.
        relative_to: the rows to compare with, written as what differs from `select`. Means over
            a seed's draws are compared seed by seed; or single draws, if each value counts and
            both sides have the same draws.
        combine: how a selected value and the one it is compared with become one number.
        over: a column that distinguishes several values of one seed, its draws: random draws,
            layers or datasets.
        independent: a column whose values are independent of each other within a seed, such as
            datasets.
        first: columns whose list in `select` gives alternatives: the first that the table has is
            read. For values that are named by settings that the paper leaves open.
        corrected: for a misprint, the rows of its corrected form, as what differs from `select`.
        was: the criteria that were changed, oldest first.
    """

    id: str = Field(pattern=r"^[a-z]+([0-9]{4})?\.fig([0-9]+[a-z]*|_[a-z_]+)\.[a-z0-9_]+$")
    paper: str
    place: Text
    statement: Text
    quote: str = Field(min_length=1, max_length=240)
    kind: Literal["number", "comparison", "mathematics", "ours"]
    reading: Literal["stated", "read_off_figure", "released_code", "qualitative"]
    figure: str
    select: Select = Field(min_length=1)
    criterion: Criterion
    lowest_preset: Preset
    data: Literal["real", "any"]
    paper_value: float | None = None
    decimals: int | None = Field(default=None, ge=0)
    single_network: bool = False
    from_one: bool = False
    unit: str = "1"
    note: str = ""
    finding: str = ""
    relative_to: Annotated[Select, Field(min_length=1)] | None = None
    combine: Literal["ratio", "difference"] | None = None
    over: str | None = None
    independent: str | None = None
    first: tuple[str, ...] = Field(default=(), strict=False)
    corrected: Annotated[Select, Field(min_length=1)] | None = None
    was: tuple[Was, ...] = Field(default=(), strict=False)

    @property
    def each(self) -> bool:
        """Whether single values are judged, not their mean."""
        return self.criterion.each or self.kind == "mathematics"

    @property
    def numbers(self) -> dict[str, float]:
        """Numbers that a figure can draw: the paper's, its decimals, and the criterion's bounds."""
        own = {"low": self.criterion.low, "high": self.criterion.high}
        found = {"paper_value": self.paper_value, "decimals": self.decimals, **own}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def half_unit(self) -> float:
        """Half a unit in the last digit of the paper's number; 0.5 for an integer."""
        digits = Decimal(repr(self.paper_value)).normalize().as_tuple().exponent
        last = -self.decimals if self.decimals is not None else min(int(digits), 0)
        return 0.5 * 10.0**last


class _Ledger(Section):
    claims: tuple[Any, ...] = Field(min_length=1, strict=False)


def load_ledger(files: Sequence[Path]) -> tuple[Claim, ...]:
    """Read and check papers' ledgers, `claims.yaml` in folders named by the papers' keys.

    Raises:
        UserError: if a ledger has a wrong key or value, or contradicts itself; the message names
            file, claim and key.
    """
    claims: dict[str, Claim] = {}
    for path in files:
        # The claims are checked one by one, so that an error can name the claim, not its number.
        entries = check(_Ledger, read_yaml(path), lambda _, path=path: str(path)).claims
        for number, entry in enumerate(entries, start=1):
            claim = _read_claim(entry, number, path)
            if claim.id in claims:  # in the same file: each id begins with the paper's key
                raise UserError(
                    f"{path}: claim {claim.id}: id: used twice; give one of them another name."
                )
            claims[claim.id] = claim
    return tuple(claims.values())


def check_ledgers(files: Sequence[Path], figures: Sequence[str]) -> tuple[Claim, ...]:
    """Read papers' ledgers, and check that all claims are about known figures and metrics.

    Raises:
        UserError: as `load_ledger` and `check_claims`, or if a claim's figure does not exist.
    """
    claims, places = load_ledger(files), {path.parent.name: path for path in files}
    check_claims(claims)
    for claim in claims:
        where = f"{places[claim.paper]}: claim {claim.id}: figure"
        check_known(f"{where}: unknown figure {claim.figure!r}", claim.figure, figures)
    return claims


def check_claims(claims: Sequence[Claim]) -> None:
    """Check that the metrics that claims select are described for their papers.

    Raises:
        UserError: naming the first claim whose metric is not, and the closest name that is.
    """
    for claim in claims:
        for key in ("select", "relative_to", "corrected"):
            wanted = (getattr(claim, key) or {}).get("metric", [])
            for metric in map(str, wanted if isinstance(wanted, list) else [wanted]):
                if describe(claim.paper, "metrics", metric) is None:
                    raise UserError(_undescribed(claim, key, metric))


def _undescribed(claim: Claim, key: str, metric: str) -> str:
    names = [name for file in dictionaries(claim.paper) for name in read_dictionary(file).metrics]
    near = difflib.get_close_matches(metric, names, n=1, cutoff=0.7)
    hint = f"did you mean {near[0]!r}? Else describe it" if near else "describe it"
    where = paper_folder(claim.paper) / "metrics.yaml"
    return f"claim {claim.id}: {key}.metric: {metric!r} is not described; {hint} in {where}."


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
    _check_criterion(claim, f"{where}: criterion")
    _check_consistency(claim, where)
    return claim


def _check_criterion(claim: Claim, where: str) -> None:
    criterion, exact = claim.criterion, claim.kind == "mathematics"
    needs = _NEEDS[criterion.comparator]
    if exact and criterion.comparator == "near":
        needs = {"tolerance", "why"}
    for key in ("why", "tolerance", "low", "high"):
        given = getattr(criterion, key) not in (None, "")
        if given and key not in needs and key != "why":
            raise UserError(
                f"{where}.{key}: {criterion.comparator} does not use it in a claim of kind "
                f"{claim.kind}; take it away, or choose another comparator or kind."
            )
        if not given and key in needs:
            raise UserError(f"{where}.{key}: missing; {criterion.comparator} needs it.")
    low, high = criterion.low, criterion.high
    if low is not None and high is not None and low >= high:
        raise UserError(f"{where}.low: found {low:g}, which is not below high, {high:g}.")
    bound = {"above": low, "below": high}.get(criterion.comparator)
    if bound == (claim.combine == "ratio") and not claim.each:
        raise UserError(
            f"{where}.each: missing; {criterion.comparator} {bound:g} is a direction, which each "
            "value must have, not the mean: write each: true, or a bound that says by how much."
        )
    if criterion.each and (exact or criterion.comparator == "near"):
        why = "of mathematics each value must pass" if exact else "a number is judged by its mean"
        raise UserError(f"{where}.each: {why}; take each away.")


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
    if claim.criterion.comparator == "near" and claim.paper_value is None:
        raise UserError(f"{where}: paper_value: missing; near compares with it.")
    number = claim.paper_value is not None
    for key, fits, wanted in (
        ("decimals", number, "a paper_value"),
        ("single_network", number, "a paper_value"),
        ("independent", claim.criterion.each, "criterion.each"),
        ("corrected", claim.kind == "mathematics", "the kind mathematics"),
    ):
        if getattr(claim, key) not in (None, False) and not fits:
            raise UserError(f"{where}: {key}: needs {wanted}; take it away, or add that.")
    for column in claim.first:
        if not isinstance(claim.select.get(column), list):
            raise UserError(
                f"{where}: first: found {column!r}; name a column for which select has a list, of "
                "which the first value that is there counts."
            )
    if claim.kind == "number" and claim.reading == "qualitative":
        raise UserError(
            f"{where}: kind: found 'number', but the claim is qualitative; allowed: comparison, "
            "mathematics, ours."
        )
