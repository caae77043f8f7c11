"""Snakemake's command in a fork of a process that has imported it, which is half of a dry run.

Each call has its own arguments, folder, environment and output, and loads the Snakefile and this
project's library anew; what comes from other packages is there already.
"""

import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

MODULES = (
    "snakemake.cli",
    "pandas",
    "psutil",
    "pydantic",
    "yaml",
    "yte",
    "requests",
    "smart_open",
    "jinja2",
    "markdown_it",
    "snakemake_logger_plugin_rich",
)


class Forks:
    """The process that is forked; it ends with the one that has started it."""

    def __init__(self):
        self.socket, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )

    def run(self, command, folder, environment):
        """What `subprocess.run` gives for `python -m snakemake` with what comes after it."""
        asked = json.dumps([command[3:], str(folder), environment]).encode()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            files = [out.fileno(), err.fileno()]
            socket.send_fds(self.socket, [len(asked).to_bytes(8)], files)
            self.socket.sendall(asked)
            status = int.from_bytes(self.socket.recv(8, socket.MSG_WAITALL), signed=True)
            printed = []
            for file in (out, err):
                file.seek(0)
                printed.append(file.read().decode())
        return subprocess.CompletedProcess(command, status, *printed)

    def close(self):
        """End the process."""
        self.socket.close()
        self.process.wait()


def serve(own):
    """Fork for each call; returns in the fork, None where all is over."""
    for module in MODULES:
        importlib.import_module(module)
    while True:
        length, files, _, _ = socket.recv_fds(own, 8, 2)
        if not length:
            return None
        asked = json.loads(own.recv(int.from_bytes(length), socket.MSG_WAITALL))
        child = os.fork()
        if child == 0:
            for number, file in enumerate(files, start=1):
                os.dup2(file, number)
                os.close(file)
            return asked
        for file in files:
            os.close(file)
        _, status = os.waitpid(child, 0)
        own.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, signed=True))


def main():
    """Be the process that is forked, or a fork that is Snakemake."""
    with socket.socket(fileno=int(sys.argv[1])) as own:
        asked = serve(own)
    if asked is None:
        return
    arguments, folder, environment = asked
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, folder)  # as `python -m` does
    sys.argv = [str(Path(importlib.import_module("snakemake").__file__).parent), *arguments]
    importlib.import_module("snakemake.cli").main()


if __name__ == "__main__":
    main()
