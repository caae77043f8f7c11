"""The whole pipeline at the smoke preset: complete, deterministic, and never run twice."""

import csv
import io
import json
import re
import resource

import numpy as np
import pandas as pd
import pytest

from feature_alignment.pipeline.claims.evaluate import NO_ROWS
from feature_alignment.pipeline.claims.ledger import load_ledger
from feature_alignment.pipeline.dictionary import describe
from feature_alignment.pipeline.papers import all_figures, ledgers, paper_of, papers

pytestmark = pytest.mark.slow
NEEDS_SIZE = {
    "anisotropic_growth_fitted",
    "channels-28",
    "diagonal_ratio_near_boundary",
    "effective_rank_accuracy_spearman",
    "eigenvalue_ratio_50",
    "gap_range_over_noise",
    "largest_eigenvalue_gain_fitted",
    "largest_eigenvalue_gain_fitted_from_10",
    "mean_eigenvalue_gain_fitted",
    "mean_eigenvalue_gain_fitted_from_10",
    "only_named_follow",
    "pac_bayes_spectral_over_margin",
    "rivals",
    "stl10",  # one of the datasets that smoke leaves out
    "unit_capacity_bound",
    "unit_capacity_over_margin",
    "width-5000",
}
"""What the tables of the smoke preset, with its few samples, steps and networks, leave out."""
WORDS = ("statement", "form", "method", "model", "penalty", "panel", "stage")
"""Columns of words, each of which the dictionary explains."""
SMOKE = ("--config", "preset=smoke")
FIGURES = all_figures()


def test_every_figure_table_claim_and_report_is_made(finished):
    results = finished.results()
    for figure in FIGURES:
        assert results[f"figures/smoke/{figure}.pdf"].startswith(b"%PDF")
        assert results[f"figures/smoke/{figure}.png"].startswith(b"\x89PNG")
        table = csv.DictReader(io.StringIO(results[f"results/smoke/tables/{figure}.csv"].decode()))
        assert {"point", "seed", "step", "layer", "split", "metric", "value"} <= set(
            table.fieldnames
        )
    claims = list(csv.DictReader(io.StringIO(results["results/smoke/claims.csv"].decode())))
    # Each figure of a paper is judged; what has a word for its number may go beyond it.
    judged = {row["figure"] for row in claims}
    assert [f for f in FIGURES if f not in judged and "_fig_" not in f] == []
    report = (finished.folder / "results/smoke/report.html").read_text(encoding="utf-8")
    assert report.count("data:image/png;base64,") == len(FIGURES)


def test_the_first_figures_come_out_when_few_runs_are_done(finished):
    log = min((finished.folder / ".snakemake" / "log").glob("*.log"))  # others made nothing
    jobs = re.findall(r": (Running|Making) ", log.read_text(encoding="utf-8"))
    assert jobs.count("Running") > 100
    assert jobs.index("Making") < 10


def test_what_claims_select_exists_at_every_size(finished):
    """Else a claim would never be tested, and its verdict put it down to the user's settings."""
    claims = list(
        csv.DictReader(io.StringIO(finished.results()["results/smoke/claims.csv"].decode()))
    )
    assert [row["id"] for row in claims if row["reason"].startswith(NO_ROWS)] == []
    missing = []
    for claim in load_ledger(ledgers()):
        table = pd.read_csv(finished.folder / f"results/smoke/tables/{claim.figure}.csv", dtype=str)
        for select in (claim.select, claim.relative_to or {}, claim.corrected or {}):
            for column, wanted in select.items():
                # Sizes, such as n and the step, are those of the preset; words are not.
                words = {w for w in np.atleast_1d(wanted).tolist() if isinstance(w, str)}
                if column == "step" or words & NEEDS_SIZE:
                    continue
                there = words & set(table.get(column, ()))
                enough = there if column in claim.first else there == words
                if column not in table.columns or (words and not enough):
                    missing.append((claim.id, column, wanted))
        # Rows of one metric may lack columns that others have.
        own = table[table["metric"].isin(np.atleast_1d(claim.select.get("metric", [])))]
        empty = own.columns[own.isna().all()] if len(own) else ()
        missing += [(claim.id, column) for column in claim.select if column in empty]
    assert missing == []


def test_every_column_metric_and_array_is_described(finished):
    results, missing = finished.folder / "results" / "smoke", set()
    for file in (*results.glob("runs/*/*/metrics.csv"), *results.glob("tables/*.csv")):
        paper = paper_of(file.stem if file.parent.name == "tables" else file.parts[-3])
        frame = pd.read_csv(file, dtype=str)
        names = {"columns": frame, "splits": frame["split"].unique()}
        names |= {"layers": frame["layer"].unique(), "metrics": frame["metric"].unique()}
        for column in frame.columns.intersection(WORDS):
            values = describe(paper, "columns", column).values
            missing |= {(paper, column, v) for v in frame[column].dropna() if v not in values}
        with np.load(
            file.with_name("arrays.npz") if file.stem == "metrics" else file.with_suffix(".npz")
        ) as stored:
            names["arrays"] = [re.sub(r"^seed\d+/", "", key) for key in stored.files]
        missing |= {
            (paper, kind, name)
            for kind, found in names.items()
            for name in found
            if describe(paper, kind, name) is None
        }
    assert missing == set()
    package = json.loads((results / "tables" / "datapackage.json").read_text(encoding="utf-8"))
    assert "not described" not in json.dumps(package)
    paths = [resource["path"] for resource in package["resources"]]
    assert paths == [f"{figure}.{kind}" for figure in FIGURES for kind in ("csv", "npz")]


def test_every_result_has_its_provenance(finished):
    runs = list((finished.folder / "results/smoke/runs").glob("*/*"))
    datasets = set()
    for run in runs:
        record = json.loads((run / "provenance.json").read_text())
        datasets |= {json.dumps(data) for data in record["spec"]["data"].values()}
        assert record["spec"] == json.loads((run / "spec.json").read_text())
        assert record["threads"] == record["spec"]["threads"]
        assert record["wall_seconds"] > 0
        assert record["peak_memory_mib"] > 50
        assert {"numpy", "torch", "python"} <= set(record["versions"])
    others = list(finished.folder.glob("[rf]*/**/*provenance.json"))
    # Also of each dataset, of each figure, of the claims and of the report.
    assert len(others) == len(runs) + len(datasets) + len(FIGURES) + 2


@pytest.mark.parametrize("first", [1, pytest.param(11, marks=pytest.mark.exhaustive)])
def test_one_and_two_cores_give_the_same_bytes(finished, pipeline, first):
    chosen = FIGURES[first::20]
    pictures = [f"figures/smoke/{figure}.{kind}" for figure in chosen for kind in ("pdf", "png")]
    pipeline.succeed("--cores", "1", *SMOKE, "--", *pictures)
    on_one, on_two = pipeline.results(), finished.results()
    assert set(pictures) <= on_one.keys() <= on_two.keys()
    assert [name for name in on_one if on_one[name] != on_two[name]] == []
    assert len(on_one) > 3 * len(pictures)  # tables and runs, too


def test_a_runs_threads_are_its_specs_whatever_the_cores(pipeline_class, tmp_path):
    # Snakemake lowers a job's threads to the cores it has; sums must not notice.
    target = "results/smoke/runs/example2030_descent/default/arrays.npz"
    made = []
    for cores in ("1", "2"):
        copy = pipeline_class(tmp_path / cores)
        copy.succeed("--cores", cores, *SMOKE, "threads=2", "--", target)
        record = json.loads((copy.folder / target).with_name("provenance.json").read_text())
        assert record["threads"] == 2
        made.append((copy.folder / target).read_bytes())
    assert made[0] == made[1]


def test_snakemakes_own_report_shows_the_figures_by_paper(finished, tmp_path):
    file = tmp_path / "page.html"
    done = finished.run(*SMOKE, "--report", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    page = file.read_text(encoding="utf-8")
    found = json.loads(re.search(r"^ *var categories = (.*);$", page, re.MULTILINE)[1])
    shown = {
        title: sorted(file for files in parts.values() for file in files)
        for title, parts in found.items()
    }
    assert shown.pop("Verdicts") == ["results/smoke/claims.csv", "results/smoke/report.html"]
    assert shown == {
        paper.title: sorted(f"figures/smoke/{f}.png" for f in FIGURES if paper_of(f) == key)
        for key, paper in papers().items()
    }


def processor_seconds(action):
    """User time of the child processes that an action waits for, and what the action returned."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    result = action()
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, result


def test_a_second_run_does_nothing_and_takes_seconds(finished):
    # 4 s on an idle machine. Compared with Snakemake's own start, so that a slow one may be slow.
    start, _ = processor_seconds(lambda: finished.succeed("--version"))
    again, text = processor_seconds(lambda: finished.succeed("--cores", "2", *SMOKE))
    assert "Nothing to be done" in text
    assert again < 3 * start
