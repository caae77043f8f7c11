"""Hooks of MkDocs: pages from outside docs/, and the API's.

Links are written for the repository. On the site, a link to a file that is on the site leads to its
page; of other links only the text is kept.
"""

import ast
import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import feature_alignment

log = logging.getLogger("mkdocs.plugins.documentation")
ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "src" / "feature_alignment"
SINGLE_MODULES = "other modules"
FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def outside() -> dict[str, str]:
    """Files of the site that are not in docs/: their paths from the root, by address."""
    deviations = LIBRARY.glob("papers/*/deviations.md")
    return {
        "index.md": "README.md",
        "benchmarks.md": "benchmarks/tangent_kernel.md",
        "benchmarks-intel.md": "benchmarks/intel/tangent_kernel.md",
        "benchmarks/tangent_growth.png": "benchmarks/tangent_growth.png",
        **{
            picture.relative_to(ROOT).as_posix(): picture.relative_to(ROOT).as_posix()
            for picture in ROOT.glob("evidence/*/figures/*.png")
        },
        **{
            f"deviations/{file.parent.name}.md": file.relative_to(ROOT).as_posix()
            for file in deviations
        },
    }


def rooms() -> dict[str, list[str]]:
    """The library's public modules by room (top-level package), without the papers' own."""
    found: dict[str, list[str]] = {}
    for file in sorted(LIBRARY.rglob("*.py"), key=lambda file: (file.parent == LIBRARY, file)):
        parts = file.relative_to(LIBRARY).with_suffix("").parts
        if parts[0] != "papers" and not parts[-1].startswith("_"):
            room = parts[0] if len(parts) > 1 else SINGLE_MODULES
            found.setdefault(room, []).append(".".join(("feature_alignment", *parts)))
    return found


def api_pages() -> dict[str, str]:
    """Markdown of the API's pages by address."""
    pages = {"api/index.md": f"# API reference\n\n{names_of_the_facade()}\n"}
    for room, modules in rooms().items():
        package = LIBRARY / room / "__init__.py"
        about = package.read_text(encoding="utf-8").strip().strip('"') if package.exists() else ""
        blocks = "\n".join(f"::: {module}\n" for module in modules)
        pages[_address(room)] = f"# `{room}`\n\n{about}\n\n{blocks}"
    return pages


def _address(room: str) -> str:
    return f"api/{room.replace(' ', '-')}.md"


def names_of_the_facade() -> str:
    """A table of what `import feature_alignment as fa` offers, with links."""
    rows = [
        f"| [`fa.{name}`][feature_alignment.{home}.{name}] | {summary(home, name)} |"
        for name, home in sorted(feature_alignment._HOMES.items())
    ]
    return "\n".join(["`import feature_alignment as fa`", "", "| name | is |", "|---|---|", *rows])


def summary(home: str, name: str) -> str:
    """The first line of a docstring, as a cell of a table."""
    tree = ast.parse((LIBRARY / f"{home.replace('.', '/')}.py").read_text(encoding="utf-8"))
    found = next(node for node in ast.walk(tree) if getattr(node, "name", None) == name)
    return ast.get_docstring(found).partition("\n")[0].replace("|", "\\|")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the API's pages into the navigation."""
    below = [{room: _address(room)} for room in rooms()]
    config.nav.append({"API reference": ["api/index.md", *below]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for address, path in outside().items():
        files.append(File.generated(config, address, abs_src_path=str(ROOT / path)))
    for address, content in api_pages().items():
        files.append(File.generated(config, address, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make the links of a page lead to pages of the site."""
    parts = FENCED.split(markdown)
    parts[::2] = [
        LINK.sub(lambda m: _link(m, page.file.src_uri, files), part) for part in parts[::2]
    ]
    return "".join(parts)


def _link(match: re.Match[str], address: str, files: Files) -> str:
    image, text, target, anchor = match[1], match[2], match[3], match[4] or ""
    home = outside().get(address, f"docs/{address}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(home), target))
    known = {path: uri for uri, path in outside().items()}
    uri = known.get(path, path.removeprefix("docs/"))
    if files.get_file_from_path(uri) and (path in known or path.startswith("docs/")):
        start = posixpath.dirname(address) or "."
        return f"{image}[{text}]({posixpath.relpath(uri, start)}{anchor})"
    if not (ROOT / path).exists():
        log.warning("%s: links %s, which does not exist.", home, target)
    return text
