import math

import numpy as np
import pandas as pd
import pytest

from feature_alignment.errors import UserError
from feature_alignment.pipeline.claims.evaluate import (
    COLUMNS,
    describe_criterion,
    evaluate,
    evaluate_all,
    write_verdicts,
)
from feature_alignment.pipeline.claims.ledger import Criterion, load_ledger
from feature_alignment.pipeline.claims.rules import Outcome
from feature_alignment.pipeline.marks import DIVERGED
from feature_alignment.pipeline.papers import ledgers
from toy_claims import claim

LEDGER = load_ledger(ledgers())


def criterion(comparator, **further):
    return Criterion(comparator=comparator, why="a reason", **further)


NEAR = criterion("near")
EXACT = criterion("near", tolerance=0.02)
ABOVE = criterion("above", low=0.5)


def table(*values):
    return pd.DataFrame({"seed": range(len(values)), "metric": "number", "value": values})


def verdict(criterion, values, **changes):
    return evaluate(claim(criterion, **changes), table(*values), "quick", data_is_real=True)


@pytest.mark.parametrize(
    ("rule", "values", "close"),
    [
        (ABOVE, [0.49, 0.7], True),  # the standard error is 0.105, the distance 0.095
        (ABOVE, [0.52, 0.7], False),
        (ABOVE, [0.3, 0.52], True),
        (ABOVE, [0.51], False),
        (ABOVE, [0.35, 0.41], True),  # the mean is 0.005 above where partly ends
        (ABOVE, [0.33, 0.39], True),  # and 0.015 below, with a standard error of 0.03
        (ABOVE, [0.42, 0.45], False),
        (NEAR, [0.68, 0.74], True),  # the mean is 0.0125 above where partly ends
        (NEAR, [0.9, 0.76], True),  # the mean is 0.83, 0.007 below what is near the paper's 0.93
        (NEAR, [0.92, 0.94], False),
    ],
)
def test_a_mean_that_other_seeds_could_turn_is_told(rule, values, close):
    assert ("within one standard error" in verdict(rule, values).reason) == close


def test_each_seed_counts_once_though_one_has_fewer_values():
    frame = pd.DataFrame(
        [
            (0, "number", 0, 1.0),
            (0, "number", 1, 2.0),
            (1, "number", 0, 3.0),
            (1, DIVERGED, None, 1.0),  # which is why it has one only
        ],
        columns=["seed", "metric", "draw", "value"],
    )
    found = evaluate(claim(ABOVE, over="draw"), frame, "quick", data_is_real=True)
    assert (found.ours, found.by_seed) == (2.25, (1.5, 3.0))
    assert found.reason.startswith("the mean 2.25 is above 0.5")


@pytest.mark.parametrize(
    ("rule", "values", "outcome"),
    [
        (NEAR, [0.90, 0.94], "reproduced"),
        (NEAR, [0.80, 0.82], "partly"),
        (NEAR, [0.1, 0.2], "not reproduced"),
        (EXACT, [0.95, 0.95], "holds"),  # exactly at the tolerance
        (EXACT, [0.95, 0.9501], "fails"),
        (criterion("near", tolerance=0.07), [0.86, 1.0], "holds"),  # 0.93 − 0.07 > 0.86 in binary
        (EXACT, [0.90, 0.96], "fails"),  # the mean would pass
        (criterion("near", tolerance=0.0), [0.93], "holds"),
        (ABOVE, [0.2, 0.9], "reproduced"),
        (ABOVE, [0.5], "partly"),
        (criterion("above", low=0.9), [0.8000000000000002, 1.0], "partly"),  # 0.9 but for rounding
        (criterion("below", high=0.3), [0.1 + 0.2 - 2e-16], "partly"),
        (criterion("below", high=0.5), [0.1, 0.8], "reproduced"),
        (criterion("below", high=0.5), [0.7], "not reproduced"),
        (criterion("between", low=0.2, high=0.5), [0.2], "reproduced"),
        (criterion("between", low=0.2, high=0.5), [0.5], "reproduced"),
        (criterion("between", low=0.2, high=0.5), [0.6], "partly"),  # 25 % of the nearer bound
        (criterion("between", low=0.2, high=0.5), [0.14], "not reproduced"),
        (criterion("above", low=0.0, each=True), [1, 2, 3, 4, 5], "reproduced"),
        (criterion("above", low=0.0, each=True), [1, 2, 3, 4], "undecided"),
        (criterion("above", low=0.0, each=True), [1, 2, 3, -4, 0], "not reproduced"),
    ],
)
def test_comparators(rule, values, outcome):
    assert verdict(rule, values).outcome == outcome


def test_a_claim_says_whose_number_it_is_and_from_where_it_counts():
    values = [0.91, 0.95, 1.01, 1.05]  # mean .98, standard deviation .062
    assert verdict(NEAR, values, from_one=True).outcome == "not reproduced"
    assert verdict(NEAR, values, from_one=True, single_network=True).outcome == "reproduced"
    assert verdict(NEAR, values, from_one=True, decimals=0).outcome == "reproduced"


def test_draws_within_a_seed_count_as_draws_but_not_as_seeds():
    rows = [
        {"seed": s, "draw": d, "metric": "number", "value": float(s + d)}
        for s in (0, 10)
        for d in (0, 1, 2)
    ]
    number = claim(NEAR, over="draw", single_network=True)
    found = evaluate(number, pd.DataFrame(rows), "quick", data_is_real=True)
    assert found.seeds == 2
    assert found.ours == 6.0
    assert found.sd == pytest.approx(np.std([0, 1, 2, 10, 11, 12], ddof=1))
    mean = criterion("above", low=0.0)
    found = evaluate(claim(mean, over="draw"), pd.DataFrame(rows), "quick", data_is_real=True)
    assert found.sd == pytest.approx(np.std([1, 11], ddof=1))


FORMS = [
    {"seed": s, "form": form, "metric": "number", "value": value + s}
    for s in (0, 1)
    for form, value in (("printed", 2.0), ("corrected", 0.1), ("wrong", 5.0))
]


@pytest.mark.parametrize(
    ("printed", "corrected", "outcome", "reason"),
    [
        ("corrected", "printed", "holds", "2 of 2 values are below 1.5"),
        (
            "printed",
            "corrected",
            "holds as corrected",
            "0 of 2 values are below 1.5 as printed, 2 of 2 values are below 1.5 as corrected",
        ),
        (
            "printed",
            "wrong",
            "fails",
            "0 of 2 values are below 1.5 as printed, 0 of 2 values are below 1.5 as corrected",
        ),
        ("printed", None, "fails", "0 of 2 values are below 1.5"),
        (
            "printed",
            "lost",
            "not testable here",
            "the figure, with these settings, does not show it: the table of somebody2020_fig1 has "
            "no row with form = 'lost' among those chosen so far; allowed: corrected, printed, "
            "wrong.",
        ),
    ],
)
def test_a_misprint_whose_corrected_form_holds_is_told_apart(printed, corrected, outcome, reason):
    rule = criterion("below", high=1.5)
    select = {"metric": "number", "form": printed}
    misprint = claim(
        rule, kind="mathematics", select=select, corrected=corrected and {"form": corrected}
    )
    found = evaluate(misprint, pd.DataFrame(FORMS), "quick", data_is_real=True)
    assert (found.outcome, found.reason) == (outcome, reason)


def test_a_verdict_tells_mean_spread_and_seeds():
    found = verdict(NEAR, [1.0, 2.0, 6.0])
    assert (found.ours, found.seeds, found.units) == (3.0, 3, None)
    assert found.sd == pytest.approx(math.sqrt(7.0))
    assert verdict(NEAR, [1.0]).sd is None


@pytest.mark.parametrize(
    ("rule", "changes", "zone"),
    [
        (NEAR, {}, (0.837, 1.023)),
        (NEAR, {"from_one": True}, (0.923, 0.937)),
        (NEAR, {"from_one": True, "decimals": 0}, (0.43, 1.43)),
        # Two standard errors of the difference, the seeds' deviation being 2.
        (NEAR, {"single_network": True}, (0.93 - 4 * (4 / 3) ** 0.5, 0.93 + 4 * (4 / 3) ** 0.5)),
        (EXACT, {}, (0.91, 0.95)),
        (ABOVE, {}, (0.5, None)),
        (criterion("below", high=0.5, each=True), {}, (None, 0.5)),
        (criterion("between", low=0.2, high=0.5), {}, (0.2, 0.5)),
    ],
)
def test_a_verdict_tells_the_zone_of_its_criterion(rule, changes, zone):
    found = verdict(rule, [1.0, 3.0, 5.0], **changes)
    assert (found.low, found.high) == tuple(end and pytest.approx(end) for end in zone)


def test_a_verdict_tells_each_seed_and_the_range_of_all_draws(tmp_path):
    rows = [
        {"seed": s, "draw": d, "metric": "number", "value": float(s + d)}
        for s in (0, 10)
        for d in (0, 1, 2)
    ]
    drawn = claim(ABOVE, over="draw", id="somebody2020.fig1.drawn")
    about = {"datasets": [], "changed": []}
    spec = {"name": "quick", "preset": "quick", "figures": {"somebody2020_fig1": about}}
    frame = evaluate_all([drawn], {"somebody2020_fig1": pd.DataFrame(rows)}, spec)
    told = ["by_seed", "least", "most", "low"]
    assert frame.loc[0, told].tolist() == ["1 11", 0.0, 12.0, 0.5]
    assert math.isnan(frame.loc[0, "high"])


def test_a_comparison_tells_its_test():
    found = verdict(criterion("above", low=0.0, each=True), [1.0, 2.0, -1.0, 3.0, 4.0, 5.0])
    assert (found.agreeing, found.units, found.p_value) == (5, 6, 7 / 64)
    assert found.reason == (
        "5 of 6 values are above 0, most of them in 5 of 6 seeds (p = 0.11); "
        "it could be true of 95 % of them, too"
    )


def test_a_small_preset_and_stand_ins_leave_claims_untested():
    rule = NEAR
    small = evaluate(claim(rule), table(0.93), "smoke", data_is_real=True)
    assert small.outcome is Outcome.NOT_TESTABLE
    assert "needs the sizes of preset quick or larger; this is smoke" in small.reason
    fake = evaluate(claim(rule, data="real"), table(0.93), "paper", data_is_real=False)
    assert fake.outcome is Outcome.NOT_TESTABLE
    assert "stand-in" in fake.reason
    real = evaluate(claim(rule, data="real"), table(0.93), "paper", data_is_real=True)
    both = pd.concat([table(0.93).assign(stand_in=0), table(0.1).assign(stand_in=1)])
    assert evaluate(claim(rule, data="real"), both, "paper", data_is_real=False).ours == real.ours
    fake = evaluate(claim(rule, data="real"), both[both["stand_in"] == 1], "paper", False)
    assert fake.outcome is Outcome.NOT_TESTABLE
    assert fake.reason == "needs the real data; this figure shows a stand-in"
    unknown = table(0.93).assign(stand_in=math.nan)
    assert evaluate(claim(rule, data="real"), unknown, "paper", False).reason == fake.reason
    assert real.outcome is Outcome.REPRODUCED


def test_settings_that_do_not_show_a_claims_rows_leave_it_untested():
    rule = NEAR
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


def test_a_column_that_no_settings_give_is_an_error():
    chosen = claim(NEAR, select={"metrik": "number"})
    with pytest.raises(UserError, match="no column 'metrik'"):
        evaluate(chosen, table(1.0), "quick", data_is_real=True)


def test_missing_values_are_an_error_not_a_pass():
    for rule in (criterion("below", high=1.0), criterion("above", low=0.0, each=True), EXACT):
        with pytest.raises(UserError, match="not finite"):
            verdict(rule, [0.5, math.nan])


def all_verdicts(frame):
    rule, bound = NEAR, criterion("above", low=0.5, each=True)
    unseen = {"lowest_preset": "paper", "paper_value": None, "kind": "ours"}
    ledger = [
        claim(rule),
        claim(bound, id="somebody2020.fig1.unseen", **unseen),
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
    assert frame["kind"].tolist() == ["number", "ours"]
    assert frame[["unit", "data", "spread"]].to_numpy().tolist() == [
        ["1", "mnist: torchvision", "sd over seeds (n − 1)"],
        ["1", "mnist: torchvision", ""],
    ]


@pytest.mark.parametrize(
    ("rule", "changes", "words"),
    [
        (
            NEAR,
            {},
            "the mean near the paper's 0.93, by 10 % of it, or half a unit in its last digit; "
            "partly: by 25 %",
        ),
        (
            NEAR,
            {"from_one": True, "single_network": True},
            "the mean near the paper's 0.93, by 10 % of it, or of its distance from 1 if that is "
            "less, or half a unit in its last digit, or two standard errors; partly: by 25 %",
        ),
        (EXACT, {}, "each value within 0.02 of the paper's 0.93"),
        (
            ABOVE,
            {"from_one": True},
            "the mean above 0.5; partly: misses the bound by at most 25 % of it, or of its "
            "distance from 1 if that is less",
        ),
        (
            criterion("below", high=2.0, each=True),
            {"independent": "dataset"},
            "95 % of the values below 2, and most of them in more pairs of seed and dataset than "
            "by chance; partly: only the latter",
        ),
    ],
)
def test_criteria_are_told_in_words(rule, changes, words):
    assert describe_criterion(claim(rule, **changes)) == words


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
    numbers = frame.select_dtypes("number").columns
    numbers = dict.fromkeys(numbers, "")
    read = pd.read_csv(
        tmp_path / "claims.csv", keep_default_na=False, na_values=numbers, dtype={"unit": str}
    )
    whole = {"agreeing": "Int64", "units": "Int64"}
    pd.testing.assert_frame_equal(read.astype(whole), frame, check_dtype=False, rtol=1e-5)


STATED = [c for c in LEDGER if c.paper_value is not None and c.relative_to is None]
BOUNDS = [c for c in STATED if c.criterion.comparator in ("above", "below")]
NUMBERS = [c for c in STATED if c not in BOUNDS]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.id)
def test_the_papers_own_number_reproduces_the_paper_and_a_far_one_does_not(number):
    """Whatever a ledger entry says, its criterion must fit its own number."""
    where = {k: v if v != "last" else 7 for k, v in number.select.items()}
    chosen = number.select.get(number.over, 1)
    draws = chosen if isinstance(chosen, list) else [chosen]
    for shift, outcomes in (
        (0.0, {"reproduced", "holds"}),
        (100.0 + number.paper_value, {"not reproduced", "fails", "not testable here"}),
    ):
        value = number.paper_value + shift
        rows = [
            {"step": 0, **where, number.over or "draw": draw, "seed": s, "value": value}
            for s in range(6)
            for draw in draws
        ]
        found = evaluate(number, pd.DataFrame(rows), "paper", data_is_real=True)
        assert found.outcome in outcomes


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.id)
def test_where_the_paper_states_a_bound_that_bound_decides(bound):
    decides = bound.criterion.low if bound.criterion.comparator == "above" else bound.criterion.high
    assert decides == bound.paper_value


def test_where_partly_lies_within_reproduced_it_ends_with_it():
    found = verdict(NEAR, [0.9, 1.5, 1.4], paper_value=1.0, single_network=True)
    assert found.outcome == "reproduced"  # within two standard errors, 0.74
    assert "within one standard error" not in found.reason  # 1.267 is beside 25 %, 1.25
