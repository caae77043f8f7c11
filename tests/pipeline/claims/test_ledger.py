import copy
import datetime
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
    "kind": "number",
    "reading": "stated",
    "paper_value": 0.5,
    "figure": "somebody2020_fig1",
    "select": {"metric": "number", "step": "last"},
    "criterion": {"comparator": "near"},
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
    assert claim.corrected is None
    assert claim.was == ()


@pytest.mark.parametrize(
    ("number", "half"),
    [
        ({"paper_value": 0.015}, 0.0005),
        ({"paper_value": 5.9}, 0.05),
        ({"paper_value": 100}, 0.5),
        ({"paper_value": 3.0}, 0.5),
        ({"paper_value": 0.4}, 0.05),
        ({"paper_value": 0.4, "decimals": 2}, 0.005),
    ],
)
def test_the_last_digit_is_that_which_the_paper_prints(tmp_path, number, half):
    (claim,) = load_ledger([write(tmp_path, changed(**number))])
    assert claim.half_unit == pytest.approx(half, rel=1e-12)


def test_what_a_criterion_was_is_kept(tmp_path):
    was = {"date": datetime.date(2026, 11, 22), "criterion": "From 1 on.", "reason": "A typo."}
    (claim,) = load_ledger([write(tmp_path, changed(was=[was]))])
    assert claim.was[0].model_dump() == was


def test_order_is_that_of_the_files_then_the_ledgers_own(tmp_path):
    one = write(tmp_path, changed(id="b2000.fig1.x", figure="b2000_fig1"), name="b2000")
    first = changed(id="a2000.fig2.x", figure="a2000_fig2")
    second = changed(id="a2000.fig1.x", figure="a2000_fig1")
    other = write(tmp_path, first, second, name="a2000")
    ids = [claim.id for claim in load_ledger([other, one])]
    assert ids == ["a2000.fig2.x", "a2000.fig1.x", "b2000.fig1.x"]


NEAR = CLAIM["criterion"]
ABOVE = {"comparator": "above", "low": 0.5, "why": "half of it"}
EXACT = {"comparator": "near", "tolerance": 0.1, "why": "a sum of three terms"}
MISTAKES = {
    "unknown key": (changed(staement="x"), "staement: unknown key; did you mean 'statement'"),
    "missing key": (changed(place=...), "place.*(required|missing)"),
    "misspelt key that must be there": (
        changed(place=..., plcae="x"),
        "plcae: unknown key; did you mean 'place'",
    ),
    "a direction of means": (
        changed(kind="comparison", criterion={**ABOVE, "low": 0}),
        "criterion.each: missing; above 0 is a direction, which each value must have",
    ),
    "a direction of mean ratios": (
        changed(
            kind="ours",
            relative_to={"metric": "x"},
            combine="ratio",
            criterion={"comparator": "below", "high": 1, "why": "the direction"},
        ),
        "criterion.each: missing; below 1 is a direction",
    ),
    "number as text": (changed(paper_value="1e-3"), "paper_value: found '1e-3' .*write 0.001"),
    "unknown reading": (changed(reading="guessed"), "reading: found 'guessed'; allowed"),
    "unknown preset": (changed(lowest_preset="quik"), "lowest_preset: .*did you mean 'quick'"),
    "unknown comparator": (
        changed(criterion={**NEAR, "comparator": "nera"}),
        "criterion.comparator: .*did you mean 'near'",
    ),
    "no reason": (
        changed(criterion={"comparator": "above", "low": 0}),
        "criterion.why: missing; above needs it",
    ),
    "no kind": (changed(kind=...), "kind.*(required|missing)"),
    "unknown kind": (changed(kind="numbr"), "kind: .*did you mean 'number'"),
    "no number at all": (
        changed(reading="qualitative", criterion=ABOVE),
        "kind: found 'number', but the claim is qualitative; allowed: comparison",
    ),
    "tolerance of a number": (
        changed(criterion=EXACT),
        "criterion.tolerance: near does not use it in a claim of kind number",
    ),
    "each in mathematics": (
        changed(kind="mathematics", criterion={**EXACT, "each": True}),
        "criterion.each: of mathematics each value must pass; take each away",
    ),
    "corrected number": (changed(corrected={"form": "x"}), "corrected: needs the kind mathematics"),
    "decimals of no number": (
        changed(kind="ours", reading="qualitative", paper_value=..., criterion=ABOVE, decimals=2),
        "decimals: needs a paper_value",
    ),
    "single network without number": (
        changed(
            kind="ours",
            reading="qualitative",
            paper_value=...,
            criterion=ABOVE,
            single_network=True,
        ),
        "single_network: needs a paper_value",
    ),
    "independent of a mean": (changed(independent="point"), "independent: needs criterion.each"),
    "no such date": (changed(was=[{"date": "x", "criterion": "y", "reason": "z"}]), "was.*date"),
    "each of something else": (
        changed(criterion={**NEAR, "each": "layer"}),
        "criterion.each: found 'layer'",
    ),
    "negative tolerance": (changed(criterion={**NEAR, "tolerance": -1}), "criterion.tolerance"),
    "missing tolerance": (
        changed(kind="mathematics", criterion={"comparator": "near", "why": "x"}),
        "criterion.tolerance: missing; near needs it",
    ),
    "limit of another comparator": (
        changed(criterion={**NEAR, "low": 0}),
        "criterion.low: near does not use it",
    ),
    "low not below high": (
        changed(criterion={"comparator": "between", "low": 1, "high": 1, "why": "x"}),
        "criterion.low: found 1, which is not below high, 1",
    ),
    "each of a number": (
        changed(criterion={**NEAR, "each": True}),
        "criterion.each: a number is judged by its mean; take each away",
    ),
    "no number": (changed(paper_value=None), "paper_value: missing; a claim read as stated"),
    "no number to compare with": (
        changed(paper_value=None, reading="qualitative", kind="ours"),
        "paper_value: missing; near compares with it",
    ),
    "relative without combine": (changed(relative_to={"step": 0}), "combine: missing"),
    "combine without relative": (changed(combine="ratio"), "relative_to: missing"),
    "figure of another paper": (
        changed(figure="x2020_fig1"),
        "figure: 'x2020_fig1' does not begin",
    ),
    "id of another paper": (changed(id="x2020.fig1.number"), "id: 'x2020.fig1.number' does not"),
    "first of no list": (
        changed(first=["metric"]),
        "first: found 'metric'; name a column for which select has a list",
    ),
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


def test_stand_ins_never_judge_what_names_a_dataset(ledger):
    named = re.compile(
        r"MNIST|CIFAR|SVHN|STL|GTSRB|house numbers|eyeglasses|every dataset", re.IGNORECASE
    )
    assert [c.id for c in ledger if named.search(c.statement) and c.data != "real"] == []


def test_only_kinds_that_are_not_counted_come_from_other_versions(ledger):
    assert {c.kind for c in ledger if "earlier version" in c.place} == {"ours"}
    assert {c.kind for c in ledger if "control" in c.statement.lower()} == {"ours"}


def test_means_bounded_near_1_are_judged_by_their_distance_from_it(ledger):
    """Shares and correlations end at 1, so that 25 % of a bound of 0.9 would be no miss at all."""
    for claim in ledger:
        rule = claim.criterion
        bound = {"above": rule.low, "below": rule.high}.get(rule.comparator)
        if bound is not None and 0.5 < bound < 1 and not claim.each:
            assert claim.from_one, claim.id


def test_each_statement_stands_by_itself(ledger):
    """The report can show any claim without its neighbours."""
    refers = re.compile(r"(The same|It|They|That is|This|These|Those|So|Also|Likewise)\b")
    assert [claim.id for claim in ledger if refers.match(claim.statement)] == []
    assert len({(claim.figure, claim.statement) for claim in ledger}) == len(ledger)
