"""The data dictionary: what every column, split, layer, metric and array of the results means.

A paper's `metrics.yaml` describes its own names, the file next to this module those that papers
share. A name may be a pattern: a placeholder such as `{step}` matches any text without slash or
underscore, and `{metric}` matches a metric that is itself described. The pattern's texts may repeat
its placeholders; in them, `{unit}` is the unit of `{metric}`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from feature_alignment.errors import UserError
from feature_alignment.files import sha256_of
from feature_alignment.pipeline.figures.figure import figure_label
from feature_alignment.pipeline.papers import paper_folder, paper_of, papers
from feature_alignment.pipeline.parameters import Section, check
from feature_alignment.pipeline.yaml_files import read_yaml

SHARED = Path(__file__).with_name("metrics.yaml")
PAGE = Path("docs") / "data-dictionary.md"
NOT_DESCRIBED = "not described"
Text = Annotated[str, Field(min_length=1)]


class Entry(Section):
    """The description of one name; a text alone is its meaning.

    Attributes:
        meaning: in a sentence or two.
        formula: in plain text, if there is one.
        unit: 1 for a pure number, empty for anything but a number.
        source: where in the paper it is, or whose definition it is.
        values: the possible words in a column, with their meanings.
    """

    meaning: Text
    formula: str = ""
    unit: str = ""
    source: str = ""
    values: dict[str, Text] = Field(default={})

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, found: Any) -> Any:
        return {"meaning": found} if isinstance(found, str) else found


class Metric(Entry):
    """The description of a metric, which always has a unit and a source."""

    unit: Text = "1"
    source: Text  # pyright: ignore[reportGeneralTypeIssues]: pydantic lets it lose its default


class Dictionary(Section):
    """The descriptions in one `metrics.yaml`, by kind; `claims` are the columns of claims.csv."""

    columns: dict[str, Entry] = Field(default={})
    splits: dict[str, Entry] = Field(default={})
    layers: dict[str, Entry] = Field(default={})
    metrics: dict[str, Metric] = Field(default={})
    arrays: dict[str, Entry] = Field(default={})
    claims: dict[str, Entry] = Field(default={})


TITLES = {
    "columns": "Columns",
    "splits": "Values of `split`",
    "layers": "Values of `layer`",
    "metrics": "Metrics",
    "arrays": "Keys of array files",
    "claims": "Columns of `claims.csv`",
}


@cache
def read_dictionary(file: Path) -> Dictionary:
    """Read and check one `metrics.yaml`.

    Raises:
        UserError: naming the file and the key that is wrong.
    """
    found = check(Dictionary, read_yaml(file), lambda _: str(file))
    for kind in TITLES:
        for name in getattr(found, kind):
            words = re.findall(r"\{(\w+)\}", name)
            if len({word for word in words if word.isidentifier()}) < len(words):
                wrong = "write each placeholder once, as a word"
            elif (kind, name) == ("metrics", "{metric}"):
                wrong = "it stands for another metric; add a text to it"
            else:
                continue
            raise UserError(f"{file}: {kind}.{name}: {wrong}.")
    return found


def dictionaries(*keys: str) -> list[Path]:
    """The files that describe the results of these papers (default: all), the shared one last."""
    files = [paper_folder(key) / "metrics.yaml" for key in keys or papers()]
    return [*(file for file in files if file.exists()), SHARED]


def describe(paper: str, kind: str, name: str) -> Entry | None:
    """The description of a name in a paper's results, or None if there is none.

    `kind` is a field of `Dictionary`; the name of a run's array comes without `seed<i>/`.
    """
    entries = [getattr(read_dictionary(file), kind) for file in dictionaries(paper)]
    for own in entries:
        if name in own:
            return own[name]
    for pattern, entry in ((key, own[key]) for own in entries for key in own):
        match = _pattern(pattern).fullmatch(name)
        if match is not None:
            words = match.groupdict()
            base = describe(paper, "metrics", words["metric"]) if "metric" in words else None
            if base is not None or "metric" not in words:
                return _filled(entry, words | {"unit": "" if base is None else base.unit})
    return None


@cache
def _pattern(key: str) -> re.Pattern[str]:
    def words(found: re.Match[str]) -> str:
        return f"(?P<{found[1]}>{'.+' if found[1] == 'metric' else '[^/_]+'})"

    return re.compile(re.sub(r"\\\{(\w+)\\\}", words, re.escape(key)))


def _filled(entry: Entry, words: Mapping[str, str]) -> Entry:
    texts = {key: getattr(entry, key) for key in ("meaning", "formula", "unit")}
    for word, value in words.items():
        texts = {key: text.replace(f"{{{word}}}", value) for key, text in texts.items()}
    return entry.but(**texts)


def page(keys: Iterable[str]) -> str:
    """The dictionary of some papers as one page of Markdown."""
    lines = [
        "# Data dictionary",
        "",
        "<!-- Made from the files metrics.yaml by `python -m feature_alignment dictionary`. -->",
        "",
        "What every column, metric and array of `results/<name>` means: of `metrics.csv` and "
        "`arrays.npz` of each run, and of each figure's table, `tables/<figure>.csv` and `.npz`. "
        "The same stands beside the tables as a Frictionless Data Package, "
        "`tables/datapackage.json`. In a name, `{step}` and the like stand for any number or "
        "word, `{metric}` for another metric's name, and `{unit}` for its unit. Keys of a run's "
        "`arrays.npz` begin with `seed<i>/`. Symbols are those of [notation.md](notation.md).",
    ]
    lines += _chapter("All papers", SHARED)
    for key in keys:
        file = paper_folder(key) / "metrics.yaml"
        lines += _chapter(f"{key}: {papers()[key].title}", file) if file.exists() else []
    return "\n".join(lines) + "\n"


def _chapter(title: str, file: Path) -> Iterator[str]:
    yield from ("", f"## {title}")
    for kind, heading in TITLES.items():
        entries: dict[str, Entry] = getattr(read_dictionary(file), kind)
        texts = ("meaning", "formula", "unit", "source")
        keys = [key for key in texts if any(getattr(entry, key) for entry in entries.values())]
        if entries:
            head = [_row(["name", *keys]), _row(["---"] * (1 + len(keys)))]
            yield from ("", f"### {heading}", "", *head)
        for name, entry in entries.items():
            words = "; ".join(f"`{word}`: {meaning}" for word, meaning in entry.values.items())
            cells = {key: getattr(entry, key) for key in keys}
            cells["meaning"] += f" {words}." if words else ""
            yield _row([f"`{name}`", *cells.values()])


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def write_package(name: str, tables: Iterable[str | Path], file: Path) -> None:
    """Write the Frictionless Data Package (version 2) of a result's tables to a JSON file.

    The tables are `<figure>.csv`, each with an NPZ of arrays next to it.
    Source: https://datapackage.org/standard/data-package.
    """
    files = [Path(table) for table in tables]
    keys = sorted({paper_of(table.stem) for table in files})
    about = [papers()[key] for key in keys]
    package = {
        "$schema": "https://datapackage.org/profiles/2.0/datapackage.json",
        "name": name,
        "title": f"Tables of the figures of {', '.join(keys)}",
        "sources": [
            {"title": f"{p.authors}: {p.title}, {p.venue}"} | ({"path": p.url} if p.url else {})
            for p in about
        ],
        "resources": [
            resource
            for table in files
            for resource in (_table(table), _arrays(table.with_suffix(".npz")))
        ],
    }
    file.write_text(json.dumps(package, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _resource(file: Path, name: str) -> dict[str, Any]:
    title = f"{paper_of(file.stem)}, {figure_label(file.stem)}"
    known = {"path": file.name, "format": file.suffix[1:], "bytes": file.stat().st_size}
    return {"name": name, "title": title, **known, "hash": f"sha256:{sha256_of(file)}"}


def _table(file: Path) -> dict[str, Any]:
    import pandas as pd

    frame, paper = pd.read_csv(file, low_memory=False), paper_of(file.stem)
    types = {"i": "integer", "f": "number", "b": "boolean"}
    fields = []
    for column in frame:
        kind = types.get(frame[column].dtype.kind, "string")
        fields.append({"name": column, "type": kind, **_said(paper, "columns", str(column))})
        if column in ("metric", "split", "layer"):
            kind, values = f"{column}s", dict.fromkeys(map(str, frame[column].unique()))
            fields[-1][kind] = [{"name": value, **_said(paper, kind, value)} for value in values]
    about = {"type": "table", "mediatype": "text/csv", "encoding": "utf-8"}
    return {**_resource(file, file.stem), **about, "schema": {"fields": fields}}


def _arrays(file: Path) -> dict[str, Any]:
    import numpy as np

    with np.load(file) as stored:
        arrays = {key: stored[key] for key in stored.files}
    described = [
        {"name": key, "shape": list(array.shape), "type": str(array.dtype)}
        | _said(paper_of(file.stem), "arrays", key)
        for key, array in arrays.items()
    ]
    about = {"mediatype": "application/zip", "arrays": described}
    return {**_resource(file, f"{file.stem}-arrays"), **about}


def _said(paper: str, kind: str, name: str) -> dict[str, Any]:
    entry = describe(paper, kind, name)
    if entry is None:
        return {"description": NOT_DESCRIBED}
    said = {"description": entry.meaning, **entry.plain()}
    return {key: value for key, value in said.items() if value and key != "meaning"}
