"""Numbers and verdicts in the papers' deviations are those of the evidence."""

import json

import pandas as pd
import pytest

from feature_alignment.pipeline.claims.evaluate import COLUMNS


@pytest.fixture
def fill(tool, tmp_path):
    """A function that fills the marks of a text from two made-up results."""
    for name, verdict, ours in (("quick", "undecided", 0.4), ("laptop", "reproduced", 0.005)):
        folder = tmp_path / name
        (folder / "tables").mkdir(parents=True)
        row = {"id": "coins.fig1.heads", "paper": "coins", "kind": "number", "verdict": verdict}
        row |= {"paper_value": 0.004, "ours": ours, "sd": 0.001, "agreeing": 4, "units": 5}
        other = row | {"id": "coins.fig1.edge", "verdict": "not testable here", "ours": None}
        rows = [dict.fromkeys(COLUMNS) | row, dict.fromkeys(COLUMNS) | other]
        pd.DataFrame(rows).to_csv(folder / "claims.csv", index=False)
        about = {"name": name, "preset": name, "figures": {"coins_fig1": []}}
        about |= {"commits": [], "datasets": []}
        (folder / "about.json").write_text(json.dumps(about))
        table = pd.DataFrame({"seed": [0, 0, 1, 1], "step": [0, 1, 0, 1], "metric": "share"})
        table = table.assign(depth=2.0, value=[9.0, 1.0, 9.0, 3.0])
        table = pd.concat([table[::-1], table.assign(metric="twice"), table.assign(metric="twice")])
        table.to_csv(folder / "tables" / "coins_fig1.csv.xz", index=False)

    def filled(text):
        filler = tool.Filler("coins.", tool.Facts(tool.all_packed(tmp_path), tmp_path))
        return filler.filled(text), filler.faults

    return filled


@pytest.mark.slow
def test_the_texts_are_current(tool, capsys):
    assert tool.main(["--check"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<!--ours fig1.heads ‰-->7<!---->.", "<!--ours fig1.heads ‰-->(5.0 ± 1.0)\xa0‰<!---->."),
        ("<!--mean fig1.heads @quick--><!---->", "<!--mean fig1.heads @quick-->0.4<!---->"),
        ("<!--votes fig1.heads-->x<!---->", "<!--votes fig1.heads-->4 of 5<!---->"),
        ("<!--ours fig1.edge-->5<!---->", "<!--ours fig1.edge-->–<!---->"),
        (
            "| a <!--row fig1.heads--> | half | | |",
            "| a <!--row fig1.heads--> | half | 0.0050 ± 0.0010; 4 of 5 | reproduced (`laptop`) |",
        ),
        (
            "| a <!--row fig1.edge--> | half | 5 | reproduced |",
            "| a <!--row fig1.edge--> | half | – | not testable here |",
        ),
        (
            "<!--cell coins_fig1 share depth=2 take=last-->5<!---->",
            "<!--cell coins_fig1 share depth=2 take=last-->2.0 ± 1.4<!---->",
        ),
        ("so <!--when reproduced fig1.heads-->", "so <!--when reproduced fig1.heads-->"),
        ("<!-- figures: fig1 -->", "<!-- figures: fig1 -->"),
    ],
)
def test_a_mark_has_what_the_evidence_says(fill, before, after):
    assert fill(before) == (after, [])
    assert fill(after) == (after, [])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("\nso <!--when undecided fig1.heads-->", "line 2: coins.fig1.heads: came out as 'repr"),
        ("<!--where fig1.heads < theirs-->", "is tied to <"),
        ("<!--ours fig1.head-->5<!---->", "did you mean 'coins.fig1.heads'"),
        ("<!--hours fig1.heads-->5<!---->", "did you mean 'ours'"),
        ("<!--ours fig1.heads pints-->5<!---->", "ours: wrong arguments"),
        ("<!--ours fig1.heads @lap-->5<!---->", "no such result in evidence/"),
        ("| a <!--row fig1.heads pints--> | half | | |", "row: found 'pints'"),
        ("<!--ours fig1.heads-->5", "ours: a mark stands before its <!---->"),
        ("a <!--row fig1.heads--> b", "row: a mark stands in a table's row"),
        ("<!--where fig1.heads <> 0-->", "is tied to <>"),
        ("<!--cell coins_fig1 share-->5<!---->", "a seed has several values"),
        ("<!--cell coins_fig1 twice take=last-->5<!---->", "several values at a step; say more"),
        ("<!--cell coins_fig1 share depth=3-->5<!---->", "depth: found '3'"),
        ("<!--cell coins_fig1 share deep=3-->5<!---->", "deep: no such column"),
        ("<!--cell coins_fig1 share deep-->5<!---->", "found 'deep'; write column=value"),
        ("<!--cell coins_fig1 share take=lastest-->5<!---->", "did you mean 'last'"),
        ("<!--ours fig1.head's-->5<!---->", "line 1: wrong arguments, \"<!--ours fig1.head's-->"),
        ("<!--ours -->5<!---->", "line 1: wrong arguments"),
    ],
)
def test_what_is_wrong_with_a_mark_is_one_sentence(fill, text, fault):
    after, faults = fill(text)
    assert after == text
    assert len(faults) == 1
    assert fault in faults[0]


@pytest.mark.usefixtures("fill")
def test_a_text_that_is_not_current_is_told_and_left_as_it_is(tool, tmp_path, monkeypatch, capsys):
    text = tmp_path / "checkout" / "README.md"
    text.parent.mkdir()
    text.write_text("<!--verdict coins.fig1.heads-->partly<!---->\n")
    monkeypatch.setattr(tool, "ROOT", text.parent)
    monkeypatch.setattr(tool, "EVIDENCE", tmp_path)
    assert tool.main(["--check"]) == 1
    assert capsys.readouterr().err.startswith("README.md: is not current; run python tools/dev")
    assert "partly" in text.read_text()
    assert (tool.main([]), tool.main(["--check"])) == (0, 0)
    assert "reproduced" in text.read_text()
