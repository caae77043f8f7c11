"""The settings that a paper leaves open, and the universes (choices of all of them) that are run.

Each paper's `multiverse.yaml` lists the settings by groups of figures that show the same
experiments, and is written before any of the runs. A job runs a block of universes.
"""

import functools
import itertools
import json
import math
import operator
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from feature_alignment.errors import UserError, check_known
from feature_alignment.pipeline.claims.ledger import Select, Text
from feature_alignment.pipeline.config import Change, Config, Preset
from feature_alignment.pipeline.figures.figure import Settings
from feature_alignment.pipeline.papers import (
    all_figures,
    paper_files,
    paper_folder,
    paper_of,
    parameters_of,
)
from feature_alignment.pipeline.parameters import Section, check
from feature_alignment.pipeline.plan import dataset_specs, make_spec, points_of
from feature_alignment.pipeline.spec import Spec
from feature_alignment.pipeline.yaml_files import merge, read_mapping

BLOCK = 4  # universes of one job: starting Python costs seconds
_SWAPS = 4000  # random swaps that balance a choice of rows


class OpenSetting(Section):
    """A setting that the text leaves open, with the values that a reasonable reader could choose.

    Attributes:
        values: the values, or, if they are long, a mapping from names to values. One is that of
            the configuration, the default reading.
        why: the reason: the text is silent, text and released code differ, two readings.
    """

    values: (
        Annotated[tuple[Any, ...], Field(strict=False, min_length=2)]
        | Annotated[dict[str, Any], Field(min_length=2)]
    )
    why: Text

    @property
    def levels(self) -> dict[str, Any]:
        """The values by their names."""
        if isinstance(self.values, dict):
            return self.values
        return {_name(value): value for value in self.values}

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name, times in Counter(map(_name, self.values)).items():
            if times > 1:
                raise ValueError(f"{name} twice among the values; give each once, or names to all")
        for value, times in Counter(map(_written, self.levels.values())).items():
            if times > 1:
                raise ValueError(f"{value} under two names among the values; give each once")
        return self


def _name(value: Any) -> str:
    return value if isinstance(value, str) else _written(value)


def _written(value: Any) -> str:
    return json.dumps(value, default=str)


class Size(Section):
    """How many universes a preset has room for, and how the sizes of its runs are changed.

    Attributes:
        universes: the largest number of universes, including the default reading.
        changes: changed parameters by experiment.
    """

    universes: int = Field(ge=2)
    changes: dict[str, dict[str, Any]] = Field(default_factory=dict)


class Learnt(Section):
    """When a universe's networks have learnt their task; the others are counted separately.

    Attributes:
        figure: the figure of the group whose table shows it.
        select: the rows whose mean, for each seed, must lie between `least` and `most`; `step`
            may be last, each run's own.
        least: the least mean; None for any.
        most: the largest mean, for example of a loss; None for any.
        why: why the task then counts as learnt.
    """

    figure: Text
    select: Select = Field(min_length=1)
    least: float | None = None
    most: float | None = None
    why: Text

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.least is None and self.most is None:
            raise ValueError("it has neither least nor most; give one, or both")
        if self.least is not None and self.most is not None and self.least > self.most:
            raise ValueError(f"least {self.least} is above most {self.most}; no mean is between")
        return self


class Multiverse(Section):
    """A group of figures, and what is open about them.

    Attributes:
        figures: the figures, without the paper's key.
        settings: the open settings by parameter, `<experiment>.<key>`.
        sizes: by preset; the group is not run at other presets, for the reason in `why`.
        learnt: when a universe counts; None if nothing is learnt.
        why: what is left out, and why.
    """

    figures: tuple[Text, ...] = Field(min_length=1, strict=False)
    settings: dict[str, OpenSetting] = Field(min_length=1)
    sizes: dict[Preset, Size] = Field(min_length=1)
    learnt: Learnt | None = None
    why: str = ""


@dataclass(frozen=True)
class Universe:
    """One choice of all open settings."""

    number: int  # from 0, the default reading
    levels: Mapping[str, str]  # the name of each setting's value
    settings: Settings  # the parameters of all experiments


def load_multiverses() -> dict[str, Multiverse]:
    """The groups of all papers by name, `<paper>_<group>`, with full names of figures and settings.

    Raises:
        UserError: if a file has a wrong key or value, or names what does not exist.
    """
    found: dict[str, Multiverse] = {}
    for path in paper_files("multiverse.yaml"):
        paper = path.parent.name
        for name, entry in read_mapping(path).items():
            where = f"{path}: {name}"
            if not re.fullmatch(r"\w+", str(name)):  # the workflow's pattern
                raise UserError(f"{where}: name a group by letters, digits and _ only.")
            group: Multiverse = check(Multiverse, entry, lambda _, where=where: where)
            figures = tuple(dict.fromkeys(f"{paper}_{figure}" for figure in group.figures))
            for figure in figures:
                check_known(f"{where}: unknown figure {figure!r}", figure, all_figures())
            if group.learnt and group.learnt.figure not in group.figures:
                raise UserError(
                    f"{where}: learnt: figure: found {group.learnt.figure!r}; allowed: "
                    f"{', '.join(group.figures)}."
                )
            settings = {f"{paper}_{key}": value for key, value in group.settings.items()}
            found[f"{paper}_{name}"] = group.but(figures=figures, settings=settings)
    return found


def universes(
    name: str, group: Multiverse, config: Config, mine: Sequence[Change] = ()
) -> list[Universe]:
    """The universes of a group in the configured preset, the default reading first.

    All combinations of the settings' values if there is room for them, else a balanced choice, see
    `design`. `mine` are the user's changes to the preset; they also override the changes of the
    group's size.

    Raises:
        UserError: if the preset has none, the default reading is not among a setting's values, or
            a value is not allowed.
    """
    if config.preset not in group.sizes:
        why = f": {group.why.rstrip('.')}" if group.why else ""
        raise UserError(
            f"multiverse: {name} is not run at preset {config.preset}{why}; "
            f"allowed: {', '.join(group.sizes)}."
        )
    size, paper = group.sizes[config.preset], name.partition("_")[0]
    changes = {f"{paper}_{experiment}": keys for experiment, keys in size.changes.items()}
    plain = config.plain()["experiments"]
    known = [key.removeprefix(f"{paper}_") for key in plain if paper_of(key) == paper]
    for experiment in size.changes:
        where = f"{_where(name)}: sizes.{config.preset}.changes"
        check_known(f"{where}: unknown experiment", experiment, known)
    plain = merge(plain, changes)
    for change in mine:
        *path, last = change.key.split(".")
        if path[:1] == ["experiments"]:
            functools.reduce(operator.getitem, path[1:], plain)[last] = change.here
    own = {key: section for key, section in plain.items() if paper_of(key) == paper}
    levels = {key: setting.levels for key, setting in group.settings.items()}
    default = tuple(_default(name, key, list(named.values()), own) for key, named in levels.items())
    for key, named in levels.items():
        _refuse_idle(name, key, named, group.figures, own)
    found = []
    for row in design([len(named) for named in levels.values()], size.universes, default):
        taken = {key: list(levels[key])[i] for key, i in zip(levels, row, strict=True)}
        changed = {key: levels[key][level] for key, level in taken.items()}
        found.append(Universe(len(found), taken, _settings(name, changed, own)))
    return found


def _where(name: str, setting: str = "") -> str:
    """File, group and setting, if one is given, as the file has them."""
    paper, _, group = name.partition("_")
    of_setting = f": settings: {setting.removeprefix(paper + '_')}" if setting else ""
    return f"{paper_folder(paper) / 'multiverse.yaml'}: {group}{of_setting}"


def _default(name: str, key: str, values: Sequence[Any], plain: Mapping[str, Any]) -> int:
    here: Any = plain
    for part in key.split("."):
        known = here if isinstance(here, Mapping) else {}
        check_known(f"{_where(name, key)}: unknown parameter", part, known)
        here = known[part]
    alike = [i for i, v in enumerate(values) if _written(v) == _written(here)]
    alike = alike or [i for i, value in enumerate(values) if value == here]
    if not alike:
        raise UserError(
            f"{_where(name, key)}: the default reading, {_written(here)}, is not among the values; "
            "add it."
        )
    return alike[0]


def _refuse_idle(
    name: str, key: str, named: Mapping[str, Any], figures: Sequence[str], plain: Mapping[str, Any]
) -> None:
    # Refuse a setting that changes no run of the figures: its universes would count twice.
    runs = []
    for value in named.values():
        settings = _settings(name, {key: value}, plain)
        points = [point for figure in figures for point in points_of(figure, settings)]
        runs.append([(point.plain, point.parameters.plain()) for point in points])
    if all(run == runs[0] for run in runs):
        raise UserError(
            f"{_where(name, key)}: no run of {', '.join(figures)} hangs on it; take it out."
        )


def _settings(name: str, changed: Mapping[str, Any], plain: Mapping[str, Any]) -> Settings:
    for key, value in changed.items():
        for part in reversed(key.split(".")):
            value = {part: value}
        plain = merge(plain, value)
    return Settings(
        {
            key: check(parameters_of(key), values, lambda _, key=key: f"{_where(name)}: {key}")
            for key, values in plain.items()
        }
    )


def block_specs(
    name: str, group: Multiverse, config: Config, mine: Sequence[Change] = ()
) -> list[Spec]:
    """What each job of a group runs: its universes with their figures' points and specs.

    The arguments are those of `universes`.
    """
    data = dataset_specs(config)
    found = universes(name, group, config, mine)
    told = [_told(universe, group, config, data) for universe in found]
    return [
        {"multiverse": name, "universes": told[start : start + BLOCK]}
        for start in range(0, len(told), BLOCK)
    ]


def _told(universe: Universe, group: Multiverse, config: Config, data: Mapping[str, Spec]) -> Spec:
    points = {figure: points_of(figure, universe.settings) for figure in group.figures}
    return {
        "number": universe.number,
        "levels": dict(universe.levels),
        "figures": {figure: [p.plain for p in found] for figure, found in points.items()},
        "runs": {
            f"{p.experiment}/{p.name}": make_spec(p, config, data)
            for found in points.values()
            for p in found
        },
    }


def design(sizes: Sequence[int], room: int, default: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Rows of levels, one for each factor: all combinations, or a balanced choice, `room` at most.

    A choice has all levels of a factor equally often, up to one, and all pairs of two factors'
    levels as equally often as `_SWAPS` random swaps within columns can make them (a nearly
    orthogonal array), without duplicate rows. The first row is the default, in addition to the
    balanced ones. `sizes` are the numbers of levels of the factors.

    Example:
        >>> design([2, 2], 8, (1, 0))
        [(1, 0), (0, 0), (0, 1), (1, 1)]
    """
    every = itertools.product(*map(range, sizes))
    rows = every if math.prod(sizes) <= room else _balanced(sizes, room - 1)
    return [default, *(row for row in rows if row != default)]


def _balanced(sizes: Sequence[int], number: int) -> list[tuple[int, ...]]:
    generator = np.random.default_rng(0)
    table = np.stack([generator.permutation(np.arange(number) % size) for size in sizes], axis=1)
    best = _unevenness(table, sizes)
    for _ in range(_SWAPS):
        column, (one, other) = generator.integers(len(sizes)), generator.integers(number, size=2)
        table[[one, other], column] = table[[other, one], column]
        found = _unevenness(table, sizes)
        if found <= best:
            best = found
        else:
            table[[one, other], column] = table[[other, one], column]
    return list(dict.fromkeys(tuple(map(int, row)) for row in table))


def _unevenness(table: np.ndarray, sizes: Sequence[int]) -> float:
    """Squared differences of pairs of levels from an equal share, plus a penalty for equal rows."""
    levels = [table[:, [f]] == np.arange(size) for f, size in enumerate(sizes)]
    taken = np.concatenate(levels, axis=1).astype(float)
    share = np.concatenate([np.full(size, 1 / size) for size in sizes])
    pairs = (taken.T @ taken - len(table) * np.outer(share, share)) ** 2
    alike = (taken @ taken.T == len(sizes)).sum() - len(table)
    return float(pairs.sum() + 10 * alike)
