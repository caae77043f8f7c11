"""Disturbs the pipeline at random moments, and lets the same command go on.

    python -m tests.workflow.faults --times 20 --seed 0

Each time, in a fresh copy, the made-up paper is made on two cores; a random time after a random
number of its jobs has ended, a signal goes to Snakemake, to one of its jobs, or to all at once.
Then the same command must end well: the same bytes, every file as its job wrote it, nothing left.
"""

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from tests.workflow.conftest import Pipeline

from feature_alignment.pipeline.proof import verify

COMMAND = ("--cores", "2", "--config", "preset=smoke", "papers=example2030")
KINDS = ("scheduler killed", "job killed", "all killed", "terminated", "interrupted")
JOBS = 7
KEPT = {".lock"}
"""Hidden files of a result that stay."""


def scripts(running: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes that do a rule's work."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(running.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if re.search(r"/(scripts/|tmp)\S*\.py$", " ".join(child.cmdline()[-1:])):
                    found.append(child)
    return found


def ended(pipeline: Pipeline) -> int:
    """The number of jobs that have ended well."""
    return len(list(pipeline.folder.glob("[rf]*/smoke/**/*provenance.json")))


def wait(running: subprocess.Popen[str], pipeline: Pipeline, jobs: int, seconds: float) -> None:
    """Wait until some jobs have ended, and then some seconds."""
    while running.poll() is None and ended(pipeline) < jobs:
        time.sleep(0.05)
    time.sleep(seconds)


def disturb(running: subprocess.Popen[str], kind: str, chance: random.Random) -> None:
    """Do one thing to what runs; a job is waited for where there is none at the moment."""
    if kind == "job killed":
        while not (jobs := scripts(running)) and running.poll() is None:
            time.sleep(0.02)
        if jobs:
            with contextlib.suppress(psutil.NoSuchProcess):
                chance.choice(jobs).kill()
    elif kind == "scheduler killed":
        running.kill()
    elif kind == "terminated":
        running.terminate()
    else:
        number = signal.SIGINT if kind == "interrupted" else signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, number)


def wrong(pipeline: Pipeline, expected: dict[str, bytes]) -> str:
    """What the same command does not bring to the same end; nothing if it does."""
    again = pipeline.run(*COMMAND)
    if again.returncode != 0:
        return f"the same command fails: {again.stdout}{again.stderr}"
    made = pipeline.results()
    other = sorted(name for name in made.keys() | expected if made.get(name) != expected.get(name))
    if other:
        return f"other bytes: {', '.join(other)}"
    with contextlib.chdir(pipeline.folder):
        verify("smoke")
        hidden = [p for top in ("results", "figures") for p in Path(top).rglob(".*")]
    left = [str(path) for path in hidden if path.name not in KEPT]
    return f"left behind: {', '.join(left)}" if left else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Disturb as often as asked for; returns 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    chance, faults = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = Pipeline(Path(folder) / "undisturbed")
        undisturbed.by_itself = True  # for its duration, as those that are disturbed
        begun = time.monotonic()
        undisturbed.succeed(*COMMAND)
        duration, expected = time.monotonic() - begun, undisturbed.results()
        print(f"undisturbed: {duration:.1f} s, {len(expected)} files", flush=True)
        for number in range(options.times):
            kind, jobs = KINDS[number % len(KINDS)], chance.randrange(JOBS)
            seconds = chance.uniform(0, duration / 6 if jobs else duration / 3)
            copy = Pipeline(Path(folder) / f"copy{number}")
            copy.by_itself = True  # what is disturbed has all processes of its own
            running = copy.start(*COMMAND)
            wait(running, copy, jobs, seconds)
            disturb(running, kind, chance)
            printed = running.communicate()[0]
            done = ended(copy)
            copy.by_itself = False
            found = wrong(copy, expected)
            if "Traceback" in printed and "KeyboardInterrupt" not in printed:
                found += f"a traceback: {printed[printed.rindex('Traceback') :]}"
            faults += bool(found)
            where = f"{kind} {seconds:.1f} s after {jobs} of {JOBS} jobs, {done} done in the end"
            remark = ", a traceback of the interrupt" if "KeyboardInterrupt" in printed else ""
            if kind == "job killed" and running.returncode == 0:
                remark += ", no job was killed"
            print(f"{where}: {found or 'the same bytes'}{remark}", flush=True)
            shutil.rmtree(copy.folder)
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
