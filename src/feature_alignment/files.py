"""Files that appear whole or not at all: written beside their place, then moved there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def unfinished(path: Path) -> Path:
    """Where this process writes what is to become `path`: beside it, hidden, with its suffix.

    Writers choose a format by the suffix, so it is kept.
    """
    return path.with_name(f".{os.getpid()}.{path.name}")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Write a file whole or not at all; missing folders are made.

    Yields:
        The path to write to. What stands there at the end takes the file's place; if the body
        fails, it is removed and an older file stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = unfinished(path)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
