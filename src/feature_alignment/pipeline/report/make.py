"""Make the report of a workflow: files in, one page out."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from feature_alignment.data.registry import DATASETS
from feature_alignment.pipeline.claims.ledger import load_ledger
from feature_alignment.pipeline.papers import figure_named, paper_of, papers
from feature_alignment.pipeline.proof import read_provenance
from feature_alignment.pipeline.provenance import git_state
from feature_alignment.pipeline.report.page import Report, ReportFigure, render_report
from feature_alignment.pipeline.spec import Spec

PathLike = str | Path


def make_report(
    spec: Spec,
    *,
    pngs: Sequence[PathLike],
    pdfs: Sequence[PathLike],
    tables: Sequence[PathLike],
    provenances: Sequence[PathLike],
    data: Sequence[PathLike],
    verdicts: PathLike,
    robustness: PathLike | None,
    ledgers: Sequence[Path],
    page: Path,
    folder: Path,
) -> None:
    """Write the report about some figures.

    Args:
        spec: what `Plan.selection_spec` tells of the figures.
        pngs: the figures' pictures, in the order of `figures`.
        pdfs: the same as PDF.
        tables: the figures' tables, in the same order.
        provenances: provenance.json of each run.
        data: the provenance of each dataset.
        verdicts: the CSV of verdicts.
        robustness: the CSV of what the multiverse found of each claim; None where it was not run.
        ledgers: the papers' `claims.yaml`.
        page: the HTML file to write.
        folder: the folder that the page will lie in in the end; its links are relative to it.
    """
    figures = [
        ReportFigure(
            name,
            paper_of(name),
            figure_named(name).title,
            figure_named(name).caption,
            *map(Path, files),
            changed=spec["figures"][name]["changed"],
        )
        for name, *files in zip(spec["figures"], pngs, pdfs, tables, strict=True)
    ]
    report = Report(
        name=spec["name"],
        preset=spec["preset"],
        changes=[(key, json.dumps(own), json.dumps(here)) for key, own, here in spec["changes"]],
        papers={key: paper.title for key, paper in papers().items()},
        figures=figures,
        sources=[_data_source(Path(path)) for path in data],
        ledger=load_ledger(ledgers),
        verdicts=pd.read_csv(verdicts),
        git=git_state(),
        robustness=_robustness(robustness),
        multiverse=Path(robustness).with_name("multiverse.html") if robustness else None,
        runs={
            "/".join(path.parts[-3:-1]): read_provenance(path) for path in map(Path, provenances)
        },
    )
    page.write_text(render_report(report, folder), encoding="utf-8")


def _robustness(file: PathLike | None) -> dict[str, Any]:
    if file is None:
        return {}
    judged = pd.read_csv(file).dropna(subset="word")
    return {row["claim"]: row for row in judged.to_dict("records")}


def _data_source(provenance: Path) -> dict[str, Any]:
    told = read_provenance(provenance)["data"]
    return {**told, "stand_in": DATASETS[told["name"]].stand_in if told["stand_in"] else None}
