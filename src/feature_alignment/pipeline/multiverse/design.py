"""Which settings a paper leaves open, and the universes, choices of all of them, that are run.

Each paper's `multiverse.yaml` says it, by groups of figures that show the same experiments, and is
written before any of the runs.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from feature_alignment.errors import UserError, suggestion
from feature_alignment.pipeline.claims.ledger import Select, Text
from feature_alignment.pipeline.config import Config, Preset, merge, read_yaml
from feature_alignment.pipeline.figures.figure import Settings
from feature_alignment.pipeline.papers import all_figures, paper_folder, papers, parameters_of
from feature_alignment.pipeline.parameters import Parameters, Section, check

BLOCK = 4
"""Universes of one job: starting Python costs seconds."""
_SWAPS = 4000
"""Random swaps that balance a choice of rows."""


class OpenSetting(Section):
    """A setting that the text leaves open, with the values that a reasonable reader could take.

    Attributes:
        values: the values, or, where they are long, names of values with what they are. One is
            that of the configuration, the default reading.
        why: the reason: the text is silent, text and released code differ, two readings.
    """

    values: Annotated[tuple[Any, ...], Field(strict=False, min_length=2)] | dict[str, Any]
    why: Text

    @property
    def levels(self) -> dict[str, Any]:
        """The values by their names."""
        if isinstance(self.values, dict):
            return self.values
        return {v if isinstance(v, str) else json.dumps(v): v for v in self.values}


class Size(Section):
    """How many universes a preset has room for, and what its runs have of other sizes.

    Attributes:
        universes: at most so many, the default reading among them.
        changes: parameters by experiment.
    """

    universes: int = Field(ge=2)
    changes: dict[str, dict[str, Any]] = Field(default_factory=dict)


class Learnt(Section):
    """When a universe's networks have learnt their task; the others are counted apart.

    Attributes:
        figure: the figure, of the group's, whose table tells it.
        select: the rows of which each seed's mean has to lie between `least` and `most`.
        least: the least mean; None for any.
        most: the largest mean, as of a loss; None for any.
        why: why this is the task learnt.
    """

    figure: Text
    select: Select = Field(min_length=1)
    least: float | None = None
    most: float | None = None
    why: Text


class Multiverse(Section):
    """A group of figures, and what is open about them.

    Attributes:
        figures: the figures, without the paper's key.
        settings: the open settings by parameter, `<experiment>.<key>`.
        sizes: by preset; in a preset that is left out the group is not run, for the reason `why`.
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
    """One choice of all open settings.

    Attributes:
        number: from 0, the default reading.
        levels: the name of each setting's value.
        settings: the parameters of all experiments.
    """

    number: int
    levels: Mapping[str, str]
    settings: Settings


def load_multiverses() -> dict[str, Multiverse]:
    """The groups of all papers by name, `<paper>_<group>`, their names written in full.

    Raises:
        UserError: if a file has a wrong key or value, or names what does not exist.
    """
    found: dict[str, Multiverse] = {}
    for paper in papers():
        path = paper_folder(paper) / "multiverse.yaml"
        for name, entry in (read_yaml(path) if path.exists() else {}).items():
            where = f"{path}: {name}"
            group: Multiverse = check(
                Multiverse, entry, lambda key, where=where: f"{where}: {'.'.join(map(str, key))}"
            )
            figures = tuple(f"{paper}_{figure}" for figure in group.figures)
            for figure in figures:
                if figure not in all_figures():
                    raise UserError(
                        f"{where}: unknown figure {figure!r}; {suggestion(figure, all_figures())}."
                    )
            if group.learnt and group.learnt.figure not in group.figures:
                raise UserError(
                    f"{where}: learnt: figure: found {group.learnt.figure!r}; allowed: "
                    f"{', '.join(group.figures)}."
                )
            settings = {f"{paper}_{key}": value for key, value in group.settings.items()}
            found[f"{paper}_{name}"] = group.but(figures=figures, settings=settings)
    return found


def universes(name: str, group: Multiverse, config: Config) -> list[Universe]:
    """The universes of a group in the configured preset, the default reading first.

    All combinations of the settings' values where there is room for them, else a balanced choice,
    see `design`.

    Raises:
        UserError: if the preset has none, the default reading is not among a setting's values, or
            a value is not allowed.
    """
    if config.preset not in group.sizes:
        raise UserError(
            f"multiverse: {name} is not run at preset {config.preset}"
            f"{': ' + group.why if group.why else ''}; allowed: {', '.join(group.sizes)}."
        )
    size = group.sizes[config.preset]
    plain = config.plain()["experiments"]
    paper = name.partition("_")[0]
    for experiment, changes in size.changes.items():
        plain = merge(plain, {f"{paper}_{experiment}": changes})
    levels = {key: setting.levels for key, setting in group.settings.items()}
    default = tuple(
        _default(name, key, list(named.values()), plain) for key, named in levels.items()
    )
    chosen = design([len(named) for named in levels.values()], size.universes, default)
    return [
        _universe(number, dict(zip(levels, row, strict=True)), levels, plain, name)
        for number, row in enumerate(chosen)
    ]


def _default(name: str, key: str, values: Sequence[Any], plain: Mapping[str, Any]) -> int:
    here: Any = plain
    for part in key.split("."):
        if not isinstance(here, Mapping) or part not in here:
            raise UserError(f"multiverse: {name}: settings: {key}: there is no such parameter.")
        here = here[part]
    alike = [i for i, value in enumerate(values) if json.dumps(value) == json.dumps(here)]
    alike = alike or [i for i, value in enumerate(values) if value == here]
    if not alike:
        raise UserError(
            f"multiverse: {name}: settings: {key}: the default reading, {json.dumps(here)}, is not "
            "among the values; add it."
        )
    return alike[0]


def _universe(
    number: int,
    row: Mapping[str, int],
    levels: Mapping[str, Mapping[str, Any]],
    plain: Mapping[str, Any],
    name: str,
) -> Universe:
    changed = dict(plain)
    for key, index in row.items():
        value = list(levels[key].values())[index]
        for part in reversed(key.split(".")[1:]):
            value = {part: value}
        changed = merge(changed, {key.split(".")[0]: value})
    touched = {key.split(".")[0] for key in row} | {
        experiment for experiment in plain if experiment.startswith(f"{name.partition('_')[0]}_")
    }
    sections: dict[str, Parameters] = {
        experiment: check(
            parameters_of(experiment), changed[experiment], lambda key: f"multiverse: {name}: {key}"
        )
        for experiment in sorted(touched)
    }
    named = {key: list(levels[key])[index] for key, index in row.items()}
    return Universe(number, named, Settings(sections))


def design(
    sizes: Sequence[int], room: int, default: tuple[int, ...] | None = None
) -> list[tuple[int, ...]]:
    """Rows of levels, one for each factor: all combinations, or a balanced choice of them.

    A choice has each level of a factor equally often, or once more, and the numbers of pairs of two
    factors' levels as equal as `_SWAPS` random swaps within columns can make them (a nearly
    orthogonal array); equal rows stand once. The first row is the default, one more than balance
    asks for.

    Args:
        sizes: the number of levels of each factor.
        room: at most so many rows.
        default: the row that comes first; None for zeros.

    Example:
        >>> design([2, 2], 8, (1, 0))
        [(1, 0), (0, 0), (0, 1), (1, 1)]
    """
    first = default or (0,) * len(sizes)
    rows: list[tuple[int, ...]]
    if math.prod(sizes) <= room:
        rows = list(itertools.product(*map(range, sizes)))
    else:
        rows = _balanced(sizes, room - 1)
    return [first, *(row for row in rows if row != first)]


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
    """Sum over pairs of levels of the squared difference from an equal share, and equal rows."""
    taken = np.concatenate(
        [table[:, [f]] == np.arange(size) for f, size in enumerate(sizes)], axis=1
    ).astype(float)
    share = np.concatenate([np.full(size, 1 / size) for size in sizes])
    pairs = (taken.T @ taken - len(table) * np.outer(share, share)) ** 2
    alike = (taken @ taken.T == len(sizes)).sum() - len(table)
    return float(pairs.sum() + 10 * alike)


def imbalance(rows: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> float:
    """Largest difference of a pair of two factors' levels from its share of the rows, in rows.

    With one factor, of its levels. Repeated rows count once.
    """
    found = 0.0
    table = np.array(rows)
    for factors in itertools.combinations(range(len(sizes)), min(2, len(sizes))):
        each = [sizes[f] for f in factors]
        counts = np.zeros(each)
        np.add.at(counts, tuple(table[:, f] for f in factors), 1)
        found = max(found, float(np.abs(counts - len(rows) / math.prod(each)).max()))
    return found
