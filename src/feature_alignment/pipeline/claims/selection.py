"""From a figure's tidy table to the numbers that a claim is about."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from feature_alignment.errors import UserError, check_known, suggestion
from feature_alignment.pipeline.claims.ledger import Claim
from feature_alignment.pipeline.marks import DIVERGED

LAST = "last"  # in a selection of rows, the last step of each run
UNIT = ["seed", "unit"]
INDEX = [*UNIT, "draw"]


class MissingRowsError(UserError):
    """A table lacks rows of the kind that a claim is about: it was made with other settings."""

    def __init__(self, claim: str, problem: str) -> None:
        super().__init__(f"claim {claim}: {problem}")
        self.problem = problem  # what is missing, without the claim's name


def claim_values(claim: Claim, table: pd.DataFrame) -> pd.Series:
    """The numbers that a claim is about, one for each seed, or for each draw of each seed.

    Returns:
        Float64 values sorted by their index, (seed, unit, draw). The unit is 0 without
        `independent`; the draw is 0 without `over` or if a unit's draws are averaged. Their order,
        and so the last bits of their mean, does not depend on the table's row order. Of a seed with
        a network that diverged, only what both sides of a comparison have is compared.

    Raises:
        MissingRowsError: if the table has no rows of the kind that the claim is about.
        UserError: if a column is missing, or rows are ambiguous, not finite, or cannot be
            combined.
    """
    values = _read(claim, claim.select, table)
    if claim.relative_to is None:
        return values
    other = {**claim.select, **claim.relative_to}
    reference = _read(claim, other, table)
    diverged = _diverged(claim.select, table) | _diverged(other, table)
    pair = _where_both(values, reference, diverged)
    if same_draws := pair[0].index.equals(pair[1].index):
        values, reference = pair
    if not claim.each or not same_draws:
        values, reference = _unit_means(values), _unit_means(reference)
        values, reference = _where_both(values, reference, diverged)
    if not values.index.equals(reference.index):
        raise MissingRowsError(
            claim.id,
            f"{claim.figure} has seeds {_seeds(values)} where {claim.select}, "
            f"but seeds {_seeds(reference)} to compare them with; both need the same seeds.",
        )
    if claim.combine == "difference":
        return values - reference
    if (reference == 0).any():
        raise UserError(
            f"claim {claim.id}: the values to divide by, where {dict(claim.relative_to or {})}, "
            "include a zero; compare by difference, or mend the table."
        )
    return values / reference


def claim_remarks(claim: Claim, table: pd.DataFrame) -> list[str]:
    """The different remarks, sorted, in the column `remark` of the rows that a claim reads.

    Raises:
        MissingRowsError: if the table has no rows of the kind that the claim is about.
    """
    if "remark" not in table.columns:
        return []
    remarks = _rows(claim, claim.select, table)["remark"].dropna().astype(str)
    return sorted(set(remarks) - {""})


def at_last_step(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each run's own last step."""
    run = [key for key in ("point", "seed") if key in rows]
    return rows[rows["step"] == rows.groupby(run)["step"].transform("max")]


def _where_both(
    values: pd.Series, reference: pd.Series, diverged: set[Any]
) -> tuple[pd.Series, pd.Series]:
    """Both without what only one of them has of a seed with a network that diverged.

    Such a network has a start, but no end; `_check_values` lets its seed have fewer values.
    """
    pair = []
    for one, other in ((values, reference), (reference, values)):
        may_lack = one.index.get_level_values("seed").isin(diverged)
        pair.append(one[~may_lack | one.index.isin(other.index)])
    return pair[0], pair[1]


def _unit_means(values: pd.Series) -> pd.Series:
    means = values.groupby(level=UNIT, dropna=False).mean().reset_index()
    return means.assign(draw=0).set_index(INDEX)["value"]


def _seeds(values: pd.Series) -> list[Any]:
    return values.index.get_level_values("seed").unique().tolist()


def _rows(claim: Claim, select: Mapping[str, Any], table: pd.DataFrame) -> pd.DataFrame:
    columns = ["seed", "value", *select, *filter(None, (claim.over, claim.independent))]
    for column in columns:
        told = f"claim {claim.id}: the table of {claim.figure} has no column {column!r}"
        check_known(told, column, list(map(str, table.columns)))
    rows = table
    # The last step comes last: it is each run's among the rows that all other filters leave.
    for column, wanted in sorted(select.items(), key=lambda item: item[1] == LAST):
        if column in claim.first and isinstance(wanted, list):
            there = (choice for choice in wanted if _matches(table[column], choice).any())
            wanted = next(there, wanted)
        if column == "step" and wanted == LAST:
            rows = at_last_step(rows)
        else:
            rows = rows[_matches(rows[column], wanted)]
        if rows.empty:
            raise MissingRowsError(
                claim.id,
                f"the table of {claim.figure} has no row with {column} = {wanted!r} among those "
                f"chosen so far; {_available(table, select, column)}.",
            )
    return rows


def _read(claim: Claim, select: Mapping[str, Any], table: pd.DataFrame) -> pd.Series:
    rows = _rows(claim, select, table)
    if (pd.to_numeric(rows["seed"], errors="coerce") % 1 != 0).any():  # means would count as seeds
        raise UserError(
            f"claim {claim.id}: select matches a row of the table of {claim.figure} whose seed is "
            "no whole number; name another column in select, or take the row out of the table."
        )
    none = pd.Series(0, index=rows.index)
    within = (rows[column] if column else none for column in (claim.independent, claim.over))
    index = pd.MultiIndex.from_arrays([rows["seed"], *within], names=INDEX)
    values = pd.Series(rows["value"].to_numpy(dtype=np.float64), index, name="value").sort_index()
    _check_values(claim, values, _diverged(select, table))
    return values


def _diverged(select: Mapping[str, Any], table: pd.DataFrame) -> set[Any]:
    """Seeds in which a network that a claim is about diverged, according to the table."""
    marks = table[table["metric"] == DIVERGED] if "metric" in table else table[:0]
    for column in select.keys() - {"metric", "step", "layer", "split"}:
        marks = marks[_matches(marks[column], select[column])]
    return set(marks["seed"])


def _matches(column: pd.Series, wanted: Any) -> pd.Series:
    choices = wanted if isinstance(wanted, list) else [wanted]
    # A column of numbers and words, such as layers, is read from CSV as text.
    if not pd.api.types.is_numeric_dtype(column):
        return column.astype(str).isin([str(choice) for choice in choices])
    return column.isin([choice for choice in choices if not isinstance(choice, str)])


def _available(table: pd.DataFrame, select: Mapping[str, Any], column: str) -> str:
    rows = table
    if column != "metric" and "metric" in select:
        rows = rows[_matches(rows["metric"], select["metric"])]
    if _matches(rows[column], select[column]).any():
        return "each of select fits some rows, and no row fits all"
    if pd.api.types.is_numeric_dtype(rows[column]) and rows[column].notna().any():
        return f"there they are from {rows[column].min():g} to {rows[column].max():g}"
    return suggestion(select[column], [str(value) for value in rows[column].unique()])


def _check_values(claim: Claim, values: pd.Series, diverged: set[Any]) -> None:
    repeated = values.index[values.index.duplicated()]
    if len(repeated):
        raise UserError(
            f"claim {claim.id}: select matches several rows for seed {repeated[0][0]} in the table "
            f"of {claim.figure}; name another column in select, or in over if they are draws."
        )
    bad = values[~np.isfinite(values)]
    if len(bad):
        raise UserError(
            f"claim {claim.id}: {len(bad)} of {len(values)} values in the table of {claim.figure} "
            f"are not finite, the first for seed {bad.index[0][0]}; a claim cannot be judged on "
            "them."
        )
    # A seed with a network that diverged, as marked in its table, may have fewer values.
    counts = values[~values.index.get_level_values("seed").isin(diverged)].groupby("seed").size()
    if counts.nunique() > 1:
        raise UserError(
            f"claim {claim.id}: the seeds of {claim.figure} have different numbers of "
            f"{claim.over} values, {counts.min()} to {counts.max()}; the table is incomplete."
        )
