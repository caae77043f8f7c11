"""Tests of tools/time_budget.py: what the time allows, without loss, to be merged elsewhere."""

import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

RUN = "results/smoke/runs/example2030_descent/default"
STEPS = "experiments={example2030_descent: {steps: 2000}}"
SETTINGS = ("preset=smoke", "figures=example2030_fig2", STEPS)
TRAINING = "        **run.training(p.steps),\n"
SLOW = '        after_update=lambda step, model: time.sleep(float(os.environ.get("STALL", "0"))),\n'
STALL = 0.1
"""Seconds of each update, so that the first budget ends long before the training."""


@pytest.fixture
def slow(pipeline):
    """A copy of the pipeline whose training takes as long as `STALL` says."""
    descent = pipeline.folder / "src/feature_alignment/papers/example2030/experiments/descent.py"
    text = descent.read_text().replace(TRAINING, TRAINING + SLOW)
    descent.write_text(
        text.replace("import torch\n", "import os\nimport time\n\nimport torch\n", 1)
    )
    return pipeline


def tool(root, pipeline, *arguments, stall=0.0):
    environment = {"PYTHONPATH": str(pipeline.folder / "src"), "STALL": str(stall)}
    if not stall:  # else it is what is cut off
        environment |= pipeline.offer()
    return subprocess.run(
        [sys.executable, root / "tools" / "time_budget.py", *arguments],
        cwd=pipeline.folder,
        env={**pipeline.environment(), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.exhaustive
def test_what_was_cut_off_goes_on_elsewhere_to_the_same_bytes(root, slow, tmp_path):
    elsewhere, undisturbed = (slow.copy(tmp_path / name) for name in ("elsewhere", "undisturbed"))
    pack = tmp_path / "pack.tar.gz"
    budget = ("--cores", "1", "--config", *SETTINGS)
    cut_off = tool(
        root, slow, "spend", "1.2", "--grace", "15", "--pack", pack, *budget, stall=STALL
    )
    assert cut_off.returncode == 3, cut_off.stdout + cut_off.stderr
    assert "1 runs of smoke are left" in cut_off.stdout
    assert not (slow.folder / RUN / "metrics.csv").exists()
    merged = tool(root, elsewhere, "merge", pack, "--config", *SETTINGS)
    assert merged.stdout == "example2030_descent/default: goes on from its saved state\n"
    ended = tool(root, elsewhere, "spend", "10", "--pack", pack, *budget)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    log = elsewhere.folder / "results/smoke/logs/runs/example2030_descent/default.log"
    assert "goes on after step" in log.read_text()
    undisturbed.succeed("--cores", "1", "--config", *SETTINGS, "--", f"{RUN}/metrics.csv")
    for file in ("metrics.csv", "arrays.npz"):
        made, expected = (copy.folder / RUN / file for copy in (elsewhere, undisturbed))
        assert made.read_bytes() == expected.read_bytes()
    # The finished run comes back, and nothing but its figure is left to do.
    merged = tool(root, slow, "merge", pack, "--config", *SETTINGS)
    assert merged.stdout == "example2030_descent/default: finished\n"
    assert slow.planned("--config", *SETTINGS).keys() == {
        "figure",
        "selected_claims",
        "selected_report",
    }
    again = tool(root, slow, "merge", pack, "--config", *SETTINGS)
    assert again.stdout == "example2030_descent/default: is finished here, and stays\n"


def test_time_is_spent_on_a_run_of_other_settings_without_snakemakes_records(
    root, made_up, tmp_path
):
    copy = made_up.copy(tmp_path / "copy")
    shutil.rmtree(copy.folder / ".snakemake")
    changed = "experiments={example2030_descent: {steps: 30}}"
    chosen = ("--config", "preset=smoke", "figures=example2030_fig2", changed)
    made = tool(root, copy, "spend", "10", *chosen)
    assert made.returncode == 0, made.stdout + made.stderr
    assert '"steps": 30' in (copy.folder / RUN / "spec.json").read_text()


def test_runs_of_other_settings_or_code_are_refused(root, pipeline, tmp_path):
    other_code = pipeline.copy(tmp_path / "other_code")
    pack = tmp_path / "pack.tar.gz"
    chosen = ("preset=smoke", "figures=example2030_fig2")
    made = tool(root, pipeline, "spend", "10", "--pack", pack, "--config", *chosen)
    assert made.returncode == 0, made.stdout + made.stderr
    about = f"Error: {pack}: example2030_descent/default: made from other"
    changed = "experiments={example2030_descent: {steps: 30}}"
    refused = tool(root, pipeline, "merge", pack, "--config", *chosen, changed)
    assert (refused.returncode, refused.stderr.startswith(f"{about} settings")) == (1, True)
    descent = other_code.folder / "src/feature_alignment/papers/example2030/experiments/descent.py"
    descent.write_text(descent.read_text().replace("zeros_", "ones_"))
    refused = tool(root, other_code, "merge", pack, "--config", *chosen)
    assert (refused.returncode, refused.stderr.startswith(f"{about} code")) == (1, True)
    assert not (other_code.folder / RUN / "metrics.csv").exists()


def test_a_run_in_the_place_of_one_of_other_settings_is_not_made_again(root, pipeline, tmp_path):
    elsewhere = pipeline.copy(tmp_path / "elsewhere")
    pack = tmp_path / "pack.tar.gz"
    chosen = ("--config", "preset=smoke", "figures=example2030_fig2")
    made = tool(root, elsewhere, "spend", "10", "--pack", pack, *chosen)
    assert made.returncode == 0, made.stdout + made.stderr
    changed = "experiments={example2030_descent: {steps: 30}}"
    pipeline.succeed("--cores", "1", *chosen, changed, "--", f"{RUN}/metrics.csv")
    merged = tool(root, pipeline, "merge", pack, *chosen)
    assert merged.stdout == "example2030_descent/default: finished\n"
    assert "run" not in pipeline.planned(*chosen)


@pytest.mark.parametrize("content", [None, b"no archive"])
def test_a_file_that_is_no_pack_is_one_sentence(root, pipeline, tmp_path, content):
    pack = tmp_path / "pack.tar.gz"
    if content is not None:
        pack.write_bytes(content)
    refused = tool(root, pipeline, "merge", pack, "--config", "preset=smoke")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert refused.stderr.startswith(f"Error: {pack}: no pack of runs that can be read")
    assert {path.name for path in (pipeline.folder / "results/smoke").iterdir()} == {
        ".lock",
        "runs",
    }
