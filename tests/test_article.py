"""The article states what the evidence says: the largest size's, or it is not typeset."""

import importlib.util
import json
import shutil
import sys
from datetime import date

import facts
import pandas as pd
import pytest
import yaml

from feature_alignment.pipeline.claims.evaluate import COLUMNS

ABSTRACT = "#abstract[\n  Coins.\n]\n"
COMPILER = importlib.util.find_spec("typst")


def claim(name, verdict, **more):
    """A row of claims.csv."""
    row = {"kind": "number", "paper_value": 0.5, "ours": 0.51, "sd": 0.02, "seeds": 5, "spread": ""}
    row |= {"id": f"example2030.{name}", "paper": "example2030", "figure": "example2030_fig1"}
    row |= {"statement": "Half are heads.", "criterion": "each value below 1e-09", "place": "eq. 1"}
    return dict.fromkeys(COLUMNS) | row | {"verdict": verdict, **more}


@pytest.fixture
def evidence(tmp_path):
    """A function that packs made-up verdicts under a preset's name."""

    def pack(name, *rows):
        folder = tmp_path / "evidence" / name
        folder.mkdir(parents=True)
        pd.DataFrame(rows).to_csv(folder / "claims.csv", index=False)
        about = {"name": name, "preset": name, "figures": {"example2030_fig1": []}}
        data = [{"name": "mnist", "stand_in": name == "quick"}]
        about |= {"commits": ["c0ffee"], "devices": ["abacus"], "datasets": data}
        (folder / "about.json").write_text(json.dumps(about))
        return folder

    return pack


@pytest.fixture
def ask(tool, tmp_path):
    """A function that says what a source is told of the evidence, and what is wrong with it."""

    def ask(source, before=ABSTRACT):
        folder = tmp_path / "evidence"
        return tool.answers(before + source, tool.Facts(tool.all_packed(folder), folder))

    return ask


def test_what_the_article_states_is_true_and_checking_it_writes_nothing(tool, monkeypatch, capsys):
    def written(path, *args, **kwargs):
        raise AssertionError(f"--check writes {path}")

    # Not by the file's time: another process may typeset the article at this moment.
    monkeypatch.setattr(tool, "whole_file", written)
    assert tool.main(["--check"]) == 0, capsys.readouterr().err


def test_what_was_made_again_is_told_by_processor(ask, evidence):
    folder = evidence("quick", claim("a", "reproduced"))
    assert "no record that it was made again" in " ".join(ask('#again("quick")')[1])
    told = {"claims": 3, "values_that_differ": 1, "verdicts_that_differ": {}}
    differ = told | {"verdicts_that_differ": {"example2030.a": ["reproduced", "partly"]}}
    third = {"devices": ["fingers"], "claims": 1, "verdicts_that_differ": {}}
    (folder / "again.json").write_text(
        json.dumps([told | {"devices": ["abacus"]}, differ | {"devices": ["slide rule"]}, third])
    )
    found, wrong = ask('#again("quick")')
    assert found["again|quick"] == "3 of 3 on abacus, 2 of 3 on slide rule and 1 of 1 on fingers"
    assert not wrong


def test_facts_are_those_of_the_largest_size_at_which_a_claim_was_judged(ask, evidence):
    evidence("quick", claim("a", "reproduced"), claim("b", "reproduced"))
    evidence("laptop", claim("a", "partly", ours=0.4), claim("b", "not testable here", ours=None))
    found, faults = ask(
        '#ours("example2030.a", "%") #at("example2030.a") #at("example2030.b") '
        '#theirs("example2030.a") #picture("example2030_fig1")[Coins.] '
        '#count(paper: "example2030", outcome: "partly") #given("stand-ins", "some")[Some.]'
    )
    assert not faults
    assert found["ours|example2030.a|%"] == "(40.0 ± 2.0)\xa0%"
    assert (found["at|example2030.a"], found["at|example2030.b"]) == ("laptop", "quick")
    assert found["theirs|example2030.a"] == "0.5"
    assert found["picture|example2030_fig1"]["file"].endswith("laptop/figures/example2030_fig1.png")
    assert found["count|paper=example2030|outcome=partly"] == "1"


def test_a_paper_number_is_printed_with_its_last_zeros(ask, evidence, monkeypatch):
    evidence("quick", claim("a", "reproduced"), claim("b", "reproduced"))
    monkeypatch.setattr(facts, "decimals", lambda: {"example2030.a": 2, "example2030.b": None})
    names = ("theirs|example2030.a", "theirs|example2030.b", "claims|example2030.a")
    found, _ = ask('#theirs("example2030.a") #theirs("example2030.b") #claims("example2030.a")')
    assert [found[names[0]], found[names[1]], found[names[2]][0][1]] == ["0.50", "0.5", "0.50"]


def test_the_papers_claims_that_had_another_criterion_are_counted(
    ask, evidence, root, tmp_path, monkeypatch
):
    source = root / "tests" / "example_paper" / "example2030" / "claims.yaml"
    ledger = yaml.safe_load(source.read_text())
    for entry in ledger["claims"][1:]:
        entry["was"] = [{"date": date(2026, 11, 22), "criterion": "1.", "reason": "A typo."}] * 2
    file = tmp_path / "example2030" / "claims.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(ledger))
    monkeypatch.setattr(facts, "ledgers", lambda: [file])
    names = "fig1.fair_share", "fig1.bent_share"
    ours = claim("fig2.loss_falls", "reproduced", kind="ours")
    evidence("quick", *(claim(name, "reproduced") for name in names), ours)
    found, wrong = ask("#changed()")
    assert (found, wrong) == ({"changed": "1"}, [])


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (
            '\n#when("partly", "example2030.a")[Half so.]',
            "line 5: example2030.a: came out as 'repr",
        ),
        ('#when("reproduced", "example2030.aa")[So.]', "did you mean 'example2030.a'"),
        ('#when("reprodused", "example2030.a")[So.]', "did you mean 'reproduced'"),
        (
            '#where("example2030.a", "<", "theirs")[Less.]',
            "is 0.51, where the sentence is tied to <",
        ),
        (
            '#where("example2030.d", ">", "theirs")[More.]',
            "is 0.5, where the sentence is tied to >",
        ),
        ('#given("results", "quick, laptop")[Both.]', "the evidence has 'quick'"),
        ('#given("multiverse", "quick")[Many.]', "the evidence has 'none'"),
        ('#ours("example2030.c")', "judged at no size"),
        ('#votes("example2030.a")', "judged by its mean"),
        ('#robust("example2030.a")', "no multiverse in evidence/ has judged it"),
        ('#count(paper: "example2031")', "did you mean 'example2030'"),
        ("#ours(name)", "takes names in quotes and nothing else"),
        ('#ours("example2030.a", "pints")', "wrong arguments"),
        ('#cell("example2030_fig1", "value", "point")', "found 'point'; write column=value"),
        ('#erratum("example2030.a")[a][b][c]', "is tied to 'holds as corrected'"),
        ("It is 0.51.", "'0.5' is typed by hand"),
        ('#ours("example2030.a"); more', "does not print the semicolon"),
        ('#when("reproduced", "example2030.a")[Both]; more', "does not print the semicolon"),
        ("It is 51 % of all.", "'1 %' is typed by hand"),
    ],
)
def test_what_is_untrue_or_missing_is_one_sentence(ask, evidence, source, fault):
    evidence(
        "quick",
        claim("a", "reproduced"),
        claim("c", "not testable here"),
        claim("d", "reproduced", ours=0.5),
    )
    faults = ask(source)[1]
    assert len(faults) == 1
    assert fault in faults[0]


def test_what_is_ours_or_was_judged_nowhere_counts_only_if_it_is_named(ask, evidence):
    own = claim("d", "reproduced", kind="ours")
    evidence("quick", claim("a", "partly"), claim("c", "not testable here"), own)
    found, faults = ask('#count() #count(outcome: "judged") #count(kind: "ours")')
    assert not faults
    assert list(found.values()) == ["2", "1", "1"]


def test_claims_judged_by_more_of_the_same_seeds_are_counted(ask, evidence):
    few, many = {"by_seed": "0.5 0.6"}, {"by_seed": "0.5 0.6 0.1"}
    verdicts = {"a": ("undecided", "partly"), "b": ("undecided", "undecided")}
    verdicts |= {"c": ("reproduced", "not reproduced"), "d": ("partly", "partly")}
    other = claim("e", "undecided", by_seed="0.5 0.7")
    own = claim("f", "undecided", **few)
    evidence(
        "laptop", *(claim(key, first, **few) for key, (first, _) in verdicts.items()), other, own
    )
    evidence(
        "workstation",
        *(claim(key, last, **many) for key, (_, last) in verdicts.items()),
        claim("e", "reproduced", **many),
    )
    asked = [f'before: "{before}"' for before in ("any", "undecided", "decided", "good")]
    found, faults = ask(
        " ".join(
            f'#reseeded("laptop", {one}) #reseeded("laptop", {one}, turned: "yes")' for one in asked
        )
    )
    assert not faults
    assert list(found.values()) == ["4", "2", "2", "1", "2", "1", "1", "1"]
    assert ask('#shown("laptop")') == ({"shown|laptop": "1 of 1"}, [])


def test_a_misprint_that_the_article_passes_over_is_a_fault(ask, evidence):
    evidence("quick", claim("a", "holds as corrected", kind="mathematics", ours=2))
    assert "the article does not name it" in ask("")[1][0]
    found, faults = ask('#errata([Misprints], ..erratum("example2030.a")[$1$][$2$][why])')
    assert not faults
    assert found["erratum|example2030.a"] == ["eq. 1", "a", "2; below 10⁻⁹"]


def test_a_failure_of_mathematics_that_the_article_passes_over_is_a_fault(ask, evidence):
    evidence("quick", claim("a", "fails", kind="mathematics"), claim("b", "not reproduced"))
    assert ask("")[1] == [
        "example2030.a: came out as 'fails' (quick), and the article does not name it."
    ]
    assert not ask('#when("fails", "example2030.a")[So.]')[1]


def test_the_abstract_states_no_outcome_without_a_tie(ask, evidence):
    evidence("quick", claim("a", "reproduced"))
    said = "#abstract[\n  Coins.\n  {}\n]\n"
    tied = '#when("reproduced", "example2030.a")[Half of 10 is reproduced.]'
    assert not ask("", said.format(tied))[1]
    (fault,) = ask("", said.format(f"{tied} The rest fails."))[1]
    assert fault.startswith("line 3: the abstract says 'fails'")
    assert ask("", "")[1] == ["the article has no abstract, #abstract[...]."]


def test_the_multiverse_is_told_where_it_is_packed(ask, evidence):
    folder = evidence("quick", claim("a", "reproduced"))
    row = {"claim": "example2030.a", "holding": 32, "universes": 34}
    pd.DataFrame([row]).to_csv(folder / "robustness.csv", index=False)
    found, faults = ask('#robust("example2030.a") #given("multiverse", "quick")[Many.]')
    assert not faults
    assert found["robust|example2030.a"] == "32 of 34"


def test_a_missing_compiler_is_one_sentence(tool, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "typst", None)
    assert tool.main([]) == 1
    assert capsys.readouterr().err == (
        "typst: the compiler is missing; install the extra article, pip install '.[article]'.\n"
    )


@pytest.mark.skipif(
    COMPILER is None, reason="the extra article, with the compiler typst, is missing"
)
def test_the_article_has_8_to_14_pages_and_the_same_bytes_twice(tool, root, tmp_path, monkeypatch):
    (tmp_path / "evidence").symlink_to(root / "evidence")  # the checkout may be read-only
    shutil.copytree(tool.ARTICLE, tmp_path / "article")
    for name, place in {"ROOT": "", "ARTICLE": "article", "SOURCE": "article/article.typ"}.items():
        monkeypatch.setattr(tool, name, tmp_path / place)
    facts = tool.Facts(tool.all_packed(tool.EVIDENCE), tool.EVIDENCE)
    found, _ = tool.answers(tool.SOURCE.read_text(encoding="utf-8"), facts)
    for name in ("once.pdf", "twice.pdf"):
        tool.typeset(found, tmp_path / name)
    assert (tmp_path / "once.pdf").read_bytes() == (tmp_path / "twice.pdf").read_bytes()
    import typst

    pages = typst.compile(
        tool.SOURCE, root=tmp_path, format="png", ppi=10, ignore_system_fonts=True
    )
    assert 8 <= len(pages) <= 14
