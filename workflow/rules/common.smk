# The library, the checked configuration, the plan of each preset, and the functions that look up
# in it what the other files here need.

import os
import sys
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError

ROOT = Path(workflow.basedir)
sys.path.insert(0, str(ROOT / "src"))

from feature_alignment.pipeline.config import PRESETS, resolve_config
from feature_alignment.determinism import may_use_gpu
from feature_alignment.errors import UserError
from feature_alignment.pipeline.imports import closure_hash
from feature_alignment.pipeline.papers import PAPERS, module_name, paper_of
from feature_alignment.pipeline.plan import all_figures, dataset_spec, make_plan
from feature_alignment.pipeline.spec import dataset_keys


def one_sentence(function, *arguments, **options):
    """Call a function; a user's mistake becomes one sentence instead of a traceback."""
    try:
        return function(*arguments, **options)
    except UserError as error:
        raise WorkflowError(str(error)) from None


@cache
def plan_of(preset=None):
    """The plan of a preset: so a target of any preset can be asked for by its path."""
    files = [Path(file) for file in workflow.configfiles]
    settings = one_sentence(resolve_config, config, ROOT / "workflow", preset, files)
    return one_sentence(make_plan, settings)


PLAN = plan_of()
LEDGER = sorted(os.path.relpath(path) for path in (ROOT / "claims").glob("*.yaml"))
CLAIMS_SCHEMA = os.path.relpath(ROOT / "workflow/schemas/claims.schema.yaml")


@cache
def library(*modules):
    """Hash of the library files that the modules import: a parameter of rules, to rerun on edits.

    The files as inputs would do the same, but Snakemake looks at every input of every job.
    """
    return closure_hash(*modules)


def pictures_of(figures):
    """The pictures of some figures, for the configured preset."""
    return [
        f"figures/{PLAN.preset}/{f}.{suffix}"
        for f in figures
        for suffix in ("pdf", "png")
    ]


def prepared(dataset):
    """The canonical file of a dataset, given the dataset's spec."""
    return f"results/data/{dataset['name']}.{dataset['source']}.npz"


def source_of(wildcards):
    """The spec of the dataset of a canonical file."""
    spec = dataset_spec(wildcards.dataset, PLAN.config)
    return {**spec, "source": wildcards.source}


def spec_of(wildcards):
    """The spec of a run."""
    return plan_of(wildcards.preset).specs[wildcards.experiment, wildcards.point]


def data_of(wildcards):
    """The canonical data files that a run needs, in the order of its spec's dataset keys."""
    spec = spec_of(wildcards)
    return [prepared(spec[key]) for key in dataset_keys(spec)]


def run_library(wildcards):
    """The library that a run is made with."""
    own = module_name("experiments", wildcards.experiment)
    return library("feature_alignment.pipeline.run", own)


def figure_spec(wildcards):
    """What a figure is made from: its runs, and what its stamp says."""
    plan = plan_of(wildcards.preset)
    return {
        "figure": wildcards.figure,
        "preset": wildcards.preset,
        "points": [list(point) for point in plan.points[wildcards.figure]],
        "datasets": [list(pair) for pair in plan.datasets_of(wildcards.figure)],
    }


def figure_runs(wildcards):
    """The run files of a figure."""
    points = plan_of(wildcards.preset).points[wildcards.figure]
    return [
        f"results/{wildcards.preset}/runs/{experiment}/{point}/{file}"
        for experiment, point in points
        for file in ("spec.json", "metrics.csv", "arrays.npz")
    ]


def figure_library(wildcards):
    """The library that a figure is made with."""
    own = module_name("figures", wildcards.figure)
    return library("feature_alignment.pipeline.figures.make", own)


def selected_spec(wildcards):
    """The selected figures, their papers and the data they show."""
    plan = plan_of(wildcards.preset)
    return {
        "preset": wildcards.preset,
        "figures": {
            f: [list(pair) for pair in plan.datasets_of(f)] for f in plan.figures
        },
    }


def selected_tables(wildcards):
    """The tables of the selected figures."""
    return [
        f"results/{wildcards.preset}/tables/{f}.csv"
        for f in plan_of(wildcards.preset).figures
    ]


def selected_pictures(suffix):
    """The input function of the selected figures' pictures."""
    return lambda wildcards: [
        f"figures/{wildcards.preset}/{f}.{suffix}"
        for f in plan_of(wildcards.preset).figures
    ]


def selected_provenances(wildcards):
    """The provenance of each run behind the selected figures."""
    plan = plan_of(wildcards.preset)
    points = {point for f in plan.figures for point in plan.points[f]}
    return [
        f"results/{wildcards.preset}/runs/{experiment}/{point}/provenance.json"
        for experiment, point in sorted(points)
    ]


def selected_library(wildcards):
    """The library of the report, and of the figures, whose captions it shows."""
    figures = plan_of(wildcards.preset).figures
    own = [module_name("figures", f) for f in figures]
    return library("feature_alignment.pipeline.report.make", *own)


wildcard_constraints:
    preset="|".join(PRESETS),
    figure="|".join(all_figures()),
    experiment="|".join(sorted(PLAN.config["experiments"])),
    point=r"[\w.-]+",
    dataset="|".join(sorted(PLAN.config["datasets"])),
    source="[a-z]+",
