"""The version of this library."""

import tomllib
from importlib import metadata
from pathlib import Path


def own_version() -> str:
    """The version of the installed package, or the checkout's with `+checkout`, else "unknown".

    A checkout's code may be newer than its version; its commit identifies the code.
    """
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    if project.is_file():
        told = tomllib.loads(project.read_text(encoding="utf-8"))
        return f"{told['project']['version']}+checkout"
    try:
        return metadata.version("feature-alignment")
    except metadata.PackageNotFoundError:  # a copy of the sources
        return "unknown"
