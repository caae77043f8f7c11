"""The report as a reader meets it, in a headless Chromium."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import feature_alignment as fa
import toy_report
from feature_alignment.instrument.record_page import record_page
from feature_alignment.pipeline.report.deviations import Section
from feature_alignment.pipeline.report.page import render_report

pytestmark = pytest.mark.slow
BROWSER = Path(__file__).with_name("browser")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
MISSING = [
    what
    for what, there in {
        "Chromium (apt-get install chromium)": CHROMIUM,
        "Node.js": shutil.which("node"),
        "its packages (make browser)": (BROWSER / "node_modules").is_dir(),
    }.items()
    if not there
]
if MISSING:
    pytest.skip(f"The report is not opened: {', '.join(MISSING)} missing.", allow_module_level=True)


def look(page, shots):
    shots.mkdir(exist_ok=True)
    done = subprocess.run(
        ["node", BROWSER / "look.mjs", CHROMIUM, page, shots],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HOME": str(shots)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What is found on a report with all that a report can have."""
    folder = tmp_path_factory.mktemp("report")
    report = toy_report.report(folder)
    table = "<table><tr><td>wide</td></tr></table>"
    figure = replace(report.figures[0], changed=["width = 8"])
    about = Section("Figures 1 and 2: noise", f"<p>Both.</p>{table}", ["fig1", "fig2"])
    row = {"share": 0.75, "holding": 12.0, "universes": 16, "word": "depends on width"}
    full = replace(
        report,
        changes=[("experiments.second2021_thing.width", "64", "8")],
        figures=[figure, report.figures[1]],
        deviations={"second2021": [about, Section("Theory", "<p>All.</p>", [])]},
        robustness={report.ledger[0].id: row},
        quantities={report.ledger[0].id: "Cosine similarity of one kernel and another"},
        multiverse=folder / "multiverse.html",
    )
    (folder / "report.html").write_text(render_report(full, folder), encoding="utf-8")
    return look(folder / "report.html", folder / "shots") | {"shots": folder / "shots"}


def test_nothing_is_fetched_and_nothing_complained_about(found):
    assert found["messages"] == []
    assert found["requests"] == []


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_everybody_can_read_it(found, mode):
    assert found["violations"][mode] == []


def test_it_fits_every_width(found):
    assert found["tooWide"] == {"360": 0, "768": 0, "1400": 0}
    for name in (*found["tooWide"], "light", "dark"):
        assert (found["shots"] / f"{name}.png").stat().st_size > 10_000


def test_claims_are_filtered_and_the_filter_is_in_the_address(found):
    assert len(found["all"]) == 4
    assert found["verdict"] == ["second2021.fig1.first"]
    assert found["remembered"] == "#?verdict=reproduced"
    assert found["again"] == found["verdict"]
    assert found["none"] == []
    assert found["reset"] == found["all"]
    assert found["untested"] == ["second2021.fig1.fourth"]  # else folded


def test_links_keys_and_enlarging_work(found):
    assert found["dead"] == []
    assert found["withoutKeys"] == ""
    assert found["next"] == "#second2021_fig1"
    assert found["nextInside"]
    assert found["linked"]
    assert found["enlarged"]
    assert found["closed"]


def test_without_scripts_the_page_is_whole(found):
    assert found["withoutScript"] == found["all"]


def test_the_comparison_of_two_results_is_such_a_page(two_results, compared):
    compared("other")
    found = look(two_results / "page.html", two_results / "shots")
    assert (found["messages"], found["requests"], found["dead"]) == ([], [], [])
    assert found["violations"] == {"light": [], "dark": []}
    assert set(found["tooWide"].values()) == {0}
    assert found["verdict"] == found["again"] == found["all"]
    assert found["remembered"] == "#?verdict=changed"


def test_the_record_of_a_training_is_such_a_page(tmp_path):
    model = nn.Sequential(*(nn.Linear(5, 5) for _ in range(4)))
    fa.Monitor(model, torch.randn(8, 5), torch.randn(8, 5)).save(tmp_path / "record")
    (tmp_path / "page.html").write_text(record_page(tmp_path / "record"), encoding="utf-8")
    found = look(tmp_path / "page.html", tmp_path / "shots")
    assert (found["messages"], found["requests"]) == ([], [])
    assert found["violations"] == {"light": [], "dark": []}
    assert set(found["tooWide"].values()) == {0}
