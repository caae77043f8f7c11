"""What figures are made from: finished runs, and the tidy table gathered from them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feature_alignment.errors import suggestion


@dataclass(frozen=True)
class Run:
    """The files of one finished run.

    Attributes:
        folder: the run's folder, with spec.json, metrics.csv and arrays.npz.
        columns: what distinguishes its point from the figure's others, see `Point.columns`.
    """

    folder: Path
    columns: Mapping[str, str | float] = field(default_factory=dict)

    @cached_property
    def _spec(self) -> dict[str, Any]:
        return json.loads((self.folder / "spec.json").read_text(encoding="utf-8"))

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the run, as in JSON."""
        return self._spec["parameters"]

    @property
    def stand_in(self) -> bool:
        """Whether a dataset of the run is a stand-in."""
        return any(data["source"] == "embedded" for data in self._spec["data"].values())

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """The tidy metrics of all seeds, after the column `point` and the point's own columns."""
        frame = pd.read_csv(self.folder / "metrics.csv", low_memory=False)
        own = {"point": self.folder.name, **self.columns}
        for place, (column, value) in enumerate(own.items()):
            frame.insert(place, column, value)
        return frame

    @property
    def seeds(self) -> range:
        """The run's seeds."""
        return range(self.parameters["seeds"])

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        with np.load(self.folder / "arrays.npz") as stored:
            return dict(stored)

    def array(self, name: str, seed: int = 0) -> np.ndarray:
        """The array of one seed under the name that the experiment gave it.

        Raises:
            KeyError: if there is none.
        """
        return self._arrays[f"seed{seed}/{name}"]

    def stacked(self, name: str) -> np.ndarray:
        """The arrays of all seeds, stacked: (seeds, …)."""
        return np.stack([self.array(name, seed) for seed in self.seeds])


class Runs(dict[str, Run]):
    """The runs of one figure, by the names of their points."""

    @property
    def metrics(self) -> pd.DataFrame:
        """The metrics of all runs, concatenated."""
        return pd.concat([run.metrics for run in self.values()], ignore_index=True)

    @property
    def stand_ins(self) -> dict[str, int]:
        """For each point, 1 if its run has a stand-in, else 0."""
        return {point: int(run.stand_in) for point, run in self.items()}


@dataclass(frozen=True)
class FigureTable:
    """Everything that a figure is drawn from.

    Attributes:
        frame: the tidy table; claims are judged on it.
        arrays: named arrays for what is not a number: matrices, functions, images.
        claims: the numbers of the figure's claims, by their ids without the paper, see `of_claim`;
            set only for drawing, like `stand_ins`.
        stand_ins: the datasets that are replaced by stand-ins.
        dataset: the title of the dataset that the first run is configured to read.
    """

    frame: pd.DataFrame
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    claims: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    stand_ins: frozenset[str] = frozenset()
    dataset: str = "images"

    def of_claim(self, claim: str) -> Mapping[str, float]:
        """`paper_value`, `decimals`, `low` and `high` of a claim; empty in a table without claims.

        Raises:
            KeyError: if the figure has claims, but not this one.
        """
        return self.claims[claim] if self.claims else {}

    def paper(self, claim: str, form: str = ".2f") -> str:
        """The paper's number of a claim, to write after ours; empty in a table without claims."""
        number = self.of_claim(claim).get("paper_value")
        return "" if number is None else f" (paper {number:{form}})"

    def rows(self, **where: object) -> pd.DataFrame:
        """The rows in which columns have the given values, see `rows_where`."""
        return rows_where(self.frame, **where)

    def values(self, metric: str, **where: object) -> pd.Series:
        """The values of a metric, in table order, where columns have the given ones."""
        return self.rows(metric=metric, **where)["value"]


def rows_where(frame: pd.DataFrame, **where: object) -> pd.DataFrame:
    """The rows in which the given columns have the given values, or one of a list of values.

    Raises:
        KeyError: if there is no such row.

    Example:
        >>> frame = pd.DataFrame({"split": ["train", "test"], "value": [1, 2]})
        >>> rows_where(frame, split="test")["value"].item()
        2
    """
    found = frame
    for column, value in where.items():
        several = isinstance(value, list | tuple | set | frozenset | range)
        fits = found[column].isin(list(value)) if several else found[column] == value
        if not fits.any():
            hint = suggestion(value, map(str, found[column].unique()))
            raise KeyError(f"the table has no rows where {where}; {column}: {hint}")
        found = found[fits]
    return found


def all_metrics(runs: Runs) -> FigureTable:
    """The `table` of a figure that derives nothing from its runs' metrics."""
    return FigureTable(runs.metrics)
