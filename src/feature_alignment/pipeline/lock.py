"""A result is made by one Snakemake at a time; others make other results beside it."""

import fcntl
import json
import logging
import os
import socket
import time
from pathlib import Path

from feature_alignment.errors import UserError

log = logging.getLogger(__name__)


def lock_result(folder: Path) -> None:
    """Hold a result's folder until this process ends, killed or not: no lock is left behind.

    Raises:
        UserError: if another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)  # closed by the system
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
    os.truncate(lock, 0)
    os.write(lock, json.dumps(owner).encode())


def _owner(text: bytes) -> str:
    try:
        owner = json.loads(text)
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(owner["since"]))
        return f"process {owner['process']} on {owner['host']}, since {since}"
    except (ValueError, KeyError, TypeError):  # it has not yet written who it is
        return "another Snakemake"
