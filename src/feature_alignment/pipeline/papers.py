"""The papers that are replicated, found by their folders: each contains a `paper.py`.

A paper is one folder in `feature_alignment.papers` or in a user's folder, see `add_papers`.
docs/adding-a-paper.md describes its files. Nothing outside the folder names it.
"""

import importlib
import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from feature_alignment.errors import UserError, check_known, reason, shortened, suggestion
from feature_alignment.pipeline.contracts import PaperError, told
from feature_alignment.pipeline.figures.figure import Figure
from feature_alignment.pipeline.imports import check_source
from feature_alignment.pipeline.parameters import PAPERS_PACKAGE, Parameters, check, kind


@dataclass(frozen=True)
class Paper:
    """A paper's title, authors as cited, where and when it appeared, and its address if any."""

    title: str
    authors: str
    venue: str
    url: str = ""


_TABLES = ("claims.yaml", "metrics.yaml", "multiverse.yaml", "statements.yaml")


@cache
def papers() -> dict[str, Paper]:
    """All papers by citation key, in alphabetical order.

    Raises:
        UserError: if a folder has an invalid name, `paper.py` or YAML file.
    """
    found = {}
    for key, folder in sorted(_folders().items()):
        if not re.fullmatch(r"[a-z]+([0-9]{4})?", key):
            raise UserError(
                f"{folder}: name a paper's folder by lower-case letters and a year, as key2024, or "
                "by letters only."
            )
        paper = getattr(_imported(f"{PAPERS_PACKAGE}.{key}.paper"), "PAPER", None)
        if not isinstance(paper, Paper):
            raise UserError(
                f"{folder / 'paper.py'}: PAPER: found {kind(paper)}, a Paper is needed."
            )
        for file in folder.glob("*.y*ml"):
            check_known(f"{file}: is not used", file.name, _TABLES)
        found[key] = paper
    return found


def _imported(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise PaperError(f"{told(error, module)}.") from error


@cache
def _folders() -> dict[str, Path]:
    return _folders_below(importlib.import_module(PAPERS_PACKAGE).__path__)


def _folders_below(roots: Iterable[str]) -> dict[str, Path]:
    return {file.parent.name: file.parent for r in roots for file in Path(r).glob("*/paper.py")}


def add_papers(path: object) -> None:
    """Also find the papers in a user's folder, in this process and in all that it starts.

    Must be called before any other function of this module. `path` is the folder above the papers'
    folders, relative to the working directory; None adds nothing.

    Raises:
        UserError: if it contains no paper, or a paper's key is taken.
    """
    if path is None:
        return
    shown, roots = shortened(path, quoted=False), importlib.import_module(PAPERS_PACKAGE).__path__
    try:
        root = str(Path(str(path)).resolve())
        own = _folders_below([root]) if Path(root).is_dir() else None
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"papers_path: {shown} is not a folder ({reason(error)}).") from error
    if not own:
        what = "is not a folder" if own is None else "contains no paper, no <key>/paper.py"
        place = shortened(root, quoted=False)
        raise UserError(f"papers_path: {shown} ({place}) {what}; docs/adding-a-paper.md shows one.")
    if root in roots:
        return
    for key, known in _folders_below(roots).items():
        if key in own:
            raise UserError(
                f"papers_path: {own[key]}: there is a paper {key} already, {known}; "
                "rename the folder."
            )
    roots.append(root)
    os.environ["FEATURE_ALIGNMENT_PAPERS"] = root


def paper_folder(paper: str) -> Path:
    """The folder of a paper."""
    return _folders()[paper]


def ledgers() -> list[Path]:
    """The files with the papers' claims; a paper need not have one."""
    return paper_files("claims.yaml")


def paper_files(name: str) -> list[Path]:
    """The files of this name in the folders of the papers that have one."""
    files = [paper_folder(paper) / name for paper in papers()]
    return [file for file in files if file.exists()]


def paper_of(name: str) -> str:
    """The citation key of a figure or experiment, the first part of its name, `key2024_fig2`."""
    return name.partition("_")[0]


@cache
def all_parameters() -> dict[str, type[Parameters]]:
    """The parameters of every experiment by experiment name, in the order of the papers."""
    return {name: kind for paper in papers() for name, kind in _parameters_of(paper).items()}


def parameters_of(experiment: str) -> type[Parameters]:
    """The parameters of one experiment; only its own paper is imported."""
    return _parameters_of(paper_of(experiment))[experiment]


@cache
def _parameters_of(paper: str) -> dict[str, type[Parameters]]:
    module = _imported(f"{PAPERS_PACKAGE}.{paper}.parameters")
    found: dict[str, type[Parameters]] = {}
    for name, value in vars(module).items():
        if isinstance(value, type) and issubclass(value, Parameters) and value.experiment:
            where = f"{paper_folder(paper) / 'parameters.py'}: class {name}"
            if found.setdefault(value.experiment, value) is not value:
                other = found[value.experiment].__name__
                raise UserError(f"{where}: experiment: it is that of {other}, too; rename one.")
            _check_experiment(paper, value, where)
    return dict(sorted(found.items()))


def _check_experiment(paper: str, parameters: type[Parameters], where: str) -> None:
    folder, own = paper_folder(paper) / "experiments", parameters.experiment.partition("_")[2]
    file = folder / f"{own}.py"
    if not file.is_file():
        hint = suggestion(own, [path.stem for path in folder.glob("[!_]*.py")])
        raise UserError(f"{where}: experiment: there is no module {file}; {hint}.")
    check_source(file, "run_seed")
    fields = parameters.model_fields.items()
    given = {key: field for key, field in fields if not field.is_required()}
    defaults = {key: field.get_default(call_default_factory=True) for key, field in given.items()}
    check(parameters, defaults, lambda _: where)


def experiment_module(experiment: str) -> str:
    """Dotted name of an experiment's module.

    Example:
        >>> experiment_module("key2024_disk")
        'feature_alignment.papers.key2024.experiments.disk'
    """
    paper, _, own = experiment.partition("_")
    return f"{PAPERS_PACKAGE}.{paper}.experiments.{own}"


def modules_of_run(experiment: str) -> list[str]:
    """The modules that make an experiment's runs."""
    return ["feature_alignment.pipeline.run", experiment_module(experiment)]


@cache
def _figures_of(paper: str) -> dict[str, tuple[Figure, str]]:
    # By full name and in order, each with the dotted name of its module.
    found: dict[str, tuple[Figure, str]] = {}
    for file in sorted((paper_folder(paper) / "figures").glob("*.py")):
        module = f"{PAPERS_PACKAGE}.{paper}.figures.{file.stem}"
        for figure in _figures_in(_imported(module), file):
            name = f"{paper}_{figure.name}"
            if name in found:
                raise UserError(
                    f"{name} stands in {found[name][1]} and again in {module}; rename one."
                )
            found[name] = figure, module
    return dict(sorted(found.items(), key=lambda item: figure_order(item[0])))


def _figures_in(module: ModuleType, file: Path) -> list[Figure]:
    # Those that it holds, each once: by themselves or in a tuple, of any name.
    found: dict[int, Figure] = {}
    for name, value in vars(module).items():
        several = value if isinstance(value, tuple | list) else (value,)
        figures = [item for item in several if isinstance(item, Figure)]
        if name.startswith("_"):
            continue
        if name in ("FIGURE", "FIGURES") and (not figures or len(figures) < len(several)):
            needed = "a Figure" if name == "FIGURE" else "a tuple of Figures"
            raise UserError(f"{file}: {name}: found {kind(value)}, {needed} is needed.")
        found |= {id(figure): figure for figure in figures}
    return list(found.values())


def figure_order(name: str) -> tuple[str, float, str]:
    """The sort key of a figure: paper, then number; a figure without a number comes last."""
    number = re.search(r"_fig(\d+)", name)
    return paper_of(name), int(number.group(1)) if number else math.inf, name


@cache
def all_figures() -> tuple[str, ...]:
    """Names of all figures, by paper and number."""
    return tuple(name for paper in papers() for name in _figures_of(paper))


def figure_named(name: str) -> Figure:
    """A figure by its full name, such as "key2024_fig2"; a UserError if there is none."""
    return _found(name)[0]


def figure_module(name: str) -> str:
    """Dotted name of the module that defines a figure; a UserError if there is no such figure."""
    return _found(name)[1]


def _found(name: str) -> tuple[Figure, str]:
    paper = paper_of(name)
    found = _figures_of(paper).get(name) if paper in papers() else None
    if found is None:
        hint = f"it is a paper: papers={name}" if name in papers() else None
        hint = hint or suggestion(name, all_figures())
        raise UserError(f"figures: unknown figure {shortened(name)}; {hint}.")
    return found
