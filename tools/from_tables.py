"""Remake the verdicts and pictures of a packed result from its tables, with the current code.

`evidence/NAME/about.json` records the commit at which this was done, if it is not the runs' own.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from packed import ROBUSTNESS, ROOT, Packed
from packing import shrink

from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError, check_known
from feature_alignment.pipeline.claims.evaluate import evaluate_all, write_verdicts
from feature_alignment.pipeline.claims.ledger import Claim
from feature_alignment.pipeline.config import resolve_config
from feature_alignment.pipeline.figures.make import draw_figure
from feature_alignment.pipeline.multiverse.design import load_multiverses
from feature_alignment.pipeline.multiverse.judge import summarise
from feature_alignment.pipeline.plan import Plan, make_plan
from feature_alignment.pipeline.provenance import git_state


class ArraysMissingError(LookupError):
    """A picture needs an array, and arrays are not packed."""


class _NoArrays(dict[str, np.ndarray]):
    def __missing__(self, name: str) -> np.ndarray:
        raise ArraysMissingError(name)


def judge(packed: Packed) -> list[str]:
    """Judge all claims by the current ledger; return what differs from the packed, in words.

    The multiverse's universes keep their verdicts, but are summarised anew.

    Raises:
        UserError: if the checkout has uncommitted changes.
    """
    commit, plan = _commit(), _plan(packed)
    figures = {
        figure: {"changed": changed, "datasets": _datasets(packed, plan, figure)}
        for figure, changed in packed.about["figures"].items()
    }
    spec = {"name": packed.about["name"], "preset": packed.about["preset"], "figures": figures}
    tables = {figure: pd.read_csv(_table(packed, figure), low_memory=False) for figure in figures}
    before = packed.rows
    write_verdicts(evaluate_all(plan.claims, tables, spec), packed.folder / "claims.csv")
    now = packed.rows
    told = [f"{claim}: no longer a claim" for claim in before.index.difference(now.index)]
    for claim, row in now.iterrows():
        then = before.loc[claim] if claim in before.index else None
        if then is None or (then["verdict"], then["ours"]) != (row["verdict"], row["ours"]):
            was = "new" if then is None else f"{then['verdict']} ({then['ours']})"
            told.append(f"{claim}: {was}, now {row['verdict']} ({row['ours']})")
    if packed.robustness is not None:
        told += _summarise(packed, plan.claims)
    _tell(packed, {"judged": commit})
    return told


def _summarise(packed: Packed, ledger: Sequence[Claim]) -> list[str]:
    """Summarise the packed universes' verdicts; return the changed words of the current claims."""
    universes = pd.read_csv(packed.folder / "multiverse.csv.xz")
    universes = universes[universes["claim"].isin([claim.id for claim in ledger])]
    found = []
    for name, rows in universes.groupby("group"):
        levels = pd.DataFrame(map(json.loads, rows["settings"]), index=rows.index)
        settings = list(load_multiverses()[str(name)].settings)
        summary = summarise(rows.join(levels), settings, ledger)
        found.append(summary.assign(changed="", group=name))
    file = packed.folder / ROBUSTNESS
    before = pd.read_csv(file).set_index("claim")["word"].fillna("")
    write_verdicts(pd.concat(found), file)
    now = pd.read_csv(file).set_index("claim")["word"].fillna("")
    told = [f"{claim}: no longer in the multiverse" for claim in before.index.difference(now.index)]
    for claim, word in now.items():
        if (then := before.get(claim)) != word:
            told.append(f"{claim}: {then or 'no word'} in the multiverse, now {word or 'no word'}")
    return told


def redraw(packed: Packed, figures: Sequence[str]) -> list[str]:
    """Draw these pictures, or all; return the figures that were drawn.

    Pictures of arrays, which are not packed, stay as they are.

    Raises:
        UserError: if the checkout has uncommitted changes, or there is no such figure.
    """
    for figure in figures:
        check_known(f"{figure}: no such figure", figure, packed.about["figures"])
    commit, plan, drawn = _commit(), _plan(packed), []
    with tempfile.TemporaryDirectory() as folder:
        for figure in figures or packed.about["figures"]:
            spec = {
                **plan.figure_spec(figure),
                "name": packed.about["name"],
                "changed": packed.about["figures"][figure],
                "datasets": _datasets(packed, plan, figure),
            }
            picture = Path(folder) / f"{figure}.png"
            try:
                draw_figure(spec, _table(packed, figure), _NoArrays(), [picture])
            except UserError as error:
                if not isinstance(error.__cause__, ArraysMissingError):
                    raise
                continue
            shrink(picture, packed.folder / "figures")
            drawn.append(figure)
    if drawn:
        known = packed.about.get("pictures", {})
        _tell(packed, {"pictures": {**known, **dict.fromkeys(drawn, commit)}})
    return drawn


def _commit() -> str:
    state = git_state()
    if state["dirty"] is not False:
        raise UserError("the checkout has changes of its own; commit them first.")
    return state["commit"]


def _plan(packed: Packed) -> Plan:
    unread = {name: {"source": "embedded"} for name in DATASETS}  # whatever was read for the runs
    return make_plan(
        resolve_config({"preset": packed.about["preset"], "datasets": unread}, ROOT / "workflow")
    )


def _datasets(packed: Packed, plan: Plan, figure: str) -> list[list[str]]:
    sources = {one["name"]: one["source"] for one in packed.about["datasets"]}
    return [[name, sources.get(name, own)] for name, own in plan.datasets_of(figure)]


def _table(packed: Packed, figure: str) -> Path:
    return packed.folder / "tables" / f"{figure}.csv.xz"


def _tell(packed: Packed, told: dict[str, Any]) -> None:
    about = {**packed.about, **told}
    (packed.folder / "about.json").write_text(f"{json.dumps(about, indent=1)}\n", "utf-8")
