"""Universes that were run, read from the archives of their runs."""

import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from feature_alignment.pipeline.figures.table import Run, Runs
from feature_alignment.pipeline.papers import figure_named


@dataclass(frozen=True)
class Finished:
    """A universe that was run.

    Attributes:
        number: from 0, the default reading.
        levels: the name of each setting's value.
        tables: the tables of the figures all of whose runs ended well.
        failed: why runs failed, by run.
    """

    number: int
    levels: dict[str, str]
    tables: dict[str, pd.DataFrame]
    failed: dict[str, str]


def read_blocks(archives: Sequence[Path]) -> Iterator[Finished]:
    """The universes of some archives, in order, with their figures' tables made anew."""
    for file in archives:
        with TemporaryDirectory() as folder, zipfile.ZipFile(file) as archive:
            archive.extractall(folder)
            found = Path(folder).glob("*/universe.json")
            yield from map(_read, sorted(found, key=lambda told: int(told.parts[-2])))


def _read(told: Path) -> Finished:
    about = json.loads(told.read_text(encoding="utf-8"))
    tables = {}
    for figure, points in about["figures"].items():
        folders = {p["name"]: told.parent / p["experiment"] / p["name"] for p in points}
        if all((folder / "metrics.csv").exists() for folder in folders.values()):
            runs = Runs({p["name"]: Run(folders[p["name"]], p["columns"]) for p in points})
            tables[figure] = figure_named(figure).table(runs).frame
    return Finished(about["number"], about["levels"], tables, about["failed"])
