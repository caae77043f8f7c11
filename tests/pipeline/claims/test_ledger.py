import copy
import re

import pytest
import yaml

from feature_alignment.errors import UserError
from feature_alignment.pipeline.claims.ledger import load_ledger
from feature_alignment.pipeline.papers import ledgers, papers

CLAIM = {
    "id": "somebody2020.fig1.number",
    "place": "Figure 1",
    "statement": "It is one half.",
    "quote": "one half",
    "reading": "stated",
    "paper_value": 0.5,
    "figure": "somebody2020_fig1",
    "select": {"metric": "number", "step": "last"},
    "criterion": {"comparator": "near", "tolerance": 0.05, "why": "10 %"},
    "lowest_preset": "quick",
    "data": "any",
}


def write(folder, *claims, name="somebody2020", **further):
    path = folder / name / "claims.yaml"
    path.parent.mkdir(exist_ok=True)
    ledger = {"claims": list(claims), **further}
    path.write_text(yaml.safe_dump(ledger, allow_unicode=True), encoding="utf-8")
    return path


def changed(**changes):
    claim = {**copy.deepcopy(CLAIM), **changes}
    return {key: value for key, value in claim.items() if value is not ...}


def test_a_claim_is_read_with_defaults(tmp_path):
    (claim,) = load_ledger([write(tmp_path, CLAIM)])
    assert claim.paper == "somebody2020"
    assert claim.unit == "1"
    assert claim.note == ""
    assert claim.criterion.each is False
    assert claim.criterion.tolerance == 0.05
    assert claim.partly is None


def test_order_is_that_of_the_files_then_the_ledgers_own(tmp_path):
    one = write(tmp_path, changed(id="b2000.fig1.x", figure="b2000_fig1"), name="b2000")
    first = changed(id="a2000.fig2.x", figure="a2000_fig2")
    second = changed(id="a2000.fig1.x", figure="a2000_fig1")
    other = write(tmp_path, first, second, name="a2000")
    ids = [claim.id for claim in load_ledger([other, one])]
    assert ids == ["a2000.fig2.x", "a2000.fig1.x", "b2000.fig1.x"]


NEAR = CLAIM["criterion"]
MISTAKES = {
    "unknown key": (changed(staement="x"), "staement: unknown key; did you mean 'statement'"),
    "missing key": (changed(place=...), "place.*(required|missing)"),
    "number as text": (changed(paper_value="1e-3"), "paper_value: found '1e-3' .*write 0.001"),
    "unknown reading": (changed(reading="guessed"), "reading: found 'guessed'; allowed"),
    "unknown preset": (changed(lowest_preset="quik"), "lowest_preset: .*did you mean 'quick'"),
    "unknown comparator": (
        changed(criterion={**NEAR, "comparator": "nera"}),
        "criterion.comparator: .*did you mean 'near'",
    ),
    "no reason": (
        changed(criterion={"comparator": "near", "tolerance": 1}),
        "criterion.*why.*(required|missing)",
    ),
    "each of something else": (
        changed(criterion={**NEAR, "each": "layer"}),
        "criterion.each: found 'layer'; allowed: False, True, seed",
    ),
    "negative tolerance": (changed(criterion={**NEAR, "tolerance": -1}), "criterion.tolerance"),
    "missing tolerance": (
        changed(criterion={"comparator": "near", "why": "x"}),
        "criterion.tolerance: missing; near needs it",
    ),
    "limit of another comparator": (
        changed(criterion={**NEAR, "low": 0}),
        "criterion.low: near does not use it",
    ),
    "low not below high": (
        changed(criterion={"comparator": "between", "low": 2, "high": 1, "why": "x"}),
        "criterion.low: found 2, which is not below high, 1",
    ),
    "each draw": (
        changed(criterion={**NEAR, "comparator": "one_draw", "each": True}),
        "criterion.each: one_draw judges all draws together",
    ),
    "each and partly": (
        changed(criterion={**NEAR, "each": True}, partly=NEAR),
        "partly: criterion.each already says",
    ),
    "partly limit": (
        changed(partly={"comparator": "above", "why": "x"}),
        "partly.low: missing; above needs it",
    ),
    "no number": (changed(paper_value=None), "paper_value: missing; a claim read as stated"),
    "no number to compare with": (
        changed(paper_value=None, reading="qualitative"),
        "paper_value: missing; near compares with it",
    ),
    "relative without combine": (changed(relative_to={"step": 0}), "combine: missing"),
    "combine without relative": (changed(combine="ratio"), "relative_to: missing"),
    "figure of another paper": (
        changed(figure="x2020_fig1"),
        "figure: 'x2020_fig1' does not begin",
    ),
    "id of another paper": (changed(id="x2020.fig1.number"), "id: 'x2020.fig1.number' does not"),
    "empty select": (changed(select={}), "select"),
    "malformed id": (changed(id="somebody2020 fig1"), "id: found 'somebody2020 fig1'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_name_file_claim_and_key(tmp_path, mistake):
    claim, message = MISTAKES[mistake]
    path = write(tmp_path, claim)
    with pytest.raises(UserError, match=message) as error:
        load_ledger([path])
    assert str(error.value).startswith(f"{path}: claim {claim['id']}: ")
    assert "\n" not in str(error.value)


def test_a_claim_without_a_name_is_named_by_its_number(tmp_path):
    path = write(tmp_path, CLAIM, changed(id=...))
    with pytest.raises(UserError, match="claim number 2: "):
        load_ledger([path])


def test_theorems_without_a_figure_have_claims_too(tmp_path):
    claim = changed(id="somebody2020.fig_theory.x", figure="somebody2020_fig_theory")
    (claim,) = load_ledger([write(tmp_path, claim)])
    assert claim.id == "somebody2020.fig_theory.x"


def test_ids_are_unique(tmp_path):
    path = write(tmp_path, CLAIM, CLAIM)
    with pytest.raises(UserError, match=r"somebody2020\.fig1\.number: id: used twice"):
        load_ledger([path])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("author: somebody\nclaims: [1]", "author: unknown key"),
        ("claims: []", "claims: found 0 items"),
        ("claims: [", "not valid YAML"),
        ("claims: [1]", "claim number 1: holds 1"),
    ],
)
def test_a_ledger_of_another_form_is_refused(tmp_path, text, says):
    path = write(tmp_path, CLAIM)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=says):
        load_ledger([path])


@pytest.fixture(scope="module")
def ledger():
    return load_ledger(ledgers())


def test_every_paper_has_valid_claims(ledger):
    assert {claim.paper for claim in ledger} == set(papers())


def test_figures_in_ids_and_selectors_agree(ledger):
    for claim in ledger:
        paper, figure, _ = claim.id.split(".")
        assert claim.figure.startswith(f"{paper}_{figure}"), claim.id


def test_near_follows_the_ledgers_own_rule(ledger):
    """A near tolerance is half a unit of the printed digits, 10 %, or explained otherwise."""
    for claim in ledger:
        criterion = claim.criterion
        if criterion.comparator == "near" and re.match(r"10 %", criterion.why):
            assert criterion.tolerance == pytest.approx(0.1 * abs(claim.paper_value)), claim.id
        if claim.partly is not None and claim.partly.why.startswith("25 % of"):
            assert claim.partly.tolerance == pytest.approx(0.25 * abs(claim.paper_value)), claim.id


def test_a_partly_criterion_is_weaker(ledger):
    for claim in ledger:
        strict, weak = claim.criterion, claim.partly
        if weak is None or weak.comparator != strict.comparator:
            continue
        match strict.comparator:
            case "near":
                assert weak.tolerance > strict.tolerance, claim.id
            case "above":
                assert weak.low < strict.low, claim.id
            case "below":
                assert weak.high > strict.high, claim.id
