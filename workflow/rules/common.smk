# The library, the checked configuration, the plan of each preset, and the functions that look up
# in it what the other files here need.

import atexit
import os
import sys
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError

ROOT = Path(workflow.basedir)
sys.path.insert(0, str(ROOT / "src"))
# Jobs take the library that was planned with, also where their environment knows another checkout.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
)

from feature_alignment.determinism import may_use_gpu
from feature_alignment.errors import UserError
from feature_alignment.pipeline.config import PRESETS, resolve_config
from feature_alignment.pipeline.imports import closure_hash, remember
from feature_alignment.pipeline.papers import (
    all_figures,
    all_parameters,
    experiment_module,
    figure_module,
    ledgers,
    paper_of,
    papers,
)
from feature_alignment.pipeline.plan import dataset_spec, make_plan
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
atexit.register(remember)
LEDGERS = [os.path.relpath(path) for path in ledgers()]


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
    return [prepared(spec["data"][key]) for key in dataset_keys(spec)]


def run_library(wildcards):
    """The library that a run is made with."""
    own = experiment_module(wildcards.experiment)
    return library("feature_alignment.pipeline.run", own)


def figure_spec(wildcards):
    """What a figure is made from: its runs, and what its stamp says."""
    return plan_of(wildcards.preset).figure_spec(wildcards.figure)


def figure_runs(wildcards):
    """The run files of a figure."""
    return [
        f"results/{wildcards.preset}/runs/{experiment}/{point}/{file}"
        for experiment, point in plan_of(wildcards.preset).runs_of(wildcards.figure)
        for file in ("spec.json", "metrics.csv", "arrays.npz")
    ]


def figure_library(wildcards):
    """The library that a figure is made with."""
    own = figure_module(wildcards.figure)
    return library("feature_alignment.pipeline.figures.make", own)


def selected_spec(wildcards):
    """The selected figures and the data they show."""
    plan = plan_of(wildcards.preset)
    return {
        "preset": wildcards.preset,
        "figures": {
            f: [list(pair) for pair in plan.datasets_of(f)] for f in plan.figures
        },
    }


def selected(pattern):
    """The input function of the selected figures' files, of which `{figure}` is the name."""
    return lambda wildcards: [
        pattern.format(preset=wildcards.preset, figure=f)
        for f in plan_of(wildcards.preset).figures
    ]


def selected_provenances(wildcards):
    """The provenance of each run behind the selected figures."""
    plan = plan_of(wildcards.preset)
    runs = {run for f in plan.figures for run in plan.runs_of(f)}
    return [
        f"results/{wildcards.preset}/runs/{experiment}/{point}/provenance.json"
        for experiment, point in sorted(runs)
    ]


def selected_library(wildcards):
    """The library of the report, and of the figures, whose captions it shows."""
    own = [figure_module(f) for f in plan_of(wildcards.preset).figures]
    return library("feature_alignment.pipeline.report.make", *own)


wildcard_constraints:
    preset="|".join(PRESETS),
    figure="|".join(all_figures()),
    experiment="|".join(all_parameters()),
    point=r"[\w.-]+",
    dataset="|".join(type(PLAN.config.datasets).model_fields),
    source="[a-z]+",
