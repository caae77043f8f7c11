"""The multiverse of the made-up paper: its known answer, on files and page."""

import json

import pandas as pd
import pytest

pytestmark = pytest.mark.slow
ASKED = ("--cores", "2", "--config", "preset=smoke", "papers=example2030", "--", "multiverse")


COIN = """
coin:
  figures: [fig1]
  settings:
    coin.throws: {values: [200, 100], why: The text does not say how many.}
  sizes:
    smoke: {universes: 2}
"""


@pytest.fixture(scope="module")
def all_made(tmp_path_factory, pipeline_class):
    """The multiverse of the made-up paper, with a second group that another figure has."""
    made = pipeline_class(tmp_path_factory.mktemp("multiverse") / "pipeline")
    file = made.folder / "src/feature_alignment/papers/example2030/multiverse.yaml"
    file.write_text(file.read_text() + COIN)
    made.succeed(*ASKED)
    return made


def test_the_claim_depends_on_the_setting_that_decides_it(all_made, tmp_path):
    pipeline = all_made.copy(tmp_path / "copy")
    results = pipeline.folder / "results" / "smoke"
    row = (
        pd.read_csv(results / "robustness.csv")
        .set_index("claim")
        .loc["example2030.fig2.loss_falls"]
    )
    assert row["word"] == "depends on example2030_descent.steps"
    assert (row["holding"], row["universes"], row["failed"]) == (4, 12, 4)
    page = (results / "multiverse.html").read_text(encoding="utf-8")
    assert "4 of 12" in page
    assert "The text does not say how many." in page
    before = pipeline.results()
    assert "Nothing to be done" in pipeline.succeed(*ASKED)
    (results / "multiverse" / "example2030_descent" / "1.zip").unlink()
    pipeline.succeed(*ASKED)
    assert pipeline.results() == before
    style = pipeline.folder / "src/feature_alignment/pipeline/report/page.css"
    style.write_text(style.read_text() + "\n")
    planned = pipeline.planned("multiverse", "--config", "preset=smoke", "papers=example2030")
    assert planned["multiverse_gathered"] == 1


def test_a_selection_neither_makes_nor_cuts_the_multiverse_of_all(all_made, tmp_path):
    pipeline = all_made.copy(tmp_path / "copy")
    before = pipeline.results()
    pipeline.succeed(*ASKED[:-2])
    page = pipeline.folder / "results/smoke/selected/report.html"
    assert "holds in 4 of 12 readings" in page.read_text(encoding="utf-8")
    assert "readings of the multiverse are from" not in page.read_text(encoding="utf-8")
    provenance = pipeline.folder / "results/smoke/multiverse.provenance.json"
    whole = provenance.read_text(encoding="utf-8")
    git = {"commit": "4567def", "dirty": False}
    provenance.write_text(json.dumps(json.loads(whole) | {"git": git}))
    page.unlink()
    pipeline.succeed(*ASKED[:-2])
    provenance.write_text(whole, encoding="utf-8")
    told = "the readings of the multiverse are from <code>4567def</code>"
    assert told in page.read_text(encoding="utf-8")
    one = ("--config", "preset=smoke", "figures=example2030_fig1")
    assert set(pipeline.planned(*one)) == {"selected_claims", "selected_report"}
    pipeline.succeed("--cores", "1", *one, "--", "multiverse")
    of_synthesis = ("--config", "preset=smoke", "figures=synthesis_fig1")
    done = pipeline.run("--cores", "1", *of_synthesis, "--", "results/smoke/robustness.csv")
    assert "no selected figure is part of a multiverse" in done.stdout + done.stderr
    assert {name: pipeline.results()[name] for name in before} == before


def test_a_preset_without_universes_is_one_sentence(pipeline):
    done = pipeline.run("-n", "--config", "preset=paper", "papers=example2030", "--", "multiverse")
    assert done.returncode != 0
    printed = done.stdout + done.stderr
    assert "no selected figure is part of a multiverse at preset paper" in printed
    assert "Traceback" not in printed
