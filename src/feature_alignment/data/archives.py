"""Unpack published archives so that every file is there whole or not at all."""

import gzip
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from feature_alignment.errors import UserError


def gunzipped(path: Path) -> bytes | None:
    """Content of a gzip file, or None if it is damaged or empty."""
    try:
        return gzip.decompress(path.read_bytes()) or None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return None


def unpack_tar(archive: Path, members: Iterable[str], folder: Path) -> None:
    """Unpack members of a .tar.gz file, named with forward slashes, with their paths into a folder.

    Raises:
        UserError: if the archive is damaged or a member is not in it.
    """
    wanted = list(members)
    with _temporary_folder(folder) as temporary:
        try:
            with tarfile.open(archive) as tar:
                for name in wanted:
                    _write_member(tar, name, Path(temporary))
        except (tarfile.TarError, KeyError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UserError(
                f"{archive}: not a whole archive of {', '.join(wanted)} ({error}); "
                "delete it and run again."
            ) from error
        _move_files(Path(temporary), folder)


def _write_member(tar: tarfile.TarFile, name: str, folder: Path) -> None:
    # By hand: Python has safe filters for whole archives from 3.11.4 on only.
    content = tar.extractfile(name)
    target = folder / name
    if content is None or not target.resolve().is_relative_to(folder.resolve()):
        raise tarfile.TarError(f"{name} is no file inside it")
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(content, file)


def unpack_zip(archive: Path, folder: Path) -> None:
    """Unpack a zip file's members, with their paths, into a folder.

    Raises:
        UserError: if the archive is damaged.
    """
    with _temporary_folder(folder) as temporary:
        try:
            with zipfile.ZipFile(archive) as file:
                file.extractall(temporary)
        except (zipfile.BadZipFile, EOFError, zlib.error) as error:
            raise UserError(
                f"{archive}: not a whole zip archive ({error}); delete it and run again."
            ) from error
        _move_files(Path(temporary), folder)


def holds_zip(archive: Path, folder: Path) -> bool:
    """Whether every file of a zip archive is in a folder, with its size."""
    with zipfile.ZipFile(archive) as file:
        return all(
            (folder / member.filename).is_file()
            and (folder / member.filename).stat().st_size == member.file_size
            for member in file.infolist()
            if not member.is_dir()
        )


def _temporary_folder(folder: Path) -> tempfile.TemporaryDirectory:
    folder.mkdir(parents=True, exist_ok=True)
    # On the same file system as the target, so that moving a file is atomic.
    return tempfile.TemporaryDirectory(dir=folder, prefix=".unpacking.")


def _move_files(source: Path, target: Path) -> None:
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        destination = target / file.relative_to(source)
        destination.parent.mkdir(parents=True, exist_ok=True)
        file.replace(destination)
