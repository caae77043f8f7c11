import json

import pandas as pd
import pytest

from feature_alignment.errors import UserError
from feature_alignment.pipeline.report import compare
from toy_report import Page


def test_verdicts_that_changed_are_told_with_their_difference_and_its_error(two_results, compared):
    claims = compared("other")
    text = (two_results / "page.html").read_text(encoding="utf-8")
    page = Page(text)
    assert claims["difference"].tolist() == pytest.approx([-0.73, -0.73])
    # √(.0141²/2 + .1²/3)
    assert claims["error"].tolist() == pytest.approx([0.0586, 0.0586], abs=1e-4)
    assert "reproduced → not reproduced, by −0.730 ± 0.059" in page.text
    assert "2 of 2." in page.text
    assert "0.930 ± 0.014 , other: 0.20 ± 0.10 difference" in page.text  # without unit
    assert [a["data-verdict"] for a in page.all("article")] == ["changed", "changed"]
    assert len(page.all("img")) == 2
    assert "other, changed: seeds = 3" in page.text
    settings = compare.different_settings("mine", "other", ["somebody2020_fig1"])
    assert list(settings) == [("somebody2020_training: seeds", "2", "3", "default")]
    assert "fetch(" not in text
    assert "//" not in "".join(a["href"] for a in page.all("a"))


def test_the_error_is_of_the_means_over_seeds_where_each_has_several_draws(two_results, compared):
    file = two_results / "results" / "other" / "claims.csv"
    there = pd.read_csv(file)
    there.assign(sd=1.0).to_csv(file, index=False)  # over draws, which share their seeds
    assert compared("other")["error"].tolist() == pytest.approx([0.0586, 0.0586], abs=1e-4)


def test_both_results_are_drawn_on_one_axis(two_results, compared):
    compared("other")
    page = Page((two_results / "page.html").read_text(encoding="utf-8"))
    assert page.all("svg")[0]["height"] == "48"
    seeds = [path["d"] for path in page.all("path") if path.get("class") == "seeds"]
    assert [path.count("h0") for path in seeds] == [2, 3, 2, 3]
    assert "12h0" in seeds[0]
    assert "36h0" in seeds[1]


def test_equal_results_differ_in_nothing(two_results, compared, finished_result):
    finished_result("third", 0.92, 0.94)
    compared("third")
    text = Page((two_results / "page.html").read_text(encoding="utf-8")).text
    assert "None of 2." in text
    assert "→" not in text


def test_other_code_and_other_packages_are_told(two_results, compared):
    file = two_results / "results/other/runs/somebody2020_training/default/provenance.json"
    made = {"library_sha256": "01", "versions": {"numpy": "2.1"}}
    file.write_text(json.dumps(json.loads(file.read_text()) | made))
    found = compare.different_settings("mine", "other", ["somebody2020_fig1"])
    assert [row[:3] for row in found if "seeds" not in row[0]] == [
        (
            "somebody2020_training: code",
            '"00, commit 0a"',
            '"01, commit 0a with edits"',
        ),
        ("somebody2020_training: package numpy", '"2.0"', '"2.1"'),
    ]


def test_a_claim_that_was_reworded_is_the_same_claim(two_results, compared):
    file = two_results / "results" / "other" / "claims.csv"
    there = pd.read_csv(file, keep_default_na=False)
    there.loc[0, "statement"] = "In other words."
    there.to_csv(file, index=False)
    claims = compared("other")
    assert claims["reworded"].tolist() == [True, False]
    assert claims["verdict_there"].tolist() == ["not reproduced"] * 2
    page = Page((two_results / "page.html").read_text(encoding="utf-8"))
    assert "2 of 2." in page.text
    assert "it has other words there" in page.text
    assert "In other words." not in page.text


def test_a_result_of_an_older_version_is_named(two_results, compared):
    file = two_results / "results" / "other" / "claims.csv"
    pd.read_csv(file).drop(columns=["by_seed"]).to_csv(file, index=False)
    with pytest.raises(UserError, match=r"no column 'by_seed'.*--config name=other"):
        compared("other")


def test_a_run_that_is_no_longer_there_is_named(two_results, compared):
    run = two_results / "results/other/runs/somebody2020_training/default"
    for file in run.iterdir():
        file.unlink()
    with pytest.raises(UserError, match=r"^results/other/runs/\S*/provenance.json: is missing"):
        compared("other")


def test_the_verdicts_that_were_made_for_it_count_and_not_older_ones_of_all_figures(
    two_results, compared, finished_result
):
    finished_result("selected", 0.1, 0.2)
    claims = compared("other", "results/selected/claims.csv")
    assert claims["verdict_here"].tolist() == claims["verdict_there"].tolist()


def test_what_one_side_has_not_judged_differs_in_nothing(two_results, compared):
    file = two_results / "results" / "other" / "claims.csv"
    there = pd.read_csv(file)
    there.loc[0, "figure"] = "somebody2020_fig2"  # which mine has not
    new = there[1:].assign(id="somebody2020.fig1.new", statement="It is new.")
    pd.concat([there, new]).to_csv(file, index=False)
    claims = compared("other")
    assert set(claims["figure"]) == {"somebody2020_fig1"}
    assert claims["verdict_there"].tolist() == ["not judged", "not reproduced", "not reproduced"]
    assert claims["statement"].iloc[-1] == "It is new."
    page = Page((two_results / "page.html").read_text(encoding="utf-8"))
    assert [a["data-verdict"] for a in page.all("article")] == ["same", "changed", "same"]


def test_pictures_of_figures_that_are_not_selected_are_not_shown(two_results, compared):
    for side in ("mine", "other"):
        (two_results / "figures" / side / "somebody2020_fig2.png").touch()
    compared("other")
    assert "somebody2020_fig2" not in (two_results / "page.html").read_text(encoding="utf-8")


def test_a_picture_that_was_changed_is_told(two_results, compared):
    record = two_results / "figures" / "other" / "somebody2020_fig1.provenance.json"
    told = json.loads(record.read_text()) | {"outputs": {"somebody2020_fig1.png": "0"}}
    record.write_text(json.dumps(told))
    with pytest.raises(UserError, match=r"fig1\.png: has been changed since"):
        compared("other")


def test_threads_and_device_are_settings(two_results, compared):
    file = two_results / "results/other/runs/somebody2020_training/default/provenance.json"
    record = json.loads(file.read_text())
    record["spec"] |= {"threads": 7, "device": "cuda"}
    file.write_text(json.dumps(record))
    found = compare.different_settings("mine", "other", ["somebody2020_fig1"])
    told = [row[0].partition(": ")[2] for row in found]
    assert {"threads", "device"} <= set(told)
