"""The contents of `evidence/`: finished results, packed small, and the best verdict on a claim."""

import json
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pandas as pd

import feature_alignment
from feature_alignment.errors import UserError, reason
from feature_alignment.pipeline.claims.ledger import load_ledger
from feature_alignment.pipeline.claims.rules import Outcome
from feature_alignment.pipeline.config import PRESETS
from feature_alignment.pipeline.papers import ledgers

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "evidence"
if not Path(feature_alignment.__file__).is_relative_to(ROOT):
    sys.exit(
        f"feature_alignment is that of {Path(feature_alignment.__file__).parents[1]}, not of this "
        f"checkout; make its environment (make .venv/.ready), or set PYTHONPATH={ROOT / 'src'}."
    )
ROBUSTNESS = "robustness.csv"
AGAIN = "again.json"
KINDS = {"number": "numbers", "comparison": "comparisons", "mathematics": "mathematics"}
GOOD = (Outcome.REPRODUCED, Outcome.HOLDS, Outcome.HOLDS_AS_CORRECTED)
BAD = (Outcome.NOT_REPRODUCED, Outcome.FAILS)
TOLD = ["ours", "sd", "low", "high"]
"""The columns of a claim that `measured_text` writes."""


@dataclass(frozen=True)
class Packed:
    """One folder of `evidence`."""

    folder: Path

    @cached_property
    def about(self) -> dict[str, Any]:
        """The contents of `about.json`.

        `pictures` and `summaries` name, by figure, the commits of pictures and of derived rows that
        were made again from the packed tables, without new runs.

        Raises:
            UserError: if the folder contains no packed evidence.
        """
        file = self.folder / "about.json"
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            self.rows["changed"], self.again
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{self.folder}: no packed evidence: {reason(error)}.") from error
        told = told if isinstance(told, dict) else {}
        if missing := {"name", "preset", "figures", "datasets", "commits"} - told.keys():
            raise UserError(f"{file}: lacks {', '.join(sorted(missing))}.")
        return told

    @property
    def rows(self) -> pd.DataFrame:
        """All of `claims.csv` as text, by claim."""
        file = self.folder / "claims.csv"
        return pd.read_csv(file, dtype=str, keep_default_na=False).set_index("id")

    @property
    def runs(self) -> pd.DataFrame:
        """The runs, from `runs.csv`."""
        return pd.read_csv(self.folder / "runs.csv")

    @cached_property
    def claims(self) -> pd.DataFrame:
        """The verdicts by claim, without those for settings that differ from the preset's."""
        found = pd.read_csv(self.folder / "claims.csv", keep_default_na=True).set_index("id")
        return found[found["changed"].isna()]

    @cached_property
    def robustness(self) -> pd.DataFrame | None:
        """The multiverse's findings for each claim; None if no multiverse was packed."""
        file = self.folder / ROBUSTNESS
        return pd.read_csv(file).assign(at=self.folder.name) if file.exists() else None

    @property
    def again(self) -> list[dict[str, Any]]:
        """The outcomes of making the result again, see `confirm`."""
        file = self.folder / AGAIN
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else []

    @property
    def settings(self) -> str:
        """The settings that make it, except for where its data are."""
        selected = self.about.get("selected")
        figures = f" figures={','.join(sorted(self.about['figures']))}" if selected else ""
        return f"preset={self.about['preset']}{figures}"

    @property
    def size(self) -> int:
        """The preset's place from the smallest to the largest."""
        return list(PRESETS).index(self.about["preset"])


def run_hours(runs: pd.DataFrame) -> float:
    """Hours that the runs take on an idle machine; elapsed ones if no others were packed."""
    seconds = runs["wall_seconds"]
    if "working_seconds" in runs:
        seconds = runs["working_seconds"].fillna(seconds)
    return float(seconds.sum()) / 3600


@cache
def decimals() -> dict[str, int | None]:
    """The decimals of the papers' numbers, by claim, where the last of them are zeros."""
    return {claim.id: claim.decimals for claim in load_ledger(ledgers())}


def all_packed(folder: Path) -> list[Packed]:
    """The results in `evidence`, the largest preset first."""
    found = [Packed(path.parent) for path in folder.glob("*/about.json")]
    return sorted(found, key=lambda packed: (-packed.size, packed.folder.name))


def best_verdicts(packed: list[Packed]) -> pd.DataFrame:
    """Each claim's verdict at the largest size at which it was judged, or else untested.

    A column `at` names the evidence.
    """
    rows: dict[str, dict[str, Any]] = {}
    for one in packed:
        for claim, *values in one.claims.itertuples():
            row: dict[str, Any] = dict(zip(one.claims.columns, values, strict=True))
            known = rows.get(claim)
            if known is None or known["verdict"] == Outcome.NOT_TESTABLE:
                rows[claim] = row | {"at": one.folder.name}
    return pd.DataFrame.from_dict(rows, orient="index")


def best_robustness(packed: list[Packed]) -> pd.DataFrame:
    """The multiverse's findings for each claim, at the largest size at which some universe counted.

    A column `at` names the evidence.
    """
    found = [one.robustness for one in packed if one.robustness is not None]
    rows = pd.concat(found) if found else pd.DataFrame({"claim": [], "universes": [], "at": []})
    return rows[rows["universes"] > 0].drop_duplicates("claim").set_index("claim")


def counted(claims: pd.DataFrame) -> tuple[int, ...]:
    """How many claims came out well, partly, badly, undecided, and untested."""
    count = Counter(claims["verdict"])
    return (
        sum(count[outcome] for outcome in GOOD),
        count[Outcome.PARTLY],
        sum(count[outcome] for outcome in BAD),
        count[Outcome.UNDECIDED],
        count[Outcome.NOT_TESTABLE],
    )
