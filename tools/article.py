"""Typeset the article by Typst: everything that it states of our results comes from `evidence/`.

    python tools/article.py            writes article/article.pdf, and article/facts.json on the way
    python tools/article.py --check    writes nothing; one sentence for each statement that is
                                       untrue of the evidence, and for each misprint not named

`article/article.typ` requests facts (`tools/facts.py`) by name, such as
`#ours("baratin2021.fig8.ratio")`. A sentence that states an outcome is tied to it,
`#when("partly", "baratin2021.fig8.fourier_alignment")[...]`, which fails if the evidence says
otherwise. Typst computes no facts, so the check needs no Typst. In the article, names are in
quotes, decimals and percentages are not typed by hand, the abstract states no outcome that is not
tied, and no semicolon stands where Typst takes it for the end of a call.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from facts import ASKED, Facts
from packed import EVIDENCE, ROOT, all_packed

from feature_alignment.errors import UserError
from feature_alignment.files import whole_file, write_whole
from feature_alignment.pipeline.claims.rules import Outcome

ARTICLE = ROOT / "article"
SOURCE = ARTICLE / "article.typ"
STRING = r'"[^"\n]*"'
ARGUMENTS = re.compile(rf"\s*(?:(?:[a-z]+:\s*)?{STRING}\s*(?:,\s*|(?=\))))*\)")
TYPED_NUMBER = re.compile(r"\d\.\d|\d\s*[%‰]")
NOT_PROSE = re.compile(rf"{STRING}|\$[^$]*\$|`[^`]*`|//[^\n]*|(?:Section|Appendix) [A-Z0-9][.0-9]*")
ENDS_CALL = re.compile(r"(?:#[a-z]+\([^()]*\)|\]);")
OUTCOME_WORDS = re.compile(r"\b(reproduced?|hold(s|ing)?|fail(s|ed)?|partly|undecided|\d+)\b")


@dataclass(frozen=True)
class Call:
    """A fact that the article requests, and where."""

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
    """All requests of a source, in order; an error if an argument is not a name in quotes."""
    for found in re.finditer(rf"(?:#|\.\.)({'|'.join(ASKED)})\(", source):
        line = source.count("\n", 0, found.start()) + 1
        inside = ARGUMENTS.match(source, found.end())
        if inside is None:
            yield UserError(f"line {line}: {found[1]}: takes names in quotes and nothing else.")
            continue
        words = re.findall(rf"(?:([a-z]+):\s*)?({STRING})", inside[0])
        arguments = tuple(value[1:-1] for key, value in words if not key)
        yield Call(line, found[1], arguments, tuple((k, v[1:-1]) for k, v in words if k))


def answers(source: str, facts: Facts) -> tuple[dict[str, Any], list[str]]:
    """The facts that the source requests, by the calls' keys, and the faults of the source."""
    found: dict[str, Any] = {}
    faults = []
    for call in calls(source):
        if isinstance(call, UserError):
            faults.append(str(call))
            continue
        try:
            of_size, words = facts.of_size(call.arguments)
            found[call.key] = ASKED[call.name](of_size, *words, **dict(call.options))
        except (ValueError, TypeError, LookupError) as error:
            said = error if isinstance(error, UserError) else f"{call.name}: wrong arguments"
            faults.append(f"line {call.line}: {said}")
    of_source = _typed(source) + _eaten(source) + _loose(source)
    return found, faults + _unnamed(source, facts) + of_source


def _unnamed(source: str, facts: Facts) -> list[str]:
    """Misprints and failures of mathematics that the article does not name."""
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


def _eaten(source: str) -> list[str]:
    return [
        f"line {source.count(chr(10), 0, found.start()) + 1}: Typst does not print the semicolon "
        f'after {found[0][:-1]!r}; write #";" in its place.'
        for found in ENDS_CALL.finditer(source)
    ]


def _loose(source: str) -> list[str]:
    """Outcomes in the abstract that are not tied to the evidence."""
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
    """Write the facts for Typst, and the article, whose bytes depend only on them and its source.

    Raises:
        UserError: if the compiler is missing.
    """
    try:
        import typst
    except ModuleNotFoundError as error:
        raise UserError(
            "typst: the compiler is missing; install the extra article, pip install '.[article]'."
        ) from error
    write_whole(ARTICLE / "facts.json", json.dumps(facts, ensure_ascii=False, indent=1) + "\n")
    made = typst.compile(SOURCE, root=ROOT, format="pdf", ignore_system_fonts=True, timestamp=0)
    with whole_file(target) as partial:
        partial.write_bytes(made)


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only check what it states")
    given = parser.parse_args(arguments)
    source = SOURCE.read_text(encoding="utf-8")
    try:
        found, faults = answers(source, Facts(all_packed(EVIDENCE), EVIDENCE))
        for fault in faults:
            print(f"{SOURCE.relative_to(ROOT)}: {fault}", file=sys.stderr)
        if faults or given.check:
            return int(bool(faults))
        typeset(found, ARTICLE / "article.pdf")
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
