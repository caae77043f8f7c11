"""Jobs on this machine are forked from one process that has done the slow imports.

Snakemake's process starts one server, which imports PyTorch once. The shell of a job asks it for a
fork (`forked`), in which the job's script runs with the job's own environment, output and signals,
and with this project's code as it then is. A job that Snakemake did not start from this process and
environment (on a cluster's node, in a conda environment) starts by itself, as do all jobs on
systems other than Linux. See docs/architecture.md, start-up cost.
"""

import gc
import importlib
import inspect
import io
import json
import logging
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from feature_alignment.pipeline import forked
from feature_alignment.pipeline.forked import KILLED, OFFER, READY, THREADS, home, offered

_FOR_ALL = (
    *("snakemake.script", "psutil", "scipy.stats"),
    *("pandas.io.formats.csvs", "pydantic.main", "pydantic.types"),
)
FOR_RUNS = ("torch", "torch._dynamo", *_FOR_ALL, "threadpoolctl")
FOR_FIGURES = (*_FOR_ALL, "matplotlib.figure", "seaborn")
log = logging.getLogger(__name__)
_servers: list[subprocess.Popen[bytes]] = []
_WAITING = 128


def start_server(modules: Sequence[str], threads: int) -> None:
    """Start a server that imports these modules, and let the jobs of this process find it.

    It ends with this process, however that ends. Its socket is in a folder that only its user can
    open, since whoever can write to it can run code. If an ancestor of this process already offers
    a fitting server, none is started.
    """
    if sys.platform != "linux" or not modules:  # macOS's own libraries do not survive a fork
        return
    if offered(sys.executable, str(threads)):
        return
    folder = Path(tempfile.mkdtemp(prefix="feature_alignment-"))
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(str(folder / "jobs"))
        except OSError as error:  # for example, TMPDIR is too long for a socket's path
            folder.rmdir()
            log.info("no job is forked, each starts by itself: %s: %s", folder, error)
            return
        listener.listen(_WAITING)  # requests wait from now on
        number = listener.fileno()
        # The server ends when its input closes; only this process has the other end.
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(number), str(folder), *modules],
            stdin=subprocess.PIPE,
            pass_fds=[number],
            env={**os.environ, THREADS: str(threads), "OPENBLAS_NUM_THREADS": str(threads)},
            start_new_session=True,  # so a signal to Snakemake's group reaches a job only once
        )
    _servers.append(server)
    offer = {"socket": str(folder / "jobs"), "from": os.getpid()}
    os.environ[OFFER] = json.dumps(offer | home(sys.executable, str(threads)))


def prefix() -> str:
    """The prefix for each job's shell command, with which it asks for a fork."""
    started = shlex.join([sys.executable, "-I", "-S", forked.__file__])
    return started.replace("{", "{{").replace("}", "}}")  # Snakemake formats what is in braces


def refuse_server() -> None:
    """Make the jobs of this process start by themselves, even if a server is offered."""
    os.environ.pop(OFFER, None)


def _serve(listener: socket.socket, modules: Sequence[str]) -> None:
    """Import the modules, then fork for each job that asks, until Snakemake has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing here waits for the forks
    for module in modules:
        importlib.import_module(module)
    _use_once()
    gc.freeze()  # memory that no fork touches stays shared
    while True:
        ready, _, _ = select.select([sys.stdin, listener], [], [])
        if sys.stdin in ready:
            return
        job, _ = listener.accept()
        with warnings.catch_warnings(action="ignore"):  # Python 3.12 warns of BLAS's threads
            fork = os.fork()
        if fork == 0:
            listener.close()
            _work(job)
        job.close()


def _use_once() -> None:
    """Trigger what libraries do on first use before forking, or each fork would repeat it."""
    inspect.getmodule(inspect.currentframe())  # maps all files, which Pydantic needs
    drawing: Any = sys.modules.get("matplotlib.figure")
    if drawing is not None:
        figure = drawing.Figure()
        figure.text(0, 0, "$x$")
        for kind in ("pdf", "png"):
            figure.savefig(io.BytesIO(), format=kind)


def _work(job: socket.socket) -> None:
    """Run the job that has asked, until this process ends."""
    status = 1
    try:
        script = _begin(job)
        threading.Thread(target=_end_with, args=[job], daemon=True).start()
        runpy.run_path(script, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:  # before the script handles it
        status = 128 + signal.SIGINT
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
            job.sendall(f"{status}\n".encode())
        os._exit(status)


def _begin(job: socket.socket) -> str:
    # Take the place of the process that asks, and notify it; returns the path of its script.
    try:
        job.sendall(READY)
        length, files, _, _ = socket.recv_fds(job, 8, 2)
        with job.makefile("rb") as stream:
            text = stream.read(size := int.from_bytes(length))
        if not files or len(text) < size:
            raise SystemExit(KILLED)
        for number, file in enumerate(files, start=1):
            os.dup2(file, number)
            os.close(file)
        asked, folder, *environment = text.split(b"\0")
        script = os.fsdecode(asked)
        _become(script, folder, environment)
        job.sendall(f"{os.getpid()}\n".encode())
    except ConnectionError as error:
        raise SystemExit(KILLED) from error
    return script


def _become(script: str, folder: bytes, environment: Iterable[bytes]) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    own = _python_path()
    os.environ.clear()
    for of in environment:
        name, _, value = of.partition(b"=")
        os.environb[name] = value
    os.chdir(folder)
    sys.argv = [script]
    # Without the server's PYTHONPATH, even if a .pth file repeats it: the job's has its library.
    everyones = [path for path in sys.path if path not in own]
    sys.path[:] = [str(Path(script).parent), *_python_path(), *everyones]
    for name in [name for name in sys.modules if name.partition(".")[0] == "feature_alignment"]:
        del sys.modules[name]  # this file's package, perhaps of another checkout


def _python_path() -> list[str]:
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [str(Path(path).absolute()) for path in given if path]


def _end_with(job: socket.socket) -> None:
    """Wait until the process that has asked ends, and end with it."""
    with suppress(ConnectionError):  # it ended before it read everything
        while job.recv(1):
            pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    number, folder, *modules = sys.argv[1:]
    try:
        _serve(socket.socket(fileno=int(number)), modules)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)  # if Python ends by itself, the compiler's libraries complain of leaks
