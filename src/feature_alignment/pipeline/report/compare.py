"""Two results side by side: settings that differ, verdicts that changed, pictures, values."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feature_alignment.errors import UserError
from feature_alignment.pipeline.figures.figure import figure_label
from feature_alignment.pipeline.papers import figure_order, paper_of
from feature_alignment.pipeline.proof import check_proof, making, read_provenance, verdicts_file
from feature_alignment.pipeline.report.page import KINDS, SYMBOLS
from feature_alignment.pipeline.report.rendering import inline_picture, render
from feature_alignment.pipeline.report.strips import strip
from feature_alignment.pipeline.spec import Spec

_PER_CLAIM = ["id", "kind", "figure", "statement", "paper_value", "unit"]
_NUMBERS = ["ours", "sd", "low", "high", "least", "most"]
_PER_RESULT = [*_NUMBERS, "seeds", "verdict", "changed", "by_seed"]
_COLUMNS = [*_PER_CLAIM, *_PER_RESULT]
_SIDES = ("here", "there")
NOT_JUDGED = "not judged"


def compare_results(spec: Spec, verdicts: Path, page: Path, table: Path) -> pd.DataFrame:
    """Write what differs between two finished results as a page (HTML), and the claims as a table.

    The table, a CSV, has both results' values and verdicts of each claim about the figures of the
    first. The spec has the results' names, `name` and `with`, and the `figures` of the verdicts.

    Raises:
        UserError: if the other is not finished or its verdicts are not those on its tables, or if
            one of them is damaged.
    """
    name, other = spec["name"], spec["with"]
    claims = compared_claims(verdicts, verdicts_file(other, spec["figures"]), spec["figures"])
    claims.to_csv(table, index=False, float_format="%.6g")
    rows = [_claim_row(row) for row in claims.to_dict("records")]
    text = render(
        Path(__file__).with_name("compare.html.jinja"),
        name=name,
        other=other,
        settings=list(different_settings(name, other, spec["figures"])),
        claims=rows,
        figures=_figures(spec, rows),
        kinds=KINDS,
        symbols=SYMBOLS,
    )
    page.write_text(text, encoding="utf-8")
    return claims


def compared_claims(mine: Path, other: Path, figures: Sequence[str]) -> pd.DataFrame:
    """Values and verdicts of the claims about some figures, `…_here` and `…_there`.

    Claims are matched by id; if their words differ, those here are shown, and the claim is
    `reworded`. `difference` is the second mean minus the first, `error` its standard error.

    Raises:
        UserError: if one of the files is of an older version.
    """
    here, there = (_verdicts(file, figures).set_index("id") for file in (mine, other))
    new = there[~there.index.isin(here.index)]
    words = pd.concat([here, new])[_PER_CLAIM[1:]]  # in the order of the ledgers
    both = here.index.intersection(there.index)
    reworded = both[here.loc[both, "statement"] != there.loc[both, "statement"]]
    numbers = (found[_PER_RESULT].reindex(words.index) for found in (here, there))
    joined = words.join(
        [side.add_suffix(f"_{name}") for name, side in zip(_SIDES, numbers, strict=True)]
    )
    joined["reworded"] = joined.index.isin(reworded)
    joined = joined.reset_index(names="id")
    joined["difference"] = joined["ours_there"] - joined["ours_here"]
    here, there = (joined[f"by_seed_{side}"].map(standard_error) for side in _SIDES)
    joined["error"] = np.hypot(here, there)
    return joined.fillna({f"verdict_{side}": NOT_JUDGED for side in _SIDES})


def standard_error(by_seed: object) -> float:
    """Standard error of a mean over seeds, from the column `by_seed`; NaN for fewer than two.

    Example:
        >>> round(standard_error("1 2 3"), 3)
        0.577
    """
    means = np.array(by_seed.split() if isinstance(by_seed, str) else [], float)
    return float(means.std(ddof=1) / len(means) ** 0.5) if len(means) > 1 else math.nan


def _verdicts(file: Path, figures: Sequence[str]) -> pd.DataFrame:
    blank = dict.fromkeys(("paper_value", *_NUMBERS), "")
    texts = dict.fromkeys(("by_seed", "unit"), str)
    found = pd.read_csv(file, keep_default_na=False, na_values=blank, dtype=texts)
    if missing := {*_COLUMNS} - {*found}:
        raise UserError(
            f"{file}: it has no column {min(missing)!r}, since an older version wrote it; make it "
            f"again: snakemake --cores all {making(file.parts[1])}."
        )
    return found.loc[found["figure"].isin(figures), _COLUMNS]


def different_settings(
    name: str, other: str, figures: Sequence[str]
) -> Iterator[tuple[str, str, str, str]]:
    """Settings that differ: experiment with key, value here, value there, and the points affected.

    Compares the runs that the figures show here or there. The code and each package's version count
    as settings.
    """
    here, there = (dict(_specs(side, figures)) for side in (name, other))
    found: dict[tuple[str, str, str], list[str]] = {}
    for run in sorted(here.keys() | there.keys()):
        experiment, _, point = run.partition("/")
        for key, mine, own in _differences(here.get(run), there.get(run)):
            found.setdefault((f"{experiment}: {key}", mine, own), []).append(point)
    for row, points in found.items():
        yield *row, ", ".join(points)


def _differences(
    here: dict[str, Any] | None, there: dict[str, Any] | None
) -> Iterator[tuple[str, str, str]]:
    if here is None or there is None:
        yield "the whole run", "–" if here is None else "made", "–" if there is None else "made"
        return
    mine, own = _flat(here), _flat(there)
    if here["library_sha256"] == there["library_sha256"]:  # maybe from two commits
        own["code"] = mine["code"]
    for key in sorted(mine.keys() | own.keys()):
        if mine.get(key) != own.get(key):
            yield key, json.dumps(mine.get(key)), json.dumps(own.get(key))


def _specs(name: str, figures: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for made in (Path("figures") / name / f"{figure}.provenance.json" for figure in figures):
        points = read_provenance(made)["spec"]["points"] if made.exists() else []
        for run in (f"{point['experiment']}/{point['name']}" for point in points):
            record = Path("results") / name / "runs" / run / "provenance.json"
            yield run, read_provenance(record)


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    spec = record["spec"]
    data = {f"data.{key}": value for key, value in spec["data"].items()}
    versions = {f"package {name}": value for name, value in record["versions"].items()}
    git, own = record["git"], {"threads": spec["threads"], "device": spec["device"]}
    at = f"commit {git['commit']}{' with edits' if git['dirty'] else ''}"
    code = f"{record['library_sha256'][:12]}, {at if git['commit'] else 'from no git checkout'}"
    return {**spec["parameters"], **data, **own, "code": code, **versions}


def _claim_row(row: dict[Any, Any]) -> dict[str, Any]:
    sides = [{key: row.get(f"{key}_{side}", row.get(key)) for key in _COLUMNS} for side in _SIDES]
    verdicts = {side["verdict"] for side in sides}
    differs = len(verdicts) > 1 and NOT_JUDGED not in verdicts
    return {**row, "sides": sides, "differs": differs, "strip": strip(*sides)}


def _figures(spec: Spec, claims: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The figures with their claims, and their pictures if both results have them."""
    folders = [Path("figures") / side for side in (spec["name"], spec["with"])]
    both = set.intersection(*({path.stem for path in folder.glob("*.png")} for folder in folders))
    both &= {*spec["figures"]}
    return [
        {
            "name": figure,
            "label": f"{paper_of(figure)}, {figure_label(figure)}",
            "paper": paper_of(figure),
            "pictures": [_picture(folder, figure) for folder in folders] if figure in both else [],
            "claims": [claim for claim in claims if claim["figure"] == figure],
        }
        for figure in sorted(both | {claim["figure"] for claim in claims}, key=figure_order)
    ]


def _picture(folder: Path, figure: str) -> dict[str, Any]:
    check_proof(provenance := folder / f"{figure}.provenance.json")
    record = read_provenance(provenance)
    shown = inline_picture(folder / f"{figure}.png", widest=800)
    return {**shown, "changed": ", ".join(record["spec"]["changed"])}
