"""Two results side by side: settings that differ, verdicts that changed, pictures, values."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from feature_alignment.pipeline.figures.figure import figure_label
from feature_alignment.pipeline.papers import figure_order, paper_of
from feature_alignment.pipeline.proof import read_provenance, verdicts_file
from feature_alignment.pipeline.report.rendering import render
from feature_alignment.pipeline.report.wording import measured_text, number_text

TEMPLATE = Path(__file__).with_name("compare.html.jinja")
_PER_CLAIM = ["id", "figure", "statement", "paper_value"]
_PER_RESULT = ["ours", "sd", "seeds", "verdict", "changed"]


def compare_results(name: str, other: str, page: Path, table: Path) -> pd.DataFrame:
    """Write what differs between two finished results as a page, and the claims as a CSV.

    Args:
        name: the one result's name.
        other: the other's.
        page: the HTML file to write.
        table: the CSV to write: both results' values and verdicts of each claim of either.

    Raises:
        UserError: if one of them is not finished, or damaged.
    """
    claims = compared_claims(name, other)
    claims.to_csv(table, index=False, float_format="%.6g")
    differ = claims[claims["verdict_here"] != claims["verdict_there"]]
    text = render(
        TEMPLATE,
        name=name,
        other=other,
        settings=list(different_settings(name, other)),
        differ=_claim_rows(differ),
        claims=_claim_rows(claims),
        figures=_figures(name, other),
    )
    page.write_text(text, encoding="utf-8")
    return claims


def compared_claims(name: str, other: str) -> pd.DataFrame:
    """Values and verdicts of the claims of both results, `…_here` and `…_there`."""
    sides = [
        pd.read_csv(verdicts_file(side), keep_default_na=False, na_values={"ours": "", "sd": ""})
        for side in (name, other)
    ]
    here, there = (side.set_index(_PER_CLAIM)[_PER_RESULT] for side in sides)
    joined = here.join(there, how="outer", lsuffix="_here", rsuffix="_there", sort=False)
    return joined.fillna(
        {f"verdict_{side}": "not judged" for side in ("here", "there")}
    ).reset_index()


def different_settings(name: str, other: str) -> Iterator[tuple[str, str, str, str]]:
    """Experiment with key, the value here, the value there, and the points that it concerns."""
    here, there = (dict(_specs(side)) for side in (name, other))
    found: dict[tuple[str, str, str], list[str]] = {}
    for run in sorted(here.keys() | there.keys()):
        experiment, _, point = run.partition("/")
        for key, mine, own in _differences(here.get(run), there.get(run)):
            found.setdefault((f"{experiment}: {key}", mine, own), []).append(point)
    for (key, mine, own), points in found.items():
        yield key, mine, own, ", ".join(points)


def _differences(
    here: dict[str, Any] | None, there: dict[str, Any] | None
) -> Iterator[tuple[str, str, str]]:
    if here is None or there is None:
        yield "the whole run", "–" if here is None else "made", "–" if there is None else "made"
        return
    mine, own = _flat(here), _flat(there)
    for key in sorted(mine.keys() | own.keys()):
        if mine.get(key) != own.get(key):
            yield key, json.dumps(mine.get(key)), json.dumps(own.get(key))


def _specs(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in (Path("results") / name / "runs").glob("*/*/spec.json"):
        yield "/".join(file.parts[-3:-1]), json.loads(file.read_text(encoding="utf-8"))


def _flat(spec: dict[str, Any]) -> dict[str, Any]:
    data = {f"data.{key}": value for key, value in spec["data"].items()}
    return {**spec["parameters"], **data, "threads": spec["threads"], "device": spec["device"]}


def _claim_rows(claims: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            **{str(key): value for key, value in row.items()},
            "paper_value": number_text(_number(row["paper_value"])),
            "here": measured_text(_number(row["ours_here"]), _number(row["sd_here"])),
            "there": measured_text(_number(row["ours_there"]), _number(row["sd_there"])),
        }
        for row in claims.to_dict("records")
    ]


def _number(value: Any) -> float | None:
    return None if value == "" or pd.isna(value) else float(value)


def _figures(name: str, other: str) -> list[dict[str, Any]]:
    """The figures that both results have, their pictures beside each other."""
    folders = [Path("figures") / side for side in (name, other)]
    names = [{path.stem for path in folder.glob("*.png")} for folder in folders]
    return [
        {
            "label": f"{paper_of(figure)}, {figure_label(figure)}",
            "pictures": [_picture(folder, figure) for folder in folders],
        }
        for figure in sorted(names[0] & names[1], key=figure_order)
    ]


def _picture(folder: Path, figure: str) -> dict[str, str]:
    record = read_provenance(folder / f"{figure}.provenance.json")
    picture = base64.b64encode((folder / f"{figure}.png").read_bytes()).decode("ascii")
    return {"data": picture, "changed": ", ".join(record["spec"]["changed"])}
