"""A report about a made-up paper, and a reader of pages."""

from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
from PIL import Image

import toy_claims
from feature_alignment.pipeline.claims.evaluate import evaluate_all
from feature_alignment.pipeline.papers import Paper
from feature_alignment.pipeline.report.page import Report, ReportFigure

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
    claim("first", 0.9, note="A note.", finding="What was found."),
    claim("second", 0.75),
    claim("third", 0.0, decimals=1),
    claim("fourth", 0.9, data="real"),
)
PAPER = Paper("An Adaptive Perspective", "First & Second", "Somewhere 2021", "https://example.org")
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


def report(tmp_path):
    """A report of one paper with two figures, of which one has claims of every verdict."""
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
                runs=["second2021_digit_regression/linear"],
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
        papers={"second2021": PAPER, "other2020": replace(PAPER, title="Another paper")},
        figures=figures,
        sources=[source("embedded", "scikit-learn digits")],
        ledger=LEDGER,
        verdicts=evaluate_all(LEDGER, tables, spec),
        git={"commit": "0123abc", "dirty": False},
        runs={"second2021_digit_regression/linear": RUN},
    )
