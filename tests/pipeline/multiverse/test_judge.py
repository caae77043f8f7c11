"""Shares, words and effects of made-up universes with known answers."""

import itertools

import numpy as np
import pandas as pd
import pytest

from feature_alignment.pipeline.claims.evaluate import evaluate
from feature_alignment.pipeline.claims.ledger import Criterion
from feature_alignment.pipeline.multiverse import judge
from feature_alignment.pipeline.multiverse.design import Learnt
from feature_alignment.pipeline.multiverse.judge import (
    Finished,
    _status,
    effects,
    judge_universes,
    summarise,
    word,
)
from toy_claims import claim

SETTINGS = ("a", "b", "c", "d")


def universes(value_of, failed=()):
    """All combinations of four settings with two values; a table with one metric in each."""
    for number, levels in enumerate(itertools.product("01", repeat=len(SETTINGS))):
        named = dict(zip(SETTINGS, levels, strict=True))
        rows = [
            {"seed": seed, "step": 1, "metric": metric, "value": value_of(named) + seed * 1e-6}
            for seed in range(2)
            for metric in ("m", "accuracy")
        ]
        broken = number in failed
        tables = {} if broken else {"somebody2020_fig1": pd.DataFrame(rows)}
        yield Finished(number, named, tables, {"run": "it diverged"} if broken else {})


def judged(value_of, learnt=None, failed=(), **changes):
    rule = Criterion(comparator="above", low=0.5, why="x", **changes)
    about = {"kind": "comparison", "reading": "qualitative", "paper_value": None}
    one = claim(rule, select={"metric": "m"}, **about)
    real = {one.figure: True}
    return judge_universes(universes(value_of, failed), [one], learnt, "paper", real), one


def own(levels):
    """A small number that is different in every universe, so that none repeats another's result."""
    return int("".join(levels[key] for key in SETTINGS), 2) / 1000


def summed(value_of, **options):
    table, one = judged(value_of, **options)
    return summarise(table, SETTINGS, [one]).iloc[0]


def test_a_claim_that_hangs_on_one_setting_names_it():
    row = summed(lambda levels: float(levels["b"]) + own(levels))
    assert (row["holding"], row["universes"], row["share"]) == (8, 16, 0.5)
    assert row["repeated"] == 0
    assert (row["setting"], row["difference"]) == ("b", 1.0)
    assert row["word"] == "depends on b"
    assert row["low"] == pytest.approx(0.28, abs=1e-3)  # Wilson's interval of 8 of 16
    assert row["default_holds"] == 0
    assert summed(lambda levels: 1 - float(levels["d"]) + own(levels))["default_holds"] == 1


def test_settings_of_equal_weight_are_all_named():
    row = summed(lambda levels: float(levels["a"] + levels["b"] == "11") + own(levels))
    assert (row["share"], row["difference"]) == (0.25, 0.5)
    assert row["setting"] == "a and b"


def test_universes_that_repeat_anothers_result_count_once():
    row = summed(lambda levels: float(levels["b"]) + 0.1 * float(levels["c"]))
    assert (row["holding"], row["universes"], row["repeated"]) == (2, 4, 12)
    assert (row["default_holds"], row["setting"], row["word"]) == (0, "b", "mixed")
    # Values that make a difference in one place are not one.
    row = summed(lambda levels: float(levels["b"]) + 0.1 * float(levels["c"] + levels["d"] == "11"))
    assert (row["universes"], row["repeated"]) == (8, 8)


def test_values_are_one_in_classes_and_by_two_pairs():
    def counted(rows):
        table = pd.DataFrame(rows, columns=["a", "b", "ours"]).assign(verdict="reproduced")
        return list(judge._without_repetitions(table, ["a", "b"]).index)

    three = list(itertools.product("xyz", "01"))
    assert counted([(a, b, float(b) + (a == "y")) for a, b in three]) == [0, 1, 2, 3]  # x is z
    assert counted([(a, b, float(b)) for a, b in three]) == [0, 1]
    assert counted([("x", "0", 1.0), ("y", "0", 1.0)]) == [0, 1]  # one pair may be chance
    assert counted([("x", "0", np.nan), ("y", "0", np.nan), ("x", "1", 1), ("y", "1", 1)]) == [0, 2]


@pytest.mark.parametrize(("value", "said"), [(1.0, "robust"), (0.0, "robustly not")])
def test_a_claim_that_hangs_on_nothing(value, said):
    assert summed(lambda levels: value)["word"] == said


def test_failed_universes_and_those_that_learnt_nothing_are_counted_apart():
    learnt = Learnt(figure="fig1", select={"metric": "accuracy"}, least=0.2, why="x")
    row = summed(lambda levels: float(levels["a"]) + own(levels), learnt=learnt, failed=(15,))
    assert (row["universes"], row["failed"], row["not_learnt"]) == (7, 1, 8)
    assert row["word"] == "robust"


def test_what_is_not_testable_is_left_out_where_universes_failed_too():
    def about(failed):
        rule = Criterion(comparator="above", low=0.5, why="x")
        of_kind = {"kind": "comparison", "reading": "qualitative", "paper_value": None}
        one, other = (
            claim(
                rule, id=f"somebody2020.fig1.{name}", select={"metric": "m"}, data=data, **of_kind
            )
            for name, data in (("any", "any"), ("real", "real"))
        )
        made = universes(lambda levels: 1.0, failed)
        return judge_universes(made, [one, other], None, "paper", {one.figure: False})["claim"]

    assert set(about(failed=())) == set(about(failed=(3, 5))) == {"somebody2020.fig1.any"}


def test_a_task_can_be_learnt_by_a_loss_that_is_small_enough():
    learnt = Learnt(figure="fig1", select={"metric": "accuracy"}, most=0.2, why="x")
    row = summed(lambda levels: 0.9 * float(levels["a"]) + own(levels), learnt=learnt)
    assert (row["universes"], row["not_learnt"], row["word"]) == (8, 8, "robustly not")


def test_the_last_step_at_which_a_task_is_learnt_is_each_runs_own():
    learnt = {"figure": "fig1", "least": 0.8, "why": "x"}
    select = {"metric": "accuracy", "step": "last"}
    rows = [
        {"point": point, "seed": 0, "step": step, "metric": "accuracy", "value": value}
        for point, steps, value in (("short", (0, 10), 0.1), ("long", (0, 20), 0.9))
        for step in steps
    ]
    universe = Finished(0, {}, {"somebody2020_fig1": pd.DataFrame(rows)}, {})
    assert _status(universe, Learnt(select=select, **learnt)) == "not learnt"
    for point, status in (("short", "not learnt"), ("long", "counted")):
        assert _status(universe, Learnt(select={**select, "point": point}, **learnt)) == status


def test_too_few_seeds_hold_by_agreement():
    table, one = judged(lambda levels: 1.0, each=True)
    assert set(table["verdict"]) == {"undecided"}
    assert table["holds"].all()
    twenty = {"seed": 0, "draw": range(20), "metric": "m", "value": [0.0] + [1.0] * 19}
    universe = Finished(0, {}, {one.figure: pd.DataFrame(twenty)}, {})
    drawn = one.but(over="draw")
    table = judge_universes([universe], [drawn], None, "paper", {one.figure: True})
    assert table["holds"].item() == 1  # by exactly 95 %
    half = pd.DataFrame({"seed": [0, 1], "metric": "m", "value": [0.0, 1.0]})
    assert evaluate(one, half, "paper", True).share == 0.5


def test_what_holds_as_corrected_holds():
    rule = Criterion(comparator="below", high=1.5, why="x")
    forms = {"select": {"metric": "printed"}, "corrected": {"metric": "corrected"}}
    one = claim(rule, kind="mathematics", **forms)
    rows = pd.DataFrame({"seed": 0, "metric": ["printed", "corrected"], "value": [2.0, 1.0]})
    universe = Finished(0, {}, {one.figure: rows}, {})
    table = judge_universes([universe], [one], None, "paper", {one.figure: True})
    assert table[["verdict", "holds"]].to_numpy().tolist() == [["holds as corrected", 1]]


def test_the_papers_number_stands_among_our_values():
    table, one = judged(own)
    number = one.but(kind="number", reading="stated", paper_value=0.004)
    assert summarise(table, SETTINGS, [number])["paper_quantile"].item() == 4 / 16


def test_what_is_said_of_real_data_holds_by_the_agreement_of_real_data_alone():
    rule = Criterion(comparator="above", low=0.5, each=True, why="x")
    about = {"kind": "comparison", "reading": "qualitative", "paper_value": None, "data": "real"}
    one = claim(rule, select={"metric": "m"}, over="dataset", **about)

    def holds(real, stand_in):
        rows = [
            {"seed": seed, "metric": "m", "dataset": str(mark), "stand_in": mark, "value": value}
            for seed in range(2)
            for mark, value in enumerate((real, stand_in))
        ]
        universe = Finished(0, {}, {one.figure: pd.DataFrame(rows)}, {})
        table = judge_universes([universe], [one], None, "paper", {one.figure: False})
        return table["holds"].item()

    assert (holds(1.0, 0.0), holds(0.0, 1.0)) == (1, 0)


def test_the_bounds_belong_to_what_is_between_them_as_in_the_rules():
    rule = Criterion(comparator="between", low=0.0, high=1.0, each=True, why="x")
    about = {"kind": "comparison", "reading": "qualitative", "paper_value": None}
    one = claim(rule, select={"metric": "m"}, **about)
    ends = pd.DataFrame({"seed": [0, 1], "metric": "m", "value": [0.0, 1.0]})
    assert evaluate(one, ends, "paper", True).share == 1


def test_effects_are_shares_and_means_by_value_and_by_pair():
    table, _ = judged(lambda levels: float(levels["a"]) * float(levels["b"]))
    found = effects(table, SETTINGS).set_index(["setting", "value"])
    assert found.loc[("a", "1"), "share"] == 0.5
    assert found.loc[("a × b", "1 × 1"), "share"] == 1.0
    assert found.loc[("a × b", "1 × 0"), "mean"] == pytest.approx(0, abs=1e-5)
    assert found.loc[("c", "0"), "universes"] == 8


def test_pairs_are_told_where_each_combination_has_two_universes():
    def pairs(*cells):
        rows = pd.DataFrame(cells, columns=["a", "b"]).assign(claim="x", status="counted")
        found = effects(rows.assign(holds=1, ours=1.0), ["a", "b"])
        return found[found["setting"] == "a × b"]["universes"].tolist()

    every = list(itertools.product("01", repeat=2))
    assert pairs(*every, *every) == [2] * 4
    assert pairs(*every, *every[:3]) == pairs(*every[:3], *every[:3]) == []


def test_fragile_and_mixed():
    row = {"share": 0.3, "difference": 0.4, "p_value": 0.5, "default_holds": 1, "setting": "a"}
    assert word(row) == "fragile"
    assert word(row | {"default_holds": 0}) == "mixed"
    assert word(row | {"difference": 0.6, "p_value": 0.2}) == "fragile"
    assert word(row | {"share": 0.5}) == "mixed"


def test_the_bounds_of_words_are_decimals():
    row = {"share": 0.1, "difference": 0.4, "p_value": 0.5, "default_holds": 0, "setting": "a"}
    assert word(row) == "robustly not"  # 1 − 0.9 is a little less in binary
    assert word(row | {"share": 0.9}) == "robust"
    depends = {"share": 0.5, "difference": 0.7 - 0.2, "p_value": 0.01}
    assert word(row | depends) == "depends on a"


def test_equal_fractions_of_other_levels_are_ties():
    many, few = pd.Series(["a"] * 14 + ["b"] * 5), pd.Series(["a"] * 7 + ["b"] * 7)
    wide = np.array([[1.0] * 10 + [0.0] * 4 + [0.0] * 5])  # 10 of 14 and 0 of 5
    narrow = np.array([[1.0] * 6 + [0.0] + [1.0] + [0.0] * 6])  # 6 of 7 and 1 of 7
    assert judge._differences(wide, many) == judge._differences(narrow, few) == round(5 / 7, 12)


def test_a_task_is_learnt_if_every_seed_has_learnt_it():
    rows = [{"seed": seed, "step": 1, "metric": "accuracy", "value": seed} for seed in (0, 1)]
    universe = Finished(0, {}, {"somebody2020_fig1": pd.DataFrame(rows)}, {})
    learnt = Learnt(figure="fig1", select={"metric": "accuracy"}, least=0.8, why="x")
    assert _status(universe, learnt) == "not learnt"
    assert _status(universe, learnt.but(least=0.0, most=1.0)) == "counted"


def test_what_always_holds_hangs_on_nothing():
    row = summed(lambda levels: 1.0)
    assert (row["difference"], row["p_value"]) == (0, 1)


def test_many_settings_are_no_advantage():
    def mostly(levels):  # holds in 7 of 8 where a is 1, in 3 of 8 where it is 0
        others = levels["b"] + levels["c"] + levels["d"]
        held = others != "000" if levels["a"] == "1" else others in ("011", "101", "110")
        return float(held)

    table, _ = judged(mostly)
    alone, among = (judge._hangs_on(table, settings) for settings in (("a",), SETTINGS))
    assert alone["setting"] == among["setting"] == "a"
    assert alone["difference"] == among["difference"] == 0.5
    assert among["p_value"] > 1.5 * alone["p_value"]


def test_a_default_that_does_not_count_neither_holds_nor_not():
    row = summed(lambda levels: 1 - float(levels["d"]) + own(levels), failed=(0,))
    assert np.isnan(row["default_holds"])


def test_the_p_value_counts_what_is_observed():
    row = summed(lambda levels: float(levels["b"]) + own(levels))
    assert 1000 * row["p_value"] == pytest.approx(round(1000 * row["p_value"]))  # (1 + k)/(1 + 999)
