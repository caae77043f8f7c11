import base64
import datetime
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO

import pandas as pd
import pytest
from PIL import Image

import toy_claims
from feature_alignment.pipeline.claims.evaluate import evaluate_all
from feature_alignment.pipeline.claims.ledger import Criterion
from feature_alignment.pipeline.report.page import Report, ReportFigure, render_report

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """A page's elements, text and outline; complains about tags that do not pair."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs), f"repeated attribute in {tag}"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def claim(name, value, criterion=None, *, figure="second2021_fig1", **changes):
    return toy_claims.claim(
        criterion,
        id=f"second2021.{figure.partition('_')[2]}.{name}",
        paper="second2021",
        statement=f"The {name} is <small> & {value}.",
        paper_value=value,
        figure=figure,
        lowest_preset="smoke",
        **{"select": {"metric": name}, **changes},
    )


LEDGER = (
    claim("first", 0.9, note="A finding."),
    claim("second", 0.75),
    claim("third", 0.0, decimals=1),
    claim("fourth", 0.9, data="real"),
)
RUN = {
    "git": {"commit": "0123abc", "dirty": False},
    "versions": {"python": "3.11.2", "torch": "2.9.0"},
    "machine": {"device": "cpu"},
    "threads": 1,
    "wall_seconds": 125.2,
    "seconds_by_part": {"training": 80.0, "measuring": 20.0},
    "peak_memory_mib": 640.2,
    "peak_gpu_memory_mib": None,
}


def source(name, stand_in, notes=(), warnings=()):
    counts = {"train": 60, "test": 10}
    told = {"title": "MNIST", "source": name, "stand_in": stand_in, "sha256": "0123456789abcdef"}
    return told | {"counts": counts, "notes": notes, "warnings": warnings}


@pytest.fixture
def report(tmp_path):
    figures = []
    for name in ("second2021_fig1", "second2021_fig2"):
        Image.new("RGB", (40, 30), "white").save(tmp_path / f"{name}.png")
        figures.append(
            ReportFigure(
                name=name,
                paper="second2021",
                title="Harder tasks align more",
                caption="Kernels & labels.",
                png=tmp_path / f"{name}.png",
                pdf=tmp_path / "figures" / "quick" / f"{name}.pdf",
                table=tmp_path / "results" / "quick" / "tables" / f"{name}.csv",
            )
        )
    values = {"first": (0.85, 0.95), "second": (0.85, 0.95), "third": (0.3, 0.3)}
    rows = [
        {"seed": seed, "metric": metric, "value": value}
        for metric, pair in values.items()
        for seed, value in enumerate(pair)
    ]
    tables = {"second2021_fig1": pd.DataFrame(rows)}
    about = {"datasets": [["mnist", "embedded"]], "changed": []}
    spec = {"name": "quick", "preset": "quick", "figures": {"second2021_fig1": about}}
    return Report(
        name="quick",
        preset="quick",
        changes=[],
        papers={"second2021": "An Adaptive Perspective", "other2020": "Another paper"},
        figures=figures,
        sources=[source("embedded", "scikit-learn digits")],
        ledger=LEDGER,
        verdicts=evaluate_all(LEDGER, tables, spec),
        git={"commit": "0123abc", "dirty": False},
        runs={"second2021_digit_regression/linear": RUN},
    )


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
    assert not page.all("script")
    assert not page.all("link")
    assert not [way for way in ("http", "url(", "@import") if way in text]
    links = {a["href"] for a in page.all("a")}
    assert "../../figures/quick/second2021_fig1.pdf" in links
    assert "tables/second2021_fig1.csv" in links
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
        assert page.text.count(words) == 2  # of all papers, and of this paper
    for reason in report.verdicts["reason"]:
        assert f"{reason[0].upper()}{reason[1:]}." in page.text
    assert "0.9 ± 0.071 2 seeds" in page.text
    assert "Note: A finding." in page.text
    assert "Needs the real data" in page.text


def test_kinds_are_tallied_apart_and_a_changed_criterion_tells_what_it_was(report, folder):
    exact = Criterion(comparator="below", high=0.9, why="A definition.")
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
        for metric, value in (("first", 0.9), ("second", 1.0), ("third", 0.5))
        for seed in range(2)
    ]
    verdicts = evaluate_all(ledger, {"second2021_fig1": pd.DataFrame(rows)}, spec)
    text = Page(render_report(replace(report, ledger=ledger, verdicts=verdicts), folder)).text
    tally = (
        "Numbers ✓ 1 reproduced Directions and comparisons ? 1 undecided "
        "Mathematics ✎ 1 holds as corrected Ours, not the papers' ? 1 undecided"
    )
    assert text.count(tally) == 2  # of all papers, and of this paper
    assert "3 claims of the papers and 1 question of our own" in text
    assert "Until 2026-11-22: From 1 on. Changed because: A typo." in text
    assert text.count("Changed because") == 1


def test_papers_and_figures_without_content_are_left_out_or_said_to_be_empty(report, folder):
    text = Page(render_report(report, folder)).text
    assert "Another paper" not in text
    assert "The ledger has no claims about this figure." in text


def test_stand_ins_are_announced_and_real_data_are_not(report, folder):
    page = Page(render_report(report, folder))
    assert {"class": "banner", "role": "note"} in page.all("div")
    assert "in place of MNIST: scikit-learn digits" in page.text
    real = replace(report, sources=[source("torchvision", None)])
    page = Page(render_report(real, folder))
    assert {"class": "banner", "role": "note"} not in page.all("div")
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
    assert "a_gpu_run/default cpu 1 2 min 5 s – 640 MiB 3.0 GiB" in text
    assert "second2021_digit_regression/linear cpu 1 2 min 5 s 20 % 640 MiB –" in text
    assert text.index("a_gpu_run") < text.index("second2021_digit_regression")
    assert "No runs." in Page(render_report(replace(report, runs={}), folder)).text


def test_verdicts_read_back_from_their_file_give_the_same_page(report, folder, tmp_path):
    report.verdicts.to_csv(tmp_path / "claims.csv", index=False)
    read = replace(report, verdicts=pd.read_csv(tmp_path / "claims.csv"))
    assert render_report(read, folder) == render_report(report, folder)


def test_what_does_not_fit_together_is_refused(report, folder, tmp_path):
    with pytest.raises(ValueError, match=r"second2021\.fig1\.first has no claim"):
        render_report(replace(report, ledger=()), folder)
    with pytest.raises(ValueError, match="second2021_fig1, not on the page"):
        render_report(replace(report, figures=report.figures[1:]), folder)
    with pytest.raises(ValueError, match="of paper second2021, which is not on the page"):
        render_report(replace(report, papers={}), folder)
    report.figures[0].png.write_bytes(b"%PDF")
    with pytest.raises(ValueError, match="is not a PNG file"):
        render_report(report, folder)


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


def test_robustness_stands_beside_the_verdict_and_leads_to_its_page(report, folder):
    assert "<meter" not in render_report(report, folder)
    row = {"share": 0.75, "holding": 12.0, "universes": 16, "word": "depends on width"}
    one = LEDGER[0].id
    page = folder / "multiverse.html"
    text = render_report(
        replace(report, robustness={one: row}, multiverse=page), folder / "selected"
    )
    assert text.count("<meter") == 1
    assert "holds in 12 of 16 readings: depends on width" in text
    assert 'href="../multiverse.html"' in text
