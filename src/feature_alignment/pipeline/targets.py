"""The targets that a user may request from Snakemake: papers, figures, and a result's files."""

import difflib
from collections.abc import Mapping, Sequence
from posixpath import normpath

from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError
from feature_alignment.pipeline.plan import Plan

_RUN_FILES = ("/metrics.csv", "/arrays.npz", "/spec.json", "/provenance.json")


def check_target(
    target: str, wildcards: Mapping[str, str] | None, plan: Plan, named: Sequence[str]
) -> None:
    """Check that a target that the user typed, neither a rule nor a figure, can be made.

    `wildcards` are those of the rule that makes this file, None if no rule does; `plan` is that of
    the file's result; `named` are the rules that can be targets.

    Raises:
        UserError: if nothing makes it, with the closest target.
    """
    files, figure = files_of(plan), next(iter(plan.points))
    of_plan = {"point", "source"}
    if wildcards is not None and (of_plan.isdisjoint(wildcards) or normpath(target) in files):
        return
    alike = files if "/" in target else [*named, *plan.points]
    hint = (
        f"targets are {', '.join(named)}, figures such as {figure}, and files such as {files[0]}."
    )
    for near in difflib.get_close_matches(target, alike, n=1, cutoff=0.7):
        hint = f"did you mean {near!r}?"
    raise UserError(f"{target}: nothing makes this target; {hint}")


def files_of(plan: Plan) -> list[str]:
    """The files of a result that can be requested, pictures first."""
    figures, results = f"figures/{plan.name}", f"results/{plan.name}"
    names = tuple(plan.points)
    runs = [f"{experiment}/{point}" for experiment, point in plan.specs]
    data = [f"{name}.{source}" for name, info in DATASETS.items() for source in info.sources]
    return [
        *_files(figures, names, (".pdf", ".png", ".provenance.json")),
        *_files(f"{results}/tables", names, (".csv", ".npz")),
        *_files(f"{results}/runs", runs, _RUN_FILES),
        *_files(f"{results}/data", data, (".npz", ".provenance.json")),
        f"{results}/claims.csv",
        f"{results}/report.html",
    ]


def _files(folder: str, names: Sequence[str], ends: Sequence[str]) -> list[str]:
    return [f"{folder}/{name}{end}" for name in names for end in ends]
