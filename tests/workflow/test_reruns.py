"""An edit reruns what depends on it and nothing else; a killed job is simply made again."""

import json
import os
import subprocess
import sys
import time

import psutil
import pytest

from feature_alignment.pipeline.papers import all_figures

pytestmark = pytest.mark.slow
SMOKE = ("--config", "preset=smoke")


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of the finished pipeline, modification times included, that a test may change."""
    return finished.copy(tmp_path / "copy")


def edit(pipeline, path, text="\nEDITED = True\n"):
    file = pipeline.folder / "src" / "feature_alignment" / path
    file.write_text(file.read_text() + text)


def dependants(pipeline, path):
    """The jobs that depend on a library file, by rule, as the import graph has it."""
    code = """
import json, sys
from pathlib import Path
from feature_alignment.pipeline import papers
from feature_alignment.pipeline.config import resolve_config
from feature_alignment.pipeline.imports import SOURCE_ROOT, import_closure
from feature_alignment.pipeline.plan import make_plan

edited = SOURCE_ROOT / "feature_alignment" / sys.argv[1]
plan = make_plan(resolve_config({"preset": "smoke"}, Path("workflow")))
pipeline = "feature_alignment.pipeline"
runs = {
    run: edited in import_closure(f"{pipeline}.run", papers.experiment_module(run[0])).values()
    for run in plan.specs
}
figures = {
    figure: edited
    in import_closure(f"{pipeline}.figures.make", papers.figure_module(figure)).values()
    or any(runs[run] for run in plan.runs_of(figure))
    for figure in plan.figures
}
print(json.dumps({"run": sum(runs.values()), "figure": sum(figures.values())}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, path],
        cwd=pipeline.folder,
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = {rule: number for rule, number in json.loads(done.stdout).items() if number}
    return found | ({"claims": 1, "report": 1} if found else {})


@pytest.mark.parametrize(
    "path",
    [
        "papers/example2030/figures/shares_and_losses.py",
        "papers/example2030/experiments/coin.py",
        "kernels/eigenfunctions.py",
        "models/mlp.py",
    ],
)
def test_an_edit_of_meaning_reruns_exactly_what_depends_on_it(copy, path):
    assert copy.planned(*SMOKE) == {}
    edit(copy, path)
    expected = dependants(copy, path)
    assert expected["figure"] < len(all_figures())
    assert copy.planned(*SMOKE) == expected


def test_an_edit_of_prose_reruns_nothing(copy):
    for path in ("kernels/eigenfunctions.py", "training/loop.py", "pipeline/run.py"):
        edit(copy, path, '\n# A remark.\n"""What stands above."""\n')
    assert copy.planned(*SMOKE) == {}


def changed(copy, section):
    (copy.folder / "mine.yaml").write_text(f"preset: smoke\nexperiments: {section}\n")
    return copy.planned("--configfile", "mine.yaml")


def test_an_edited_parameter_reruns_its_experiment(copy):
    planned = changed(copy, "{example2030_descent: {steps: 21}}")
    assert planned == {"run": 1, "figure": 1, "claims": 1, "report": 1}


def test_swapping_two_values_is_noticed(copy):
    assert changed(copy, "{example2030_descent: {samples: 5, dimension: 50}}")["run"] == 1


def test_an_edited_ledger_reruns_the_verdicts(copy):
    ledger = copy.folder / "src/feature_alignment/papers/example2030/claims.yaml"
    ledger.write_text(ledger.read_text() + "\n# an edit\n")
    assert copy.planned(*SMOKE) == {"claims": 1, "report": 1}


def test_an_edited_title_reruns_what_shows_it(copy):
    paper = copy.folder / "src/feature_alignment/papers/example2030/paper.py"
    paper.write_text(paper.read_text().replace('title="', 'title="On '))
    assert copy.planned(*SMOKE) == {"claims": 1, "report": 1}


@pytest.mark.parametrize("victim", ["job", "snakemake"])
def test_what_was_killed_is_made_again_with_the_same_bytes(finished, pipeline, victim):
    run = slowest_run(finished)
    folder = f"results/smoke/runs/{run}"
    command = ("--cores", "1", *SMOKE, "--", f"{folder}/metrics.csv")
    running = subprocess.Popen(
        pipeline.command(*command),
        cwd=pipeline.folder,
        env=pipeline.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log = pipeline.folder / f"results/smoke/logs/runs/{run}.log"
    job = job_in_training(running.pid, log)
    if victim == "snakemake":
        running.kill()
    job.kill()
    assert running.wait() != 0
    made = pipeline.folder / folder
    assert not [path for path in made.glob("*") if not path.name.startswith(".")]
    pipeline.succeed(*command)
    names = {"metrics.csv", "arrays.npz", "spec.json", "provenance.json"}
    assert {path.name for path in made.iterdir()} == names  # nothing half-written is left
    for name in names - {"provenance.json"}:
        undisturbed = finished.folder / folder / name
        assert (made / name).read_bytes() == undisturbed.read_bytes()


def slowest_run(pipeline):
    """The run that leaves the most time to be killed in."""
    runs = pipeline.folder / "results/smoke/runs"
    records = {path.parent: json.loads(path.read_text()) for path in runs.glob("*/*/prov*.json")}
    slowest = max(records, key=lambda folder: records[folder]["wall_seconds"])
    return slowest.relative_to(runs).as_posix()


def job_in_training(snakemake, log):
    """The process of the script with the given log, once it has begun to train."""
    deadline = time.monotonic() + 600
    while not (log.exists() and "seed 1/" in log.read_text()):
        assert time.monotonic() < deadline, "the job did not begin"
        time.sleep(0.02)
    for child in psutil.Process(snakemake).children(recursive=True):
        if any("run_experiment.py" in word for word in child.cmdline()[-1:]):
            return child
    raise AssertionError("the job ended before it could be killed")
