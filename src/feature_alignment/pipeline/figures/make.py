"""Make any figure: from its runs to its tidy table, from the table to the picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Picture

from feature_alignment.data.registry import DATASETS
from feature_alignment.pipeline.contracts import must, owed_by
from feature_alignment.pipeline.figures.drawing import describe_seeds
from feature_alignment.pipeline.figures.style import save, stamp
from feature_alignment.pipeline.figures.table import FigureTable, Run, Runs
from feature_alignment.pipeline.papers import figure_module, figure_named
from feature_alignment.pipeline.spec import Spec

_SHOWN = 6
"""How many changed settings a stamp names."""


def make_table(spec: Spec, folders: Mapping[str, Path], table: Path, arrays: Path) -> FigureTable:
    """Gather the runs of a figure, in `folders` by point, into its table, a CSV and an NPZ."""
    runs = Runs({p["name"]: Run(folders[p["name"]], p["columns"]) for p in spec["points"]})
    with owed_by("table", figure_module(spec["figure"]), spec["figure"]):
        made = figure_named(spec["figure"]).table(runs)
        must(isinstance(made, FigureTable), f"returned a {type(made).__name__}")
        missing = [column for column in ("seed", "metric", "value") if column not in made.frame]
        must(not missing, f"returned a frame without {', '.join(missing)}")
        made.frame.to_csv(table, index=False)
        named: dict[str, Any] = dict(made.arrays)
        np.savez_compressed(arrays, **named)
    return made


def draw_figure(spec: Spec, table: Path, arrays: Path, pictures: Sequence[Path]) -> None:
    """Draw a figure from what `make_table` wrote, stamp it with preset and data, and save it."""
    with np.load(arrays) as stored:
        content = FigureTable(pd.read_csv(table), dict(stored))
    with owed_by("draw", figure_module(spec["figure"]), spec["figure"]):
        picture = figure_named(spec["figure"]).draw(content)
        must(isinstance(picture, Picture), f"returned a {type(picture).__name__}")
        stamp(picture, describe_settings(spec), describe_data(spec), describe_seeds(content.frame))
        for file in pictures:
            save(picture, file)


def describe_settings(spec: Spec) -> str:
    """The preset that a figure is made with, the name of its result, and what was changed.

    Example:
        >>> describe_settings({"name": "quick", "preset": "quick", "changed": []})
        'preset: quick'
        >>> describe_settings({"name": "wide", "preset": "quick", "changed": ["width = 8"]})
        'wide: preset quick, changed: width = 8'
    """
    named = f"{spec['name']}: preset " if spec["name"] != spec["preset"] else "preset: "
    changed = spec["changed"]
    more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    settings = f", changed: {', '.join(changed[:_SHOWN])}{more}" if changed else ""
    return f"{named}{spec['preset']}{settings}"


def describe_data(spec: Spec) -> str:
    """In a few words, the data that a figure shows, stand-ins named as such.

    Example:
        >>> describe_data({"points": [], "datasets": []})
        'none, theory only'
        >>> describe_data({"points": [{"name": "default"}], "datasets": []})
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
