import math

import numpy as np
import pandas as pd
import pytest

from feature_alignment.errors import UserError
from feature_alignment.pipeline.claims.evaluate import (
    COLUMNS,
    Outcome,
    describe_criterion,
    evaluate,
    evaluate_all,
    write_verdicts,
)
from feature_alignment.pipeline.claims.ledger import Criterion, load_ledger
from feature_alignment.pipeline.papers import ledgers
from toy_claims import claim

LEDGER = load_ledger(ledgers())


def criterion(comparator, *, each=False, **limits):
    return Criterion(comparator=comparator, why="a reason", each=each, **limits)


def table(*values):
    return pd.DataFrame({"seed": range(len(values)), "metric": "number", "value": values})


def verdict(criterion, values, **changes):
    return evaluate(claim(criterion, **changes), table(*values), "quick", data_is_real=True)


@pytest.mark.parametrize(
    ("rule", "values", "outcome"),
    [
        (criterion("near", tolerance=0.02), [0.94, 0.96], "reproduced"),  # exactly at the tolerance
        (criterion("near", tolerance=0.02), [0.94, 0.9601], "not reproduced"),
        (criterion("near", tolerance=0.02), [0.90, 0.92], "reproduced"),
        (criterion("near", tolerance=0.0), [0.93], "reproduced"),
        (criterion("above", low=0.5), [0.2, 0.9], "reproduced"),
        (criterion("above", low=0.5), [0.5], "not reproduced"),
        (criterion("below", high=0.5), [0.1, 0.8], "reproduced"),
        (criterion("below", high=0.5), [0.5], "not reproduced"),
        (criterion("between", low=0.2, high=0.5), [0.2], "reproduced"),
        (criterion("between", low=0.2, high=0.5), [0.5], "reproduced"),
        (criterion("between", low=0.2, high=0.5), [0.51], "not reproduced"),
        (criterion("between", low=0.2, high=0.5), [0.19], "not reproduced"),
        (criterion("above", low=0.0, each=True), [1, 2, 3, 4], "reproduced"),
        (criterion("above", low=0.0, each=True), [1, 2, -9, -9], "partly"),
        (criterion("above", low=0.0, each=True), [9, -1, -1, -1], "not reproduced"),
        (criterion("near", tolerance=0.02, each=True), [0.90, 0.96], "not reproduced"),
    ],
)
def test_comparators(rule, values, outcome):
    assert verdict(rule, values).outcome == outcome


def test_the_papers_draw_is_judged_by_the_spread_of_single_draws():
    draws = [0.0, 1.0, 2.0, 3.0, 4.0]  # mean 2, standard deviation 1.5811
    rule = criterion("one_draw", tolerance=0.0)
    for paper_value, outcome in ((5.16, "reproduced"), (5.17, "not reproduced")):
        assert verdict(rule, draws, paper_value=paper_value).outcome == outcome
    rounded = criterion("one_draw", tolerance=0.5)
    assert verdict(rounded, draws, paper_value=5.66).outcome == "reproduced"
    assert verdict(rounded, draws, paper_value=5.67).outcome == "not reproduced"


def test_one_draw_needs_five_draws():
    found = verdict(criterion("one_draw", tolerance=0.0), [0.93] * 4)
    assert found.outcome is Outcome.NOT_TESTABLE
    assert found.ours is None
    assert "at least 5 of ours; here there are 4" in found.reason


def test_draws_within_a_seed_count_as_draws_but_not_as_seeds():
    rows = [
        {"seed": s, "draw": d, "metric": "number", "value": float(s + d)}
        for s in (0, 10)
        for d in (0, 1, 2)
    ]
    rule = criterion("one_draw", tolerance=0.0)
    found = evaluate(claim(rule, over="draw"), pd.DataFrame(rows), "quick", data_is_real=True)
    assert found.seeds == 2
    assert found.ours == 6.0
    assert found.sd == pytest.approx(np.std([0, 1, 2, 10, 11, 12], ddof=1))
    assert "6 draws" in found.reason
    mean = criterion("above", low=0.0)
    found = evaluate(claim(mean, over="draw"), pd.DataFrame(rows), "quick", data_is_real=True)
    assert found.sd == pytest.approx(np.std([1, 11], ddof=1))


def test_a_weaker_criterion_gives_partly_and_both_reasons():
    strict = criterion("near", tolerance=0.01)
    weak = criterion("above", low=0.5)
    found = verdict(strict, [0.6, 0.8], partly=weak)
    assert found.outcome is Outcome.PARTLY
    assert found.reason == (
        "the mean 0.7 is not within 0.01 of the paper's 0.93, but the mean 0.7 is above 0.5"
    )
    assert verdict(strict, [0.1, 0.2], partly=weak).outcome is Outcome.NOT_REPRODUCED
    assert verdict(strict, [0.93], partly=weak).outcome is Outcome.REPRODUCED


def test_a_verdict_tells_mean_spread_and_seeds():
    found = verdict(criterion("near", tolerance=1), [1.0, 2.0, 6.0])
    assert (found.ours, found.seeds) == (3.0, 3)
    assert found.sd == pytest.approx(math.sqrt(7.0))
    assert verdict(criterion("near", tolerance=1), [1.0]).sd is None


def test_a_small_preset_and_stand_ins_leave_claims_untested():
    rule = criterion("near", tolerance=1)
    small = evaluate(claim(rule), table(0.93), "smoke", data_is_real=True)
    assert small.outcome is Outcome.NOT_TESTABLE
    assert "needs the sizes of preset quick or larger; this is smoke" in small.reason
    fake = evaluate(claim(rule, data="real"), table(0.93), "paper", data_is_real=False)
    assert fake.outcome is Outcome.NOT_TESTABLE
    assert "stand-in" in fake.reason
    real = evaluate(claim(rule, data="real"), table(0.93), "paper", data_is_real=True)
    assert real.outcome is Outcome.REPRODUCED


def test_settings_that_do_not_show_a_claims_rows_leave_it_untested():
    rule = criterion("near", tolerance=1)
    chosen = claim(rule, select={"metric": "other"})
    found = evaluate(chosen, table(1.0), "quick", data_is_real=True)
    assert found.outcome is Outcome.NOT_TESTABLE
    assert (found.ours, found.seeds) == (None, 0)
    assert found.reason == (
        "the figure, with these settings, does not show it: the table of somebody2020_fig1 has no "
        "row with metric = 'other' among those chosen so far; allowed: number."
    )
    compared = claim(rule, relative_to={"metric": "other"}, combine="ratio")
    found = evaluate(compared, table(1.0), "quick", data_is_real=True)
    assert found.outcome is Outcome.NOT_TESTABLE


def test_a_column_that_no_settings_give_and_an_unknown_preset_are_errors():
    chosen = claim(criterion("near", tolerance=1), select={"metrik": "number"})
    with pytest.raises(UserError, match="no column 'metrik'"):
        evaluate(chosen, table(1.0), "quick", data_is_real=True)
    with pytest.raises(UserError, match="did you mean 'quick'"):
        evaluate(claim(), table(1.0), "quik", data_is_real=True)


def test_missing_values_are_an_error_not_a_pass():
    for rule in (criterion("below", high=1.0), criterion("above", low=0.0, each=True)):
        with pytest.raises(UserError, match="not finite"):
            verdict(rule, [0.5, math.nan])


def all_verdicts(frame):
    rule, bound = criterion("near", tolerance=0.02), criterion("above", low=0.5, each=True)
    ledger = [
        claim(rule),
        claim(bound, id="somebody2020.fig1.unseen", lowest_preset="paper", paper_value=None),
        claim(rule, id="somebody2020.fig2.number", figure="somebody2020_fig2"),
    ]
    tables = {"somebody2020_fig1": frame}
    about = {"datasets": [["mnist", "torchvision"]], "changed": []}
    spec = {"name": "quick", "preset": "quick", "figures": {"somebody2020_fig1": about}}
    return evaluate_all(ledger, tables, spec)


def test_claims_of_other_figures_are_left_out():
    frame = all_verdicts(table(0.93, 0.94))
    assert tuple(frame.columns) == COLUMNS
    assert frame["id"].tolist() == ["somebody2020.fig1.number", "somebody2020.fig1.unseen"]
    assert frame["verdict"].tolist() == ["reproduced", "not testable here"]
    assert frame["seeds"].tolist() == [2, 0]
    assert frame[["unit", "criterion", "data", "spread"]].to_numpy().tolist() == [
        ["1", "within 0.02 of the paper's 0.93", "mnist: torchvision", "sd over seeds (n − 1)"],
        ["1", "each value above 0.5; partly: at least half of them", "mnist: torchvision", ""],
    ]


@pytest.mark.parametrize(
    ("rule", "partly", "words"),
    [
        (
            criterion("near", tolerance=0.02),
            criterion("above", low=0.5),
            "within 0.02 of the paper's 0.93; partly: above 0.5",
        ),
        (
            criterion("one_draw", tolerance=0.005),
            None,
            "the mean of our draws within 2 standard deviations of one draw and 0.005 of the "
            "paper's 0.93",
        ),
        (
            criterion("below", high=2.0, each="seed"),
            None,
            "the mean of each seed below 2; partly: at least half of them",
        ),
    ],
)
def test_criteria_are_told_in_words(rule, partly, words):
    assert describe_criterion(claim(rule, partly=partly)) == words


def test_no_claims_give_an_empty_table_with_all_columns(tmp_path):
    frame = evaluate_all([], {}, {"name": "quick", "preset": "quick", "figures": {}})
    write_verdicts(frame, tmp_path / "claims.csv")
    assert (tmp_path / "claims.csv").read_text() == ",".join(COLUMNS) + "\n"


def test_the_file_has_the_same_bytes_whatever_the_row_order(tmp_path):
    rng = np.random.default_rng(0)
    rows = table(*rng.normal(0.93, 0.3, size=50))
    for name, frame in (("a", rows), ("b", rows.sample(frac=1, random_state=1))):
        write_verdicts(all_verdicts(frame), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_file_reads_back(tmp_path):
    frame = all_verdicts(table(0.93, 0.94))
    write_verdicts(frame, tmp_path / "claims.csv")
    assert b"\r" not in (tmp_path / "claims.csv").read_bytes()
    numbers = {"paper_value": "", "ours": "", "sd": ""}
    read = pd.read_csv(
        tmp_path / "claims.csv", keep_default_na=False, na_values=numbers, dtype={"unit": str}
    )
    pd.testing.assert_frame_equal(read, frame, check_dtype=False, rtol=1e-5)


STATED = [c for c in LEDGER if c.paper_value is not None and c.relative_to is None]
BOUNDS = [c for c in STATED if c.criterion.comparator in ("above", "below")]
NUMBERS = [c for c in STATED if c not in BOUNDS]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.id)
def test_the_papers_own_number_reproduces_the_paper_and_a_far_one_does_not(number):
    """Whatever a ledger entry says, its criterion must fit its own number."""
    where = {k: v if v != "last" else 7 for k, v in number.select.items()}
    draws = {number.over: 1} if number.over is not None else {}
    for shift, outcomes in ((0.0, {"reproduced"}), (100.0, {"not reproduced", "partly"})):
        value = number.paper_value + shift
        rows = [{"step": 0, **where, **draws, "seed": s, "value": value} for s in range(6)]
        found = evaluate(number, pd.DataFrame(rows), "paper", data_is_real=True)
        assert found.outcome in outcomes


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.id)
def test_where_the_paper_states_a_bound_that_bound_decides(bound):
    decides = bound.criterion.low if bound.criterion.comparator == "above" else bound.criterion.high
    assert decides == bound.paper_value
