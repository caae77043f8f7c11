"""Only one Snakemake at a time makes a result; others can make other results meanwhile."""

import errno
import fcntl
import json
import logging
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path

from feature_alignment.errors import UserError
from feature_alignment.pipeline.contracts import DISK_FAULTS

log = logging.getLogger(__name__)


def check_folders(*folders: Path) -> None:
    """Check that folders, and those that they are in, are folders if they exist.

    Raises:
        UserError: naming the first that is none.
    """
    for folder in folders:
        for place in (folder, *folder.parents):
            if os.path.lexists(place) and not place.is_dir():
                broken = place.is_symlink() and not place.exists()
                what = "a link that leads nowhere" if broken else "no folder"
                raise UserError(f"{place}: is {what}; remove it, or make it a folder.")


def check_writable(*folders: Path) -> None:
    """Check that folders, or the places where they will be made, and all below are writable.

    Raises:
        UserError: naming the first place that is not writable or not a folder.
    """
    check_folders(*folders)
    for folder in folders:
        top = next(place for place in (folder, *folder.parents) if place.exists())
        for place in [top] if top != folder else [place for place, _, _ in os.walk(folder)]:
            if not os.access(place, os.W_OK | os.X_OK):
                raise UserError(
                    f"{place}: is not writable; change its permissions or those of its disk, or"
                    " make the result in another folder, with Snakemake by -d <folder>."
                )


def lock_result(folder: Path) -> int:
    """Lock a result's folder until this process ends, even if it is killed: no lock remains.

    Closing the returned descriptor releases the lock.

    Raises:
        UserError: if another process has the lock, its file is not writable or no file, or the disk
            has no room for it.
        OSError: if it cannot be opened for another reason.
    """
    file = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        state = os.fstat(lock)
        if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1:
            os.close(lock)
            raise OSError(errno.ELOOP, "a link or no file")
    except PermissionError:
        raise UserError(
            f"{file}: is not writable; change its permissions or its folder's, or make the "
            "result in another folder, with Snakemake by -d <folder>."
        ) from None
    except OSError as error:
        if error.errno in DISK_FAULTS:
            raise UserError(
                f"the disk of {file}: {error.strerror}; fix it and try again."
            ) from None
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EOPNOTSUPP):
            raise
        raise UserError(f"{file}: is a link or no file; remove it.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"{folder}: is being made by {_owner(os.read(lock, 4096))}; wait for it, or make a "
            "result of another name beside it with --config name=<another>."
        ) from None
    except OSError as error:  # a file system without locks
        log.warning(
            "%s: cannot be locked (%s); make it with one Snakemake at a time.", folder, error
        )
    owner = {"process": os.getpid(), "host": socket.gethostname(), "since": time.time()}
    with suppress(OSError):  # a full disk; it is held without a name, too
        os.truncate(lock, 0)
        os.write(lock, json.dumps(owner).encode())
    return lock


def _owner(text: bytes) -> str:
    try:
        owner = json.loads(text)
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(owner["since"]))
        return f"process {owner['process']} on {owner['host']}, since {since}"
    except (ValueError, KeyError, TypeError):  # it has not yet written its name
        return "another Snakemake"
