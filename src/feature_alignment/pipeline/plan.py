"""The plan: which runs, tables and figures a configuration asks for.

Pure bookkeeping, cheap to compute: the Snakefile builds it at every start.
"""

import importlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from feature_alignment.data.registry import check_options
from feature_alignment.errors import UserError, suggestion
from feature_alignment.pipeline.config import Config
from feature_alignment.pipeline.papers import PAPERS, module_name, paper_of
from feature_alignment.pipeline.spec import Point, Spec, dataset_keys

_FIGURE_FILE = re.compile(r"fig\w+")
_PAPERS = Path(__file__).parents[1] / "papers"


@cache
def all_figures() -> tuple[str, ...]:
    """Names of all figures, by paper and number: each is a file of its folder `figures`.

    A paper's `fig_theory`, checks of its theorems that it has no figure for, comes last.
    """
    names = [
        f"{paper}_{path.stem}"
        for paper in PAPERS
        for path in (_PAPERS / paper / "figures").glob("*.py")
        if _FIGURE_FILE.fullmatch(path.stem)
    ]
    return tuple(sorted(names, key=_figure_order))


def _figure_order(name: str) -> tuple[int, float, str]:
    number = re.search(r"_fig(\d+)", name)
    return list(PAPERS).index(paper_of(name)), int(number.group(1)) if number else math.inf, name


def figure_module(figure: str) -> ModuleType:
    """The module of a figure."""
    return importlib.import_module(module_name("figures", figure))


@dataclass(frozen=True)
class Plan:
    """What a configuration asks for.

    Attributes:
        config: the complete configuration.
        figures: the selected figures.
        points: for each figure, selected or not, its (experiment, point) pairs.
        specs: the spec of each (experiment, point).
    """

    config: Config
    figures: tuple[str, ...]
    points: Mapping[str, tuple[tuple[str, str], ...]]
    specs: Mapping[tuple[str, str], Spec]

    @property
    def preset(self) -> str:
        """The preset's name."""
        return self.config["preset"]

    def datasets_of(self, figure: str) -> list[tuple[str, str]]:
        """The (dataset, source) pairs whose data a figure shows, without repeats."""
        specs = [self.specs[point] for point in self.points[figure]]
        used = [spec[key] for spec in specs for key in dataset_keys(spec)]
        return sorted({(data["name"], data["source"]) for data in used})


def make_plan(config: Config) -> Plan:
    """Turn a complete configuration into runs and figures.

    Args:
        config: what `feature_alignment.pipeline.config.resolve_config` returns.

    Returns:
        The plan; it holds every figure's runs, so that any figure can be asked for by name.

    Raises:
        UserError: if a selected paper, figure or dataset does not exist or cannot be used.
        ValueError: if figures contradict each other about a point, or one repeats a point's name.
    """
    figures = _selected_figures(config)
    points: dict[str, tuple[tuple[str, str], ...]] = {}
    specs: dict[tuple[str, str], Spec] = {}
    for figure in all_figures():
        needed = figure_module(figure).points(config["experiments"])
        points[figure] = tuple((point.experiment, point.name) for point in needed)
        if len({point.name for point in needed}) < len(needed):
            raise ValueError(f"{figure} needs two points of the same name; rename one")
        for point in needed:
            spec = _make_spec(point, config)
            known = specs.setdefault((point.experiment, point.name), spec)
            if known != spec:
                raise ValueError(
                    f"{figure} asks for {point.experiment}/{point.name} with other parameters "
                    "than another figure; give the point another name"
                )
    plan = Plan(config, figures, points, specs)
    for name, _ in sorted({pair for figure in figures for pair in plan.datasets_of(figure)}):
        check_options(name, config["datasets"][name])
    return plan


def _selected_figures(config: Config) -> tuple[str, ...]:
    papers = list(PAPERS) if config["papers"] == "all" else config["papers"]
    for paper in papers:
        if paper not in PAPERS:
            raise UserError(f"papers: unknown paper {paper!r}; {suggestion(paper, PAPERS)}.")
    of_papers = tuple(figure for figure in all_figures() if paper_of(figure) in papers)
    if config["figures"] == "all":
        return of_papers
    for figure in config["figures"]:
        if figure not in all_figures():
            hint = suggestion(figure, all_figures())
            raise UserError(f"figures: unknown figure {figure!r}; {hint}.")
        if figure not in of_papers:
            raise UserError(
                f"figures: {figure} is not a figure of the selected papers ({', '.join(papers)}); "
                f"add {paper_of(figure)} to papers, or leave papers out."
            )
    return tuple(figure for figure in of_papers if figure in config["figures"])


def _make_spec(point: Point, config: Config) -> Spec:
    section: dict[str, Any] = config["experiments"][point.experiment]
    parameters = {**section, **point.overrides}
    spec: Spec = {
        "experiment": point.experiment,
        "point": point.name,
        "parameters": parameters,
        "threads": config["threads"],
        "device": config["device"],
    }
    for key in dataset_keys(parameters):
        if parameters[key] is not None:
            spec[key] = dataset_spec(parameters[key], config)
    return spec


def dataset_spec(name: str, config: Config) -> Spec:
    """The spec of a prepared dataset: its name and where it comes from."""
    return {"name": name, **config["datasets"][name]}
