"""The multiverse of the made-up paper: its known answer, on files and page."""

import pandas as pd
import pytest

pytestmark = pytest.mark.slow
ASKED = ("--cores", "2", "--config", "preset=smoke", "papers=example2030", "--", "multiverse")


def test_the_claim_depends_on_the_setting_that_decides_it(pipeline):
    pipeline.succeed(*ASKED)
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


def test_a_preset_without_universes_is_one_sentence(pipeline):
    done = pipeline.run("-n", "--config", "preset=paper", "papers=example2030", "--", "multiverse")
    assert done.returncode != 0
    printed = done.stdout + done.stderr
    assert "no multiverse.yaml of the selected papers has a size for preset paper" in printed
    assert "Traceback" not in printed
