"""Disturbs the pipeline at random moments, and lets the same command go on.

    python -m tests.workflow.faults --times 20 --seed 0

Each time, in a fresh copy, the made-up paper is made on two cores; after a random share of the time
that this takes undisturbed, a signal goes to Snakemake, to one of its jobs, or to all at once. Then
the same command must end well, with the same bytes, every file as its job wrote it, nothing left.
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
from pathlib import Path

import psutil
from tests.workflow.conftest import Pipeline

from feature_alignment.pipeline.proof import verify

COMMAND = ("--cores", "2", "--config", "preset=smoke", "papers=example2030")
KINDS = ("scheduler killed", "job killed", "all killed", "terminated", "interrupted")
KEPT = {".lock"}
"""Hidden files of a result that stay."""


def start(pipeline: Pipeline) -> subprocess.Popen[str]:
    """Start the command, as the leader of a group of processes."""
    return subprocess.Popen(
        pipeline.command(*COMMAND),
        cwd=pipeline.folder,
        env=pipeline.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def scripts(running: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes that do a rule's work."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(running.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if re.search(r"/(scripts/|tmp)\S*\.py$", " ".join(child.cmdline()[1:2])):
                    found.append(child)
    return found


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


def main() -> int:
    """Disturb as often as asked for; returns 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance, faults = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = Pipeline(Path(folder) / "undisturbed")
        begun = time.monotonic()
        undisturbed.succeed(*COMMAND)
        duration, expected = time.monotonic() - begun, undisturbed.results()
        print(f"undisturbed: {duration:.1f} s, {len(expected)} files", flush=True)
        for number in range(options.times):
            kind = KINDS[number % len(KINDS)]
            moment = chance.uniform(0, duration)
            copy = Pipeline(Path(folder) / f"copy{number}")
            running = start(copy)
            time.sleep(moment)
            disturb(running, kind, chance)
            printed = running.communicate()[0]
            begun = len(list(copy.folder.glob("results/smoke/logs/**/*.log")))
            done = len(list(copy.folder.glob("[rf]*/smoke/**/*provenance.json")))
            found = wrong(copy, expected)
            if "Traceback" in printed:
                found += f"; a traceback: {printed}"
            faults += bool(found)
            where = f"{kind} after {moment:4.1f} s, {begun} jobs begun, {done} done"
            print(f"{where}: {found or 'the same bytes'}", flush=True)
            shutil.rmtree(copy.folder)
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
