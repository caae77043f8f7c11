"""The profiles: settings that Snakemake knows, how Slurm is asked, what is submitted together."""

import os
import runpy
from importlib.util import find_spec

import pytest
import yte
from snakemake.cli import get_argument_parser

from feature_alignment.pipeline.spec import spec_hash

SMOKE = ("--config", "preset=smoke")
KUBERNETES = find_spec("snakemake_executor_plugin_kubernetes") is not None


@pytest.mark.parametrize("profile", ["default", "gpu", "slurm", "kubernetes"])
def test_every_setting_of_a_profile_is_an_option(root, tmp_path, monkeypatch, profile):
    monkeypatch.chdir(tmp_path)  # where no file of the workflow looks at the command line
    settings = yte.process_yaml((root / "profiles" / profile / "config.yaml").read_text())
    options = {o for action in get_argument_parser()._actions for o in action.option_strings}
    of_missing_plugin = () if KUBERNETES else ("kubernetes-",)
    looked_at = [key for key in settings if not key.startswith(("__", *of_missing_plugin))]
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
    root, tmp_path, monkeypatch, scontrol, sacct, chosen
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
    rows = [f"{s['experiment']},{spec_hash(s['parameters'])[:12]},{seconds}\n" for s in coins]
    measured = pipeline.folder / "workflow" / "measured.csv"
    measured.write_text("".join(["experiment,parameters,seconds\n", *rows]))
    target = ("--", "results/smoke/tables/example2030_fig1.csv")
    dry = ("-n", "--quiet", "host", *SMOKE, *target)
    printed = pipeline.succeed("--workflow-profile", "slurm", *dry)
    assert printed.count("Group job smoke-example2030_coin-") == groups
    assert printed.count("Running example2030_coin/") == len(coins) == 2
    assert "Group job" not in pipeline.succeed(*dry)  # on one machine nothing is submitted


@pytest.mark.slow
@pytest.mark.skipif(not KUBERNETES, reason="snakemake-executor-plugin-kubernetes is not installed.")
def test_a_dry_run_on_kubernetes_plans_every_run(pipeline, smoke_plan):
    planned = pipeline.planned("--workflow-profile", "kubernetes", *SMOKE, "device=cuda")
    assert planned["run"] == len(smoke_plan.specs)
