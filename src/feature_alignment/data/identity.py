"""What a user's own data files hold, as SHA-256: they count by their content, not by their path.

This module imports nothing beyond the standard library: the workflow reads it at every start.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from feature_alignment.files import whole_file

OWN_SOURCES = ("npz", "imagefolder", "file")
"""The sources that read a user's own files; the identity of all others is in the code."""
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".bmp", ".gif", ".tif", ".tiff", ".webp")
CACHE = Path(".snakemake") / "contents.json"
"""Where Snakemake's working directory keeps the hashes of files, see `remember`."""
_SETTLED_NS = 2_000_000_000
"""What changed less than this ago may change again and keep its time: some systems round it."""


def content_hash(source: str, path: str | None) -> str | None:
    """SHA-256 of the file or image folder that a source reads.

    Of a file its bytes as they lie, packed or not; of a folder what `folder_hash` takes. A file
    whose size, times and inode are those of the last time is not read again.

    Args:
        source: a dataset's source.
        path: a dataset's path.

    Returns:
        The hash; None for sources that read no file of the user's, and for what cannot be read.
    """
    if source not in OWN_SOURCES or path is None:
        return None
    try:
        if source == "imagefolder":
            return folder_hash(dict(_hashes_in(path)))
        return _file_hash(path, Path(path).stat())
    except OSError:
        return None


def folder_hash(files: Mapping[str, str]) -> str:
    """SHA-256 over relative paths, in ascending order, and the hash of each file.

    Args:
        files: hash by path; class folders count too, as `train/cat/` with an empty hash.
    """
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(os.fsencode(path) + b"\0" + files[path].encode() + b"\n")
    return digest.hexdigest()


def class_folders(folder: str | Path) -> dict[str, list[os.DirEntry[str]]]:
    """The image files in each class folder; hidden entries and other files are not read.

    Raises:
        OSError: if a folder is missing or must not be read.
    """
    return {
        entry.name: [
            file for file in _visible(entry.path) if file.name.lower().endswith(IMAGE_SUFFIXES)
        ]
        for entry in _visible(folder)
        if entry.is_dir()
    }


def remember() -> None:
    """Keep the hashes for the next process: a large folder takes minutes to read."""
    known = _remembered()
    if not CACHE.parent.is_dir() or all(known.get(path) == fact for path, fact in _READ.items()):
        return
    kept = {path: fact for path, fact in known.items() if Path(path).exists()}
    with whole_file(CACHE) as partial:
        partial.write_text(json.dumps(kept | _READ), encoding="utf-8")


_READ: dict[str, tuple[str, str]] = {}
"""State and hash of files, by path."""


@cache
def _remembered() -> dict[str, tuple[str, str]]:
    # A cache: without it, or if it is damaged, everything is read anew.
    try:
        entries = json.loads(CACHE.read_text(encoding="utf-8"))
        return {path: (str(state), str(digest)) for path, (state, digest) in entries.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _visible(folder: str | Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if entry.name[0] != "."]


def _hashes_in(root: str) -> Iterator[tuple[str, str]]:
    for split in ("train", "test"):
        for name, files in class_folders(f"{root}/{split}").items():
            yield f"{split}/{name}/", ""
            for file in files:
                yield f"{split}/{name}/{file.name}", _file_hash(file.path, file.stat())


def _file_hash(path: str, status: os.stat_result) -> str:
    times = (status.st_mtime_ns, status.st_ctime_ns)
    state = f"{status.st_size} {times} {status.st_ino}"
    known = _READ.get(path) or _remembered().get(path)
    if known is None or known[0] != state:
        settled = time.time_ns() - max(times) > _SETTLED_NS
        with Path(path).open("rb") as file:
            known = (state, hashlib.file_digest(file, "sha256").hexdigest())
        if not settled:
            return known[1]
    _READ[path] = known
    return known[1]
