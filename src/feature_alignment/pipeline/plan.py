"""The plan: which runs and figures a configuration asks for.

Pure bookkeeping, cheap to compute: the Snakefile builds it at every start.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from feature_alignment.data.registry import check_options
from feature_alignment.errors import UserError, suggestion
from feature_alignment.pipeline.config import Config
from feature_alignment.pipeline.figures.figure import Point
from feature_alignment.pipeline.papers import all_figures, figure_named, paper_of, papers
from feature_alignment.pipeline.spec import Spec, dataset_keys


@dataclass(frozen=True)
class Plan:
    """What a configuration asks for.

    Attributes:
        points: for each figure, selected or not, its points.
        specs: the spec of each (experiment, point).
    """

    config: Config
    figures: tuple[str, ...]
    points: Mapping[str, tuple[Point, ...]]
    specs: Mapping[tuple[str, str], Spec]

    @property
    def preset(self) -> str:
        """The preset's name."""
        return self.config.preset

    def runs_of(self, figure: str) -> list[tuple[str, str]]:
        """The (experiment, point) pairs that a figure needs."""
        return [(point.experiment, point.name) for point in self.points[figure]]

    def datasets_of(self, figure: str) -> list[tuple[str, str]]:
        """The (dataset, source) pairs whose data a figure shows, without repeats."""
        specs = [self.specs[run] for run in self.runs_of(figure)]
        used = [spec["data"][key] for spec in specs for key in dataset_keys(spec)]
        return sorted({(data["name"], data["source"]) for data in used})

    def figure_spec(self, figure: str) -> Spec:
        """What a figure is made from: its runs, and what its stamp says."""
        return {
            "figure": figure,
            "preset": self.preset,
            "points": [
                {"experiment": p.experiment, "name": p.name, "columns": dict(p.columns)}
                for p in self.points[figure]
            ],
            "datasets": [list(pair) for pair in self.datasets_of(figure)],
        }


def make_plan(config: Config) -> Plan:
    """The plan of a complete configuration.

    Raises:
        UserError: if a selected paper, figure or dataset does not exist or cannot be used.
        ValueError: if figures contradict each other about a point, or one repeats a point's name.
    """
    figures = _selected_figures(config)
    settings = config.settings()
    points: dict[str, tuple[Point, ...]] = {}
    specs: dict[tuple[str, str], Spec] = {}
    for figure in all_figures():
        needed = tuple(figure_named(figure).points(settings))
        points[figure] = needed
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
        check_options(name, config.dataset(name))
    return plan


def _selected_figures(config: Config) -> tuple[str, ...]:
    chosen = tuple(papers()) if config.papers == "all" else config.papers
    for paper in chosen:
        if paper not in papers():
            raise UserError(f"papers: unknown paper {paper!r}; {suggestion(paper, papers())}.")
    of_papers = tuple(figure for figure in all_figures() if paper_of(figure) in chosen)
    if config.figures == "all":
        return of_papers
    for figure in config.figures:
        figure_named(figure)
        if figure not in of_papers:
            raise UserError(
                f"figures: {figure} is not a figure of the selected papers ({', '.join(chosen)}); "
                f"add {paper_of(figure)} to papers, or leave papers out."
            )
    return tuple(figure for figure in of_papers if figure in config.figures)


def _make_spec(point: Point, config: Config) -> Spec:
    parameters = point.parameters
    named = {key: getattr(parameters, key) for key in parameters.dataset_keys()}
    return {
        "experiment": point.experiment,
        "point": point.name,
        "parameters": parameters.plain(),
        "threads": config.threads,
        "device": config.device,
        "data": {key: dataset_spec(name, config) for key, name in named.items() if name},
    }


def dataset_spec(name: str, config: Config) -> Spec:
    """The spec of a prepared dataset: its name and where it comes from."""
    return {"name": name, **config.dataset(name)}
