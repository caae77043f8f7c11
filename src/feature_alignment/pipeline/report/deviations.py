"""A paper's `deviations.md` in the report: its sections, next to the figures that they concern."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt

FIGURES = r"<!-- figures: (.*?) -->"
COMMENT = r"<!--.*?-->"


@dataclass(frozen=True)
class Section:
    """A section: its title, its text as HTML, and the figures that it is about, such as "fig1"."""

    title: str
    html: str
    figures: Sequence[str]


def sections(file: Path) -> Iterator[Section]:
    """The sections of a `deviations.md`; `<!-- figures: fig1 fig2 -->` names a section's figures.

    Other comments are marks of `tools/deviations.py`. Text before the first section forms a section
    with the page's title.
    """
    write = MarkdownIt("commonmark", {"html": False}).enable("table")
    written = file.read_text(encoding="utf-8") if file.exists() else ""
    for part in re.split(r"^(?=## )", written, flags=re.MULTILINE):
        heading, _, text = part.partition("\n")
        html = write.render(re.sub(COMMENT, "", text)).replace("<th></th>", "<td></td>")
        title = heading.strip("# ")
        box = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">'
        html = re.sub("<th(?=[ >])", '<th scope="col"', html).replace("<table>", f"{box}<table>")
        html = html.replace("</table>", "</table></div>").replace("h3>", "h4>")
        if html:
            yield Section(title, html, " ".join(re.findall(FIGURES, text)).split())
