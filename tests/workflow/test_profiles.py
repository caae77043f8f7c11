"""The profiles: settings that Snakemake knows, how Slurm is asked, what is submitted together."""

import os
import re
import runpy
import sys

import pytest
import yte
from snakemake.cli import get_argument_parser

from feature_alignment.pipeline.spec import spec_hash
from fetching import uv

SMOKE = ("--config", "preset=smoke")
ONE_PAPER = ("--config", "preset=smoke", "papers=example2030")


@pytest.mark.parametrize("profile", ["default", "gpu", "slurm", "kubernetes"])
def test_every_setting_of_a_profile_is_an_option(root, tmp_path, monkeypatch, profile):
    monkeypatch.chdir(tmp_path)  # where no file of the workflow looks at the command line
    settings = yte.process_yaml((root / "profiles" / profile / "config.yaml").read_text())
    options = {o for action in get_argument_parser()._actions for o in action.option_strings}
    # What the plugin for Kubernetes brings is not installed here, but for the dry run below.
    looked_at = [key for key in settings if not key.startswith(("__", "kubernetes-"))]
    assert [key for key in looked_at if f"--{key}" not in options] == []


@pytest.mark.parametrize(
    ("scontrol", "sacct", "chosen"),
    [
        ("echo MinJobAge = 300 sec", "exit 0", "squeue"),
        ("echo MinJobAge = 300 sec", "exit 1", "squeue"),
        ("echo MinJobAge = 60 sec", "exit 0", "sacct"),
        ("echo MinJobAge = 60 sec", "echo accounts are disabled >&2; exit 1", "squeue"),
        ("exit 1", "exit 0", None),
    ],
)
def test_slurm_is_asked_by_a_command_that_works(
    root, tmp_path, monkeypatch, executable, scontrol, sacct, chosen
):
    for name, does in {"scontrol": scontrol, "sacct": sacct}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert runpy.run_path(str(root / "workflow/slurm.py"))["status_command"]() == chosen


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "groups"), [(3, 1), (290, 2), (310, 0)])
def test_small_points_of_an_experiment_share_a_submission(pipeline, smoke_plan, seconds, groups):
    coins = [
        spec for (experiment, _), spec in smoke_plan.specs.items() if "2030_coin" in experiment
    ]
    rows = [
        f"{s['experiment']},{spec_hash(s['parameters'])[:12]},{s['point']},{seconds}\n"
        for s in coins
    ]
    measured = pipeline.folder / "workflow" / "measured.csv"
    measured.write_text("".join(["experiment,parameters,point,seconds\n", *rows]))
    target = ("--", "results/smoke/tables/example2030_fig1.csv")
    dry = ("-n", "--quiet", "host", *SMOKE, *target)
    printed = pipeline.succeed("--workflow-profile", "slurm", *dry)
    assert printed.count("Group job smoke-example2030_coin-") == groups
    assert printed.count("Running example2030_coin/") == len(coins) == 2
    assert "Group job" not in pipeline.succeed(*dry)  # on one machine nothing is submitted


@pytest.fixture
def on_kubernetes(root, tmp_path, pipeline_class, executable):
    """A pipeline beside what its profile says is to be installed.

    The lock file does not have it: each start of Snakemake would import it, for a second.
    """
    profile = (root / "profiles/kubernetes/config.yaml").read_text()
    packages = re.search(r"#   pip install (.*)", profile)[1].split()
    where = ["--target", tmp_path / "plugins", "--python", sys.executable]
    pinned = ["--constraint", root / "requirements.lock"]
    uv("pip", "install", "--quiet", *where, *pinned, *packages)
    copy = pipeline_class(tmp_path / "pipeline")
    copy.by_itself = True
    paths = [str(tmp_path / "plugins"), *filter(None, [os.environ.get("PYTHONPATH")])]
    copy.variables = {"PYTHONPATH": os.pathsep.join(paths)}
    return copy


@pytest.mark.slow
def test_a_dry_run_on_kubernetes_plans_every_run(on_kubernetes, pipeline_class, tmp_path):
    planned = on_kubernetes.planned("--workflow-profile", "kubernetes", *ONE_PAPER, "device=cuda")
    assert planned == pipeline_class(tmp_path / "here").planned(*ONE_PAPER)
    settings = on_kubernetes.folder / "profiles/kubernetes/config.yaml"
    settings.write_text(settings.read_text() + "kubernetes-nodes: 3\n")
    refused = on_kubernetes.run("--workflow-profile", "kubernetes", *ONE_PAPER, "-n")
    assert refused.returncode != 0
    assert "kubernetes-nodes" in refused.stderr
