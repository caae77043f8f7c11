import math

import numpy as np
import pandas as pd
import pytest

from feature_alignment.errors import UserError
from feature_alignment.pipeline.claims.ledger import Criterion
from feature_alignment.pipeline.claims.selection import (
    MissingRowsError,
    claim_remarks,
    claim_values,
)
from toy_claims import claim

LAST = {"metric": "number", "step": 10, "layer": "all"}


@pytest.fixture
def table():
    rows = [
        {"seed": s, "step": t, "layer": layer, "metric": m, "value": 100 * s + t + 0.1 * shift}
        for s in (0, 1, 2)
        for t in (0, 10)
        for layer in ("all", "0")
        for shift, m in enumerate(("number", "other"))
    ]
    return pd.DataFrame(rows)


def test_one_value_for_each_seed_whatever_the_order_of_rows(table):
    result = claim_values(claim(select=LAST), table.sample(frac=1, random_state=1))
    assert result.tolist() == [10, 110, 210]
    assert result.index.get_level_values("seed").tolist() == [0, 1, 2]


def test_numbers_are_found_in_a_column_of_words(table):
    chosen = claim(select={"metric": "number", "step": 10, "layer": 0})
    assert claim_values(chosen, table).tolist() == [10, 110, 210]


def test_last_step_is_that_of_the_rows_chosen_otherwise(table):
    later = pd.DataFrame([{"seed": 0, "step": 99, "layer": "all", "metric": "other", "value": 0.0}])
    both = pd.concat([table, later], ignore_index=True)
    chosen = claim(select={"step": "last", "metric": "number", "layer": "all"})
    assert claim_values(chosen, both).tolist() == [10, 110, 210]
    ended_earlier = table[(table["seed"] != 1) | (table["step"] == 0)]
    assert claim_values(chosen, ended_earlier).tolist() == [10, 100, 210]
    both = pd.concat([table.assign(point="long"), ended_earlier.assign(point="short")])
    chosen = claim(select={"step": "last", "metric": "number", "layer": "all"}, over="point")
    assert sorted(claim_values(chosen, both)) == [10, 10, 100, 110, 210, 210]


def test_difference_and_ratio_are_paired_by_seed(table):
    # Means of unpaired values would not tell a pairing by position from one by seed.
    shuffled = table.sample(frac=1, random_state=1)
    difference = claim(select=LAST, relative_to={"step": 0}, combine="difference")
    assert claim_values(difference, shuffled).tolist() == [10, 10, 10]
    ratio = claim(
        select={**LAST, "step": 0, "metric": "other"}, relative_to={"step": 10}, combine="ratio"
    )
    expected = [0.1 / 10.1, 100.1 / 110.1, 200.1 / 210.1]
    np.testing.assert_allclose(claim_values(ratio, shuffled), expected, rtol=1e-12)


def test_draws_of_a_seed_are_kept_apart_or_averaged_for_comparisons():
    draws = [
        {"seed": s, "draw": d, "metric": "number", "value": 10.0 * s + d}
        for s in (0, 1)
        for d in (0, 1, 2)
    ]
    single = [{"seed": s, "draw": math.nan, "metric": "other", "value": 1.0} for s in (0, 1)]
    table = pd.DataFrame(draws + single)
    assert claim_values(claim(over="draw"), table).tolist() == [0, 1, 2, 10, 11, 12]
    compared = claim(over="draw", relative_to={"metric": "other"}, combine="difference")
    assert claim_values(compared, table).tolist() == [0, 10]


EACH = Criterion(comparator="above", why="the direction", each=True, low=0.0)


def test_where_each_value_counts_comparisons_are_made_draw_by_draw():
    rows = [
        {"seed": s, "draw": d, "metric": m, "value": (10.0 * s + d + 1) * factor}
        for s in (0, 1)
        for d in (0, 1)
        for m, factor in (("number", d + 2), ("other", 1))
    ]
    table = pd.DataFrame(rows).sample(frac=1, random_state=1)
    chosen = {"over": "draw", "relative_to": {"metric": "other"}, "combine": "ratio"}
    assert claim_values(claim(criterion=EACH, **chosen), table).tolist() == [2, 3, 2, 3]
    # Else of the means: (1·2 + 2·3)/(1 + 2), and so on.
    means = [8 / 3, (11 * 2 + 12 * 3) / 23]
    found = claim_values(claim(criterion=EACH.but(each=False), **chosen), table)
    np.testing.assert_allclose(found, means, rtol=1e-12)


def test_independent_values_of_a_seed_are_told_apart_and_compared_among_themselves():
    rows = [
        {"seed": s, "data": d, "draw": k, "metric": m, "value": v + 10 * s + len(d) + k}
        for s in (0, 1)
        for d in ("a", "bb")
        for m, draws, v in (("number", (0, 1), 0.0), ("other", (0,), 0.5))
        for k in draws
    ]
    chosen = {"over": "draw", "independent": "data", "criterion": EACH}
    table = pd.DataFrame(rows).sample(frac=1, random_state=1)
    with pytest.raises(UserError, match="several rows for seed 0"):
        claim_values(claim(over="draw", criterion=EACH), table)
    found = claim_values(claim(**chosen), table)
    assert found.index.droplevel("draw").unique().tolist() == [
        (s, d) for s in (0, 1) for d in ("a", "bb")
    ]
    assert found.tolist() == [1, 2, 2, 3, 11, 12, 12, 13]
    compared = claim(**chosen, relative_to={"metric": "other"}, combine="difference")
    of_none = table.assign(data=table["data"].replace("a", None))
    for rows in (table, of_none):
        assert claim_values(compared, rows).tolist() == [0, 0, 0, 0]  # 1.5 − 1.5, and so on


def test_where_draws_do_not_match_means_are_compared():
    rows = [{"seed": 0, "draw": d, "metric": "number", "value": d + 1.0} for d in (0, 1)]
    table = pd.DataFrame([*rows, {"seed": 0, "draw": 0, "metric": "other", "value": 1.0}])
    chosen = claim(
        criterion=EACH, over="draw", relative_to={"metric": "other"}, combine="difference"
    )
    assert claim_values(chosen, table).tolist() == [0.5]


def test_a_list_selects_any_of_its_values():
    table = pd.DataFrame(
        {"seed": 0, "point": ["a", "b", "c"], "metric": "number", "value": [1.0, 2.0, 3.0]}
    )
    chosen = claim(select={"metric": "number", "point": ["a", "c"]}, over="point")
    assert claim_values(chosen, table).tolist() == [1, 3]


MISTAKES = {
    "no such metric": ({"select": {"metric": "nmber"}}, "metric = 'nmber'.*did you mean 'number'"),
    "no such step": (
        {"select": {"metric": "number", "step": 5}},
        r"step = 5 .*; there they are from 0 to 10",
    ),
    "no such column": (
        {"select": {"metrik": "number"}},
        "no column 'metrik'; did you mean 'metric'",
    ),
    "no such draw column": ({"over": "draw"}, "no column 'draw'"),
    "ambiguous": ({"select": {"metric": "number", "step": 10}}, "several rows for seed 0"),
    "division by zero": (
        {"select": LAST, "relative_to": {"step": 0}, "combine": "ratio"},
        "include a zero",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_cannot_be_read_is_an_error(table, mistake):
    changes, message = MISTAKES[mistake]
    with pytest.raises(UserError, match=message) as error:
        claim_values(claim(**changes), table)
    assert str(error.value).startswith("claim somebody2020.fig1.number: ")


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_are_an_error(table, bad):
    table.loc[(table["seed"] == 1) & (table["metric"] == "number"), "value"] = bad
    chosen = claim(select=LAST)
    with pytest.raises(UserError, match=r"1 of 3 values .* not finite, the first for seed 1"):
        claim_values(chosen, table)


@pytest.mark.parametrize("seed", [None, math.nan, "mean", 0.5])
def test_a_row_that_is_no_seeds_does_not_count_as_one(table, seed):
    row = {"seed": seed, "step": 10, "layer": "all", "metric": "number", "value": 110.0}
    with pytest.raises(UserError, match="whose seed is no whole number"):
        claim_values(claim(select=LAST), pd.concat([table, pd.DataFrame([row])]))
    row["metric"] = "their_mean"
    assert len(claim_values(claim(select=LAST), pd.concat([table, pd.DataFrame([row])]))) == 3


def test_seeds_that_do_not_pair_are_an_error(table):
    missing = table[~((table["seed"] == 2) & (table["step"] == 0))]
    chosen = claim(select=LAST, relative_to={"step": 0}, combine="difference")
    with pytest.raises(UserError, match=r"seeds \[0, 1, 2\] .* seeds \[0, 1\]"):
        claim_values(chosen, missing)


def test_a_seed_with_fewer_draws_is_an_error():
    table = pd.DataFrame(
        {"seed": [0, 0, 1], "draw": [0, 1, 0], "metric": "number", "value": [1.0, 2.0, 3.0]}
    )
    with pytest.raises(UserError, match="different numbers of draw values, 1 to 2"):
        claim_values(claim(over="draw"), table)
    mark = pd.DataFrame({"seed": [1], "draw": 0, "metric": "diverged_after", "value": 0.0})
    values = claim_values(claim(over="draw"), pd.concat([table, mark]))
    assert values.tolist() == [1.0, 2.0, 3.0]
    named = pd.concat([table.assign(network="a"), mark.assign(network="b")])
    of_other = claim(over="draw", select={"metric": "number", "network": "a"})
    with pytest.raises(UserError, match="different numbers"):
        claim_values(of_other, named)
    assert len(claim_values(of_other, named.assign(network="a"))) == 3
    elsewhere = pd.concat([table, mark.assign(seed=0)])
    table = pd.concat([elsewhere, table[:1].assign(seed=2)])
    assert len(claim_values(claim(over="draw"), elsewhere)) == 3
    with pytest.raises(UserError, match="different numbers"):
        claim_values(claim(over="draw"), pd.concat([table, table[:2].assign(seed=3)]))


def test_a_diverged_network_is_compared_only_where_both_sides_have_it():
    rows = [
        {"seed": s, "data": d, "layer": k, "metric": m, "value": v + 10 * s + k * (v > 0)}
        for s in (0, 1)
        for d in ("a", "b")
        for k in (0, 1)
        for m, v in (("number", 5.0), ("other", 0.0))
        if (s, d, m) != (1, "b", "number")  # the start is known, the end is not
    ]
    mark = {"seed": 1, "data": "b", "layer": 0, "metric": "diverged_after", "value": 2.0}
    table = pd.DataFrame([*rows, mark]).sample(frac=1, random_state=1)
    differs = {"relative_to": {"metric": "other"}, "combine": "difference"}
    each = {"over": "layer", "independent": "data", "criterion": EACH, **differs}
    found = claim_values(claim(**each), table)
    assert found.tolist() == [5, 6] * 3
    assert (1, "b") not in found.index.droplevel("draw")
    reverse = claim(**{**each, "select": {"metric": "other"}, "relative_to": {"metric": "number"}})
    assert claim_values(reverse, table).tolist() == [-5, -6] * 3
    # A mean over datasets takes the same ones on both sides.
    uneven = table.assign(value=table["value"] + 100 * (table["data"] == "b"))
    means = claim(over="data", select={"metric": "number", "layer": 0}, **differs)
    assert claim_values(means, uneven).tolist() == [5, 5]
    unmarked = table[table["metric"] != "diverged_after"]
    with pytest.raises(UserError, match="different numbers of layer values"):
        claim_values(claim(**each), unmarked)


def test_remarks_are_those_of_the_rows_that_are_read(table):
    assert claim_remarks(claim(), table) == []
    remarked = table.assign(remark=table["metric"].map({"number": "without MNIST", "other": ""}))
    assert claim_remarks(claim(), remarked) == ["without MNIST"]
    assert claim_remarks(claim(select={"metric": "other"}), remarked) == []


def test_of_a_list_that_is_an_order_the_first_that_is_there_is_read(table):
    order = ["missing", "other", "number"]
    chosen = claim(select={"step": 10, "layer": "all", "metric": order}, first=["metric"])
    assert claim_values(chosen, table).tolist() == [10.1, 110.1, 210.1]
    # What is there is what the whole table has: no other value stands in for missing rows.
    rows = table[(table["metric"] == "number") | (table["step"] == 0)]
    with pytest.raises(MissingRowsError):
        claim_values(chosen, rows)


def test_values_that_are_there_but_never_together_are_no_spelling_mistake(table):
    rows = table[(table["step"] == 0) | (table["layer"] == "0")]
    with pytest.raises(MissingRowsError, match="and no row fits all") as caught:
        claim_values(claim(select=LAST), rows)
    assert "did you mean" not in str(caught.value)


def test_seeds_that_a_universe_leaves_out_are_missing_rows(table):
    rows = table[(table["step"] == 10) | (table["seed"] < 2)]
    chosen = claim(select=LAST, relative_to={"step": 0}, combine="difference")
    with pytest.raises(MissingRowsError, match="same seeds"):
        claim_values(chosen, rows)


def test_a_network_that_diverged_is_marked_for_every_split():
    table = {"seed": [0, 0, 1], "draw": [0, 1, 0], "split": "test", "metric": "number", "value": 1}
    mark = {"seed": [1], "draw": 0, "split": "train", "metric": "diverged_after", "value": 0}
    both = pd.concat(map(pd.DataFrame, (table, mark)))
    chosen = claim(over="draw", select={"metric": "number", "split": "test"})
    assert len(claim_values(chosen, both)) == 3


def test_a_network_that_diverged_on_the_other_side_is_marked():
    rows = [
        {"seed": s, "point": p, "layer": k, "metric": "number", "value": v + k}
        for s in (0, 1)
        for p, v in (("a", 5.0), ("b", 2.0))
        for k in (0, 1)
        if (s, p, k) != (1, "b", 1)
    ]
    mark = {"seed": 1, "point": "b", "layer": 0, "metric": "diverged_after", "value": 2.0}
    select = {"select": {"metric": "number", "point": "a"}, "relative_to": {"point": "b"}}
    chosen = claim(over="layer", criterion=EACH, combine="difference", **select)
    assert claim_values(chosen, pd.DataFrame([*rows, mark])).tolist() == [3, 3, 3]
