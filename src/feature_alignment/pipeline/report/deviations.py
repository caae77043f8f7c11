"""A paper's `deviations.md` in the report: its sections, beside the figures that they are about."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt


@dataclass(frozen=True)
class Section:
    """A section: its title, its text as HTML, and the figures that it is about, such as "fig1"."""

    title: str
    html: str
    figures: tuple[str, ...]


def sections(file: Path) -> Iterator[Section]:
    """The sections of a `deviations.md`; `<!-- figures: fig1 fig2 -->` names a section's figures.

    What stands before the first section is one, too, titled as the page is.
    """
    if not file.exists():
        return
    write = MarkdownIt("commonmark", {"html": False}).enable("table")
    for part in re.split(r"^(?=## )", file.read_text(encoding="utf-8"), flags=re.MULTILINE):
        heading, _, text = part.partition("\n")
        named = re.search(r"<!-- figures: (.*?) -->", text)
        text = text.replace(named[0], "") if named else text
        if text.strip():
            html = write.render(text).replace("h3>", "h4>")
            html = html.replace("<table>", '<div class="scroll" tabindex="0"><table>')
            html = html.replace("</table>", "</table></div>").replace("<th></th>", "<td></td>")
            figures = tuple(named[1].split()) if named else ()
            yield Section(heading.strip("# "), html, figures)
