import pandas as pd
import pytest

from feature_alignment.errors import UserError
from feature_alignment.pipeline.report.compare import compare_results
from toy_report import Page


def test_verdicts_that_changed_are_told_with_their_difference_and_its_error(two_results):
    claims = compare_results("mine", "other", two_results / "page.html", two_results / "table.csv")
    text = (two_results / "page.html").read_text(encoding="utf-8")
    page = Page(text)
    assert claims["difference"].tolist() == pytest.approx([-0.73, -0.73])
    # √(.0141²/2 + .1²/3)
    assert claims["error"].tolist() == pytest.approx([0.0586, 0.0586], abs=1e-4)
    assert "reproduced → not reproduced, by −0.730 ± 0.059" in page.text
    assert "2 of 2." in page.text
    assert "0.930 ± 0.014 , 0.20 ± 0.10 difference" in page.text  # their unit, 1, is not told
    assert [a["data-verdict"] for a in page.all("article")] == ["changed", "changed"]
    assert len(page.all("img")) == 2
    assert "other, changed: seeds = 3" in page.text
    assert "fetch(" not in text
    assert "//" not in "".join(a["href"] for a in page.all("a"))


def test_both_results_are_drawn_on_one_axis(two_results):
    compare_results("mine", "other", two_results / "page.html", two_results / "table.csv")
    page = Page((two_results / "page.html").read_text(encoding="utf-8"))
    assert page.all("svg")[0]["height"] == "48"
    seeds = [path["d"] for path in page.all("path") if path.get("class") == "seeds"]
    assert [path.count("h0") for path in seeds] == [2, 3, 2, 3]
    assert "12h0" in seeds[0]
    assert "36h0" in seeds[1]


def test_equal_results_differ_in_nothing(two_results, finished_result):
    finished_result("third", 0.92, 0.94)
    compare_results("mine", "third", two_results / "page.html", two_results / "table.csv")
    text = Page((two_results / "page.html").read_text(encoding="utf-8")).text
    assert "None of 2." in text
    assert "→" not in text


def test_a_result_of_an_older_version_is_named(two_results):
    file = two_results / "results" / "other" / "claims.csv"
    pd.read_csv(file).drop(columns=["by_seed"]).to_csv(file, index=False)
    with pytest.raises(UserError, match=r"no column 'by_seed'.*--config name=other"):
        compare_results("mine", "other", two_results / "page.html", two_results / "table.csv")
