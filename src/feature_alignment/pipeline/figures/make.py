"""Make any figure: from its runs to its tidy table, from the table to the picture."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Picture
from matplotlib.text import Text

from feature_alignment.data.archives import DAMAGE
from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError, reason
from feature_alignment.pipeline.contracts import must, owed_by
from feature_alignment.pipeline.figures.drawing import describe_seeds
from feature_alignment.pipeline.figures.style import save, stamp
from feature_alignment.pipeline.figures.table import FigureTable, Run, Runs
from feature_alignment.pipeline.papers import figure_module, figure_named
from feature_alignment.pipeline.spec import Spec

_SHOWN = 6  # how many changed settings a stamp names


def make_table(spec: Spec, folders: Mapping[str, Path], table: Path, arrays: Path) -> FigureTable:
    """Gather the runs of a figure, in `folders` by point, into its table, a CSV and an NPZ."""
    made = table_of(spec["figure"], spec["points"], folders)
    made.frame.to_csv(table, index=False)
    named: dict[str, Any] = dict(made.arrays)
    np.savez_compressed(arrays, **named)
    return made


def table_of(
    figure: str, points: Sequence[Mapping[str, Any]], folders: Mapping[str, Path]
) -> FigureTable:
    """The tidy table of a figure's runs, in `folders` by point; each point has its `columns`."""
    runs = Runs({p["name"]: Run(folders[p["name"]], p["columns"]) for p in points})
    with owed_by("table", figure_module(figure), figure):
        made = figure_named(figure).table(runs)
        must(isinstance(made, FigureTable), f"returned a {type(made).__name__}")
        missing = [column for column in ("seed", "metric", "value") if column not in made.frame]
        must(not missing, f"returned a frame without {', '.join(missing)}")
    return made


def draw_figure(
    spec: Spec, table: Path, arrays: Path | Mapping[str, np.ndarray], pictures: Sequence[Path]
) -> None:
    """Draw a figure from what `make_table` wrote, stamp it with preset and data, and save it.

    `arrays` is the NPZ, or arrays by name.

    Raises:
        UserError: if the table or its arrays cannot be read.
        PaperError: if `draw` fails; its cause is what it raised.
    """
    file = table
    try:
        frame = pd.read_csv(table, low_memory=False)
        if isinstance(arrays, Path):
            with np.load(file := arrays) as stored:
                arrays = dict(stored)
    except DAMAGE as error:
        raise UserError(
            f"{file}: cannot be read ({reason(error)}); make the figure's table again."
        ) from error
    names = frozenset(name for name, source in spec["datasets"] if source == "embedded")
    content = FigureTable(frame, arrays, spec["claims"], names)
    if spec.get("dataset"):
        content = replace(content, dataset=DATASETS[spec["dataset"]].title)
    with owed_by("draw", figure_module(spec["figure"]), spec["figure"]):
        picture = figure_named(spec["figure"]).draw(content)
        must(isinstance(picture, Picture), f"returned a {type(picture).__name__}")
        name_stand_ins(picture, names)
        points = [point["name"] for point in spec["points"]]
        seeds = describe_seeds(content.frame, picture, points) if points else ""
        stamp(picture, describe_settings(spec), describe_data(spec), seeds)
        save(picture, *pictures)


def name_stand_ins(picture: Picture, stand_ins: Collection[str]) -> None:
    """Write "stand-in" after each dataset that is one, everywhere that a picture names it.

    A name that follows the word "real" means the real dataset and stays.
    """
    titles = "|".join(re.escape(DATASETS[name].title) for name in stand_ins)
    named = re.compile(rf"(?<!real )\b(?:{titles})\b(?! stand-in)" if titles else "(?!)")
    for axis in picture.findobj(Axis):  # drawing it would reset the texts of its ticks
        labels = [label.get_text() for label in axis.get_ticklabels()]
        if any(map(named.search, labels)):
            labels = [named.sub(r"\g<0> stand-in", label) for label in labels]
            axis.set_ticks(axis.get_ticklocs(), labels=labels)
    for text in picture.findobj(Text):
        text.set_text(named.sub(r"\g<0> stand-in", text.get_text()))


def describe_settings(spec: Spec) -> str:
    """The preset that a figure is made with, the result's name, changed settings, and its sizes.

    Example:
        >>> describe_settings({"name": "quick", "preset": "quick", "changed": []})
        'preset: quick'
        >>> describe_settings({"name": "wide", "preset": "quick", "changed": ["width = 8"]})
        'wide: preset quick, changed: width = 8'
        >>> describe_settings({"name": "a", "preset": "a", "changed": [], "sizes": ["n 8 (all)"]})
        'preset: a   sizes (of preset paper): n 8 (all)'
    """
    named = f"{spec['name']}: preset " if spec["name"] != spec["preset"] else "preset: "
    changed = spec["changed"]
    more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    settings = f", changed: {', '.join(changed[:_SHOWN])}{more}" if changed else ""
    sizes = "; ".join(spec.get("sizes", ()))
    of_paper = f"   sizes (of preset paper): {sizes}" if sizes else ""
    return f"{named}{spec['preset']}{settings}{of_paper}"


def describe_data(spec: Spec) -> str:
    """The data that a figure shows, in a few words; stand-ins are named as such.

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
