"""Facts from `evidence/` that texts (the article, the papers' deviations) request by name.

Only the methods of `Facts` that are marked `@asked` can be requested. A fact is that of the largest
size at which the claim was judged or, with `@laptop` as the last word, of that result. The ties of
a sentence to an outcome (`when`, `where`, `given`) return an empty text, and raise a `UserError` if
the evidence says otherwise.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import sizes
from packed import (
    BAD,
    GOOD,
    KINDS,
    TOLD,
    Packed,
    best_robustness,
    best_verdicts,
    counted,
    decimals,
    run_hours,
)
from statements import PAPERS, load_statements

from feature_alignment.data.registry import dataset_info
from feature_alignment.errors import UserError, check_known, suggestion
from feature_alignment.pipeline.claims import rules
from feature_alignment.pipeline.claims.ledger import load_ledger
from feature_alignment.pipeline.claims.rules import Outcome
from feature_alignment.pipeline.figures.figure import figure_label
from feature_alignment.pipeline.multiverse.design import load_multiverses
from feature_alignment.pipeline.papers import figure_order, ledgers, papers
from feature_alignment.pipeline.report.wording import measured_text, number_text, stated_text

UNITS = {"": 1.0, "%": 100.0, "‰": 1000.0}
OUTCOMES: dict[str, tuple[str, ...]] = {
    **{str(outcome): (outcome,) for outcome in Outcome},
    "good": GOOD,
    "bad": BAD,
    "judged": tuple(set(Outcome) - {Outcome.NOT_TESTABLE}),
    "decided": tuple(set(Outcome) - {Outcome.NOT_TESTABLE, Outcome.UNDECIDED}),
    "any": tuple(Outcome),
}
PERCENTAGES = {"near": rules.NEAR, "partly": rules.PARTLY, "agreement": rules.AGREEMENT}
PERCENTAGES |= {"chance": rules.CHANCE}
TAKEN = ("last", "first", "max", "min", "median")
"""The ways to reduce several values of a seed to one."""
MISPRINT = "holds as corrected"
SUPERSCRIPTS = str.maketrans("-−0123456789", "⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

ASKED: dict[str, Callable[..., Any]] = {}


def asked(fact: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a method as one that a text may request by its name."""
    ASKED[fact.__name__] = fact
    return fact


def _refuse(sentence: str) -> NoReturn:
    raise UserError(sentence)


@dataclass(frozen=True)
class Facts:
    """The facts that a text may request.

    Attributes:
        packed: the results in `evidence`, the largest preset first.
        evidence: the folder itself.
    """

    packed: list[Packed]
    evidence: Path

    @cached_property
    def verdicts(self) -> pd.DataFrame:
        """Each claim at the largest size at which it was judged."""
        return best_verdicts(self.packed)

    @cached_property
    def robustness(self) -> pd.DataFrame:
        """The multiverse's findings for each claim, at the largest size at which it was run."""
        return best_robustness(self.packed)

    def of_size(self, words: Sequence[str]) -> "tuple[Facts, list[str]]":
        """Facts of one result if the last word names it, such as `@laptop`; and the other words."""
        *others, last = words or [""]
        if not last.startswith("@"):
            return self, list(words)
        known = {f"@{one.folder.name}": one for one in self.packed}
        check_known(f"{last}: no such result in evidence/", last, known)
        return Facts([known[last]], self.evidence), others

    def claim(self, name: str) -> pd.Series:
        """The row of a claim."""
        known = [str(claim) for claim in self.verdicts.index]
        check_known(f"{name}: no such claim in evidence/", name, known)
        return self.verdicts.loc[name]

    def measured(self, name: str) -> pd.Series:
        """The row of a claim that was judged."""
        row = self.claim(name)
        if row["verdict"] == Outcome.NOT_TESTABLE:
            _refuse(f"{name}: has no value in evidence/, since it was judged at no size.")
        return row

    def largest(self, figure: str) -> Packed:
        """The largest result that has a figure."""
        largest = {name: one for one in reversed(self.packed) for name in one.about["figures"]}
        check_known(f"{figure}: no such figure in evidence/", figure, largest)
        return largest[figure]

    def selection(self, paper: str, kind: str, outcome: str) -> pd.DataFrame:
        """Claims of a paper, a kind and an outcome; our own only if their kind is named."""
        for key, value, allowed in (
            ("paper", paper, ["", *papers()]),
            ("kind", kind, ["", "ours", *KINDS]),
            ("outcome", outcome, list(OUTCOMES)),
        ):
            check_known(f"{key}: found {value!r}", value, allowed)
        rows = self.verdicts[self.verdicts["verdict"].isin(OUTCOMES[outcome])]
        rows = rows[rows["kind"].isin([kind] if kind else KINDS)]
        return rows[rows["paper"] == paper] if paper else rows

    @asked
    def ours(self, name: str, unit: str = "") -> str:
        """Our mean and its spread."""
        return written(measured_text(*self.measured(name)[TOLD] * UNITS[unit]), unit)

    @asked
    def mean(self, name: str, unit: str = "") -> str:
        """Our mean alone."""
        ours, _, *bounds = self.measured(name)[TOLD] * UNITS[unit]
        return written(number_text(ours, 2, *bounds), unit)

    @asked
    def theirs(self, name: str, unit: str = "") -> str:
        """The paper's number from the ledger."""
        value = self.claim(name)["paper_value"]
        if math.isnan(value):
            _refuse(f"{name}: the paper states no number.")
        printed = None if unit else decimals().get(name)
        return written(stated_text(value * UNITS[unit], printed), unit)

    @asked
    def seeds(self, name: str) -> str:
        """The number of seeds."""
        return str(self.measured(name)["seeds"])

    @asked
    def votes(self, name: str) -> str:
        """In how many of the independent units most values agree."""
        row = self.measured(name)
        if math.isnan(row["units"]):
            _refuse(f"{name}: is judged by its mean, so there are no votes to tell.")
        return f"{row['agreeing']:.0f} of {row['units']:.0f}"

    @asked
    def cell(self, figure: str, metric: str, *where: str) -> str:
        """A mean over seeds, and its spread, from the table of a figure.

        Args:
            figure: the figure, such as "baratin2021_fig13".
            metric: the metric.
            where: values of other columns, such as "depth=6"; and "take=last", or another of TAKEN,
                if a seed has several values, ordered by step.
        """
        for condition in where:
            if "=" not in condition:
                _refuse(f"{figure}: found {condition!r}; write column=value, or take=last.")
        chosen = dict(condition.split("=", 1) for condition in where)
        take = chosen.pop("take", "")
        if take:
            check_known(f"{figure}: take: found {take!r}", take, TAKEN)
        path = self.largest(figure).folder / "tables" / f"{figure}.csv.xz"
        rows = pd.read_csv(path, low_memory=False)
        for column, value in {"metric": metric, **chosen}.items():
            check_known(f"{figure}: {column}: no such column", column, list(rows))
            known = sorted(
                {f"{each:g}" if isinstance(each, float) else str(each) for each in rows[column]}
            )
            check_known(f"{figure}: {column}: found {value!r}", value, known)
            numeric = pd.api.types.is_numeric_dtype(rows[column])
            rows = rows[rows[column] == float(value) if numeric else rows[column] == value]
        if take in ("first", "last") and rows.duplicated(["seed", "step"]).any():
            _refuse(f"{figure}: {metric}: a seed has several values at a step; say more columns.")
        seeds = rows.sort_values("step").groupby("seed")["value"]
        if take:
            values = seeds.agg(take)
        elif seeds.size().max() > 1:
            _refuse(f"{figure}: {metric}: a seed has several values; say more columns, or take=.")
        else:
            values = seeds.first()
        return written(measured_text(values.mean(), values.std(ddof=1)))

    @asked
    def verdict(self, name: str) -> str:
        """The word of the verdict."""
        return str(self.claim(name)["verdict"])

    @asked
    def at(self, name: str) -> str:
        """The result that a claim was judged in."""
        return str(self.measured(name)["at"])

    @asked
    def when(self, outcome: str, *names: str) -> str:
        """An empty text if all of these claims have the outcome, else an error."""
        if outcome not in OUTCOMES or not names:
            _refuse(f"when: found {outcome!r}; {suggestion(outcome, list(OUTCOMES))}.")
        for name in names:
            row = self.claim(name)
            if row["verdict"] not in OUTCOMES[outcome]:
                _refuse(
                    f"{name}: came out as {row['verdict']!r} ({row['at']}), where the sentence is "
                    f"tied to {outcome!r}; revise the sentence."
                )
        return ""

    @asked
    def where(self, left: str, sign: str, right: str) -> str:
        """Empty if our mean is below or above another claim's, the paper's number or zero."""
        mean = float(self.measured(left)["ours"])
        if right == "theirs":
            bound = float(self.claim(left)["paper_value"])
        else:
            bound = 0.0 if right == "0" else float(self.measured(right)["ours"])
        if sign not in ("<", ">") or not (mean < bound if sign == "<" else mean > bound):
            _refuse(
                f"{left}: is {number_text(mean)}, where the sentence is tied to {sign} "
                f"{number_text(bound)} ({right}); revise the sentence."
            )
        return ""

    @asked
    def given(self, about: str, value: str) -> str:
        """An empty text if the value is that of what is packed, else an error.

        `results`: all names; `multiverse`: the names of those with one; `devices`: what they ran
        on; `stand-ins`: "all" if no data set is real, "none" if each is, else "some".
        """
        data = [entry["stand_in"] for one in self.packed for entry in one.about["datasets"]]
        known = {
            "results": ", ".join(one.folder.name for one in self.packed),
            "multiverse": ", ".join(sorted(set(self.robustness["at"]))) or "none",
            "devices": ", ".join(sorted({d for one in self.packed for d in one.about["devices"]})),
            "stand-ins": "all" if all(data) else "some" if any(data) else "none",
        }
        if known.get(about) != value:
            _refuse(
                f"given: {about}: the evidence has {known.get(about, 'no such thing')!r}, where "
                f"the sentence is tied to {value!r}; revise the sentence."
            )
        return ""

    @asked
    def count(self, paper: str = "", kind: str = "", outcome: str = "any") -> str:
        """The number of claims."""
        return str(len(self.selection(paper, kind, outcome)))

    @asked
    def reseeded(self, fewer: str, before: str = "any", turned: str = "") -> str:
        """How many claims a result `fewer` judges by the first of the seeds of a larger one.

        Only those whose outcome was `before` there; with `turned: "yes"` only those that have
        another verdict by all seeds.
        """
        known = {one.folder.name: one for one in self.packed}
        check_known(f"{fewer}: no such result in evidence/", fewer, known)
        check_known(f"outcome: found {before!r}", before, OUTCOMES)
        check_known(f"turned: found {turned!r}", turned, ["", "yes"])
        rows = known[fewer].claims
        rows = rows[rows["verdict"].isin(OUTCOMES[before])]
        other = [
            row["verdict"] != self.verdicts.loc[claim, "verdict"]
            for claim, row in rows.iterrows()
            if sizes.more_seeds(sizes.Size("", row), sizes.Size("", self.verdicts.loc[claim]))
        ]
        return str(sum(other) if turned else len(other))

    @asked
    def shown(self, result: str) -> str:
        """How many figures a result has, of how many."""
        known = {one.folder.name: one for one in self.packed}
        check_known(f"{result}: no such result in evidence/", result, known)
        every = {figure for one in self.packed for figure in one.about["figures"]}
        return f"{len(known[result].about['figures'])} of {len(every)}"

    @asked
    def changed(self) -> str:
        """How many of the claims have had another criterion before, as the ledgers tell."""
        before = [claim.id for claim in load_ledger(ledgers()) if claim.was]
        return str(self.selection("", "", "any").index.isin(before).sum())

    @asked
    def robust(self, name: str) -> str:
        """In how many of the readings of the multiverse a claim holds."""
        if name not in self.robustness.index:
            _refuse(f"{name}: no multiverse in evidence/ has judged it.")
        row = self.robustness.loc[name]
        return f"{row['holding']:.0f} of {row['universes']:.0f}"

    @asked
    def percentage(self, name: str) -> str:
        """A threshold of the rules for verdicts."""
        if name not in PERCENTAGES:
            _refuse(f"percentage: {suggestion(name, list(PERCENTAGES))}.")
        return written(f"{100 * PERCENTAGES[name]:g}", "%")

    @asked
    def picture(self, figure: str, width: str = "100%") -> dict[str, str]:
        """The file of a figure, the result that it comes from, and the width to print it at."""
        one = self.largest(figure)
        file = (one.folder / "figures" / f"{figure}.png").relative_to(self.evidence.parent)
        return {"file": f"/{file}", "at": one.folder.name, "width": width}

    @asked
    def claims(self, *names: str) -> list[list[str]]:
        """Rows of claims: statement, the paper's number, ours, seeds, verdict and its size."""
        rows = []
        for name in names:
            row = self.measured(name)
            rows.append(
                [
                    " ".join(row["statement"].split()),
                    written(stated_text(row["paper_value"], decimals().get(name))),
                    written(measured_text(*row[TOLD])),
                    str(row["seeds"]),
                    f"{row['verdict']}{' (ours)' if row['kind'] == 'ours' else ''}",
                    row["at"],
                ]
            )
        return rows

    @asked
    def erratum(self, name: str) -> list[str]:
        """A misprint's place and name, and what its printed form gives and should give."""
        self.when(MISPRINT, name)
        row = self.claim(name)
        asked_for = str(row["criterion"]).removeprefix("each value ").replace(" the paper's", "")
        found = written(f"{number_text(row['ours'], 2)}; {asked_for}")
        return [row["place"], name.rpartition(".")[2], found]

    @asked
    def summary(self) -> list[list[str]]:
        """How many claims of each paper and kind have which verdict."""
        rows = []
        for key in papers():
            for kind, words in KINDS.items():
                if len(own := self.selection(key, kind, "any")):
                    rows.append([key, words, str(len(own)), *_counted(own)])
        return rows

    @asked
    def figures(self, paper: str) -> list[list[str]]:
        """How many claims of each figure of a paper have which verdict, and at which sizes."""
        own = self.selection(paper, "", "any")
        rows = []
        for figure in sorted(own["figure"].unique(), key=figure_order):
            of_figure = own[own["figure"] == figure]
            judged = of_figure[of_figure["verdict"] != Outcome.NOT_TESTABLE]
            sizes = [one.folder.name for one in self.packed if one.folder.name in set(judged["at"])]
            label = figure_label(figure)
            rows.append([label, str(len(of_figure)), *_counted(of_figure), ", ".join(sizes) or "–"])
        return rows

    @asked
    def sources(self) -> list[list[str]]:
        """Each result: its preset, figures, runs, hours of runs, peak memory, device, commit."""
        rows = []
        for one in self.packed:
            about, runs = one.about, one.runs
            commits = ", ".join(commit[:7] for commit in about["commits"])
            names = (about["name"], about["preset"], str(len(about["figures"])))
            rows.append([*names, *_cost(runs), ", ".join(about["devices"]), commits])
        return rows

    @asked
    def again(self, result: str) -> str:
        """How many verdicts were the same on each device where a result was made again."""
        told = next((one.again for one in self.packed if one.folder.name == result), [])
        if not told:
            _refuse(f"{result}: evidence/ has no record that it was made again.")
        places: dict[str, list[int]] = {}  # equal verdicts, and all
        for one in told:
            found = places.setdefault(", ".join(one["devices"]), [0, 0])
            found[0] += one["claims"] - len(one["verdicts_that_differ"])
            found[1] += one["claims"]
        *before, last = (f"{same} of {every} on {at}" for at, (same, every) in places.items())
        return " and ".join([*([", ".join(before)] if before else []), last])

    @asked
    def costs(self) -> list[list[str]]:
        """Runs, hours and peak memory of each paper in each result."""
        rows = []
        for one in self.packed:
            runs = one.runs
            for key, own in runs.groupby(runs["experiment"].str.partition("_")[0]):
                rows.append([one.folder.name, str(key), *_cost(own)])
        return rows

    @asked
    def data(self) -> list[list[str]]:
        """Data sets as they were read: in which results, what the real one is, how many samples."""
        results: dict[tuple[str, ...], list[str]] = {}
        for one in self.packed:
            for entry in one.about["datasets"]:
                info = dataset_info(entry["name"])
                read = f"stand-in: {info.stand_in}" if entry["stand_in"] else entry["source"]
                numbers = " + ".join(f"{number:,}" for number in entry["counts"].values())
                read = "; ".join([read, *entry["notes"]])
                results.setdefault((info.title, info.real, read, numbers), []).append(
                    one.folder.name
                )
        return [[", ".join(names), *read] for read, names in results.items()]

    @asked
    def stated(self, paper: str) -> str:
        """How many statements of a paper a computation could check."""
        return str(len(load_statements(PAPERS / paper)))

    @asked
    def followed(self, paper: str) -> str:
        """How many of these are judged by a claim."""
        return str(sum(bool(entry.claims) for entry in load_statements(PAPERS / paper)))

    @asked
    def unsettled(self) -> list[list[str]]:
        """The settings that the texts leave open: paper, figures, their number and names."""
        rows = {}
        for name, group in load_multiverses().items():
            labels = ", ".join(figure_label(f).removeprefix("Figure ") for f in group.figures)
            words = [key.rpartition(".")[2].replace("_", " ") for key in group.settings]
            row = [name.partition("_")[0], labels, str(len(words)), ", ".join(words)]
            rows[group.figures] = row
        return list(rows.values())


def _counted(rows: pd.DataFrame) -> list[str]:
    return [str(number) if number else "–" for number in counted(rows)]


def _cost(runs: pd.DataFrame) -> list[str]:
    memory = runs["peak_memory_mib"].max() / 1024
    return [str(len(runs)), f"{run_hours(runs):.2f}", f"{memory:.1f}"]


def written(number: str, unit: str = "") -> str:
    r"""A number in print: powers of ten raised, the unit once at the end.

    Example:
        >>> written("4.58e−15"), written("below 1e-09"), written("1.42 ± 0.12", "%")
        ('4.58·10⁻¹⁵', 'below 10⁻⁹', '(1.42 ± 0.12)\xa0%')
    """

    def raised(power: re.Match[str]) -> str:
        return f"·10{(power[1] + power[2]).translate(SUPERSCRIPTS)}"

    number = re.sub(r"(?<=\d)e[+]?([-−]?)0*(\d+)", raised, number)
    number = re.sub(r"(?<![\d.])1·10", "10", number)
    if not unit:
        return number
    return f"({number})\u00a0{unit}" if "±" in number else f"{number}\u00a0{unit}"
