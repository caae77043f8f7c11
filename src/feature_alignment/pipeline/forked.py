"""Run a command in a fork of a process that has already done its imports, or else directly.

The shell of each job runs this file (`preloaded.prefix`) without any packages: the script that
Snakemake writes imports Snakemake first, which takes longer than everything here.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupt leaves no traceback

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

OFFER = "FEATURE_ALIGNMENT_PRELOADED"  # the environment variable that leads jobs to the server
THREADS = "OMP_NUM_THREADS"
"""Snakemake sets this in each job's environment; libraries read it when they are imported."""
READY = b"."  # the first byte that a fork sends
KILLED = 128 + signal.SIGKILL
_LIGHT = ".prepare_dataset.py"
"""Suffix of a script that imports so little that starting by itself is faster than waiting for a
server that is still importing."""


def home(executable: str, threads: str) -> dict[str, str]:
    """The properties that a command and the server must share."""
    return {"executable": executable, "threads": threads}


def offered(executable: str, threads: str) -> dict[str, Any]:
    """The offer of an ancestor's server, from the environment; empty if none fits."""
    offer = json.loads(os.environ.get(OFFER, "{}"))
    own = home(executable, threads)
    fits = offer and offer["from"] in _above() and own.items() <= offer.items()
    return offer if fits and os.path.exists(offer["socket"]) else {}


def _above() -> Iterator[int]:
    """The ancestors of this process, its parent first."""
    process = os.getppid()
    with suppress(OSError):  # other users' processes can be hidden
        while process:
            yield process
            with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as stat:
                process = int(stat.read().rpartition(")")[2].split()[1])


def run_forked(command: list[str], patience: float) -> int | None:
    """Run a Python and its script in a fork of the server, and wait for its exit status.

    SIGINT and SIGTERM are passed on; if this process is killed, so is the fork. Returns None if no
    server fits the command, or if one that is still importing is not ready in `patience` seconds.
    """
    offer = offered(command[0], os.environ.get(THREADS, "")) if len(command) == 2 else {}
    if not offer:
        return None
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(offer["socket"])
            server.settimeout(patience)
            if server.recv(1) != READY:
                return None
            server.settimeout(None)
        except OSError:  # it is not ready in time, or has ended
            return None
        text = request(command[1])
        signals = (signal.SIGINT, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # until they can be passed on
        with server.makefile("r") as answers:
            try:
                socket.send_fds(server, [len(text).to_bytes(8)], [1, 2])
                server.sendall(text)
                forked = answers.readline()
                if not forked:
                    return None

                def pass_on(number: int, frame: FrameType | None) -> None:
                    with suppress(ProcessLookupError):
                        os.kill(int(forked), number)

                for number in signals:
                    signal.signal(number, pass_on)
            except ConnectionError:  # the server ended before reading it all: nothing has started
                return None
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
            return int(answers.readline() or KILLED)


def request(script: str) -> bytes:
    """The script's path, this process's folder and its environment but for the offer, as C strings.

    They are bytes since the server may read the names of files in another encoding than this.
    """
    environment = (b"=".join(of) for of in os.environb.items() if of[0] != OFFER.encode())
    return b"\0".join([os.fsencode(script), os.getcwdb(), *environment])


def main(command: list[str]) -> None:
    """Run the command in a fork or in place of this process, and end with its status."""
    status = run_forked(command, 0.5 if command[-1].endswith(_LIGHT) else 60.0)
    if status is not None:
        sys.exit(status)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
