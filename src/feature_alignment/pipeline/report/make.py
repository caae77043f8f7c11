"""Make the report of a workflow: files in, one page out."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from feature_alignment.data.registry import DATASETS
from feature_alignment.pipeline.claims.ledger import Claim, load_ledger
from feature_alignment.pipeline.dictionary import describe
from feature_alignment.pipeline.papers import figure_named, paper_folder, paper_of, papers
from feature_alignment.pipeline.proof import read_provenance
from feature_alignment.pipeline.provenance import git_state
from feature_alignment.pipeline.report.deviations import sections
from feature_alignment.pipeline.report.page import Report, ReportFigure, render_report
from feature_alignment.pipeline.spec import Spec


def make_report(
    spec: Spec,
    files: Mapping[str, Sequence[str]],
    verdicts: str,
    ledgers: Sequence[Path],
    page: Path,
    folder: Path,
) -> None:
    """Write the report about some figures.

    Args:
        spec: the result of `Plan.selection_spec` for the figures.
        files: the figures' `pngs`, `pdfs`, `tables` and their provenance, `made`, in the order of
            the spec; the runs' `provenances`; `data`, the provenance of each dataset; `robustness`,
            the multiverse's CSV of claims, empty if the multiverse was not run.
        verdicts: the CSV of verdicts.
        ledgers: the papers' `claims.yaml`.
        page: the HTML file to write.
        folder: the final folder of the page; its links are relative to it.
    """
    of_figures = (files[kind] for kind in ("pngs", "pdfs", "tables", "made"))
    robustness = next(map(Path, files["robustness"]), None)
    figures = [
        ReportFigure(
            name,
            paper_of(name),
            figure_named(name).title,
            figure_named(name).caption,
            *map(Path, shown),
            changed=spec["figures"][name]["changed"],
            runs=[
                f"{point['experiment']}/{point['name']}"
                for point in read_provenance(Path(record))["spec"]["points"]
            ],
        )
        for name, *shown, record in zip(spec["figures"], *of_figures, strict=True)
    ]
    ledger, own = load_ledger(ledgers), os.environ.get("FEATURE_ALIGNMENT_PAPERS")
    sources = [read_provenance(Path(path))["data"] for path in files["data"]]
    named = {told["name"]: DATASETS[told["name"]].stand_in for told in sources if told["stand_in"]}
    report = Report(
        name=spec["name"],
        preset=spec["preset"],
        changes=[(key, json.dumps(own), json.dumps(here)) for key, own, here in spec["changes"]],
        papers=papers(),
        figures=figures,
        sources=[{**told, "stand_in": named.get(told["name"])} for told in sources],
        ledger=ledger,
        verdicts=pd.read_csv(verdicts),
        git=git_state(),
        robustness={} if robustness is None else _robustness(robustness),
        multiverse=robustness.with_name("multiverse.html") if robustness else None,
        multiverse_git=_git_of(robustness),
        runs={
            "/".join(path.parts[-3:-1]): read_provenance(path)
            for path in map(Path, files["provenances"])
        },
        quantities={claim.id: _quantity(claim) for claim in ledger},
        deviations={key: list(sections(paper_folder(key) / "deviations.md")) for key in papers()},
        papers_path=shlex.quote(os.path.relpath(own)) if own else "",
    )
    page.write_text(render_report(report, folder), encoding="utf-8")


def _quantity(claim: Claim) -> str:
    """What a claim's numbers are: its metrics, and how two of them are compared."""
    metric = claim.select.get("metric", [])
    names = map(str, metric if isinstance(metric, list) else [metric])
    entries = filter(None, (describe(claim.paper, "metrics", name) for name in names))
    words = "; ".join(entry.meaning.rstrip(".") for entry in entries)
    return f"{claim.combine}: {words}" if claim.combine else words


def _robustness(file: Path) -> dict[str, Any]:
    judged = pd.read_csv(file, dtype={"changed": str}).dropna(subset="word")
    rows = judged.to_dict("records")
    return {row["claim"]: row for row in rows if pd.isna(row.get("changed"))}


def _git_of(robustness: Path | None) -> Mapping[str, Any]:
    if robustness is None:
        return {}
    return read_provenance(robustness.with_name("multiverse.provenance.json")).get("git", {})
