"""SHA-256 of a user's own data files, which are identified by content, not by time.

This module imports nothing beyond the standard library: the workflow reads it at every start.
"""

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from feature_alignment.files import Memory, sha256_of

OWN_SOURCES = ("npz", "imagefolder", "file")
"""Sources that read a user's own files; all others are identified by the code."""
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".bmp", ".gif", ".tif", ".tiff", ".webp")
MEMORY = Memory("contents.json")  # the hashes of files: a large folder takes minutes to read
_SETTLED_NS = 2_000_000_000
"""Files changed less than this ago may change again with the same time: some systems round it."""


def content_hash(source: str, path: str | None) -> str | None:
    """SHA-256 of the file or image folder that a source reads.

    For a file, the hash of its bytes as stored, compressed or not; for a folder, that of its class
    folders, such as `train/cat/`, and of each image's path and hash, in ascending order of paths. A
    file with the same size, times and inode as last time is not read again. None for sources that
    do not read a user's files, and if reading fails.
    """
    if source not in OWN_SOURCES or path is None:
        return None
    try:
        if source != "imagefolder":
            return _file_hash(path, Path(path).stat())
        digest = hashlib.sha256()
        for name, of_file in sorted(_hashes_in(path)):
            digest.update(os.fsencode(name) + b"\0" + of_file.encode() + b"\n")
        return digest.hexdigest()
    except (OSError, ValueError):  # ValueError for an impossible path
        return None


def class_folders(folder: str | Path) -> dict[str, list[os.DirEntry[str]]]:
    """The image files, or links, in each class folder; hidden and other files are skipped.

    Raises:
        OSError: if a folder is missing or not readable.
    """
    return {
        entry.name: [
            file
            for file in _visible(entry.path)
            if is_image(file.name) and (file.is_file() or file.is_symlink())
        ]
        for entry in _visible(folder)
        if entry.is_dir()
    }


def is_image(name: str) -> bool:
    """Whether a file name has the suffix of an image."""
    return name.lower().endswith(IMAGE_SUFFIXES)


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
    if not stat.S_ISREG(status.st_mode):  # a pipe or device might never end
        raise OSError(f"{path} is no file")
    times = (status.st_mtime_ns, status.st_ctime_ns)
    state = f"{status.st_size} {times} {status.st_ino}"
    digest = MEMORY.fact(path, state)
    if digest is None:
        settled = time.time_ns() - max(times) > _SETTLED_NS
        digest = sha256_of(Path(path))
        if settled:
            MEMORY.learn(path, state, digest)
    return digest
