import base64
import datetime
from dataclasses import replace
from io import BytesIO

import pandas as pd
import pytest
from PIL import Image

import toy_report
from feature_alignment.pipeline.claims.evaluate import evaluate_all
from feature_alignment.pipeline.claims.ledger import Criterion
from feature_alignment.pipeline.report.deviations import Section
from feature_alignment.pipeline.report.page import _cost, render_report
from toy_report import LEDGER, RUN, Page, claim, source


@pytest.fixture
def report(tmp_path):
    return toy_report.report(tmp_path)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "results" / "quick"


def test_the_page_is_well_formed_and_labelled(report, folder):
    text = render_report(report, folder)
    assert text.lstrip().startswith("<!DOCTYPE html>")
    page = Page(text)
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("title")) == len(page.all("h1")) == len(page.all("main")) == 1
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    references = [a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a]
    anchors = [a["href"][1:] for a in page.all("a") if a["href"].startswith("#")]
    assert set(references) | set(anchors) <= set(ids)
    for cell in page.all("th"):
        assert cell["scope"] in {"col", "row"}


def test_pictures_are_inline_sized_and_described(report, folder):
    images = Page(render_report(report, folder)).all("img")
    assert len(images) == 2
    for image, number in zip(images, (1, 2), strict=True):
        kind, _, data = image["src"].partition(",")
        assert kind == "data:image/png;base64"
        assert Image.open(BytesIO(base64.b64decode(data))).size == (40, 30)
        assert (image["width"], image["height"]) == ("40", "30")
        assert image["alt"] == (
            f"Replication of second2021, Figure {number}: Harder tasks align more"
        )


def test_nothing_is_fetched_links_are_relative_and_text_is_escaped(report, folder):
    text = render_report(report, folder)
    page = Page(text)
    assert page.all("script") == [{}]
    assert page.all("link") == [{"rel": "icon", "href": "data:,"}]
    assert not [way for way in ("url(", "@import", "fetch(", "import(") if way in text]
    links = {a["href"] for a in page.all("a")}
    assert {link for link in links if "//" in link} == {"https://example.org"}  # the paper's
    for folder_of, kind in (("../../figures/quick", "pdf"), ("tables", "csv"), ("tables", "npz")):
        assert f"{folder_of}/second2021_fig1.{kind}" in links
    assert "The first is &lt;small&gt; &amp; 0.9." in text
    assert "Kernels &amp; labels." in text


def test_every_verdict_is_shown_in_words_with_its_reason(report, folder):
    page = Page(render_report(report, folder))
    counts = {
        "reproduced": "✓ 1 reproduced",
        "partly": "◐ 1 partly",
        "not reproduced": "✗ 1 not reproduced",
        "not testable here": "○ 1 not testable here",
    }
    assert sorted(report.verdicts["verdict"]) == sorted(counts)
    for words in counts.values():
        assert page.text.count(words) == 1
    cells = [a["href"] for a in page.all("a") if a.get("class") in {"partly", "not-reproduced"}]
    assert cells == ["#second2021.fig1.second", "#second2021.fig1.third"]
    assert "What was found. claim: ✓ reproduced , second2021.fig1.first" in page.text
    for reason in report.verdicts["reason"]:
        assert f"{reason[0].upper()}{reason[1:]}." in page.text
    assert "ours 0.900 ± 0.071 2 seeds" in page.text
    assert "paper 0.75 , ours 0.900 ± 0.071 2 seeds" in page.text
    assert "paper 0.0 , ours 0.3 ± 0 2 seeds" in page.text
    assert "Note: A note." in page.text
    assert "Needs the real data" in page.text


def test_kinds_are_tallied_apart_and_a_changed_criterion_tells_what_it_was(report, folder):
    exact = Criterion(comparator="below", high=1.0, why="A definition.")
    each = Criterion(comparator="above", low=0.0, each=True, why="The direction.")
    was = {"date": datetime.date(2026, 11, 22), "criterion": "From 1 on.", "reason": "A typo."}
    ledger = (
        claim("first", 0.9),
        claim("second", 0.9, exact, kind="mathematics", corrected={"metric": "third"}),
        claim("third", None, each, kind="comparison", reading="qualitative", was=[was]),
        claim("fourth", None, each, kind="ours", reading="qualitative", select={"metric": "third"}),
    )
    about = {"datasets": [], "changed": []}
    spec = {"name": "quick", "preset": "quick", "figures": {"second2021_fig1": about}}
    rows = [
        {"seed": seed, "metric": metric, "value": value}
        for metric, value in (("first", 0.9), ("second", 1.0026), ("third", 0.5))
        for seed in range(2)
    ]
    verdicts = evaluate_all(ledger, {"second2021_fig1": pd.DataFrame(rows)}, spec)
    page = Page(render_report(replace(report, ledger=ledger, verdicts=verdicts), folder))
    text, strips = page.text, [svg["aria-label"] for svg in page.all("svg")]
    tally = (
        "Numbers ✓ 1 reproduced Directions and comparisons ? 1 undecided "
        "Mathematics ✎ 1 holds as corrected Ours, not the papers' ? 1 undecided"
    )
    assert text.count(tally) == 1
    assert "ours 1.003 ± 0 2 seeds, as printed" in text
    assert strips[1] == "asked for below 1, found 1.003 to 1.003"
    assert strips[2] == "asked for above 0, found 0.5 to 0.5"
    assert "3 claims of the papers and 1 question of our own" in text
    assert "Until 2026-11-22: From 1 on. Changed because: A typo." in text
    assert text.count("Changed because") == 1


def test_papers_and_figures_without_content_are_left_out_or_said_to_be_empty(report, folder):
    text = Page(render_report(report, folder)).text
    assert "Another paper" not in text
    assert "The ledger has no claims about this figure." in text


def test_stand_ins_are_announced_and_real_data_are_not(report, folder):
    page = Page(render_report(report, folder))
    assert {"class": "banner"} in page.all("details")
    assert "in place of MNIST: scikit-learn digits" in page.text
    real = replace(report, sources=[source("torchvision", None)])
    page = Page(render_report(real, folder))
    assert {"class": "banner"} not in page.all("details")
    assert "MNIST (torchvision)" in page.text
    assert "Data synthetic" in Page(render_report(replace(report, sources=[]), folder)).text


def test_data_are_described(report, folder):
    told = source("npz", None, ["resized", "made grey"], ["no test image of class 3"])
    text = Page(render_report(replace(report, sources=[told]), folder)).text
    assert "MNIST npz 0123456789ab 60 train, 10 test" in text
    assert "Warning: no test image of class 3. resized; made grey" in text


def test_the_state_of_the_code_is_told(report, folder):
    text = Page(render_report(report, folder)).text
    assert "commit 0123abc" in text
    assert "edits" not in text
    assert "some runs are from" not in text
    edited = replace(report, git={"commit": "4567def", "dirty": True})
    text = Page(render_report(edited, folder)).text
    assert "commit 4567def with edits that are not committed ; some runs are from 0123abc" in text
    bare = replace(report, git={"commit": None, "dirty": None})
    assert "not from a git checkout" in Page(render_report(bare, folder)).text


def test_versions_and_costs_are_told(report, folder):
    newer = {
        **RUN,
        "versions": {"torch": "2.10.0"},
        "peak_gpu_memory_mib": 3072.0,
        "seconds_by_part": {},
    }
    runs = {**report.runs, "a_gpu_run/default": newer}
    text = Page(render_report(replace(report, runs=runs), folder)).text
    assert "python 3.11.2, torch 2.10.0 and 2.9.0" in text
    assert "second2021_digit_regression/linear 1 cpu 2 min 5 s 20 % 640 MiB –" in text
    assert "made: 1 run, 2 min 5 s on cpu To make it again: snakemake" in text
    assert "a_gpu_run 1 cpu 2 min 5 s – 640 MiB 3.0 GiB" in text
    assert "all 2 cpu 4 min 10 s 20 % 640 MiB 3.0 GiB" in text
    figures = [replace(figure, runs=()) for figure in report.figures]
    without = replace(report, runs={}, figures=figures)
    assert "No runs." in Page(render_report(without, folder)).text


def test_verdicts_read_back_from_their_file_give_the_same_page(report, folder, tmp_path):
    report.verdicts.to_csv(tmp_path / "claims.csv", index=False)
    read = replace(report, verdicts=pd.read_csv(tmp_path / "claims.csv"))
    assert render_report(read, folder) == render_report(report, folder)


def test_verdicts_of_changed_settings_are_told_and_not_counted(report, folder):
    figures = [replace(figure, changed=["width = 8"]) for figure in report.figures]
    change = ("experiments.second2021_thing.width", "64", "8")
    changed = replace(report, name="wide", changes=[change], figures=figures)
    text = Page(render_report(changed, folder)).text
    assert "Not all settings here are those of preset quick." in text
    assert "experiments.second2021_thing.width 64 8" in text
    assert "4 of them are verdicts of changed settings and are not counted here." in text
    assert text.count("of changed settings, not counted") == 4
    own = Page(render_report(report, folder)).text
    assert "changed settings" not in own
    assert "✓ 1 reproduced" in own
    assert "✓ 1 reproduced" not in text


def test_data_of_another_place_change_no_figure_and_all_verdicts_count(report, folder):
    moved = replace(report, changes=[("datasets.mnist.path", "None", "(a local copy)")])
    text = Page(render_report(moved, folder)).text
    assert "what the papers say. Preset quick . How to read it" in text
    assert "Data, threads or device are not those that preset quick names." in text
    assert "datasets.mnist.path None (a local copy)" in text
    assert "not counted" not in text


def test_the_command_that_makes_it_again_has_all_that_was_changed(report, folder):
    text = Page(render_report(report, folder)).text
    assert "To make it again: snakemake --cores all second2021_fig1 --config preset=quick" in text
    threads = replace(report, changes=[("threads", "1", "2")], papers_path="../mine")
    text = Page(render_report(threads, folder)).text
    assert "To make it again, with the changed settings in a --configfile: snakemake" in text
    assert "second2021_fig1 --config preset=quick papers_path=../mine" in text


def test_readings_of_another_commit_are_told(report, folder):
    git = {"commit": "4567def", "dirty": False}
    said = "the readings of the multiverse are from 4567def"
    assert said in Page(render_report(replace(report, multiverse_git=git), folder)).text
    assert (
        "readings of the multiverse are from"
        not in Page(render_report(replace(report, multiverse_git=report.git), folder)).text
    )


def test_robustness_stands_beside_the_verdict_and_leads_to_its_page(report, folder):
    assert "<meter" not in render_report(report, folder)
    row = {"share": 0.75, "holding": 12.0, "universes": 16, "word": "depends on width"}
    one = LEDGER[0].id
    page = folder / "multiverse.html"
    found = replace(report, robustness={one: row}, multiverse=page)
    text = render_report(found, folder / "selected")
    assert text.count("<meter") == 1
    assert "holds in 12 of 16 readings: depends on width" in text
    assert 'href="../multiverse.html"' in text
    changed = [replace(figure, changed=["width = 8"]) for figure in report.figures]
    assert "<meter" not in render_report(replace(found, figures=changed), folder)


def test_a_claim_is_drawn_with_its_zone_the_papers_number_and_each_seed(report, folder):
    page = Page(render_report(report, folder))
    drawn = [path for path in page.all("path") if path.get("class")]
    assert len(page.all("svg")) == 3  # one claim is not testable
    zone, number, ranged, mean, seeds = [path["d"] for path in drawn[:5]]
    # 0.9 within 10 %: 0.81 to 0.99, drawn from 6.9 % to 93.1 % of the width.
    assert (zone, number, mean) == ("M6.9 1H93.1v22H6.9z", "M50.0 0v24", "M50.0 4v16")
    assert (ranged, seeds) == ("M26.1 12H73.9", "M26.1 12h0M73.9 12h0")
    assert page.all("svg")[0]["aria-label"] == "asked for 0.81 to 0.99, found 0.85 to 0.95"


def test_deviations_stand_at_their_first_figure_and_are_linked_from_the_others(report, folder):
    told = [
        Section("The page", "<p>All.</p>", []),
        Section("Figures 1 and 2: noise", "<p>Both.</p>", ["fig0", "fig1", "fig2"]),
    ]
    text = render_report(replace(report, deviations={"second2021": told}), folder)
    assert text.count("<p>Both.</p>") == text.count("<p>All.</p>") == 1
    first, second = (text.index(f'<section class="figure" id="second2021_fig{n}"') for n in (1, 2))
    assert first < text.index("<p>Both.</p>") < second < text.index("<p>All.</p>")
    assert 'href="#second2021-Figures-1-and-2%3A-noise"' in text[second:]
    assert 'id="second2021-Figures-1-and-2:-noise"' in text


def test_the_cost_is_the_sum_of_times_and_the_largest_memory():
    def run(gib, gpu):
        about = {"seconds_by_part": {"training": 3.0, "measuring": 1.0}, "wall_seconds": 4.0}
        memory = {"peak_memory_mib": 1024 * gib, "peak_gpu_memory_mib": gpu and 1024 * gpu}
        return about | memory | {"machine": {"device": "cpu"}}

    found = _cost([run(2, 5), run(3, 4), run(1, None)])
    assert (found["memory"], found["gpu_memory"]) == ("3.0 GiB", "5.0 GiB")
    assert (found["time"], found["measuring"]) == ("12.0 s", "25 %")
