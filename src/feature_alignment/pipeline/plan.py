"""The plan: which runs and figures a configuration requests.

Pure bookkeeping, cheap to compute: the Snakefile builds it at every start.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from feature_alignment.data.identity import content_hash
from feature_alignment.data.registry import DATASETS, check_options
from feature_alignment.errors import UserError, check_known, shortened
from feature_alignment.pipeline.claims.ledger import Claim, check_ledgers
from feature_alignment.pipeline.config import Change, Config, changes
from feature_alignment.pipeline.contracts import must, owed_by
from feature_alignment.pipeline.figures.figure import Point, Settings
from feature_alignment.pipeline.papers import (
    all_figures,
    all_parameters,
    figure_module,
    figure_named,
    ledgers,
    paper_of,
    papers,
)
from feature_alignment.pipeline.spec import Spec, datasets_used


@dataclass(frozen=True)
class Plan:
    """The runs and figures that a configuration requests."""

    config: Config
    figures: tuple[str, ...]  # the selected figures
    points: Mapping[str, tuple[Point, ...]]  # the points of each figure, selected or not
    specs: Mapping[tuple[str, str], Spec]  # the spec of each (experiment, point)
    changes: Sequence[Change] = ()  # the keys whose values differ from the preset's
    # The changes behind each figure whose runs differ from the preset's.
    changed_figures: Mapping[str, Sequence[Change]] = field(default_factory=dict)
    claims: Sequence[Claim] = ()  # the claims of all papers

    @property
    def name(self) -> str:
        """The name of the result."""
        return self.config.result

    def runs_of(self, figure: str) -> list[tuple[str, str]]:
        """The (experiment, point) pairs that a figure needs."""
        return [(point.experiment, point.name) for point in self.points[figure]]

    def datasets_of(self, figure: str) -> list[tuple[str, str]]:
        """The (dataset, source) pairs whose data a figure shows, without repeats."""
        return datasets_used(self.specs[run] for run in self.runs_of(figure))

    def figure_spec(self, figure: str) -> Spec:
        """What a figure is made from: its runs, what its stamp says, its claims' numbers."""
        claims = (claim for claim in self.claims if claim.figure == figure)
        chosen = (getattr(point.parameters, "dataset", None) for point in self.points[figure])
        return {
            "figure": figure,
            "dataset": next((name for name in chosen if name in [*DATASETS]), None),
            "claims": {claim.id.partition(".")[2]: claim.numbers for claim in claims},
            **self._settings_of(figure),
            "sizes": self._sizes_of(figure),
            "points": [point.plain for point in self.points[figure]],
        }

    def _sizes_of(self, figure: str) -> list[str]:
        """The integer parameters that differ from preset `paper`, whose values are in parentheses.

        Runs are compared by name or, if there are as many in the preset, by position; otherwise
        their number is a size, too. Seeds and settings of measurements and checks are not sizes.
        """
        mine = self.points[figure]
        of_paper = Settings({name: kind() for name, kind in all_parameters().items()})
        paper = points_of(figure, of_paper)
        as_many = len(mine) == len(paper)
        theirs = {own.name: point for own, point in zip(mine, paper, strict=False) if as_many}
        theirs |= {point.name: point for point in paper}
        found = [] if as_many else [f"runs {len(mine)} ({len(paper)})"]
        experiments = dict.fromkeys(point.experiment for point in mine)
        for name in experiments:
            pairs = [
                [_numbers(point.parameters.plain()) for point in (own, theirs[own.name])]
                for own in mine
                if own.experiment == name and own.name in theirs
            ]
            sizes = []
            for key in dict.fromkeys(key for own, _ in pairs for key in own):
                differ = [(o[key], p[key]) for o, p in pairs if {key} <= o.keys() & p.keys()]
                differ = [(own, other) for own, other in differ if own != other]
                if differ:
                    own, other = (
                        " and ".join(dict.fromkeys(map(_told, values)))
                        for values in zip(*differ, strict=True)
                    )
                    sizes.append(f"{key.replace('_', ' ')} {own} ({other})")
            first = f"{name.partition('_')[2]}: " if len(experiments) > 1 else ""
            found += [first + ", ".join(sizes)] if sizes else []
        return found

    def selection_spec(self, figures: Sequence[str]) -> Spec:
        """What claims and report are made from: some figures, and how they were made."""
        return {
            "name": self.name,
            "preset": self.config.preset,
            "figures": {figure: self._settings_of(figure) for figure in figures},
            "changes": [[change.key, change.preset, change.here] for change in self.changes],
        }

    def _settings_of(self, figure: str) -> Spec:
        return {
            "name": self.name,
            "preset": self.config.preset,
            "changed": [str(change) for change in self.changed_figures.get(figure, ())],
            "datasets": [list(pair) for pair in self.datasets_of(figure)],
        }


def _numbers(parameters: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """The sizes among parameters; a section's name precedes its keys."""
    found: dict[str, Any] = {}
    for key, value in parameters.items():
        several = value if isinstance(value, list) else [value]
        if isinstance(value, Mapping):
            found |= {} if key == "measure_at" else _numbers(value, f"{before}{key} ")
        elif all(one is None or type(one) is int for one in several) and not key.endswith("seeds"):
            found |= {} if key.startswith(("measure", "check")) else {before + key: value}
    return found


def _told(size: int | Sequence[int] | None) -> str:
    """A size in a few characters; None means all there are."""
    if isinstance(size, Sequence):
        if len(size) > 2:
            return f"{len(size)} in {min(size)}…{max(size)}"
        return " and ".join(map(str, size))
    return "all" if size is None else str(size)


def make_plan(config: Config, preset: Config | None = None) -> Plan:
    """The plan of a complete configuration; `preset` is the preset's own, to find what was changed.

    Raises:
        UserError: if a selected paper, figure or dataset does not exist or cannot be used; or if
            the modules, points or claims of any paper, selected or not, are invalid.
    """
    figures = _selected_figures(config)
    points, specs = _points_and_specs(config)
    found = () if preset is None else tuple(changes(config, preset))
    changed = _changed_figures(points, preset, found)
    claims = check_ledgers(ledgers(), all_figures())
    plan = Plan(config, figures, points, specs, found, changed, claims)
    for name, _ in sorted({pair for figure in figures for pair in plan.datasets_of(figure)}):
        check_options(name, config.dataset(name))
    return plan


def _changed_figures(
    points: Mapping[str, tuple[Point, ...]], preset: Config | None, found: Sequence[Change]
) -> dict[str, list[Change]]:
    """The figures whose runs differ from the preset's, and the parameters that were changed."""
    of_experiments = [change for change in found if change.key.startswith("experiments.")]
    if preset is None or not of_experiments:
        return {}
    settings = preset.settings()
    changed = {}
    for figure, here in points.items():
        own = points_of(figure, settings)
        if here != own:
            shown = {point.experiment for point in here + own}
            mine = [(c, c.key.split(".")) for c in of_experiments if c.key.split(".")[1] in shown]
            # Keys such as `width`, prefixed with the experiment if several are changed.
            first = 1 if len({key[1] for _, key in mine}) > 1 else 2
            changed[figure] = [replace(c, key=".".join(key[first:])) for c, key in mine]
    return changed


def _points_and_specs(
    config: Config,
) -> tuple[dict[str, tuple[Point, ...]], dict[tuple[str, str], Spec]]:
    settings = config.settings()
    data = dataset_specs(config)
    points: dict[str, tuple[Point, ...]] = {}
    specs: dict[tuple[str, str], Spec] = {}
    for figure in all_figures():
        points[figure] = points_of(figure, settings)
        for point in points[figure]:
            spec = make_spec(point, config, data)
            known = specs.setdefault((point.experiment, point.name), spec)
            if known != spec:
                keys = [k for k, v in spec["parameters"].items() if known["parameters"][k] != v]
                raise UserError(
                    f"{figure}: points of {figure_module(figure)}: {point.experiment}/{point.name} "
                    f"has another {', '.join(keys)} than in an earlier figure; rename the point."
                )
    return points, specs


def points_of(figure: str, settings: Settings) -> tuple[Point, ...]:
    """The points of a figure with some settings, checked.

    Raises:
        UserError: if they are invalid.
    """
    with owed_by("points", figure_module(figure), figure):
        found = figure_named(figure).points(settings)
        points = tuple(found) if isinstance(found, Iterable) else (found,)
        for point in points:
            must(isinstance(point, Point), f"returned a {type(point).__name__}")
        for point in points:
            _check_point(point, [point.name for point in points])
    return points


def _check_point(point: Point, names: Sequence[str]) -> None:
    if names.count(point.name) > 1:
        raise UserError(f"two points have the name {point.name!r}; rename one.")
    kind = type(point.parameters).__name__
    told = f"point {point.name!r}: {kind} is no experiment's class in parameters.py"
    check_known(told, point.experiment, all_parameters())
    for key in point.parameters.dataset_keys():
        if name := getattr(point.parameters, key):
            told = f"{point.experiment}/{point.name}: {key}: unknown dataset {shortened(name)}"
            check_known(told, name, DATASETS)


def _selected_figures(config: Config) -> tuple[str, ...]:
    chosen = tuple(papers()) if config.papers == "all" else config.papers
    for paper in chosen:
        check_known(f"papers: unknown paper {shortened(paper)}", paper, papers())
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


def make_spec(point: Point, config: Config, data: Mapping[str, Spec]) -> Spec:
    """The spec of a point's run; `data` is the result of `dataset_specs`."""
    parameters = point.parameters
    named = {key: getattr(parameters, key) for key in parameters.dataset_keys()}
    return {
        "experiment": point.experiment,
        "point": point.name,
        "parameters": parameters.plain(),
        "threads": config.threads,
        "device": config.device,
        "data": {key: data[name] for key, name in named.items() if name},
    }


def spec_without_figure(experiment: str, config: Config) -> Spec:
    """The spec of an experiment's configured parameters, if no figure shows it yet.

    Raises:
        UserError: if they name an unknown dataset.
    """
    point = Point("default", config.settings()[all_parameters()[experiment]])
    _check_point(point, [point.name])
    return make_spec(point, config, dataset_specs(config))


def dataset_specs(config: Config) -> dict[str, Spec]:
    """The spec of every dataset, from the configured source; a user's files are hashed."""
    return {name: dataset_spec(name, config) for name in DATASETS}


def dataset_spec(name: str, config: Config, source: str | None = None) -> Spec:
    """The spec of a dataset from the configured or another source; a user's files are hashed."""
    options = {**config.dataset(name), **({"source": source} if source else {})}
    # Also None if nothing can be read; `check_options` reports that for selected figures.
    sha256 = content_hash(options["source"], options["path"])
    return {"name": name, **options, **({"sha256": sha256} if sha256 else {})}
