"""A result is made by one Snakemake at a time; others make other results beside it."""

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import TextIO

from feature_alignment.errors import UserError


_HELD: list[TextIO] = []
"""The locks of this process: the system lets go of one when its file is closed."""


def lock_result(folder: Path) -> None:
    """Hold a result's folder until this process ends, killed or not: no lock is left behind.

    Raises:
        UserError: if another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / ".lock").open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        raise UserError(
            f"{folder}: is being made by {_owner(file.read())}; wait for it, or make a result of "
            "another name beside it with --config name=<another>."
        ) from None
    file.seek(0)
    file.truncate()
    json.dump({"process": os.getpid(), "host": socket.gethostname(), "since": time.time()}, file)
    file.flush()
    _HELD.append(file)


def _owner(text: str) -> str:
    try:
        owner = json.loads(text)
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(owner["since"]))
        return f"process {owner['process']} on {owner['host']}, since {since}"
    except (ValueError, KeyError, TypeError):  # it has not yet written who it is
        return "another Snakemake"
