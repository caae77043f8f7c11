"""Unpack files atomically, without letting any of them fill memory or disk."""

import gzip
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from functools import partial
from io import BufferedIOBase
from pathlib import Path

from feature_alignment.errors import UserError, reason

LIMIT = 8 * 2**30
"""Largest unpacked size in bytes: the memory that the workflow requests to prepare a dataset.
Published files need at most a twentieth; a small file that unpacks to more is malicious."""
DAMAGE = (
    EOFError, KeyError, RuntimeError, ValueError,
    gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""Exceptions raised on reading a damaged archive; RuntimeError is for unknown compression."""


def refuse_size(size: int) -> None:
    """Refuse more than `LIMIT` bytes.

    Raises:
        ValueError: if it is more.
    """
    if size > LIMIT:
        raise ValueError(f"it unpacks to more than {LIMIT / 2**30:.3g} GiB")


def unpacked(file: BufferedIOBase) -> bytearray:
    """The whole unpacked content of an open file.

    Raises:
        ValueError: if it is more than `LIMIT`.
    """
    content = bytearray()
    while chunk := file.read(2**20):
        content += chunk
        refuse_size(len(content))
    return content


def unpack(archive: Path, folder: Path, names: Iterable[str] = ()) -> None:
    """Unpack a zip archive, or the named members of a .tar.gz, with their paths into a folder.

    Raises:
        UserError: if the archive is damaged, exceeds `LIMIT`, lacks a member, or one leads outside.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # On the same file system as the target, so that moving a file is atomic.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unpacking.") as temporary:
        try:
            _unpack(archive, Path(temporary).resolve(), names)
        except DAMAGE as error:
            raise UserError(
                f"{archive}: not a whole archive ({reason(error)}); delete it and run again."
            ) from error
        for file in sorted(path for path in Path(temporary).rglob("*") if path.is_file()):
            target = folder / file.relative_to(temporary)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.replace(target)


def _unpack(archive: Path, folder: Path, names: Iterable[str]) -> None:
    is_zip = zipfile.is_zipfile(archive)
    with zipfile.ZipFile(archive) if is_zip else tarfile.open(archive) as opened:
        if isinstance(opened, zipfile.ZipFile):
            files = [member for member in opened.infolist() if not member.is_dir()]
            members = [(m.filename, m.file_size, partial(opened.open, m)) for m in files]
        else:
            files = [opened.getmember(name) for name in names]
            members = [(m.name, m.size, partial(opened.extractfile, m)) for m in files]
        refuse_size(sum(size for _, size, _ in members))
        for name, size, open_member in members:
            target = folder / name
            if not target.resolve().is_relative_to(folder) or (content := open_member()) is None:
                raise ValueError(f"{name} is no file inside it")
            target.parent.mkdir(parents=True, exist_ok=True)
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file)
            if target.stat().st_size != size:  # a link has the size of its target
                raise ValueError(f"{name} has not the size that is written in it")
