"""List the licences of all locked packages in docs/licences.md, as the packages declare them."""

import importlib.metadata
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "licences.md"
HEAD = (
    "# Licences of the dependencies\n\n"
    "The project's own code has the MIT licence. `requirements.lock` pins these packages, each "
    "with the licence that it declares; none is copied into the project. Those for other systems "
    "than the one that wrote this page are listed by name. Made by `python tools/licences.py`, as "
    "`make lock` does.\n\n"
    "| package | version | licence |\n|---|---|---|\n"
)
ELSEWHERE = "on other systems only"
UNDECLARED = {"cuda-toolkit": "none declared: it holds nothing, and requires the nvidia packages"}


def locked(lock: str) -> dict[str, list[str]]:
    """The versions of each package in a lock file, which may differ between Pythons."""
    found: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([\w.+-]+)", lock, re.MULTILINE):
        found.setdefault(name, []).append(version)
    return found


def licence(name: str) -> str:
    """The licence that an installed package declares: expression, classifier, or its file's head.

    Raises:
        ValueError: if it declares none.
    """
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return ELSEWHERE
    about = distribution.metadata
    classifiers = [c for c in about.get_all("Classifier", []) if c.startswith("License ::")]
    named = re.compile("licen[cs]e|copying", re.IGNORECASE)
    files = [file for file in distribution.files or () if named.match(file.name)]
    declared = [
        about.get("License-Expression") or "",
        ", ".join(c.rpartition(" :: ")[2] for c in classifiers if not c.endswith("OSI Approved")),
        (about.get("License") or "").strip().partition("\n")[0],
        *(file.read_text(encoding="utf-8").strip().partition("\n")[0] for file in files),
        UNDECLARED.get(name, ""),
    ]
    for words in declared:
        if words:
            return " ".join(words.split())
    raise ValueError(f"{name}: declares no licence; look it up before it is locked")


def page(lock: str) -> str:
    """The page of a lock file."""
    rows = (f"| {n} | {', '.join(v)} | {licence(n)} |\n" for n, v in sorted(locked(lock).items()))
    return HEAD + "".join(rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    PAGE.write_text(page((ROOT / "requirements.lock").read_text()), encoding="utf-8")
