# The library, the checked configuration, the plan of each result, and the functions that look up in
# the plan what the other files here need.

import atexit
import hashlib
import os
import re
import sys
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from snakemake.io import IOFile

ROOT = Path(str(workflow.current_basedir)).parents[1]
# False if another workflow uses this one as a module: the command line is then meant for that one.
IS_MAIN = Path(workflow.main_snakefile).resolve() == (ROOT / "Snakefile").resolve()
sys.path.insert(0, str(ROOT / "src"))

from feature_alignment.data import identity
from feature_alignment.determinism import may_use_gpu, resolve_device
from feature_alignment.errors import UserError, suggestion
from feature_alignment.files import read_regular
from feature_alignment.pipeline.config import PRESETS, resolve_config
from feature_alignment.pipeline.dictionary import dictionaries
from feature_alignment.pipeline import imports
from feature_alignment.pipeline.job import set_environment
from feature_alignment.pipeline.lock import check_folders, check_writable, lock_result
from feature_alignment.pipeline.papers import (
    add_papers,
    all_figures,
    all_parameters,
    experiment_module,
    figure_module,
    figure_named,
    ledgers,
    modules_of_run,
    paper_files,
    paper_folder,
    paper_of,
    papers,
)
from feature_alignment.pipeline.plan import dataset_spec, make_plan
from feature_alignment.pipeline.preloaded import (
    FOR_FIGURES,
    FOR_RUNS,
    prefix,
    refuse_server,
    start_server,
)
from feature_alignment.pipeline.proof import (
    other_than_planned,
    provenance_files,
    read_provenance,
    verdicts_file,
)
from feature_alignment.pipeline.spec import dataset_keys
from feature_alignment.pipeline.yaml_files import read_entries


def refuse(sentence):
    """Exit with one sentence, without the lines of this file that Snakemake would add."""
    print(f"Error: {sentence}", file=sys.stderr, flush=True)
    raise SystemExit(1)


def one_sentence(function, *arguments, **options):
    """Call a function; a user's mistake becomes one sentence instead of a traceback."""
    try:
        return function(*arguments, **options)
    except UserError as error:
        refuse(error)


def configuration(settings, preset=None):
    """The complete configuration from these settings."""
    given = workflow.overwrite_configfiles
    files = [Path(f) for f in workflow.configfiles if f not in given] + list(given)
    typed = TYPED if settings else {}
    otherwise = "--config" if IS_MAIN else "the module's config"
    return one_sentence(
        resolve_config, settings, ROOT / "workflow", preset, files, typed, otherwise
    )


@cache
def plan_of(name):
    """The plan of the configured result, or of a preset's own, which is requested by its path."""
    settings = CONFIG if name == CONFIG.result else configuration(config, name)
    return one_sentence(make_plan, settings, configuration({}, settings.preset))


one_sentence(set_environment)
TYPED = one_sentence(
    read_entries, IS_MAIN and workflow.config_settings.config_args or ()
)
one_sentence(add_papers, {**config, **TYPED}.get("papers_path"))
CONFIG = configuration(config)
PLAN = plan_of(CONFIG.result)
PAGE_PARTS = [
    file
    for file in sorted((ROOT / "src/feature_alignment/pipeline/report").iterdir())
    if file.suffix in (".jinja", ".css", ".js")
]
EVERYTHING = PLAN.figures == all_figures()


def keep_facts():
    """Keep the facts about files for the next start, which else determines them again."""
    with suppress(
        OSError
    ):  # with `-d`, this is at the end a checkout that may be read-only
        identity.MEMORY.keep()
        imports.MEMORY.keep()


atexit.register(keep_facts)


onstart:
    # Before the first job starts, for which Snakemake removes what it made before.
    if CONFIG.device == "cuda" and trains_here():
        one_sentence(resolve_device, "cuda")
    for name in results_to_make():
        one_sentence(check_writable, Path("results") / name, Path("figures") / name)
        # Held by this process until it ends, however it ends.
        one_sentence(lock_result, Path("results") / name)
    # Jobs use the same facts about files, and on a cluster they plan again.
    keep_facts()
    # Containers often forbid bytecode, without which each job compiles all modules again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Some imports may already use CUDA, which then does not survive a fork.
    if may_use_gpu(CONFIG.device):
        refuse_server()
    else:
        start_server(preloads(), CONFIG.threads)
        shell.prefix(prefix())
    # To limit jobs per second, Snakemake 9 looks for more a second after each look, once more for
    # every job that has ended: 15,000 times in a smoke run, some 20 seconds of a core.
    if workflow.local_exec:
        workflow.scheduler.job_rate_limiter = None


def trains_here():
    """Whether runs are to be made on this machine and by this Python: others may have a GPU."""
    if not workflow.local_exec or workflow.deployment_settings.deployment_method:
        return False
    rules = {job.rule.name for job in workflow.dag.needrun_jobs()}
    return not workflow.touch and bool(rules & {"run", "replayed", "universes"})


def results_to_make():
    """The results for which files will be made: presets' own can be requested by their paths."""
    jobs = workflow.dag.needrun_jobs()
    found = {job.wildcards_dict.get("name", PLAN.name) for job in jobs if job.output}
    return sorted(found) or [PLAN.name]


def preloads():
    """The modules that several of the jobs to run will import."""
    rules = [job.rule.name for job in workflow.dag.needrun_jobs()]
    several = {rule for rule in rules if rules.count(rule) > 1}
    runs = FOR_RUNS if several & {"run", "universes"} else ()
    return (*runs, *(FOR_FIGURES if "figure" in several else ()))


@cache
def library(script, *modules):
    """Hash of a script and of the library files that the modules import.

    A parameter of rules, so that an edit of the script, or of what the library's code means, reruns
    them. As inputs, files would count by modification time, and Snakemake checks all of every job.
    """
    text = (ROOT / "workflow" / "scripts" / script).read_bytes()
    return f"{hashlib.sha256(text).hexdigest()} {one_sentence(imports.closure_hash, *modules)}"


def library_of(script, modules):
    """The `library` of a script whose modules are a function of the wildcards."""
    return lambda wildcards: library(script, *modules(wildcards))


@cache
def content(*files):
    """Hash of files, a parameter of rules: their content counts, not their modification time."""
    try:
        return hashlib.sha256(
            b"\0".join(read_regular(Path(file)) for file in files)
        ).hexdigest()
    except OSError as error:
        refuse(
            f"{error.filename}: cannot be read ({error.strerror}); check its permissions, "
            "or remove it."
        )


def pictures_of(figures):
    """The pictures of some figures of the configured result."""
    return [
        f"figures/{PLAN.name}/{f}.{suffix}"
        for f in figures
        for suffix in ("pdf", "png")
    ]


def summaries():
    """Verdicts and report of the configured result, or those of the figures that were selected."""
    scope = "" if EVERYTHING else "selected/"
    return [
        f"results/{PLAN.name}/{scope}{file}" for file in ("claims.csv", "report.html")
    ]


def source_of(wildcards):
    """The spec of the dataset of a canonical file."""
    config = plan_of(wildcards.name).config
    return dataset_spec(wildcards.dataset, config, wildcards.source)


def spec_of(wildcards):
    """The spec of a run."""
    return plan_of(wildcards.name).specs[wildcards.experiment, wildcards.point]


def data_files(wildcards, pairs, kind="npz"):
    """The canonical files of some (dataset, source) pairs, or their provenance files."""
    return [
        f"results/{wildcards.name}/data/{dataset}.{source}.{kind}"
        for dataset, source in pairs
    ]


def data_of(wildcards):
    """The canonical data files that a run needs, in the order of its spec's dataset keys."""
    spec = spec_of(wildcards)
    used = [spec["data"][key] for key in dataset_keys(spec)]
    return data_files(wildcards, [(data["name"], data["source"]) for data in used])


def run_priority(wildcards):
    """Higher for runs of a figure with few runs, so that figures appear from the start.

    Among equals, runs with the longest measured times come first, so that no core waits for one at
    the end. All are below a figure's priority, so that it is made as soon as it can be.
    """
    plan, run = plan_of(wildcards.name), (wildcards.experiment, wildcards.point)
    behind = [plan.runs_of(figure) for figure in plan.points]
    fewest = min(len(runs) for runs in behind if run in runs)
    return 50 / fewest + min(MEASURED.get(key_of(spec_of(wildcards)), 0), 100) / 2000


def run_modules(wildcards):
    """The modules that a run uses."""
    return modules_of_run(wildcards.experiment)


def refuse_unrecorded(wildcards):
    """Refuse files of a figure and its runs that were made from other settings or code.

    Only those that Snakemake would keep: it has no record of them, or its record, which is of when
    it planned, is as planned now, while the code was another when the job began.
    """
    name, figure = wildcards.name, wildcards.figure
    plan, forced = plan_of(name), workflow.dag_settings
    if workflow.persistence is None or forced.forceall or "run" in forced.forcerun:
        return
    planned = {
        f"results/{name}/runs/{experiment}/{point}/provenance.json": (
            partial(plan.specs.get, (experiment, point)),
            "run_experiment.py",
            modules_of_run(experiment),
        )
        for experiment, point in plan.runs_of(figure)
    }
    own = f"figures/{name}/{figure}.provenance.json"
    of_figure = "make_figure.py", figure_modules(wildcards)
    planned[own] = (partial(figure_spec, wildcards), *of_figure)
    found = {}
    for file in filter(os.path.exists, planned):
        spec, script, modules = planned[file]
        told = workflow.persistence.params(IOFile(file))
        if told is None or {repr(spec()), repr(library(script, *modules))} <= {*told}:
            record = one_sentence(read_provenance, Path(file))
            if other := other_than_planned(record, spec(), modules):
                found[file] = other
    if found:
        file, other = next(iter(found.items()))
        refuse(
            f"{file}: was made from other {other} than are planned"
            + (f", as were {len(found) - 1} more" if len(found) > 1 else "")
            + ", and Snakemake has no record of that, by which it would be made again: it was "
            "copied without .snakemake, Snakemake was killed, or the code was edited while it "
            "ran. Give the result another name "
            "(--config name=<name>), or remove what cannot be kept: rm -f "
            + " ".join(found)
        )


def figure_spec(wildcards):
    """What a figure is made from: its runs, and what its stamp says."""
    return plan_of(wildcards.name).figure_spec(wildcards.figure)


def figure_runs(wildcards):
    """The run files of a figure."""
    refuse_unrecorded(wildcards)
    return [
        f"results/{wildcards.name}/runs/{experiment}/{point}/{file}"
        for experiment, point in plan_of(wildcards.name).runs_of(wildcards.figure)
        for file in ("provenance.json", "spec.json", "metrics.csv", "arrays.npz")
    ]


def paper_title(wildcards):
    """The title of a figure's paper, its category in Snakemake's own report."""
    return papers()[paper_of(wildcards.figure)].title


def figure_title(wildcards):
    """The labels of a figure in Snakemake's own report."""
    return {"figure": wildcards.figure, "title": figure_named(wildcards.figure).title}


def figure_modules(wildcards):
    """The modules that make a figure."""
    return ["feature_alignment.pipeline.figures.make", figure_module(wildcards.figure)]


def chosen(wildcards):
    """The figures that verdicts and report are about: all of them, or those selected."""
    scope = getattr(wildcards, "scope", "")
    return plan_of(wildcards.name).figures if scope else all_figures()


def chosen_spec(wildcards):
    """What verdicts and report are made from."""
    return plan_of(wildcards.name).selection_spec(chosen(wildcards))


def chosen_files(pattern):
    """The input function for the chosen figures' files; the pattern has `{name}` and `{figure}`."""
    return lambda wildcards: [
        pattern.format(name=wildcards.name, figure=f) for f in chosen(wildcards)
    ]


def runs_behind(name, figures):
    """The provenance of each run behind some figures."""
    runs = {run for f in figures for run in plan_of(name).runs_of(f)}
    return [
        f"results/{name}/runs/{experiment}/{point}/provenance.json"
        for experiment, point in sorted(runs)
    ]


def chosen_data(wildcards):
    """The provenance of each dataset that the chosen figures show."""
    plan = plan_of(wildcards.name)
    shown = {pair for f in chosen(wildcards) for pair in plan.datasets_of(f)}
    return data_files(wildcards, sorted(shown), "provenance.json")


def chosen_verdicts(wildcards):
    """The verdicts on the chosen figures."""
    return f"results/{wildcards.name}/{getattr(wildcards, 'scope', '')}claims.csv"


def robustness_of(wildcards):
    """The multiverse's verdicts; unless requested, existing ones, by a path that no job makes."""
    file = f"results/{wildcards.name}/robustness.csv"
    if {"multiverse", file} & {*TARGETS}:
        return [file]
    return [os.path.abspath(file)] if os.path.exists(file) else []


def report_modules(wildcards):
    """The modules of the report, and of the figures, whose captions it shows."""
    own = [figure_module(f) for f in chosen(wildcards)]
    return ["feature_alignment.pipeline.report.make", *own]


def a_result(wildcards):
    """The empty input of `verify`, which makes nothing; the result that it checks must exist."""
    one_sentence(provenance_files, PLAN.name)
    return []


def no_other(wildcards):
    """The input of `compare` if no other result is named."""
    refuse("compare: name another result: snakemake compare --config with=<name>")


def shown_of_other(wildcards):
    """Hash of what is shown of the result to compare with, which is used as it is."""
    name = wildcards.other
    runs = sorted(Path("results", name, "runs").glob("*/*/provenance.json"))
    pictures = sorted(Path("figures", name).glob("*.png"))
    verdicts = one_sentence(verdicts_file, name, PLAN.figures)
    return content(verdicts, *runs, *pictures)


@cache
def replayed_runs():
    """The runs that `replay` makes again."""
    from feature_alignment.pipeline.replay import sampled

    return one_sentence(sampled, PLAN, CONFIG.fraction)


def kept_data(wildcards):
    """The data that a run has read, as they are: by absolute paths, which no job makes."""
    files = data_of(wildcards)
    if not all(map(os.path.exists, files)):
        specs = [PLAN.specs[tuple(run.split("/"))] for run in replayed_runs()]
        used = [data for spec in specs for data in spec["data"].values()]
        pairs = sorted({(data["name"], data["source"]) for data in used})
        missing = [
            file for file in data_files(wildcards, pairs) if not os.path.exists(file)
        ]
        refuse(
            f"{missing[0]}: is missing; make what is, all at once, by the same command with "
            f"`-- {' '.join(missing)}` in place of replay."
        )
    return [os.path.abspath(file) for file in files]


wildcard_constraints:
    name="|".join(PRESETS) if CONFIG.name is None else re.escape(CONFIG.name),
    scope="selected/",
    other=r"[\w.-]+",
    figure="|".join(all_figures()),
    experiment="|".join(all_parameters()),
    point=r"[\w.-]+",
    dataset="|".join(type(CONFIG.datasets).model_fields),
    source="[a-z]+",
    group=r"\w+",
    block="[0-9]+",
