"""Commands that make one experiment or figure without Snakemake, or describe the configuration.

`run` and `figure`, useful in a debugger, write to `results/by_hand` and so never replace a
workflow's result. `table` and `draw` remake files of a workflow's result from its runs and tables.
"""

import argparse
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from feature_alignment.errors import UserError, check_known, shortened, suggestion
from feature_alignment.files import whole_file, write_whole
from feature_alignment.pipeline.config import (
    PRESETS,
    Config,
    config_model,
    describe_keys,
    resolve_config,
)
from feature_alignment.pipeline.dictionary import PAGE, page
from feature_alignment.pipeline.lock import check_writable
from feature_alignment.pipeline.papers import add_papers, all_figures, all_parameters, papers
from feature_alignment.pipeline.plan import Plan, dataset_spec, make_plan, spec_without_figure
from feature_alignment.pipeline.proof import check_proof, read_provenance
from feature_alignment.pipeline.spec import Spec, dataset_keys
from feature_alignment.pipeline.yaml_files import merge, read_mapping

WORKFLOW = Path("workflow")
BY_HAND = Path("results") / "by_hand"


def add_commands(commands: Any) -> None:
    """Add these commands to those of a parser."""

    def command(name: str, function: Any, about: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
        added.set_defaults(command=lambda options: _configured(function, options))
        return added

    def configured(name: str, function: Any, about: str, target: str) -> argparse.ArgumentParser:
        added = command(name, function, about)
        added.add_argument("target", metavar=target, help=f"{target}, or with _ in place of /")
        added.add_argument("--preset", choices=PRESETS, help="default: that of config.yaml")
        added.add_argument("--configfile", type=Path, action="append", default=[])
        return added

    run = configured("run", _run, "Run one experiment point in this process.", "paper/experiment")
    run.add_argument("--point", help="a point's name; default: the experiment's first")
    about = "Make one figure, and run what it needs, in this process."
    configured("figure", _figure, about, "paper/figure")
    about = "Gather a figure's table again from its finished runs."
    configured("table", _table, about, "paper/figure")
    configured("draw", _draw, "Draw a figure again from its finished table.", "paper/figure")
    help_on = command("config-help", _config_help, "Print every key of the configuration.")
    help_on.add_argument("part", nargs="?", default="", help="only keys that begin with this")
    schema = command("schema", _schema, "Write the configuration's JSON schema, for editors.")
    schema.add_argument("file", type=Path)
    command("dictionary", _dictionary, f"Write the page of the data dictionary, {PAGE}.")


def _configured(function: Callable[[argparse.Namespace], None], options: Any) -> None:
    further = getattr(options, "configfile", [])
    options.files = [file for file in [Path("config.yaml")] if file.exists()] + further
    options.settings = {}
    for file in options.files:
        options.settings = merge(options.settings, read_mapping(file))
    add_papers(options.settings.get("papers_path"))
    function(options)


def _plan(options: argparse.Namespace) -> Plan:
    if not WORKFLOW.is_dir():
        raise UserError("there is no folder workflow here; start in the root of the checkout.")
    config = resolve_config(options.settings, WORKFLOW, options.preset, options.files)
    return make_plan(config, resolve_config({}, WORKFLOW, config.preset))


def _figure_and_plan(options: argparse.Namespace) -> tuple[str, Plan]:
    return _name(options.target, all_figures(), "figure"), _plan(options)


def _name(target: str, allowed: Collection[str], what: str, hint: str = "") -> str:
    name = target.replace("/", "_")
    check_known(f"unknown {what} {shortened(target)}{hint}", name, allowed)
    return name


def _elsewhere(options: argparse.Namespace, way: str = "") -> str:
    """What else may be wrong with an unknown name, if no other papers have been named."""
    named = options.settings.get("papers_path")
    return "" if named else f" (for a paper elsewhere, set papers_path in config.yaml{way})"


def _run(options: argparse.Namespace) -> None:
    hint = _elsewhere(options, " or --configfile")
    experiment = _name(options.target, all_parameters(), "experiment", hint)
    plan = _plan(options)
    specs = {point: spec for (name, point), spec in plan.specs.items() if name == experiment}
    specs = specs or {"default": spec_without_figure(experiment, plan.config)}
    point = _name(options.point or next(iter(specs)), specs, f"point of {experiment}")
    check_writable(BY_HAND / plan.name)
    folder = _run_by_hand(plan, specs[point])
    print(f"{folder}/metrics.csv")


def _run_by_hand(plan: Plan, spec: Spec) -> Path:
    from feature_alignment.pipeline.run import run_experiment, write_run

    data = [_prepared(plan.config, spec["data"][key]["name"]) for key in dataset_keys(spec)]
    result = run_experiment(spec, *data)
    folder = BY_HAND / plan.name / "runs" / spec["experiment"] / spec["point"]
    with (
        whole_file(folder / "spec.json") as about,
        whole_file(folder / "metrics.csv") as rows,
        whole_file(folder / "arrays.npz") as arrays,
    ):
        write_run(spec, result, about, rows, arrays)
    return folder


def _prepared(config: Config, name: str) -> Path:
    """The canonical file of a dataset: the workflow's if it exists, except for a user's files."""
    from feature_alignment.data.canonical import save
    from feature_alignment.data.identity import OWN_SOURCES
    from feature_alignment.data.prepare import prepare_dataset

    spec = dataset_spec(name, config)
    file = f"{name}.{spec['source']}.npz"
    found = Path("results") / config.result / "data" / file
    if spec["source"] in OWN_SOURCES or not found.exists():  # a user's file may have changed
        found = BY_HAND / "data" / file
        found.parent.mkdir(parents=True, exist_ok=True)
        options = {key: value for key, value in spec.items() if key != "name"}
        save(found, *prepare_dataset(name, options))
    return found


def _figure(options: argparse.Namespace) -> None:
    from feature_alignment.pipeline.figures.make import draw_figure, make_table

    figure, plan = _figure_and_plan(options)
    check_writable(BY_HAND / plan.name)
    folders = {run[1]: _run_by_hand(plan, plan.specs[run]) for run in plan.runs_of(figure)}
    folder = BY_HAND / plan.name / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    files = {suffix: folder / f"{figure}.{suffix}" for suffix in ("csv", "npz", "pdf", "png")}
    spec = plan.figure_spec(figure)
    make_table(spec, folders, files["csv"], files["npz"])
    draw_figure(spec, files["csv"], files["npz"], [files["pdf"], files["png"]])
    print(files["png"])


def _files_of(figure: str, plan: Plan) -> tuple[Path, Path, Path]:
    """The table of a figure, its arrays, and its picture."""
    table = Path("results", plan.name, "tables", f"{figure}.csv")
    return table, table.with_suffix(".npz"), Path("figures", plan.name, f"{figure}.pdf")


def _check_made(
    files: Iterable[Path], specs: Mapping[Path, Spec], picture: Path, given: Sequence[Path]
) -> None:
    # The files must exist, and provenance files must record these specs.
    options = f"--configfile {shlex.join(map(str, given))} -- " if given else ""
    made_by = f"`snakemake --cores all {options}{picture}`"
    for path in files:
        if not path.exists():
            raise UserError(f"{path}: does not exist; make it with {made_by}.")
    for path, spec in specs.items():
        made = read_provenance(path)["spec"]
        # Users may edit the ledger's numbers and the points' columns to see the effect.
        if any(made.get(key) != spec[key] for key in spec.keys() - {"claims", "points"}):
            raise UserError(
                f"{path}: was made with other settings; give those with --preset and --configfile, "
                f"or make it again with {made_by}."
            )


def _table(options: argparse.Namespace) -> None:
    from feature_alignment.pipeline.figures.make import make_table

    figure, plan = _figure_and_plan(options)
    runs = {run: Path("results", plan.name, "runs", *run) for run in plan.runs_of(figure)}
    specs = {folder / "provenance.json": plan.specs[run] for run, folder in runs.items()}
    table, arrays, picture = _files_of(figure, plan)
    metrics = [folder / "metrics.csv" for folder in runs.values()]
    _check_made(metrics, specs, picture, options.configfile)
    for provenance in specs:
        check_proof(provenance)
    folders = {folder.name: folder for folder in runs.values()}
    with whole_file(table) as partial_table, whole_file(arrays) as partial_arrays:
        make_table(plan.figure_spec(figure), folders, partial_table, partial_arrays)
    print(table)


def _draw(options: argparse.Namespace) -> None:
    from feature_alignment.pipeline.figures.make import draw_figure

    figure, plan = _figure_and_plan(options)
    table, arrays, picture = _files_of(figure, plan)
    spec, made = plan.figure_spec(figure), picture.with_suffix(".provenance.json")
    _check_made([table, arrays, made], {made: spec}, picture, options.configfile)
    draw_figure(spec, table, arrays, pictures := [picture, picture.with_suffix(".png")])
    print(*pictures, sep="\n")


def _config_help(options: argparse.Namespace) -> None:
    part, lines = options.part.replace("/", "_"), list(describe_keys())
    found = [line for line in lines if line.startswith((part, f"experiments.{part}"))]
    if not found:
        names = {re.split(r"[ .:]", line.removeprefix("experiments."))[0] for line in lines}
        told = f"no key begins with {shortened(part)}{_elsewhere(options)}"
        raise UserError(f"{told}; {suggestion(part, names)}.")
    print(*found, sep="\n")


def _schema(options: argparse.Namespace) -> None:
    if options.file.is_dir():
        raise UserError(f"{options.file}: is a folder; name a file.")
    write_whole(options.file, json.dumps(config_model().model_json_schema(), indent=2) + "\n")
    print(options.file)


def _dictionary(options: argparse.Namespace) -> None:
    if not PAGE.parent.is_dir():
        raise UserError(f"{PAGE}: there is no folder {PAGE.parent}; start in the checkout's root.")
    write_whole(PAGE, page(papers()))
    print(PAGE)
