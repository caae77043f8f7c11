"""The report's page: figures inline, claims with their verdicts, what made them and at what cost.

The page is one self-contained file: it fetches no fonts or other addresses. Its one script, which
filters and enlarges, is inline, and everything can be read without scripts.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from feature_alignment.pipeline.claims.ledger import Claim
from feature_alignment.pipeline.claims.rules import Outcome
from feature_alignment.pipeline.figures.figure import figure_label
from feature_alignment.pipeline.papers import Paper
from feature_alignment.pipeline.report.deviations import Section
from feature_alignment.pipeline.report.rendering import inline_picture, render
from feature_alignment.pipeline.report.strips import strip
from feature_alignment.pipeline.report.wording import duration_text, memory_text, share_text

SYMBOLS = {
    Outcome.REPRODUCED: "✓",
    Outcome.PARTLY: "◐",
    Outcome.NOT_REPRODUCED: "✗",
    Outcome.UNDECIDED: "?",
    Outcome.HOLDS: "✓",
    Outcome.HOLDS_AS_CORRECTED: "✎",
    Outcome.FAILS: "✗",
    Outcome.NOT_TESTABLE: "○",
}
_SIGNS = {
    "✓": "reproduced or holding",
    "✎": "holding as corrected",
    "◐": "partly",
    "✗": "not reproduced or failing",
    "?": "undecided",
    "○": "not testable here",
}
KINDS = {
    "number": "Numbers",
    "comparison": "Directions and comparisons",
    "mathematics": "Mathematics",
    "ours": "Ours, not the papers'",
}


@dataclass(frozen=True)
class ReportFigure:
    """One figure: its name, its paper's key, what to print, and the files to show or link to.

    `changed` are the settings behind it that differ from the preset's, such as "width = 8"; `runs`
    are the names of the runs that it shows.
    """

    name: str
    paper: str
    title: str
    caption: str
    png: Path
    pdf: Path
    table: Path
    changed: Sequence[str] = ()
    runs: Sequence[str] = ()


@dataclass(frozen=True)
class Report:
    """The contents of the report."""

    name: str
    preset: str
    # The settings that differ from the preset's: key, the preset's value, ours.
    changes: Sequence[tuple[str, str, str]]
    papers: Mapping[str, Paper]  # by citation key, in the order of the page
    figures: Sequence[ReportFigure]
    # The facts that `data.prepare.prepare_dataset` returned about the datasets that the figures
    # show, `stand_in` in words or None for real data; no entries for synthetic data.
    sources: Sequence[Mapping[str, Any]]
    ledger: Sequence[Claim]
    verdicts: pd.DataFrame  # what `pipeline.claims.evaluate.evaluate_all` returns, or its CSV read
    # `commit` and `dirty` of the checkout that makes the report; both may be None.
    git: Mapping[str, Any]
    runs: Mapping[str, Mapping[str, Any]]  # provenance of each run, by its name
    # The row of `robustness.csv` of each claim that the multiverse judged.
    robustness: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    multiverse: Path | None = None  # the multiverse's page; None if it was not run
    # Like `git`, for the checkout that ran the multiverse.
    multiverse_git: Mapping[str, Any] = field(default_factory=dict)
    # What each claim's numbers are, in words.
    quantities: Mapping[str, str] = field(default_factory=dict)
    # The sections of each paper's `deviations.md`.
    deviations: Mapping[str, Sequence[Section]] = field(default_factory=dict)
    # The folder with the user's own papers, quoted for a shell; empty for none.
    papers_path: str = ""


def render_report(report: Report, folder: Path) -> str:
    """The report as one HTML page, with links relative to its final folder."""
    rows = _claim_rows(report)
    return render(
        Path(__file__).with_name("page.html.jinja"),
        report=report,
        other_commits={
            "some runs are": _other_commits(report, [run["git"] for run in report.runs.values()]),
            "the readings of the multiverse are": _other_commits(report, [report.multiverse_git]),
        },
        versions=_versions(report),
        stand_ins=[source for source in report.sources if source["stand_in"]],
        ours=sum(row["kind"] == "ours" for row in rows),
        total=sum(row["kind"] != "ours" for row in rows),
        not_counted=sum(row["changed"] for row in rows),
        changed=any(figure.changed for figure in report.figures),
        papers=_papers(report, rows, folder),
        multiverse=_link(report.multiverse, folder) if report.multiverse else None,
        experiments={
            name: list(runs)
            for name, runs in groupby(sorted(report.runs), key=lambda run: run.partition("/")[0])
        },
        cost=lambda names: _cost([report.runs[name] for name in names]),
        kinds=KINDS,
        symbols=SYMBOLS,
        signs=_SIGNS,
        verdicts=list(Outcome),
    )


def _claim_rows(report: Report) -> list[dict[str, Any]]:
    by_id = {claim.id: claim for claim in report.ledger}
    figures = {figure.name: figure for figure in report.figures}
    rows = []
    for verdict in report.verdicts.to_dict("records"):
        claim = by_id[verdict["id"]]
        changed = bool(figures[claim.figure].changed)
        rows.append(
            {
                **verdict,
                **dict(claim),
                "asked": verdict["criterion"],
                "why": claim.criterion.why,
                "quantity": report.quantities.get(claim.id, ""),
                "strip": strip(verdict),
                "symbol": SYMBOLS[Outcome(verdict["verdict"])],
                "changed": changed,
                "robustness": None if changed else report.robustness.get(claim.id),
            }
        )
    return rows


def _tally(rows: list[dict[str, Any]]) -> list[tuple[str, list[tuple[str, str, int]]]]:
    """Verdicts, symbols and counts of each kind, except those of changed settings."""
    counts = Counter((row["kind"], row["verdict"]) for row in rows if not row["changed"])
    return [
        (words, verdicts)
        for kind, words in KINDS.items()
        if (verdicts := [(str(o), SYMBOLS[o], counts[kind, o]) for o in Outcome if counts[kind, o]])
    ]


def _papers(report: Report, rows: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    papers = []
    for key, paper in report.papers.items():
        claims = [row for row in rows if row["paper"] == key]
        figures = [
            _figure_row(figure, [row for row in claims if row["figure"] == figure.name], folder)
            for figure in report.figures
            if figure.paper == key
        ]
        if figures:
            about = {"key": key, "figures": figures, "claims": claims, "counts": _tally(claims)}
            papers.append({**vars(paper), **about, "deviations": report.deviations.get(key, ())})
    return papers


def _figure_row(figure: ReportFigure, claims: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    files = (figure.pdf, figure.png, figure.table, figure.table.with_suffix(".npz"))
    return {
        **vars(figure),
        "label": figure_label(figure.name),
        "own": figure.name.partition("_")[2],
        "picture": inline_picture(figure.png),
        "files": {file.suffix[1:].upper(): _link(file, folder) for file in files},
        "claims": claims,
        "signs": {sign: [row for row in claims if row["symbol"] == sign] for sign in _SIGNS},
    }


def _link(path: Path, folder: Path) -> str:
    return quote(Path(os.path.relpath(path, folder)).as_posix())


def _other_commits(report: Report, made: Iterable[Mapping[str, Any]]) -> list[str]:
    """The commits at which something was made, with edits or without, except the report's own."""
    states = {(git["commit"], git["dirty"]) for git in made if git}
    states.discard((report.git["commit"], report.git["dirty"]))
    return sorted(f"{commit}{' with edits' if dirty else ''}" for commit, dirty in states)


def _versions(report: Report) -> list[tuple[str, str]]:
    """Name and version of each package that the runs used; all versions if runs differ."""
    found: dict[str, set[str]] = {}
    for run in report.runs.values():
        for name, version in run["versions"].items():
            found.setdefault(name, set()).add(version)
    return [(name, " and ".join(sorted(found[name]))) for name in sorted(found)]


def _cost(runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Total time, the share of it spent on measurements, the largest memory, and devices."""
    parts = sum((Counter(run["seconds_by_part"]) for run in runs), Counter())
    gpu = [run["peak_gpu_memory_mib"] for run in runs if run["peak_gpu_memory_mib"] is not None]
    return {
        "device": " and ".join(sorted({run["machine"]["device"] for run in runs})),
        "time": duration_text(sum(run["wall_seconds"] for run in runs)),
        "measuring": share_text(parts, "measuring"),
        "memory": memory_text(max((run["peak_memory_mib"] for run in runs), default=None)),
        "gpu_memory": memory_text(max(gpu, default=None)),
    }
