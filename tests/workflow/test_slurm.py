"""A real scheduler: the same bytes as without one, and jobs that are cancelled, killed, waiting."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from feature_alignment.pipeline.papers import all_figures

pytestmark = pytest.mark.exhaustive
OFTEN = ("--slurm-init-seconds-before-status-checks", "3")  # so that the tests need not wait
SLURM = ("--workflow-profile", "slurm", *OFTEN, "--config", "preset=smoke")
COIN = "results/smoke/runs/example2030_coin/fair"
TWO_SEEDS = "experiments={example2030_coin: {seeds: 2}}"
STALL = """\
    from pathlib import Path
    import time

    with Path("begun").open("a+") as file:
        file.write(f"{run.seed} ")
        file.seek(0)
        if file.read().endswith("1 ") and file.tell() <= LENGTH:
            time.sleep(1000)
"""
STARTED = []


@pytest.fixture(scope="module", autouse=True)
def slurm(root, tmp_path_factory):
    """A Slurm of one node, to which all commands of these tests talk."""
    if os.getuid():
        pytest.skip("Slurm is started by root only.")
    if not (shutil.which("slurmctld") and shutil.which("munged")):
        pytest.skip("Slurm is not installed; tests/cluster/slurm.sh install, on Debian or Ubuntu.")
    script, folder = root / "tests" / "cluster" / "slurm.sh", tmp_path_factory.mktemp("slurm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        patch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)
        try:
            begun = subprocess.run([script, "start", folder], capture_output=True, text=True)
            if begun.returncode:
                pytest.skip(f"Slurm is installed, but does not start here: {begun.stderr.strip()}")
            yield
        finally:
            for running in STARTED:
                running.kill()
                running.wait()
            subprocess.run([script, "stop", folder], check=True)


class Submitting:
    """Snakemake at work in a copy of the pipeline, submitting jobs."""

    def __init__(self, pipeline, *arguments):
        self.pipeline = pipeline
        self.log = pipeline.folder / "printed"
        with self.log.open("a") as printed:
            self.process = subprocess.Popen(
                pipeline.command(*SLURM, *arguments),
                cwd=pipeline.folder,
                env=pipeline.environment(),
                stdout=printed,
                stderr=subprocess.STDOUT,
            )
        STARTED.append(self.process)

    def jobs(self):
        """What Slurm knows of the jobs, in the order of their submission: a dict for each."""
        name = re.search(r"SLURM run ID: (\S+)", self.log.read_text())
        return squeue("--name", name[1]) if name else []

    def until(self, condition, what):
        """Wait for something, and fail with what was printed if it does not come."""
        deadline = time.monotonic() + 600
        while True:
            running = self.process.poll() is None
            if condition():
                return
            said = f"no {what}: {self.jobs()}\n{self.log.read_text()}"
            assert running, said
            assert time.monotonic() < deadline, said
            time.sleep(0.2)

    def until_states(self, *states):
        """Wait until the jobs are in these states."""
        self.until(lambda: [job["state"] for job in self.jobs()] == list(states), states)

    def begun(self):
        """The seeds that the stalling run has begun, in this order."""
        file = self.pipeline.folder / "begun"
        return file.read_text().split() if file.exists() else []

    def ends(self):
        """The exit status, and all that was printed."""
        status = self.process.wait(600)
        return status, self.log.read_text()


def squeue(*options):
    columns = {"id": "%i", "state": "%T", "memory": "%m", "limit": "%l", "where": "%P"}
    command = ["squeue", "--states=all", "--noheader", f"--format={'|'.join(columns.values())}"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    rows = [line.split("|") for line in done.stdout.splitlines()]
    jobs = [dict(zip(columns, row, strict=True)) for row in rows]
    return sorted(jobs, key=lambda job: int(job["id"]))


def node(state):
    """Set the state of the only node."""
    name = subprocess.run(["sinfo", "-hoN%n"], capture_output=True, text=True, check=True)
    change = [f"nodename={name.stdout.strip()[1:]}", f"state={state}", "reason=test"]
    subprocess.run(["scontrol", "update", *change], check=True)


@pytest.fixture(scope="module")
def stalling(tmp_path_factory, pipeline_class):
    """Makes copies of the pipeline in which a run's second seed stalls so many times."""

    def make(name, times=1):
        copy = pipeline_class(tmp_path_factory.mktemp(name) / "pipeline")
        coin = copy.folder / "src/feature_alignment/papers/example2030/experiments/coin.py"
        before, line, after = coin.read_text().partition("    p = run.parameters\n")
        stall = STALL.replace("LENGTH", str(len("0 ") + times * len("1 ")))
        coin.write_text(before + stall + line + after)
        return copy

    return make


@pytest.fixture(scope="module")
def over_its_limit(stalling):
    """A run that takes longer than its minute; it goes on while other tests have their turn."""
    asked = (TWO_SEEDS, "resources={runtime: 1, mem_mb: 900}")
    return Submitting(stalling("limit"), *asked, "--", f"{COIN}/metrics.csv")


def assert_goes_on_as(finished, copy):
    """The rows of an undisturbed run with one seed, and then those of the second."""
    undisturbed, made = ((c.folder / COIN / "metrics.csv").read_text() for c in (finished, copy))
    assert made.startswith(undisturbed)
    assert made.count("heads_share") == 2


def test_a_run_waits_for_its_node_and_is_submitted_again_when_cancelled(over_its_limit, stalling):
    node("drain")
    try:
        running = Submitting(stalling("cancelled"), TWO_SEEDS, "--", f"{COIN}/metrics.csv")
        running.until_states("PENDING")
    finally:
        node("resume")
    running.until(lambda: running.begun() == ["0", "1"], "second seed")
    subprocess.run(["scancel", running.jobs()[0]["id"]], check=True)
    status, printed = running.ends()
    assert status == 0, printed
    assert [job["state"] for job in running.jobs()] == ["CANCELLED", "COMPLETED"]
    assert running.begun() == ["0", "1", "1"]  # from where it was


def test_a_run_that_is_given_up_is_told_of_and_goes_on_with_the_next_command(stalling, finished):
    asked = ("slurm_partition=other", "--set-resources", "run:gpu=1", "run:gpu_model=a100")
    once = (TWO_SEEDS, "--retries", "0", "--default-resources")
    command = (*once, *asked, "--", f"{COIN}/metrics.csv")
    copy = stalling("given_up", times=2)
    running = Submitting(copy, *command)
    running.until(lambda: running.begun() == ["0", "1"], "second seed")
    (job,) = running.jobs()
    assert job["where"] == "other"
    shown = subprocess.run(["scontrol", "show", "job", job["id"]], capture_output=True, check=True)
    assert b"=gres:gpu:a100:1" in shown.stdout
    subprocess.run(["scancel", job["id"]], check=True)
    status, printed = running.ends()
    assert status != 0
    assert printed.count(f"SLURM-job '{job['id']}' failed, SLURM status is: 'CANCELLED'") == 1
    assert "Traceback" not in printed
    assert not (copy.folder / COIN / "metrics.csv").exists()
    again = Submitting(copy, *command)
    again.until(lambda: again.begun() == ["0", "1", "1"], "second seed")
    again.process.send_signal(signal.SIGINT)  # which takes its job along
    again.until_states("CANCELLED")
    again.ends()
    status, printed = Submitting(copy, *command).ends()
    assert status == 0, printed
    assert again.begun() == ["0", "1", "1", "1"]
    assert_goes_on_as(finished, copy)


def test_the_bytes_are_those_of_a_run_without_slurm(finished, pipeline, root, smoke_plan):
    few_runs = [figure for figure in all_figures() if len(smoke_plan.runs_of(figure)) < 3]
    chosen = [*few_runs[::10], "example2030_fig1"]
    pictures = [f"figures/smoke/{figure}.{kind}" for figure in chosen for kind in ("pdf", "png")]
    tool = [sys.executable, root / "tools/measured.py", finished.folder / "results/smoke"]
    subprocess.run(tool, cwd=pipeline.folder, check=True)
    running = Submitting(pipeline, f"figures={','.join(chosen)}")
    status, printed = running.ends()
    assert status == 0, printed
    on_slurm, here = pipeline.results(), finished.results()
    assert on_slurm.pop("results/smoke/selected/claims.csv")
    assert set(pictures) <= on_slurm.keys() <= here.keys()
    assert [name for name in on_slurm if on_slurm[name] != here[name]] == []
    # Data, pictures and verdicts are made here, and small runs of an experiment in one submission.
    experiments = [run.parent.name for run in pipeline.folder.glob("results/smoke/runs/*/*")]
    states = [job["state"] for job in running.jobs()]
    assert states == ["COMPLETED"] * len(set(experiments))
    assert len(states) < len(experiments)


def test_a_run_over_its_limit_goes_on_with_more_time_and_memory(over_its_limit, finished):
    running = over_its_limit
    status, printed = running.ends()
    assert status == 0, printed
    first, second = running.jobs()
    assert (first["state"], first["limit"], first["memory"]) == ("TIMEOUT", "1:00", "900M")
    assert (second["state"], second["limit"], second["memory"]) == ("COMPLETED", "2:00", "1800M")
    assert running.begun() == ["0", "1", "1"]
    assert_goes_on_as(finished, running.pipeline)
