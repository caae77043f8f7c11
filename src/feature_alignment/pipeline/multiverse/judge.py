"""Judge every claim in every universe, and find the open settings on which its verdict depends.

The rules, fixed before any run but for the third:

- A claim *holds* in a universe if the ledger's rules call it reproduced, or holding (as printed or
  as corrected). If too few seeds leave a comparison undecided, it holds if at least 95 % of the
  values agree (`rules.AGREEMENT`), without the test against chance.
- Universes whose runs failed, or whose networks have not learnt their task (`Learnt`), do not
  count; their numbers are reported.
- Two values of a setting are one to a claim if its result (our value to six digits and the verdict)
  never differs between universes that differ in nothing else, of which there must be two pairs. Of
  universes that differ only in such values, and so repeat one result, the first counts. (This rule
  was added later, on 2026-11-30.)
- *robust*: it holds in at least 90 % of the universes that count; *robustly not*: in at most 10 %.
- *depends on X*: the share in which it holds differs most between X's values, by at least one half
  and by more than in 95 % of 999 random rearrangements of the universes; settings whose shares
  differ alike are all named.
- *fragile*: it holds in the default reading, but in less than half of the universes.
- *mixed*: everything else.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from feature_alignment.errors import UserError
from feature_alignment.pipeline.claims.evaluate import evaluate
from feature_alignment.pipeline.claims.ledger import Claim
from feature_alignment.pipeline.claims.rules import AGREEMENT, Outcome, at_most
from feature_alignment.pipeline.claims.selection import LAST, at_last_step
from feature_alignment.pipeline.figures.table import rows_where
from feature_alignment.pipeline.multiverse.design import Learnt

ROBUST = 0.9
DIFFERENCE = 0.5
REARRANGED = 999
COUNTED = "counted"
_JUDGED = ("claim", "universe", "status", "verdict", "holds", "ours")
_SUMMARY = ("claim", "universes", "failed", "not_learnt", "repeated", "holding", "share", "low")
_SUMMARY += ("high", "default_holds", "setting", "difference", "p_value", "word", "paper_quantile")
_EFFECTS = ("claim", "setting", "value", "universes", "share", "mean")
_HOLDS = {Outcome.REPRODUCED, Outcome.HOLDS, Outcome.HOLDS_AS_CORRECTED}


@dataclass(frozen=True)
class Finished:
    """A `design.Universe` that was run."""

    number: int  # from 0, the default reading
    levels: dict[str, str]  # the name of each setting's value
    tables: dict[str, pd.DataFrame]  # the tables of the figures whose runs all succeeded
    failed: dict[str, str]  # why runs failed, by run


def judge_universes(
    universes: Iterable[Finished],
    ledger: Sequence[Claim],
    learnt: Learnt | None,
    preset: str,
    real: Mapping[str, bool],
) -> pd.DataFrame:
    """A row for each claim of the ledger in each universe, run at this preset.

    `real` is whether each figure shows real data. Columns are `claim`, `universe`, `status`
    (counted, not learnt, failed), `verdict`, `holds` (1, 0, or None if it is not judged), `ours`,
    and one for each setting. Claims that are not testable at this preset are omitted.

    Raises:
        UserError: if `learnt` selects no rows.
    """
    rows, columns = [], dict.fromkeys(_JUDGED)
    for universe in universes:
        columns |= dict.fromkeys(universe.levels)
        status = _status(universe, learnt)
        for claim in ledger:
            row = {"claim": claim.id, "universe": universe.number, "status": status}
            row |= {"verdict": "", "holds": None, "ours": None}
            if claim.figure in universe.tables:
                table = universe.tables[claim.figure]
                verdict = evaluate(claim, table, preset, real[claim.figure])
                if verdict.outcome is Outcome.NOT_TESTABLE:
                    continue
                holds = verdict.outcome in _HOLDS
                if verdict.outcome is Outcome.UNDECIDED:
                    holds = (verdict.share or 0) >= AGREEMENT
                row |= {"verdict": str(verdict.outcome), "holds": int(holds), "ours": verdict.ours}
            rows.append(row | universe.levels)
    judged = pd.DataFrame(rows, columns=list(columns))
    testable = judged.loc[judged["holds"].notna(), "claim"].unique()
    return judged[judged["claim"].isin(testable)] if len(testable) else judged


def _status(universe: Finished, learnt: Learnt | None) -> str:
    if universe.failed:
        return "failed"
    if learnt is None:
        return COUNTED
    table = next(t for name, t in universe.tables.items() if name.endswith(f"_{learnt.figure}"))
    last = learnt.select.get("step") == LAST
    select = {k: v for k, v in learnt.select.items() if k != "step" or not last}
    try:
        rows = rows_where(table, **select)
    except KeyError as error:
        what = next((key for key in select if key not in table), None)
        found = "there are no such rows" if what is None else f"there is no column {what!r}"
        raise UserError(
            f"multiverse: learnt: select: {found} in the table of {learnt.figure}; its columns are "
            f"{', '.join(map(str, table))}."
        ) from error
    values = (at_last_step(rows) if last else rows).groupby("seed")["value"].mean()
    low = -np.inf if learnt.least is None else learnt.least
    high = np.inf if learnt.most is None else learnt.most
    return COUNTED if values.between(low, high).all() else "not learnt"


def summarise(
    judged: pd.DataFrame, settings: Sequence[str], ledger: Sequence[Claim]
) -> pd.DataFrame:
    """A row for each claim: the share of universes in which it holds, and what that depends on.

    Columns are `claim`, `universes` that count, `failed`, `not_learnt`, `repeated` (all that would
    count but repeat another's result), `holding`, `share` with its 95 % interval `low` and `high`
    (Wilson's), `default_holds`, `word`, `setting` that its verdict depends on most, the
    `difference` of shares between that setting's values, its `p_value`, and `paper_quantile`, the
    share of our values below the paper's number.
    """
    by_id = {claim.id: claim for claim in ledger}
    rows = []
    for name, of_claim in judged.groupby("claim", sort=False):
        every, statuses = counted_of(of_claim), of_claim["status"].value_counts()
        counted = _without_repetitions(every, settings)
        row = {"claim": name, "universes": len(counted), "repeated": len(every) - len(counted)}
        row |= {"failed": statuses.get("failed", 0), "not_learnt": statuses.get("not learnt", 0)}
        if len(counted):
            row |= _share(counted) | _hangs_on(counted, settings)
            row["word"] = word(row)
            paper = by_id[str(name)].paper_value
            if paper is not None:
                row["paper_quantile"] = float((counted["ours"] < paper).mean())
        rows.append(row)
    return pd.DataFrame(rows, columns=list(_SUMMARY))


def counted_of(judged: pd.DataFrame) -> pd.DataFrame:
    """The rows of universes that count, for the claims that could be judged there."""
    return judged[(judged["status"] == COUNTED) & judged["holds"].notna()]


def _without_repetitions(counted: pd.DataFrame, settings: Sequence[str]) -> pd.DataFrame:
    """The first of the universes that differ only in values of settings which are one."""
    result = counted["ours"].map("{:.6g} ".format) + counted["verdict"]
    rows = counted[list(settings)].assign(result=result)
    merged = {}
    for key in settings:
        others = [other for other in settings if other != key]
        pairs = rows.merge(rows, on=others) if others else rows.merge(rows, how="cross")
        same = {level: level for level in rows[key]}
        for (one, other), cell in pairs.groupby([f"{key}_x", f"{key}_y"]):
            alike = len(cell) > 1 and (cell["result_x"] == cell["result_y"]).all()
            if str(one) < str(other) and alike:
                same |= {k: same[one] for k, level in same.items() if level == same[other]}
        merged[key] = rows[key].map(same)
    return counted[~pd.DataFrame(merged).duplicated()]


def _share(counted: pd.DataFrame) -> dict[str, float]:
    holding, number = int(counted["holds"].sum()), len(counted)
    interval = binomtest(holding, number).proportion_ci(method="wilson")
    default = counted.loc[counted["universe"] == 0, "holds"]
    return {
        "holding": holding,
        "share": holding / number,
        "low": interval.low,
        "high": interval.high,
        "default_holds": float(default.iloc[0]) if len(default) else np.nan,
    }


def _hangs_on(counted: pd.DataFrame, settings: Sequence[str]) -> dict[str, object]:
    holds = counted["holds"].to_numpy(float)
    differences = {key: _differences(holds[None], counted[key]).item() for key in settings}
    largest = max(differences.values())
    alike = [key for key in settings if differences[key] == largest]
    setting = " and ".join(alike) if at_most(DIFFERENCE, largest) else alike[0]
    generator = np.random.default_rng(0)
    shuffled = np.stack([generator.permutation(holds) for _ in range(REARRANGED)])
    # The largest over all settings each time, so that having many settings is no advantage.
    chance = np.max([_differences(shuffled, counted[key]) for key in settings], axis=0)
    p_value = (1 + (chance >= largest).sum()) / (1 + REARRANGED)
    return {"setting": setting, "difference": largest, "p_value": p_value}


def _differences(holds: np.ndarray, levels: pd.Series) -> np.ndarray:
    """For each row of `holds`, the range of its shares over the values of a setting."""
    shares = [holds[:, (levels == level).to_numpy()].mean(axis=1) for level in levels.unique()]
    return np.ptp(shares, axis=0).round(12)  # so that equal fractions of other counts are equal


def word(row: Mapping[str, Any]) -> str:
    """The word for a claim's row of `summarise`, by the rules above."""
    share = row["share"]
    if at_most(ROBUST, share):
        return "robust"
    if at_most(share, 1 - ROBUST):
        return "robustly not"
    if at_most(DIFFERENCE, row["difference"]) and row["p_value"] <= 0.05:
        return f"depends on {row['setting']}"
    return "fragile" if row["default_holds"] == 1 and share < 0.5 else "mixed"


def effects(judged: pd.DataFrame, settings: Sequence[str]) -> pd.DataFrame:
    """How each claim depends on the values of each setting and of each pair of settings.

    Pairs are included only if each combination of their values has at least two universes. Columns
    are `claim`, `setting` (or `one × other`), `value`, `universes`, `share` in which the claim
    holds, and `mean` of our values.
    """
    rows = []
    for name, of_claim in counted_of(judged).groupby("claim", sort=False):
        for keys in [(key,) for key in settings] + list(itertools.combinations(settings, 2)):
            cells = of_claim.groupby(list(keys), sort=False)
            possible = np.prod([of_claim[key].nunique() for key in keys])
            if len(keys) == 2 and (len(cells) < possible or cells.size().min() < 2):
                continue
            for levels, cell in cells:
                value = " × ".join(map(str, levels))
                share, mean = cell["holds"].mean(), cell["ours"].mean()
                rows.append((name, " × ".join(keys), value, len(cell), share, mean))
    return pd.DataFrame(rows, columns=list(_EFFECTS))
