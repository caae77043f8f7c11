import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_alignment.pipeline.claims.rules import (
    CHANCE,
    LEAST_UNITS,
    judge_agreement,
    judge_cases,
    judge_number,
    judge_size,
    near_reach,
    sign_test,
    too_few_agree,
)

examples = settings(deadline=None, derandomize=True, max_examples=60)
ORDER = ["not reproduced", "undecided", "partly", "reproduced"]


def values(*units):
    """Values indexed by seed, unit and draw; a unit is a list of its draws, or a single value."""
    rows = [
        (seed, 0, draw, value)
        for seed, unit in enumerate(units)
        for draw, value in enumerate(unit if isinstance(unit, (list, tuple)) else [unit])
    ]
    frame = pd.DataFrame(rows, columns=["seed", "unit", "draw", "value"])
    return frame.set_index(["seed", "unit", "draw"])["value"]


def test_thousands_of_units_are_counted():
    assert sign_test(1560, 3000) == pytest.approx(scipy.stats.binom.sf(1559, 3000, 0.5))
    assert too_few_agree(9480, 10_000) == pytest.approx(scipy.stats.binom.cdf(9480, 10_000, 0.95))


def agreement(*units):
    return judge_agreement(values(*units), "above 0", "seeds")


@pytest.mark.parametrize(
    ("agreeing", "units", "p"),
    [(5, 5, 1 / 32), (4, 5, 6 / 32), (0, 5, 1), (9, 10, 11 / 1024), (8, 10, 56 / 1024), (0, 0, 1)],
)
def test_the_sign_test_is_the_binomial_one(agreeing, units, p):
    assert sign_test(agreeing, units) == p


def test_five_units_are_the_fewest_that_reach_the_level():
    assert sign_test(LEAST_UNITS, LEAST_UNITS) <= CHANCE
    assert sign_test(LEAST_UNITS - 1, LEAST_UNITS - 1) > CHANCE


@pytest.mark.parametrize(
    ("units", "outcome"),
    [
        ([True] * 4, "undecided"),
        ([False] * 4, "undecided"),
        ([[True] * 80], "undecided"),  # values of one network are no independent ones
        ([True] * 5, "reproduced"),
        ([True] * 4 + [False], "undecided"),  # p = .19; .23 were it true of 95 %
        ([True] * 3 + [False] * 2, "not reproduced"),  # .02 were it true of 95 %
        ([True] * 8 + [False] * 2, "undecided"),
        ([True] * 7 + [False] * 3, "not reproduced"),
        ([True] * 13 + [False] * 7, "not reproduced"),
        ([False] * 5, "not reproduced"),
        ([True] * 19 + [False], "reproduced"),  # exactly 95 %
        ([True] * 18 + [False] * 2, "partly"),
        ([[True, True, False]] * 5, "partly"),  # most values of each
        ([[True, False]] * 5, "not reproduced"),  # half is not most
    ],
)
def test_agreement_is_judged_by_share_and_by_independent_units(units, outcome):
    assert agreement(*units).outcome == outcome


def test_a_step_of_three_values_in_eighty_turns_no_verdict():
    networks = [[True] * 16] * 5
    worse = [[False] * 3 + [True] * 13, *networks[1:]]
    assert values(*worse).sum() == 77
    for found in (agreement(*networks), agreement(*worse)):
        assert (found.outcome, found.agreeing, found.units) == ("reproduced", 5, 5)
        assert found.p_value == 1 / 32


def test_datasets_are_units_beside_seeds():
    holds = values(*[True] * 6)
    holds.index = pd.MultiIndex.from_product(
        [[0, 1], ["a", "b", None], [0]], names=holds.index.names
    )
    found = judge_agreement(holds, "above 0", "pairs of seed and dataset")
    assert (found.outcome, found.units) == ("reproduced", 6)
    assert found.reason == (
        "6 of 6 values are above 0, most of them in 6 of 6 pairs of seed and dataset (p = 0.016)"
    )


UNITS = st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=25)


@examples
@given(UNITS, st.integers(1, 6))
def test_a_unit_that_agrees_never_worsens_a_verdict(units, draws):
    before, after = agreement(*units), agreement(*units, [True] * draws)
    assert after.p_value <= before.p_value
    if before.outcome != "undecided":
        assert ORDER.index(after.outcome) >= ORDER.index(before.outcome)


@examples
@given(UNITS, st.randoms())
def test_the_order_of_values_does_not_matter(units, random):
    holds = values(*units)
    order = list(range(len(holds)))
    random.shuffle(order)
    assert agreement(*units) == judge_agreement(holds.iloc[order], "above 0", "seeds")


def number(ours, paper, half_unit=0.0, *, from_one=False, single_network=False):
    return judge_number(values(*ours), paper, half_unit, from_one, single_network)


@pytest.mark.parametrize(
    ("ours", "paper", "half_unit", "from_one", "outcome"),
    [
        ([10.9, 11.1], 10, 0, False, "reproduced"),  # exactly 10 %
        ([11.000005], 10, 0, False, "partly"),  # by more than rounding
        ([12.5], 10, 0, False, "partly"),
        ([12.51], 10, 0, False, "not reproduced"),
        ([-11], -10, 0, False, "reproduced"),
        ([3.5], 3, 0.5, False, "reproduced"),  # rounding, more than 10 %
        ([3.6], 3, 0.5, False, "partly"),
        ([0.91], 0.9, 0, True, "reproduced"),  # 10 % of .1
        ([0.92], 0.9, 0, True, "partly"),
        ([0.93], 0.9, 0, True, "not reproduced"),
        ([0.93], 0.9, 0, False, "reproduced"),
        ([0.11], 0.1, 0, True, "reproduced"),  # 10 % of .1, not of .9
        ([0.15], 0.1, 0, True, "not reproduced"),
        ([0.05], 0.0, 0.05, False, "reproduced"),
        ([0.06], 0.0, 0.05, False, "not reproduced"),
    ],
)
def test_a_number_is_near_by_its_size_its_digits_or_its_distance_from_one(
    ours, paper, half_unit, from_one, outcome
):
    assert number(ours, paper, half_unit, from_one=from_one).outcome == outcome


def test_the_number_of_one_network_is_compared_by_the_errors_of_both_sides():
    ours = [1.0, 2.0, 3.0, 4.0]  # mean 2.5, standard deviation 1.291
    reach = 2 * math.sqrt((5 / 3) / 4 + 5 / 3)
    inside, outside = 2.5 + 0.999 * reach, 2.5 + 1.001 * reach
    assert number(ours, inside, single_network=True).outcome == "reproduced"
    assert number(ours, outside, single_network=True).outcome == "not reproduced"
    assert number(ours, inside).outcome == "not reproduced"
    assert "(two standard errors)" in number(ours, inside, single_network=True).reason
    # The larger reach counts: a small spread does not make the 10 % narrower.
    assert number([2.4, 2.4], 2.5, single_network=True).outcome == "reproduced"
    # A single network of ours has no spread; the 10 % remain.
    assert number([2.7], 2.5, single_network=True).outcome == "reproduced"
    assert number([2.8], 2.5, single_network=True).outcome == "partly"


def test_each_seed_counts_once_in_the_mean_and_in_its_error():
    ours = values([1.0], [2.0, 3.0, 4.0], [0.0, 1.0])  # means 1, 3 and 0.5
    assert judge_number(ours, 1.5, 0.0, False, False).reason.startswith("the mean 1.5 is 0 from")
    reach, _ = near_reach(ours, 0.0, 0.0, False, True)
    expected = np.var([1, 3, 0.5], ddof=1) / 3 + np.var([1, 2, 3, 4, 0, 1], ddof=1)
    assert reach == pytest.approx(2 * math.sqrt(expected))


def test_a_distance_from_one_is_that_of_the_size():
    assert near_reach(values(-0.9, -0.8), -0.9, 0.0, True, False)[0] == pytest.approx(0.01)


def test_the_spread_of_one_draw_is_that_of_all_draws():
    draws = [[0.0, 2.0], [0.0, 2.0]]  # means of seeds are both 1, single draws deviate by 1.155
    reach = 2 * math.sqrt(4 / 3)
    assert number(draws, 1 + 0.999 * reach, single_network=True).outcome == "reproduced"
    assert number(draws, 1 + 1.001 * reach, single_network=True).outcome == "not reproduced"


@examples
@given(st.permutations([0.5, 1.0, 3.0, 4.5]))
def test_the_order_of_seeds_does_not_matter_to_a_number(ours):
    found, other = number(ours, 2.0, single_network=True), number([0.5, 1, 3, 4.5], 2.0)
    assert found.reason.split(",")[0] == other.reason.split(",")[0]
    assert found.outcome == "reproduced"


@pytest.mark.parametrize(
    ("mean", "bound", "from_one", "outcome"),
    [
        (80.0, 100.0, False, "partly"),
        (75.0, 100.0, False, "partly"),
        (74.9, 100.0, False, "not reproduced"),
        (0.875, 0.9, True, "partly"),
        (0.87, 0.9, True, "not reproduced"),
        (0.87, 0.9, False, "partly"),
        (-0.4, -0.5, False, "partly"),
        (0.0, 0.0, False, "not reproduced"),  # a direction has no near miss
        (-1e-9, 0.0, False, "not reproduced"),
        (1.0, 1.0, True, "not reproduced"),
    ],
)
def test_a_size_that_misses_its_bound_is_partly_within_a_quarter(mean, bound, from_one, outcome):
    found = judge_size(mean, False, bound, from_one, f"above {bound:g}")
    assert found.outcome == outcome
    assert found.reason.startswith(f"the mean {mean:.4g} is not above {bound:g}")
    assert judge_size(mean, True, bound, from_one, "x").outcome == "reproduced"


def test_mathematics_holds_in_every_case_or_fails():
    assert judge_cases(values(True, True), "below 1").outcome == "holds"
    found = judge_cases(values(*[True] * 99, False), "below 1")
    assert (found.outcome, found.reason) == ("fails", "99 of 100 values are below 1")


def test_no_rule_lets_a_value_pass_that_is_worse_than_one_that_fails():
    worst = len(ORDER)
    for mean in np.linspace(10, 20, 200):
        rank = ORDER.index(number([mean], 10, 0.2).outcome) + 1
        assert rank <= worst
        worst = rank
    assert worst == 1


def test_two_seeds_have_a_standard_error():
    found = judge_number(values(1.0, 1.4), 1.5, 0.0, from_one=False, single_network=True)
    # 2 √(.08/2 + .08), with n − 1 = 1
    assert found.reason == (
        "the mean 1.2 is 0.3 from the paper's 1.5, within 0.69 (two standard errors)"
    )
    one = judge_number(values(1.2), 1.5, 0.0, from_one=False, single_network=True)
    assert one.reason.endswith("beyond 0.15 (10 %), within 25 %")


def test_one_value_far_from_that_of_one_network_is_undecided():
    far = judge_number(values(1.0), 1.5, 0.0, from_one=False, single_network=True)
    assert far.outcome == "undecided"
    assert far.reason.endswith("beyond 0.15 (10 %); one value of each does not tell their scatter")
    mean = judge_number(values(1.0), 1.5, 0.0, from_one=False, single_network=False)
    several = judge_number(values(1.0, 1.01), 1.5, 0.0, from_one=False, single_network=True)
    assert mean.outcome == several.outcome == "not reproduced"


def test_reasons_name_the_rule_by_its_numbers():
    far = judge_number(values(2.0), 1.5, 0.0, from_one=False, single_network=False)
    assert far.reason == "the mean 2 is 0.5 from the paper's 1.5, beyond 0.15 (10 %)"
    digits = judge_number(values(0.3), 0.5, 0.25, from_one=False, single_network=False)
    assert digits.reason.endswith("within 0.25 (half a unit in its last digit)")
    size = judge_size(0.9, False, 1.0, False, "above 1")
    assert size.reason == "the mean 0.9 is not above 1, but misses it by less than 25 %"
    few = agreement(True, True, True)
    assert few.reason == (
        "3 of 3 values are above 0, most of them in 3 of 3 seeds (p = 0.12); "
        "fewer than 5 cannot tell it from chance"
    )


@pytest.mark.parametrize(("agreeing", "units"), [(4, 5), (3, 5), (0, 1), (18, 20)])
def test_too_few_are_counted_by_the_binomial_distribution(agreeing, units):
    expected = scipy.stats.binom.cdf(agreeing, units, 0.95)
    assert too_few_agree(agreeing, units) == pytest.approx(expected)
