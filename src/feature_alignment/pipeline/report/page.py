"""The report's page: figures inline, claims with their verdicts, what made them and at what cost.

One file that needs nothing else: no scripts, no fonts, no addresses outside.
"""

import base64
import os
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from feature_alignment.pipeline.claims.ledger import Claim
from feature_alignment.pipeline.claims.rules import Outcome
from feature_alignment.pipeline.figures.figure import figure_label
from feature_alignment.pipeline.report.rendering import render
from feature_alignment.pipeline.report.wording import (
    count_text,
    duration_text,
    measured_text,
    memory_text,
    number_text,
    share_text,
)

TEMPLATE = Path(__file__).with_name("page.html.jinja")

_SYMBOLS = {
    Outcome.REPRODUCED: "✓",
    Outcome.PARTLY: "◐",
    Outcome.NOT_REPRODUCED: "✗",
    Outcome.UNDECIDED: "?",
    Outcome.HOLDS: "✓",
    Outcome.HOLDS_AS_CORRECTED: "✎",
    Outcome.FAILS: "✗",
    Outcome.NOT_TESTABLE: "○",
}
_KINDS = {
    "number": "Numbers",
    "comparison": "Directions and comparisons",
    "mathematics": "Mathematics",
    "ours": "Ours, not the papers'",
}
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class ReportFigure:
    """One figure: its name, its paper's key, what to print, and the files to show or link to.

    `changed` are the settings behind it that are not the preset's own, such as "width = 8".
    """

    name: str
    paper: str
    title: str
    caption: str
    png: Path
    pdf: Path
    table: Path
    changed: Sequence[str] = ()


@dataclass(frozen=True)
class Report:
    """All that the report tells.

    Attributes:
        name: the result's name.
        preset: the preset that it is made with.
        changes: the settings that are not the preset's own: key, the preset's value, ours.
        papers: titles by citation key, in the order of the page.
        sources: what `data.prepare.prepare_dataset` told of the datasets that the figures show,
            `stand_in` in words, None for the real data; none for synthetic data.
        ledger: the claims.
        verdicts: what `pipeline.claims.evaluate.evaluate_all` returns, or its CSV read.
        git: `commit` and `dirty` of the checkout that makes the report; both may be None.
        runs: provenance of each run, by its name.
        robustness: of each claim that the multiverse judged, its row of `robustness.csv`.
        multiverse: the multiverse's page; None where it was not run.
    """

    name: str
    preset: str
    changes: Sequence[tuple[str, str, str]]
    papers: Mapping[str, str]
    figures: Sequence[ReportFigure]
    sources: Sequence[Mapping[str, Any]]
    ledger: Sequence[Claim]
    verdicts: pd.DataFrame
    git: Mapping[str, Any]
    runs: Mapping[str, Mapping[str, Any]]
    robustness: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    multiverse: Path | None = None


def render_report(report: Report, folder: Path) -> str:
    """The report as one HTML page, with links relative to the folder that it will lie in.

    Raises:
        ValueError: if a verdict has no claim, a claim no figure, or a figure no paper on the page,
            or a picture is not a PNG file.
    """
    rows = _claim_rows(report)
    return render(
        TEMPLATE,
        name=report.name,
        preset=report.preset,
        changes=report.changes,
        git=report.git,
        other_commits=_other_commits(report),
        versions=_versions(report),
        sources=report.sources,
        stand_ins=[source for source in report.sources if source["stand_in"]],
        counts=_tally(rows),
        total=count_text(sum(row["kind"] != "ours" for row in rows), "claim"),
        ours=count_text(sum(row["kind"] == "ours" for row in rows), "question"),
        not_counted=sum(row["changed"] for row in rows),
        papers=_papers(report, rows, folder),
        multiverse=_link(report.multiverse, folder) if report.multiverse else None,
        runs=_run_rows(report),
    )


def _claim_rows(report: Report) -> list[dict[str, Any]]:
    by_id = {claim.id: claim for claim in report.ledger}
    shown = {figure.name for figure in report.figures}
    changed = {figure.name for figure in report.figures if figure.changed}
    rows = []
    for verdict in report.verdicts.to_dict("records"):
        if verdict["id"] not in by_id:
            raise ValueError(f"the verdict on {verdict['id']} has no claim in the ledger")
        if verdict["figure"] not in shown:
            raise ValueError(f"claim {verdict['id']} is about {verdict['figure']}, not on the page")
        claim = by_id[verdict["id"]]
        outcome = Outcome(verdict["verdict"])
        rows.append(
            {
                **dict(claim),
                "why": claim.criterion.why,
                "unit": "" if claim.unit == "1" else claim.unit,
                "paper": number_text(verdict["paper_value"]),
                "ours": measured_text(verdict["ours"], verdict["sd"]),
                "seeds": count_text(verdict["seeds"], "seed") if verdict["seeds"] else "",
                "kind_words": _KINDS[claim.kind],
                "verdict": str(outcome),
                "symbol": _SYMBOLS[outcome],
                "reason": verdict["reason"][0].upper() + verdict["reason"][1:],
                "changed": verdict["figure"] in changed,
                "robustness": report.robustness.get(verdict["id"]),
            }
        )
    return rows


def _tally(rows: list[dict[str, Any]]) -> list[tuple[str, list[tuple[str, str, int]]]]:
    """Of each kind the verdicts, symbols and counts, those of changed settings left out."""
    counts = Counter((row["kind"], row["verdict"]) for row in rows if not row["changed"])
    tally = [
        (words, [(str(o), _SYMBOLS[o], counts[kind, o]) for o in Outcome if counts[kind, o]])
        for kind, words in _KINDS.items()
    ]
    return [(words, verdicts) for words, verdicts in tally if verdicts]


def _papers(report: Report, rows: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    for figure in report.figures:
        if figure.paper not in report.papers:
            raise ValueError(f"{figure.name} is of paper {figure.paper}, which is not on the page")
    papers = []
    for key, title in report.papers.items():
        figures = [
            _figure_row(figure, [row for row in rows if row["figure"] == figure.name], folder)
            for figure in report.figures
            if figure.paper == key
        ]
        if figures:
            counts = _tally([row for figure in figures for row in figure["claims"]])
            papers.append({"key": key, "title": title, "figures": figures, "counts": counts})
    return papers


def _figure_row(figure: ReportFigure, claims: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    picture = figure.png.read_bytes()
    width, height = _png_size(picture, figure.png)
    return {
        **vars(figure),
        "label": figure_label(figure.name),
        "picture": base64.b64encode(picture).decode("ascii"),
        "width": width,
        "height": height,
        "pdf": _link(figure.pdf, folder),
        "table": _link(figure.table, folder),
        "claims": claims,
    }


def _png_size(picture: bytes, path: Path) -> tuple[int, int]:
    if not picture.startswith(_PNG_SIGNATURE):
        raise ValueError(f"{path} is not a PNG file")
    return struct.unpack(">II", picture[16:24])


def _link(path: Path, folder: Path) -> str:
    return quote(Path(os.path.relpath(path, folder)).as_posix())


def _other_commits(report: Report) -> list[str]:
    """Commits that runs were made at, where they are not the report's own, clean checkout."""
    states = {(run["git"]["commit"], run["git"]["dirty"]) for run in report.runs.values()}
    states.discard((report.git["commit"], report.git["dirty"]))
    return sorted(f"{commit}{' with edits' if dirty else ''}" for commit, dirty in states)


def _versions(report: Report) -> list[tuple[str, str]]:
    """Name and version of each package that the runs used; all versions where runs differ."""
    found: dict[str, set[str]] = {}
    for run in report.runs.values():
        for name, version in run["versions"].items():
            found.setdefault(name, set()).add(version)
    return [(name, " and ".join(sorted(found[name]))) for name in sorted(found)]


def _run_rows(report: Report) -> list[dict[str, str]]:
    return [
        {
            "name": name,
            "device": run["machine"]["device"],
            "threads": str(run["threads"]),
            "time": duration_text(run["wall_seconds"]),
            "measuring": share_text(run["seconds_by_part"], "measuring"),
            "memory": memory_text(run["peak_memory_mib"]),
            "gpu_memory": memory_text(run["peak_gpu_memory_mib"]),
        }
        for name, run in sorted(report.runs.items())
    ]
