"""What a figure is: the runs that it needs, its tidy table, and its drawing."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from feature_alignment.errors import UserError, suggestion
from feature_alignment.pipeline.parameters import Parameters, kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

    from feature_alignment.pipeline.figures.table import FigureTable, Runs
else:  # the Snakefile imports every figure's module, and matplotlib takes long to import
    Axes = Picture = Any

Kind = TypeVar("Kind", bound=Parameters)
_FIGURE_NAME = re.compile(r"fig([0-9]+[a-z]*|_[a-z_]+)")
_POINT_NAME = re.compile(r"[\w-][\w.-]*")  # the workflow's pattern, without hidden files and ".."
_TAKEN = {"point", "seed", "step", "layer", "split", "metric", "value"}
"""The columns that the metrics of every run have."""


@dataclass(frozen=True)
class Point:
    """One experiment point that a figure needs.

    Attributes:
        name: unique within its experiment; the name of the run's folder.
        parameters: the parameters of the run; their class determines the experiment.
        columns: what distinguishes the point from the figure's others; `Runs.metrics` has these
            columns in each of the point's rows. They belong to the figure, not to the run.
    """

    name: str
    parameters: Parameters
    columns: Mapping[str, str | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        taken = [column for column in self.columns if column in _TAKEN]
        if not (isinstance(self.name, str) and _POINT_NAME.fullmatch(self.name)):
            wrong = "name: only letters, digits and _ - . within are allowed"
        elif not isinstance(self.parameters, Parameters):
            wrong = f"parameters: found {kind(self.parameters)}, Parameters are needed"
        elif not all(isinstance(value, str | int | float) for value in self.columns.values()):
            wrong = f"columns: found {self.columns}, texts and numbers are needed"
        elif taken:
            wrong = f"columns: every table has a column {taken[0]!r} already; rename it"
        else:
            return
        raise UserError(f"point {self.name!r}: {wrong}.")

    @property
    def experiment(self) -> str:
        """Full name of the experiment."""
        return self.parameters.experiment

    @property
    def plain(self) -> dict[str, Any]:
        """The run and its columns, as in the spec of a figure."""
        return {"experiment": self.experiment, "name": self.name, "columns": dict(self.columns)}


class Settings:
    """The configured parameters of all experiments, by their classes."""

    def __init__(self, sections: Mapping[str, Parameters]) -> None:
        self._sections = sections

    def __getitem__(self, kind: type[Kind]) -> Kind:
        """The parameters of the experiment that the class belongs to.

        Raises:
            UserError: if it belongs to none.
        """
        name = getattr(kind, "experiment", "")
        if name not in self._sections:
            classes = [type(section).__name__ for section in self._sections.values()]
            wanted = getattr(kind, "__name__", kind)
            raise UserError(f"settings[{wanted}]: no experiment's; {suggestion(wanted, classes)}.")
        return cast("Kind", self._sections[name])


@dataclass(frozen=True)
class Figure:
    """One figure of a paper.

    Attributes:
        name: "fig" and its number, or "fig_" and a word if it is not a figure of the paper.
        title: what it shows, as a statement.
        caption: what is drawn, for a reader who has not read the code.
        points: makes the points of the runs that are needed from the configured parameters.
        table: makes the tidy table and the arrays that the figure is drawn from, from those runs.
        draw: makes the picture from the table.
    """

    name: str
    title: str
    caption: str
    points: Callable[[Settings], Sequence[Point]]
    table: Callable[[Runs], FigureTable]
    draw: Callable[[FigureTable], Picture]

    def __post_init__(self) -> None:
        for key, value in vars(self).items():
            if key in ("points", "table", "draw"):
                fits, wanted = _takes_one_argument(value), "a function of one argument is needed"
            elif key == "name":
                fits = _FIGURE_NAME.fullmatch(str(value))
                wanted = "write a name such as fig2, fig2b or fig_word"
            else:
                fits, wanted = isinstance(value, str) and value.strip(), "a text is needed"
            if not fits:
                raise UserError(f"Figure {self.name!r}: {key}: found {kind(value)}, {wanted}.")


def _takes_one_argument(function: object) -> bool:
    try:
        inspect.signature(cast("Callable[..., object]", function)).bind(None)
    except TypeError:
        return False
    return True


def one_point(kind: type[Parameters], name: str = "default") -> Callable[[Settings], list[Point]]:
    """The `points` of a figure that needs one run, with an experiment's configured parameters."""
    return lambda settings: [Point(name, settings[kind])]


def points_by(
    kind: type[Parameters], field: str, values: Iterable[str]
) -> Callable[[Settings], list[Point]]:
    """The `points` of a figure that needs a run for each value of a field, named by the value."""
    return lambda settings: [Point(v, settings[kind].but(**{field: v})) for v in values]


def figure_label(name: str) -> str:
    """A figure's name in words.

    Example:
        >>> figure_label("key2024_fig1b"), figure_label("key2024_fig_aspect_ratios")
        ('Figure 1b', 'Aspect ratios')
    """
    own = name.partition("_fig")[2]
    if re.match(r"\d", own):
        return f"Figure {own}"
    return own.strip("_").replace("_", " ").capitalize()
