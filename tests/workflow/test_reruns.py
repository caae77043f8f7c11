"""An edit reruns what depends on it and nothing else; a killed job is simply made again."""

import shutil
import subprocess
import time

import psutil
import pytest

pytestmark = pytest.mark.slow
SMOKE = ("--config", "preset=smoke")


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of the finished pipeline, modification times included, that a test may change."""
    folder = tmp_path / "copy"
    shutil.copytree(finished.folder, folder, symlinks=True)
    changed = object.__new__(type(finished))
    changed.folder = folder
    return changed


def edit(pipeline, path):
    file = pipeline.folder / "src" / "feature_alignment" / path
    file.write_text(file.read_text() + "\n# an edit\n")


def test_an_edited_figure_reruns_only_that_figure(copy):
    assert copy.planned(*SMOKE) == {}
    edit(copy, "figures/baratin2021_fig10.py")
    planned = copy.planned(*SMOKE)
    assert planned == {"figure_table": 1, "figure": 1, "claims": 1, "report": 1}


def test_an_edited_kernel_function_reruns_what_uses_it(copy):
    # The disk, Fourier content and the checks of baratin2021's theorems, in four figures.
    edit(copy, "kernels/eigenfunctions.py")
    planned = copy.planned(*SMOKE)
    assert planned == {"run": 3, "figure_table": 4, "figure": 4, "claims": 1, "report": 1}


def test_an_edited_parameter_reruns_its_experiment(copy):
    (copy.folder / "mine.yaml").write_text(
        "preset: smoke\nexperiments: {beaglehole2024_chain_monomial: {width: 25}}\n"
    )
    planned = copy.planned("--configfile", "mine.yaml")
    assert planned == {"run": 1, "figure_table": 1, "figure": 1, "claims": 1, "report": 1}


def test_swapping_two_values_is_noticed(copy):
    (copy.folder / "mine.yaml").write_text(
        "preset: smoke\nexperiments: {baratin2021_disk: {samples: 200, test_samples: 100}}\n"
    )
    assert copy.planned("--configfile", "mine.yaml")["run"] == 1


def test_an_edited_ledger_reruns_the_verdicts(copy):
    ledger = copy.folder / "claims" / "lejeune2024.yaml"
    ledger.write_text(ledger.read_text() + "\n# an edit\n")
    assert copy.planned(*SMOKE) == {"claims": 1, "report": 1}


@pytest.mark.parametrize("victim", ["job", "snakemake"])
def test_what_was_killed_is_made_again_with_the_same_bytes(finished, pipeline, victim):
    folder = "results/smoke/runs/baratin2021_disk/default"
    command = ("--cores", "1", *SMOKE, "--", f"{folder}/metrics.csv")
    running = subprocess.Popen(
        pipeline.command(*command),
        cwd=pipeline.folder,
        env=pipeline.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log = pipeline.folder / "results/smoke/logs/runs/baratin2021_disk/default.log"
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


def job_in_training(snakemake, log):
    """The process of the script with the given log, once it has begun to train."""
    deadline = time.monotonic() + 120
    while not (log.exists() and "seed 1/" in log.read_text()):
        assert time.monotonic() < deadline, "the job did not begin"
        time.sleep(0.02)
    for child in psutil.Process(snakemake).children(recursive=True):
        if any("run_experiment.py" in word for word in child.cmdline()[1:2]):
            return child
    raise AssertionError("the job ended before it could be killed")
