# What every rule file uses: the library, the checked configuration and the plan of each preset.

import os
import sys
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError

ROOT = Path(workflow.basedir)
sys.path.insert(0, str(ROOT / "src"))

from feature_alignment.config import PRESETS, resolve_config
from feature_alignment.errors import UserError
from feature_alignment.imports import import_closure
from feature_alignment.plan import (
    PAPERS,
    all_figures,
    dataset_spec,
    make_plan,
    paper_of,
)


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


def library(*modules):
    """The library files that the modules import: rules list them as input, to rerun on edits."""
    return [os.path.relpath(path) for path in import_closure(*modules)]


def results_of(figures):
    """The final outputs for some figures of the configured preset."""
    preset = PLAN.preset
    return [
        *(f"figures/{preset}/{f}.{suffix}" for f in figures for suffix in ("pdf", "png")),
        f"results/{preset}/claims.csv",
        f"results/{preset}/report.html",
    ]


wildcard_constraints:
    preset="|".join(PRESETS),
    figure="|".join(all_figures()),
    experiment="|".join(sorted(PLAN.config["experiments"])),
    point=r"[\w.-]+",
    dataset="|".join(sorted(PLAN.config["datasets"])),
    source="[a-z]+",
