"""Copies of the pipeline to run in, and the pipeline run once."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import pytest
from filelock import FileLock

from feature_alignment.files import sha256_of
from feature_alignment.pipeline import imports, preloaded
from feature_alignment.pipeline.forked import OFFER
from feature_alignment.pipeline.preloaded import FOR_FIGURES, FOR_RUNS, start_server

ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = ("Snakefile", "config.yaml", "workflow", "profiles", "src", "envs")
PAPERS = Path("src") / "feature_alignment" / "papers"


@cache
def forks():
    """The process whose forks are Snakemake."""
    return runpy.run_path(str(Path(__file__).with_name("forks.py")))["Forks"]()


@cache
def job_server():
    """What tells Snakemake of a process from which jobs can be forked: one for all of these tests.

    Else each starts its own, which takes longer to import PyTorch than the made-up paper's jobs.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(OFFER, "{}")
        start_server((*FOR_RUNS, *FOR_FIGURES), threads=1)
        return {OFFER: os.environ[OFFER]}


@cache
def sources():
    """What Snakemake keeps of the library's files, which takes it a second to find out."""
    source, found = ROOT / "src", {}
    for file in source.rglob("*.py"):
        found[str(file.relative_to(source))] = sha256_of(file), imports._read(file)
    return json.dumps(found)


@pytest.fixture(scope="session", autouse=True)
def ended():
    """End what was started for all tests."""
    yield
    if forks.cache_info().currsize:
        forks().close()
    while job_server.cache_info().currsize and preloaded._servers:
        server = preloaded._servers.pop()
        server.stdin.close()
        server.wait()


class Pipeline:
    """A copy of the pipeline in a folder of its own, with the made-up paper among its papers.

    Attributes:
        by_itself: Snakemake imports everything itself, and starts its own server for its jobs.
        variables: What a run's environment has in place of this one's.
    """

    by_itself = False
    variables: Mapping[str, str] = MappingProxyType({})

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True)
        for part in PARTS:
            source, target = ROOT / part, folder / part
            if source.is_dir():
                shutil.copytree(source, target)  # with the bytecode, which takes a second to make
            else:
                shutil.copy2(source, target)
        made_up = ROOT / "tests" / "example_paper" / "example2030"
        shutil.copytree(made_up, folder / PAPERS / "example2030")
        (folder / ".snakemake").mkdir()
        (folder / imports.MEMORY.file).write_text(sources())

    def copy(self, folder, kind=None):
        """A copy of this one, modification times included, that a test may change."""
        locks = shutil.ignore_patterns("locks")  # of another test that looks at this one
        shutil.copytree(self.folder, folder, symlinks=True, ignore=locks)
        return (kind or type(self)).at(folder)

    @classmethod
    def at(cls, folder):
        """The pipeline that is in a folder."""
        found = object.__new__(cls)
        found.folder = folder
        return found

    def command(self, *arguments):
        """The command line of a run."""
        return [sys.executable, "-m", "snakemake", *arguments]

    def environment(self):
        """The environment of a run: matplotlib and Python caches stay in the copy."""
        return {**os.environ, "XDG_CACHE_HOME": str(self.folder / ".cache"), **self.variables}

    def offer(self):
        """What is added to the environment of a Snakemake whose jobs need not be by themselves."""
        return job_server()

    def run(self, *arguments):
        """Run Snakemake in the copy."""
        command, environment = self.command(*arguments), self.environment()
        if not self.by_itself:
            offer = {} if "-n" in arguments else self.offer()
            return forks().run(command, self.folder, {**environment, **offer})
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self, *arguments):
        """Start Snakemake in the copy, as the leader of a group of processes."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env={**self.environment(), **({} if self.by_itself else self.offer())},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def succeed(self, *arguments):
        """Run Snakemake in the copy, and expect it to succeed; what it printed."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def planned(self, *arguments):
        """The number of jobs of each rule that a dry run lists."""
        text = self.succeed(*arguments, "-n", "--quiet", "rules")
        lines = (line.split() for line in text.splitlines())
        rules = {
            words[0]: int(words[1])
            for words in lines
            if len(words) == 2 and words[1].isdigit() and words[0] != "total"
        }
        rules.pop("all", None)
        return rules

    def results(self):
        """The bytes of every table, array file and picture."""
        paths = [
            path
            for folder in ("results", "figures")
            for path in (self.folder / folder).rglob("*")
            if path.suffix in {".csv", ".npz", ".png", ".pdf"}
        ]
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in paths}


SMOKE = ("--config", "preset=smoke")


@pytest.fixture
def pipeline(tmp_path):
    """A fresh copy of the pipeline."""
    return Pipeline(tmp_path / "pipeline")


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The smoke preset, made on two cores as users make it. Tests that change it copy it first.

    It is made once, by the first of the test runner's processes that needs it.
    """
    return made_once(tmp_path_factory, "two_cores", *SMOKE, by_itself=True)


@pytest.fixture(scope="session")
def made_up(tmp_path_factory):
    """The made-up paper at the smoke preset. Tests that change it copy it first.

    As the smoke preset, it is made once.
    """
    return made_once(tmp_path_factory, "made_up", *SMOKE, "papers=example2030", by_itself=False)


def made_once(tmp_path_factory, name, *asked, by_itself):
    """A pipeline that the first of the test runner's processes that needs it makes on two cores."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder, done = place / "pipeline", place / "done"
    place.mkdir(exist_ok=True)
    with FileLock(place / "lock"):
        if not done.exists():
            made = Pipeline(folder)
            made.by_itself = by_itself
            made.succeed("--cores", "2", *asked)
            done.touch()
    made = Pipeline.at(folder)
    made.by_itself = by_itself
    return made


@pytest.fixture(scope="session")
def pipeline_class():
    """The class of pipeline copies, for fixtures of other scopes."""
    return Pipeline
