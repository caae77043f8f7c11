"""Compare the papers' statements with what is judged (`docs/coverage.md`); check the quotes.

Each paper's `statements.yaml` lists every statement of the paper that a computation could check, in
the paper's order, with the claims that judge it or the reason why none does:

    python tools/statements.py            writes docs/coverage.md
    python tools/statements.py --check    fails if it is not current
    python tools/statements.py --quotes FOLDER
                                          fails if a claim's quote is not in the paper's text, any
                                          FOLDER/<key>*.md; compares letters and digits only
"""

import argparse
import re
import sys
import unicodedata
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import Field, model_validator

from feature_alignment.errors import UserError
from feature_alignment.pipeline.claims.ledger import Claim, Text, load_ledger
from feature_alignment.pipeline.parameters import Section, check
from feature_alignment.pipeline.yaml_files import read_yaml

ROOT = Path(__file__).resolve().parent.parent
PAPERS = ROOT / "src" / "feature_alignment" / "papers"
PAGE = ROOT / "docs" / "coverage.md"
HEAD = """# What the papers state, and which claims judge it

Every statement of the papers that a computation could check, in their order, with the claims of the
ledger that judge it, or the reason why none does. Claims of the kind *ours* (controls, questions
and readings of our own) are not statements of a paper and are listed only where relevant.
Written by `python tools/statements.py` from the `statements.yaml` of each paper's folder; a test
fails where a claim that is named here does not exist, or a claim is missing.
"""


class Statement(Section):
    """A statement of a paper, with the claims that judge it or the reason why none does.

    Attributes:
        place: where the paper says it.
        statement: what it says, in our own words.
        claims: ids of claims without the paper's key; `fig1.*` are all of a figure.
        without: why no claim judges it, or not all of it.
    """

    place: Text
    statement: Text
    claims: tuple[Text, ...] = Field(default=(), strict=False)
    without: str = ""

    @model_validator(mode="after")
    def _judged_or_not(self) -> "Statement":
        if not self.claims and not self.without:
            raise ValueError("claims: missing; name the claims that judge it, or say why none does")
        return self


class _Statements(Section):
    statements: tuple[Statement, ...] = Field(min_length=1, strict=False)


def load_statements(folder: Path) -> tuple[Statement, ...]:
    """Read and check the `statements.yaml` of a paper's folder."""
    path = folder / "statements.yaml"
    return check(_Statements, read_yaml(path), lambda _: str(path)).statements


def judging(statement: Statement, claims: dict[str, Claim], where: str) -> list[str]:
    """Ids of the claims that judge a statement, without the paper's key, as those of `claims` are.

    `where` is the file, for the error.

    Raises:
        UserError: if a claim that it names does not exist.
    """
    found: list[str] = []
    for pattern in statement.claims:
        matches = [name for name in claims if fnmatchcase(name, pattern)]
        if not matches:
            raise UserError(
                f"{where}: {statement.place}: claims: no claim {pattern!r}; it has to be the id of "
                "one without the paper's key."
            )
        found += matches
    return found


def coverage(folder: Path) -> str:
    """A paper's part of the page.

    Raises:
        UserError: if a statement names a claim that does not exist, or no statement names a claim.
    """
    path = folder / "statements.yaml"
    ledger = load_ledger([folder / "claims.yaml"])
    claims = {claim.id.removeprefix(f"{folder.name}."): claim for claim in ledger}
    rows, named = [], set()
    statements = load_statements(folder)
    for statement in statements:
        ids = judging(statement, claims, str(path))
        named.update(ids)
        cell = ", ".join(f"`{name}`" for name in ids)
        cell += ("; " if ids and statement.without else "") + one_line(statement.without)
        rows.append(f"| {statement.place} | {one_line(statement.statement)} | {cell} |")
    left = [name for name, claim in claims.items() if claim.kind != "ours" and name not in named]
    if left:
        raise UserError(
            f"{path}: no statement names the claims {', '.join(left)}; add them to one."
        )
    judged = sum(bool(statement.claims) for statement in statements)
    own = {name for name, claim in claims.items() if claim.kind == "ours"}
    return "\n".join(
        [
            f"\n## {folder.name}\n",
            f"{len(statements)} statements, {judged} of them judged, by {len(named - own)} claims"
            f"{f' and {len(named & own)} of our own' if named & own else ''}.\n",
            "| where | statement | claims, or why none |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def page(folders: list[Path]) -> str:
    """The whole page."""
    return HEAD + "".join(coverage(folder) for folder in folders)


def one_line(text: str) -> str:
    """A text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def plain(text: str) -> str:
    """The letters and digits of a text, without its typesetting; Greek letters by their names."""
    text = re.sub(r"</?[a-z][^<>]*>", "", text)  # tags, but not a formula between < and >
    text = re.sub(
        r"\\(?:(?:left|right)(?:arrow)?|to|text|math\w+|operatorname|boldsymbol|bm|tilde|hat|bar"
        r"|big+|quad|top)"
        r"(?![a-z])",
        "",
        text,
        flags=re.IGNORECASE,
    )
    text = text.replace("ϕ", "φ")
    words = (
        unicodedata.name(letter, "").split()[-1].replace("LAMDA", "LAMBDA").lower()
        if "GREEK" in unicodedata.name(letter, "")
        else letter
        for letter in unicodedata.normalize("NFKC", text)
    )
    return re.sub("[^a-z0-9]", "", "".join(words).lower())


def missing_quotes(folder: Path, texts: Path) -> list[str]:
    """One sentence for each claim of a paper whose quote is not in the paper's text.

    Raises:
        UserError: if there is no text of the paper.
    """
    files = sorted(texts.glob(f"{folder.name}*.md"))
    if not files:
        raise UserError(f"{texts}: no file {folder.name}*.md; it has to hold the papers' texts.")
    text = plain("\n".join(file.read_text(encoding="utf-8") for file in files))
    return [
        f"{claim.id}: quote: {claim.quote!r} is not in the paper"
        for claim in load_ledger([folder / "claims.yaml"])
        if plain(claim.quote) not in text
    ]


def main(arguments: list[str] | None = None) -> int:
    """Write or check the page, or check the quotes; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail if the page is not current")
    parser.add_argument("--quotes", type=Path, metavar="FOLDER", help="the papers' texts")
    options = parser.parse_args(arguments)
    folders = [file.parent for file in sorted(PAPERS.glob("*/statements.yaml"))]
    try:
        if options.quotes:
            amiss = [line for f in folders for line in missing_quotes(f, options.quotes)]
        else:
            written = page(folders)
            current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == written
            amiss = [f"{PAGE.relative_to(ROOT)}: not current; run python tools/statements.py"]
            amiss = amiss if options.check and not current else []
            if not options.check:
                PAGE.write_text(written, encoding="utf-8")
    except UserError as error:
        amiss = [str(error)]
    print("\n".join(amiss), file=sys.stderr, end="\n" if amiss else "")
    return int(bool(amiss))


if __name__ == "__main__":
    sys.exit(main())
