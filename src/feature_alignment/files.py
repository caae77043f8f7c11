"""Atomic writing of files, hashes of files, and a cache of facts about them."""

import errno
import hashlib
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import Any


def unfinished(path: Path) -> Path:
    """Where this process writes the future content of `path`: a hidden file next to it.

    It has the same suffix, because writers choose a format by the suffix, and names the machine,
    because those that share a disk may have processes of the same number.
    """
    return path.with_name(f".{os.getpid()}.{socket.gethostname()}.{path.name}")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Write a file atomically; missing folders are created.

    Yields a temporary path, whose file replaces `path` at the end. If the body fails, the temporary
    file is removed, and an existing file stays unchanged.

    Raises:
        OSError: raised by the body, with the name of the file if it has none, as of a full disk.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = unfinished(path)
    partial.unlink(missing_ok=True)  # perhaps a link, put there by another to be written through
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a text as UTF-8, atomically; missing folders are created."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def open_regular(file: Path) -> BufferedReader:
    """Open a file to read its bytes, unless it is a pipe or a device, whose end may never come.

    Raises:
        OSError: if it is, or cannot be read.
    """
    at_once = getattr(os, "O_NONBLOCK", 0)  # else a pipe would wait for somebody who writes
    stream = open(file, "rb", opener=lambda path, flags: os.open(path, flags | at_once))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "a pipe or device in place of a file", str(file))
    return stream


def read_regular(file: Path) -> bytes:
    """The bytes of a file.

    Raises:
        OSError: as `open_regular`.
    """
    with open_regular(file) as stream:
        return stream.read()


def sha256_of(file: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal.

    Raises:
        OSError: as `open_regular`.
    """
    with open_regular(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class Memory:
    """Cached facts about files, valid while a file's state is the same; in Snakemake's folder.

    Without a whole cache everything is determined again. Paths are relative to `root`.
    """

    def __init__(self, name: str, root: Path = Path()) -> None:
        self.file, self.root = Path(".snakemake") / name, root
        self._found: dict[str, tuple[str, Any]] = {}

    @cached_property
    def _kept(self) -> dict[str, tuple[str, Any]]:
        try:
            entries = json.loads(self.file.read_text(encoding="utf-8"))
            return {path: (str(state), fact) for path, (state, fact) in entries.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def fact(self, path: str, state: str) -> Any:
        """The known fact about a file in this state; None if there is none."""
        known, fact = self._found.get(path) or self._kept.get(path) or ("", None)
        return fact if known == state else None

    def learn(self, path: str, state: str, fact: Any) -> None:
        """Add a fact, as plain JSON."""
        self._found[path] = state, fact

    def keep(self) -> None:
        """Save the facts for the next process."""
        if self.file.parent.is_dir() and not self._found.items() <= self._kept.items():
            kept = {
                path: known for path, known in self._kept.items() if (self.root / path).exists()
            }
            self._kept = kept | self._found
            write_whole(self.file, json.dumps(self._kept))
