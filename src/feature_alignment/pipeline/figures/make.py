"""Make any figure: from its runs to its tidy table, from the table to the picture."""

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd

from feature_alignment.data.registry import DATASETS
from feature_alignment.pipeline.figures.style import save, stamp
from feature_alignment.pipeline.papers import module_name
from feature_alignment.pipeline.spec import Spec

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Run:
    """The files of one finished run.

    Attributes:
        folder: the run's folder, with spec.json, metrics.csv and arrays.npz.
    """

    folder: Path

    @cached_property
    def spec(self) -> Spec:
        """The spec that was run."""
        return json.loads((self.folder / "spec.json").read_text(encoding="utf-8"))

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """The tidy metrics of all seeds, with the point's name in a first column."""
        frame = pd.read_csv(self.folder / "metrics.csv")
        frame.insert(0, "point", self.spec["point"])
        return frame

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of all seeds, named `seed<seed>/<name>`."""
        with np.load(self.folder / "arrays.npz") as stored:
            return dict(stored)


@dataclass(frozen=True)
class FigureTable:
    """All that a figure is drawn from.

    Attributes:
        frame: the tidy table; claims are judged on it.
        arrays: named arrays for what is not a number: matrices, functions, images.
    """

    frame: pd.DataFrame
    arrays: Arrays = field(default_factory=dict)

    def values(self, metric: str, **where: object) -> pd.Series:
        """The values of a metric, in table order, where the given columns have the given values.

        Raises:
            KeyError: if there is no such row.
        """
        chosen = self.frame["metric"] == metric
        for column, value in where.items():
            chosen &= self.frame[column] == value
        if not chosen.any():
            raise KeyError(f"the table has no {metric} where {where}")
        return self.frame.loc[chosen, "value"]


class Runs(Mapping[str, Run]):
    """The runs of one figure, by the names of their points."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._runs = {name: Run(folder) for name, folder in folders.items()}

    def __getitem__(self, point: str) -> Run:
        return self._runs[point]

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def metrics(self) -> pd.DataFrame:
        """The metrics of all runs, one under the other."""
        return pd.concat([run.metrics for run in self.values()], ignore_index=True)


def figure_module(figure: str) -> ModuleType:
    """The module of a figure."""
    return importlib.import_module(module_name("figures", figure))


def make_table(
    spec: Spec, run_files: Sequence[str], table_file: Path, arrays_file: Path
) -> FigureTable:
    """Gather the runs of a figure into its table, and write it.

    Args:
        spec: the figure's spec; `points` lists its (experiment, point) pairs.
        run_files: the spec.json, metrics.csv and arrays.npz of each of its runs, in any order.
        table_file: the CSV to write.
        arrays_file: the NPZ to write.

    Returns:
        The table.
    """
    folders = {path.parent.name: path.parent for path in map(Path, run_files)}
    runs = Runs({point: folders[point] for _, point in spec["points"]})
    table: FigureTable = figure_module(spec["figure"]).table(runs)
    table.frame.to_csv(table_file, index=False)
    np.savez_compressed(arrays_file, **table.arrays)
    return table


def draw_figure(
    spec: Spec, table_file: str | Path, arrays_file: str | Path, pictures: Sequence[Path]
) -> None:
    """Draw a figure from its table, stamp it with preset and data, and save it.

    Args:
        spec: the figure's spec; `preset` and `datasets` are stamped on it.
        table_file: the CSV that `make_table` wrote.
        arrays_file: the NPZ that `make_table` wrote.
        pictures: the files to write; the suffix chooses the format.
    """
    with np.load(arrays_file) as stored:
        table = FigureTable(pd.read_csv(table_file), dict(stored))
    figure = figure_module(spec["figure"]).draw(table)
    stamp(figure, spec["preset"], describe_data(spec))
    for picture in pictures:
        save(figure, picture)


def describe_data(spec: Spec) -> str:
    """In a few words, the data that a figure shows, stand-ins named as such.

    Args:
        spec: the figure's spec: its `points`, and in `datasets` its (name, source) pairs.

    Example:
        >>> describe_data({"points": [], "datasets": []})
        'none, theory only'
        >>> describe_data({"points": [["disk", "default"]], "datasets": []})
        'generated'
    """
    if not spec["points"]:
        return "none, theory only"
    if not spec["datasets"]:
        return "generated"
    return "; ".join(
        f"{DATASETS[name].title} stand-in ({DATASETS[name].stand_in})"
        if source == "embedded"
        else f"{DATASETS[name].title} ({source})"
        for name, source in spec["datasets"]
    )
