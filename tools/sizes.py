"""Why a claim's verdict differs between sizes: number of seeds, perhaps chance, or the size.

The last needs a reason, written by hand in evidence/sizes.yaml.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from packed import TOLD
from scipy.stats import fisher_exact, ttest_ind_from_stats
from scipy.stats import t as student_t

from feature_alignment.pipeline.claims.rules import CHANCE, Outcome
from feature_alignment.pipeline.report.wording import measured_text


@dataclass(frozen=True)
class Size:
    """The outcome of a claim at one size.

    Attributes:
        at: the name of the evidence.
        row: the claim's row as packed.
    """

    at: str
    row: pd.Series

    @property
    def counted(self) -> bool:
        """Whether it was judged by the votes of independent units."""
        return not math.isnan(self.row["units"])

    @property
    def unanimous(self) -> bool:
        """Whether all units agree."""
        return self.counted and self.row["agreeing"] == self.row["units"]

    @property
    def votes(self) -> str:
        """How many units agree."""
        return f"{self.row['agreeing']:.0f} of {self.row['units']:.0f}"

    @property
    def values(self) -> np.ndarray:
        """The values by seed, or the only one."""
        by_seed = self.row["by_seed"]
        return np.array(by_seed.split() if isinstance(by_seed, str) else [self.row["ours"]], float)

    def __str__(self) -> str:
        votes = f"; {self.votes}" if self.counted else ""
        ours = measured_text(*self.row[TOLD])
        return f"{self.row['verdict']} (`{self.at}`): {ours}{votes}"


def too_few(one: Size, other: Size) -> Size | None:
    """The size that is undecided although all units agree at both sizes, if there is one."""
    if one.unanimous and other.unanimous:
        for size in (one, other):
            if size.row["verdict"] == Outcome.UNDECIDED:
                return size
    return None


def more_seeds(one: Size, other: Size) -> tuple[int, int] | None:
    """How many values one size has, which the other begins with, and how many that has, if it does.

    The values of one (up to the digits that are packed) are then the first of the other's: both
    measured the same and differ in the number of seeds alone.
    """
    few, many = sorted((size.values for size in (one, other)), key=len)
    if 1 < len(few) < len(many) and np.array_equal(few, many[: len(few)]):
        return len(few), len(many)
    return None


def differ(one: Size, other: Size) -> bool:
    """Whether what was measured differs by more than networks of one size would.

    By Fisher's exact test of the votes, or Welch's t-test of the values by seed. A single network
    is taken to have the other size's standard deviation; with only one at each size, or values that
    are all equal, nothing speaks for chance, and they differ if their means do.
    """
    sizes = one, other
    if all(size.counted for size in sizes):
        votes = [[s.row["agreeing"], s.row["units"] - s.row["agreeing"]] for s in sizes]
        if fisher_exact(votes).pvalue <= CHANCE:
            return True
    few, many = sorted((size.values for size in sizes), key=len)
    if len(many) == 1 or max(np.ptp(few), np.ptp(many)) == 0:
        return bool(few[0] != many[0])
    if len(few) == 1:
        distance = abs(few[0] - many.mean()) / (many.std(ddof=1) * (1 + 1 / len(many)) ** 0.5)
        return bool(2 * student_t.sf(distance, len(many) - 1) <= CHANCE)
    moments = [(values.mean(), values.std(ddof=1), len(values)) for values in (few, many)]
    return bool(ttest_ind_from_stats(*moments[0], *moments[1], equal_var=False).pvalue <= CHANCE)


def disagreements(claims: Mapping[str, pd.DataFrame]) -> dict[str, list[Size]]:
    """For each claim, the largest size at which it was judged and smaller ones that disagree.

    `claims` are the packed ones, by the evidence's name, the largest size first.
    """
    found: dict[str, list[Size]] = {}
    for at, rows in claims.items():
        for claim, row in rows[rows["verdict"] != Outcome.NOT_TESTABLE].iterrows():
            largest = found.setdefault(str(claim), [Size(at, row)])[0]
            if row["verdict"] != largest.row["verdict"]:
                found[str(claim)].append(Size(at, row))
    return {claim: sizes for claim, sizes in found.items() if len(sizes) > 1}


def of_size(largest: Size, smaller: Size) -> bool:
    """Whether neither the number of seeds nor chance may explain the two verdicts."""
    if too_few(largest, smaller) is not None or more_seeds(largest, smaller) is not None:
        return False
    return differ(largest, smaller)


def table(claims: Mapping[str, pd.DataFrame], reasons: Mapping[str, str]) -> str:
    """The disagreements as Markdown, with their reasons."""
    found = disagreements(claims)
    if not found:
        return "Nowhere.\n"
    lines = ["| claim | verdict | at smaller sizes | why |", "|---|---|---|---|"]
    for claim, (largest, *smaller) in found.items():
        why = dict.fromkeys(_why(largest, one, reasons.get(claim)) for one in smaller)
        cells = f"`{claim}`", str(largest), ", ".join(map(str, smaller)), " ".join(why)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _why(largest: Size, smaller: Size, reason: str | None) -> str:
    if of_size(largest, smaller):
        return reason or "The size; no reason is known."
    few = too_few(largest, smaller)
    if few is not None:
        return f"{few.votes} at `{few.at}`: too few to tell."
    if (seeds := more_seeds(largest, smaller)) is not None:
        return f"More seeds: {seeds[0]} are the first of the same {seeds[1]}."
    return "May be chance: no difference is shown."
