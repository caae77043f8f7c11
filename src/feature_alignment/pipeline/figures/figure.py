"""What a figure is: the runs that it needs, its tidy table, and its drawing."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

from feature_alignment.errors import UserError, suggestion
from feature_alignment.pipeline.parameters import Parameters, kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

    from feature_alignment.pipeline.figures.table import FigureTable, Runs

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
        parameters: those of the experiment that is run, and with them the experiment.
        columns: what tells the point from the figure's others; `Runs.metrics` has these columns
            in each of the point's rows. They belong to the figure, not to the run.
    """

    name: str
    parameters: Parameters
    columns: Mapping[str, str | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            UserError: for the first that a run or its table cannot have.
        """
        where = f"point {self.name!r}"
        if not (isinstance(self.name, str) and _POINT_NAME.fullmatch(self.name)):
            raise UserError(f"{where}: name: only letters, digits and _ - . within are allowed.")
        if not isinstance(self.parameters, Parameters):
            found = kind(self.parameters)
            raise UserError(f"{where}: parameters: found {found}, Parameters are needed.")
        if not isinstance(self.columns, Mapping):
            raise UserError(f"{where}: columns: found {kind(self.columns)}, a dict is needed.")
        for column, value in self.columns.items():
            if not isinstance(column, str) or column in _TAKEN:
                raise UserError(f"{where}: columns: {column!r} is no name or taken; rename it.")
            if not isinstance(value, str | int | float):
                found = kind(value)
                raise UserError(
                    f"{where}: columns: {column}: found {found}, a text or number is needed."
                )

    @property
    def experiment(self) -> str:
        """Full name of the experiment."""
        return self.parameters.experiment


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
        name: "fig" and its number, or "fig_" and a word for what is no figure of the paper.
        title: what it shows, as a statement.
        caption: what is drawn, for a reader who has not read the code.
        points: from the configured parameters to the runs that are needed.
        table: from those runs to the tidy table and the arrays that the figure is drawn from.
        draw: from the table to the picture.
    """

    name: str
    title: str
    caption: str
    points: Callable[[Settings], Sequence[Point]]
    table: Callable[[Runs], FigureTable]
    draw: Callable[[FigureTable], Picture]

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            UserError: for the first that does not fit.
        """
        where = f"Figure {self.name!r}"
        if not (isinstance(self.name, str) and _FIGURE_NAME.fullmatch(self.name)):
            raise UserError(f"{where}: name: write a name such as fig2, fig2b or fig_word.")
        for key in ("title", "caption"):
            value = getattr(self, key)
            if not (isinstance(value, str) and value.strip()):
                raise UserError(f"{where}: {key}: found {kind(value)}, a text is needed.")
        for key in ("points", "table", "draw"):
            value = getattr(self, key)
            if not _takes_one_argument(value):
                raise UserError(
                    f"{where}: {key}: found {kind(value)}, a function of one argument is needed."
                )


def _takes_one_argument(function: object) -> bool:
    try:
        inspect.signature(cast("Callable[..., object]", function)).bind(None)
    except TypeError:
        return False
    return True


def one_point(kind: type[Parameters], name: str = "default") -> Callable[[Settings], list[Point]]:
    """The `points` of a figure that needs one run, with an experiment's configured parameters."""
    return lambda settings: [Point(name, settings[kind])]


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
