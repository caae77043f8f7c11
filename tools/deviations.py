"""Update numbers and verdicts in README, `docs/` and papers' `deviations.md` from `evidence/`.

    python tools/deviations.py            updates them in place
    python tools/deviations.py --check    writes nothing; fails if they are not current

A mark is a comment, which readers do not see. In a paper's own text, names of claims are written
without the paper's.

    <!--ours fig8.ratio ‰-->(5.9 ± 1.0) ‰<!---->     a fact of tools/facts.py, put between the marks
    <!--when partly fig8.fourier_alignment-->        ties the sentence before it to an outcome
    | ratio <!--row fig8.ratio ‰--> | 4 ‰ | (5.9 ± 1.0) ‰ | reproduced |
                                                     the last two cells: ours, and the verdict

A fact is that of the largest size at which the claim was judged or, with `@quick` at the end of the
mark, of that result. A claim that is not testable gives a dash. One that `evidence/` lacks is an
error: pack a result that has it first (tools/evidence.py).
"""

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from functools import partial

import pandas as pd
from facts import ASKED, UNITS, Facts
from packed import EVIDENCE, ROOT, all_packed

from feature_alignment.errors import UserError, check_known, suggestion
from feature_alignment.pipeline.claims.rules import Outcome
from feature_alignment.pipeline.report.wording import NOTHING

PAPERS = "src/feature_alignment/papers"
TEXTS = ("README.md", "docs/*.md", f"{PAPERS}/*/deviations.md")
TIES = ("when", "where")
OF_CLAIMS = {"ours", "mean", "theirs", "seeds", "votes", "verdict", "at", "robust"}
VALUES = (*sorted(OF_CLAIMS), "cell", "count", "again")
MARK = re.compile(r"<!--(\w+)((?: .*?)?)-->")
VALUE = re.compile(rf"<!--({'|'.join(VALUES)}) (.*?)-->(.*?)<!---->")
ROW = re.compile(r"^(\|.*<!--row ([^|]*?)-->.*)\|([^|]*)\|([^|]*)\|$")


class Filler:
    """Fills the marks of one text; `faults` lists what is wrong with them."""

    def __init__(self, prefix: str, facts: Facts) -> None:
        self.prefix = prefix
        self.facts = facts
        self.faults: list[str] = []

    def filled(self, text: str) -> str:
        """The text with every mark's value from the evidence."""
        lines = text.split("\n")
        return "\n".join(self._line(number, line) for number, line in enumerate(lines, 1))

    def _line(self, number: int, line: str) -> str:
        known = {*VALUES, *TIES, "row"}

        def said(answer: Callable[[re.Match[str]], str], found: re.Match[str]) -> str:
            try:
                return answer(found)
            except UserError as error:
                self.faults.append(f"line {number}: {error}")
            except (ValueError, LookupError):  # unclosed quotes, or no words at all
                self.faults.append(f"line {number}: wrong arguments, {found[0]!r}.")
            return found[0]

        for found in MARK.finditer(line):
            if found[1] in TIES:
                said(lambda tie: self._ask(*tie.groups()), found)
            elif found[1] not in known:
                allowed = suggestion(found[1], sorted(known))
                self.faults.append(f"line {number}: {found[1]}: no such mark; {allowed}.")
            elif not (ROW if found[1] == "row" else VALUE).search(line):
                where = "in a table's row" if found[1] == "row" else "before its <!---->"
                self.faults.append(f"line {number}: {found[1]}: a mark stands {where}.")
        line = VALUE.sub(partial(said, self._value), line)
        return ROW.sub(partial(said, self._row), line)

    def _ask(self, name: str, words: str) -> str:
        facts, arguments = self.facts.of_size(shlex.split(words))
        if name in OF_CLAIMS:
            arguments[:1] = self._named(arguments[:1])
            if facts.claim(arguments[0])["verdict"] == Outcome.NOT_TESTABLE and name != "theirs":
                return NOTHING
        elif name == "when":
            arguments[1:] = self._named(arguments[1:])
        elif name == "where":
            arguments[::2] = self._named(arguments[::2])
        try:
            return ASKED[name](facts, *arguments)
        except (TypeError, KeyError) as error:
            raise UserError(f"{name}: wrong arguments, {words.strip()!r}.") from error

    def _full(self, claim: str) -> str:
        return self.prefix + claim.removeprefix(self.prefix)

    def _named(self, claims: Iterable[str]) -> list[str]:
        """The full names of claims; "0" and "theirs", which `where` compares with, stay."""
        return [claim if claim in ("0", "theirs") else self._full(claim) for claim in claims]

    def _value(self, found: re.Match[str]) -> str:
        name, words, _before = found.groups()
        return f"<!--{name} {words}-->{self._ask(name, words)}<!---->"

    def _row(self, found: re.Match[str]) -> str:
        start, words, *_before = found.groups()
        facts, arguments = self.facts.of_size(shlex.split(words))
        unit = arguments[1] if len(arguments) == 2 else ""
        check_known(f"row: found {unit!r}", unit, UNITS)
        (name,) = self._named(arguments[:1])
        row = facts.claim(name)
        if row["verdict"] == Outcome.NOT_TESTABLE:
            return f"{start}| {NOTHING} | {row['verdict']} |"
        ours = facts.ours(name, unit)
        if not pd.isna(row["units"]):
            ours += f"; {row['agreeing']:.0f} of {row['units']:.0f}"
        return f"{start}| {ours} | {row['verdict']} (`{row['at']}`) |"


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only check that they are current")
    given = parser.parse_args(arguments)
    try:
        facts = Facts(all_packed(EVIDENCE), EVIDENCE)
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    faults = []
    for file in sorted(file for pattern in TEXTS for file in ROOT.glob(pattern)):
        name = file.relative_to(ROOT)
        before = file.read_text(encoding="utf-8")
        of_paper = file.is_relative_to(ROOT / PAPERS)
        filler = Filler(f"{file.parent.name}." if of_paper else "", facts)
        after = filler.filled(before)
        faults += [f"{name}: {fault}" for fault in filler.faults]
        if before != after and given.check:
            faults.append(f"{name}: is not current; run python tools/deviations.py.")
        elif before != after:
            file.write_text(after, encoding="utf-8")
    for fault in faults:
        print(fault, file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
