"""The article, typeset by Typst: whatever it states of our results comes from `evidence/`.

    python tools/article.py            writes article/article.pdf, and article/facts.json on the way
    python tools/article.py --check    writes nothing; one sentence for each statement that is
                                       untrue of the evidence, and for each claim that is not there

`article/article.typ` asks for facts by name, as `#ours("baratin2021.fig8.ratio")`; the methods of
`Facts` that are marked `@asked` are all that it may ask for. A sentence that states an outcome is
tied to it, `#when("partly", "baratin2021.fig8.fourier_alignment")[...]`: it fails where the
evidence says otherwise. Of several sizes a fact is that of the largest at which the claim was
judged. No fact is computed by Typst, so the check needs no Typst. Names stand in quotes in the
article itself, decimals and per cents are not typed there, and its abstract states no outcome
that is not tied.
"""

import argparse
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
from evidence import BAD, EVIDENCE, GOOD, KINDS, ROOT, Packed, all_packed, best_verdicts
from statements import PAPERS, load_statements

from feature_alignment.data.registry import dataset_info
from feature_alignment.errors import UserError, suggestion
from feature_alignment.files import whole_file
from feature_alignment.pipeline.claims import rules
from feature_alignment.pipeline.claims.rules import Outcome
from feature_alignment.pipeline.figures.figure import figure_label
from feature_alignment.pipeline.multiverse.design import load_multiverses
from feature_alignment.pipeline.papers import figure_order, papers
from feature_alignment.pipeline.report.wording import measured_text, number_text

ARTICLE = ROOT / "article"
SOURCE = ARTICLE / "article.typ"
UNITS = {"": 1.0, "%": 100.0, "‰": 1000.0}
OUTCOMES: dict[str, tuple[str, ...]] = {
    **{str(outcome): (outcome,) for outcome in Outcome},
    "good": GOOD,
    "bad": BAD,
    "judged": tuple(set(Outcome) - {Outcome.NOT_TESTABLE}),
    "any": tuple(Outcome),
}
PERCENTAGES = {"near": rules.NEAR, "partly": rules.PARTLY, "agreement": rules.AGREEMENT}
PERCENTAGES |= {"chance": rules.CHANCE}
MISPRINT = "holds as corrected"
STRING = r'"[^"\n]*"'
ARGUMENTS = re.compile(rf"\s*(?:(?:[a-z]+:\s*)?{STRING}\s*(?:,\s*|(?=\))))*\)")
TYPED_NUMBER = re.compile(r"\d\.\d|\d\s*[%‰]")
NOT_PROSE = re.compile(rf"{STRING}|\$[^$]*\$|`[^`]*`|//[^\n]*|(?:Section|Appendix) [A-Z0-9][.0-9]*")
OUTCOME_WORDS = re.compile(r"\b(reproduced?|hold(s|ing)?|fail(s|ed)?|partly|undecided|\d+)\b")
SUPERSCRIPTS = str.maketrans("-−0123456789", "⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

_ASKED: dict[str, Callable[..., Any]] = {}


def asked(fact: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a method as one that the article may ask for by its name."""
    _ASKED[fact.__name__] = fact
    return fact


def _refuse(sentence: str) -> NoReturn:
    raise UserError(sentence)


@dataclass(frozen=True)
class Facts:
    """What the article may ask for.

    Attributes:
        packed: what is in `evidence`, the largest preset first.
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
        """What the multiverse found of each claim, at the largest size at which it was run."""
        found = [
            pd.read_csv(one.folder / "robustness.csv").assign(at=one.folder.name)
            for one in self.packed
            if (one.folder / "robustness.csv").exists()
        ]
        rows = pd.concat(found) if found else pd.DataFrame({"claim": [], "at": []})
        return rows.drop_duplicates("claim").set_index("claim")

    def claim(self, name: str) -> pd.Series:
        """The row of a claim."""
        if name not in self.verdicts.index:
            known = [str(claim) for claim in self.verdicts.index]
            _refuse(f"{name}: no such claim in evidence/; {suggestion(name, known)}.")
        return self.verdicts.loc[name]

    def measured(self, name: str) -> pd.Series:
        """The row of a claim that was judged."""
        row = self.claim(name)
        if row["verdict"] == Outcome.NOT_TESTABLE:
            _refuse(f"{name}: has no value in evidence/, since it was judged at no size.")
        return row

    def largest(self, figure: str) -> Packed:
        """The largest result that has a figure."""
        for one in self.packed:
            if figure in one.about["figures"]:
                return one
        known = sorted({figure for one in self.packed for figure in one.about["figures"]})
        _refuse(f"{figure}: no such figure in evidence/; {suggestion(figure, known)}.")

    def selection(self, paper: str, kind: str, outcome: str) -> pd.DataFrame:
        """Claims of a paper, a kind and an outcome; those of our own only by their kind."""
        for key, value, allowed in (
            ("paper", paper, ["", *papers()]),
            ("kind", kind, ["", "ours", *KINDS]),
            ("outcome", outcome, list(OUTCOMES)),
        ):
            if value not in allowed:
                _refuse(f"{key}: found {value!r}; {suggestion(value, allowed)}.")
        rows = self.verdicts[self.verdicts["verdict"].isin(OUTCOMES[outcome])]
        rows = rows[rows["kind"].isin([kind] if kind else KINDS)]
        return rows[rows["paper"] == paper] if paper else rows

    @asked
    def ours(self, name: str, unit: str = "") -> str:
        """Our mean and its spread."""
        row = self.measured(name)
        return written(measured_text(row["ours"] * UNITS[unit], row["sd"] * UNITS[unit]), unit)

    @asked
    def mean(self, name: str, unit: str = "") -> str:
        """Our mean alone."""
        return written(number_text(self.measured(name)["ours"] * UNITS[unit], 2), unit)

    @asked
    def theirs(self, name: str, unit: str = "") -> str:
        """The paper's number, as the ledger has it."""
        value = self.claim(name)["paper_value"]
        if math.isnan(value):
            _refuse(f"{name}: the paper states no number.")
        return written(number_text(value * UNITS[unit]), unit)

    @asked
    def seeds(self, name: str) -> str:
        """How many seeds there are."""
        return str(self.measured(name)["seeds"])

    @asked
    def votes(self, name: str) -> str:
        """In how many of the independent units most values agree."""
        row = self.measured(name)
        if math.isnan(row["units"]):
            _refuse(f"{name}: is judged by its mean, so there are no votes to tell.")
        return f"{row['agreeing']:.0f} of {row['units']:.0f}"

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
        """Nothing, if all of these claims came out so."""
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
        """Nothing, if our mean is below or above another claim's, the paper's number or zero."""
        mean = float(self.measured(left)["ours"])
        if right == "theirs":
            bound = float(self.claim(left)["paper_value"])
        else:
            bound = 0.0 if right == "0" else float(self.measured(right)["ours"])
        if sign not in "<>" or not (mean < bound if sign == "<" else mean > bound):
            _refuse(
                f"{left}: is {number_text(mean)}, where the sentence is tied to {sign} "
                f"{number_text(bound)} ({right}); revise the sentence."
            )
        return ""

    @asked
    def given(self, about: str, value: str) -> str:
        """Nothing, if this is what is packed.

        `results`: the names of all; `multiverse`: of those with one; `devices`: what they ran on;
        `stand-ins`: "all" if no data set is real, "none" if each is, else "some".
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
        """How many claims there are."""
        return str(len(self.selection(paper, kind, outcome)))

    @asked
    def robust(self, name: str) -> str:
        """In how many of the readings of the multiverse a claim holds."""
        if name not in self.robustness.index:
            _refuse(f"{name}: no multiverse in evidence/ has judged it.")
        row = self.robustness.loc[name]
        return f"{row['holding']:.0f} of {row['universes']:.0f}"

    @asked
    def percentage(self, name: str) -> str:
        """A limit of the rules of verdicts."""
        if name not in PERCENTAGES:
            _refuse(f"percentage: {suggestion(name, list(PERCENTAGES))}.")
        return written(f"{100 * PERCENTAGES[name]:g}", "%")

    @asked
    def picture(self, figure: str, width: str = "100%") -> dict[str, str]:
        """The file of a figure, the result that it is of, and how wide it is to be."""
        one = self.largest(figure)
        file = (one.folder / "figures" / f"{figure}.png").relative_to(self.evidence.parent)
        return {"file": f"/{file}", "at": one.folder.name, "width": width}

    @asked
    def claims(self, *names: str) -> list[list[str]]:
        """Rows of claims: what is stated, the paper's number, ours, the verdict and its size."""
        rows = []
        for name in names:
            row = self.measured(name)
            rows.append(
                [
                    " ".join(row["statement"].split()),
                    written(number_text(row["paper_value"])),
                    written(measured_text(row["ours"], row["sd"])),
                    str(row["seeds"]),
                    f"{row['verdict']}{' (ours)' if row['kind'] == 'ours' else ''}",
                    row["at"],
                ]
            )
        return rows

    @asked
    def erratum(self, name: str) -> list[str]:
        """A misprint's place and name, and what its printed form gives and should."""
        self.when(MISPRINT, name)
        row = self.claim(name)
        asked_for = str(row["criterion"]).removeprefix("each value ").replace(" the paper's", "")
        found = written(f"{number_text(row['ours'], 2)}; {asked_for}")
        return [row["place"], name.rpartition(".")[2], found]

    @asked
    def summary(self) -> list[list[str]]:
        """Of each paper and kind, how many claims came out how."""
        rows = []
        for key in papers():
            for kind, words in KINDS.items():
                if len(own := self.selection(key, kind, "any")):
                    rows.append([key, words, str(len(own)), *_counted(own)])
        return rows

    @asked
    def figures(self, paper: str) -> list[list[str]]:
        """Of each figure of a paper, how many claims came out how, and at which sizes."""
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
            about, runs = one.about, pd.read_csv(one.folder / "runs.csv")
            commits = ", ".join(commit[:7] for commit in about["commits"])
            names = (about["name"], about["preset"], str(len(about["figures"])))
            rows.append([*names, *_cost(runs), ", ".join(about["devices"]), commits])
        return rows

    @asked
    def costs(self) -> list[list[str]]:
        """Runs, hours and peak memory of each paper in each result."""
        rows = []
        for one in self.packed:
            runs = pd.read_csv(one.folder / "runs.csv")
            for key, own in runs.groupby(runs["experiment"].str.partition("_")[0]):
                rows.append([one.folder.name, str(key), *_cost(own)])
        return rows

    @asked
    def data(self) -> list[list[str]]:
        """Each data set in each result: what the real one is, what was read, how many samples."""
        rows = []
        for one in self.packed:
            for entry in one.about["datasets"]:
                info = dataset_info(entry["name"])
                read = f"stand-in: {info.stand_in}" if entry["stand_in"] else entry["source"]
                numbers = " + ".join(f"{number:,}" for number in entry["counts"].values())
                read = "; ".join([read, *entry["notes"]])
                rows.append([one.folder.name, info.title, info.real, read, numbers])
        return rows

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
        """What the texts leave open: paper, figures, number of settings, and which."""
        rows = {}
        for name, group in load_multiverses().items():
            labels = ", ".join(figure_label(f).removeprefix("Figure ") for f in group.figures)
            words = [key.rpartition(".")[2].replace("_", " ") for key in group.settings]
            row = [name.partition("_")[0], labels, str(len(words)), ", ".join(words)]
            rows[group.figures] = row
        return list(rows.values())


def _counted(rows: pd.DataFrame) -> list[str]:
    count = Counter(rows["verdict"])
    numbers = (
        sum(count[outcome] for outcome in GOOD),
        count[Outcome.PARTLY],
        sum(count[outcome] for outcome in BAD),
        count[Outcome.UNDECIDED],
        count[Outcome.NOT_TESTABLE],
    )
    return [str(number) if number else "–" for number in numbers]


def _cost(runs: pd.DataFrame) -> list[str]:
    hours = runs["wall_seconds"].sum() / 3600
    memory = runs["peak_memory_mib"].max() / 1024
    return [str(len(runs)), f"{hours:.2f}", f"{memory:.1f}"]


def written(number: str, unit: str = "") -> str:
    r"""A number in print: powers of ten raised, the unit once behind.

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


@dataclass(frozen=True)
class Call:
    """A fact that the article asks for, and where."""

    line: int
    name: str
    arguments: tuple[str, ...]
    options: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        """The name under which Typst finds the answer."""
        parts = (self.name, *self.arguments, *(f"{key}={value}" for key, value in self.options))
        return "|".join(parts)


def calls(source: str) -> Iterator[Call | UserError]:
    """All that a source asks for, in its order; an error for what is not a name in quotes."""
    for found in re.finditer(rf"(?:#|\.\.)({'|'.join(_ASKED)})\(", source):
        line = source.count("\n", 0, found.start()) + 1
        inside = ARGUMENTS.match(source, found.end())
        if inside is None:
            yield UserError(f"line {line}: {found[1]}: takes names in quotes and nothing else.")
            continue
        words = re.findall(rf"(?:([a-z]+):\s*)?({STRING})", inside[0])
        arguments = tuple(value[1:-1] for key, value in words if not key)
        yield Call(line, found[1], arguments, tuple((k, v[1:-1]) for k, v in words if k))


def answers(source: str, facts: Facts) -> tuple[dict[str, Any], list[str]]:
    """What the source asks for, by the name of the question, and what is wrong with it."""
    found: dict[str, Any] = {}
    faults = []
    for call in calls(source):
        if isinstance(call, UserError):
            faults.append(str(call))
            continue
        try:
            found[call.key] = _ASKED[call.name](facts, *call.arguments, **dict(call.options))
        except (UserError, TypeError, KeyError) as error:
            said = error if isinstance(error, UserError) else f"{call.name}: wrong arguments"
            faults.append(f"line {call.line}: {said}")
    return found, faults + _unnamed(source, facts) + _typed(source) + _loose(source)


def _unnamed(source: str, facts: Facts) -> list[str]:
    """Misprints and failures of mathematics that the article says nothing of."""
    rows = facts.selection("", "mathematics", "any")
    rows = rows[rows["verdict"].isin([Outcome.HOLDS_AS_CORRECTED, Outcome.FAILS])]
    return [
        f"{name}: came out as {row['verdict']!r} ({row['at']}), and the article does not name it."
        for name, row in rows.iterrows()
        if f'"{name}"' not in source
    ]


def _bare(source: str) -> str:
    """A source without quotes, formulas, raw text, comments and numbers of sections."""

    def blank(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n")

    return NOT_PROSE.sub(blank, source)


def _typed(source: str) -> list[str]:
    lines = enumerate(_bare(source).splitlines(), 1)
    return [
        f"line {number}: {found[0]!r} is typed by hand; ask for it by name."
        for number, line in lines
        if (found := TYPED_NUMBER.search(line))
    ]


def _loose(source: str) -> list[str]:
    """Outcomes in the abstract that no tie holds."""
    found = re.search(r"#abstract\[(.*?)\n\]", source, re.DOTALL)
    if found is None:
        return ["the article has no abstract, #abstract[...]."]
    text, start = _bare(found[1]), source.count("\n", 0, found.start(1)) + 1
    tied = re.compile(r"#(?:when|where|given)\([^()]*\)\[[^\[\]]*\]")
    text = tied.sub(lambda tie: "\n" * tie[0].count("\n"), text)
    return [
        f"line {start + text.count(chr(10), 0, word.start())}: the abstract says {word[0]!r} in a "
        "sentence that is tied to nothing; put it into #when(...)[...]."
        for word in OUTCOME_WORDS.finditer(text)
    ]


def typeset(facts: dict[str, Any], target: Path) -> None:
    """Write the facts for Typst, and the article, whose bytes depend on nothing else.

    Raises:
        UserError: if the compiler is missing.
    """
    try:
        import typst
    except ModuleNotFoundError as error:
        raise UserError(
            "typst: the compiler is missing; install the extra article, pip install '.[article]'."
        ) from error
    with whole_file(ARTICLE / "facts.json") as partial:
        text = json.dumps(facts, ensure_ascii=False, indent=1)
        partial.write_text(f"{text}\n", encoding="utf-8")
    made = typst.compile(SOURCE, root=ROOT, format="pdf", ignore_system_fonts=True, timestamp=0)
    with whole_file(target) as partial:
        partial.write_bytes(made)


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only check what it states")
    given = parser.parse_args(arguments)
    source = SOURCE.read_text(encoding="utf-8")
    found, faults = answers(source, Facts(all_packed(EVIDENCE), EVIDENCE))
    for fault in faults:
        print(f"{SOURCE.relative_to(ROOT)}: {fault}", file=sys.stderr)
    if faults or given.check:
        return int(bool(faults))
    try:
        typeset(found, ARTICLE / "article.pdf")
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
