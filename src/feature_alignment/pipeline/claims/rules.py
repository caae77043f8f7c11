"""The rules that turn values into verdicts: one set, for every claim of every paper.

*Mathematics* (theorems, formulas): *holds* if every value passes, to numerical accuracy; *holds as
corrected* if only the corrected form of a misprint does; else *fails*.

*Comparisons over many values* (`each`): *reproduced* if at least 95 % of the values agree and a
sign test at 5 % excludes chance, *partly* if only the test does, else *not reproduced*. The test
counts only independent units: seeds, and datasets if the claim names their column. Layers, steps
and settings of one run share its weights and data, so each unit has one vote: it agrees if more
than half of its values do. Fewer than five units are always *undecided*: they cannot reach 5 % even
if all agree (1/2⁴ = .0625). Five or more are *undecided* if they exclude neither chance nor the
statement, true of 95 %; for example, 4 of 5. They are *not reproduced* if, were the statement true,
so few would agree with a probability of 5 % or less.

*Numbers* (`near`): *reproduced* if the mean over seeds is within 10 % of the paper's number, within
half a unit in its last digit, or, if that number is a single network's (or draw's), within two
standard errors of the difference, √(s²/n + s₁²), where s is the deviation over our n seeds and s₁,
for the paper's one value, that over all our single values. *Partly* within 25 %. Where the paper's
number is a single network's and ours is one value, too, s is not known, and what is further away
than that is *undecided*.

*Sizes* (a bound without `each`): *reproduced* if the mean keeps the bound, *partly* if it misses it
by at most 25 % of it. A bound of 0 is a direction: no mean is partly on its other side.

Other verdicts by the mean need no minimum of seeds: one network can decide them. The reason notes
it if the mean is within one standard error of where *reproduced* or *partly* ends. Each pair of
seed and dataset counts as a unit, though seeds of one dataset mostly agree: the sign test then says
less than its level.

Percentages are of the number or bound; with `from_one`, of its distance from 1 if that is less: for
cosines, correlations and shares, which end there, and for ratios said to be 1.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd
from scipy.special import bdtr

AGREEMENT = 0.95
CHANCE = 0.05
LEAST_UNITS = 5
NEAR = 0.10
PARTLY = 0.25
STANDARD_ERRORS = 2.0


class Outcome(StrEnum):
    """The word of a verdict."""

    REPRODUCED = "reproduced"
    PARTLY = "partly"
    NOT_REPRODUCED = "not reproduced"
    UNDECIDED = "undecided"
    HOLDS = "holds"
    HOLDS_AS_CORRECTED = "holds as corrected"
    FAILS = "fails"
    NOT_TESTABLE = "not testable here"


@dataclass(frozen=True)
class Finding:
    """The result of a rule; `claims` in `pipeline/metrics.yaml` explains the columns made of it."""

    outcome: Outcome
    reason: str
    agreeing: int | None = None  # this and the following, if a sign test was made
    units: int | None = None
    p_value: float | None = None
    share: float | None = None  # the share of the values that agree


def sign_test(agreeing: int, units: int) -> float:
    """Probability of at least `agreeing` heads in `units` tosses of a fair coin.

    Example:
        >>> sign_test(5, 5), sign_test(4, 5)
        (0.03125, 0.1875)
    """
    return sum(math.comb(units, k) for k in range(agreeing, units + 1)) / 2**units


def too_few_agree(agreeing: int, units: int) -> float:
    """Probability that at most `agreeing` units agree if each does with probability `AGREEMENT`.

    Example:
        >>> round(too_few_agree(4, 5), 2), round(too_few_agree(3, 5), 2)
        (0.23, 0.02)
    """
    return float(bdtr(agreeing, units, AGREEMENT))


def judge_cases(holds: pd.Series, demand: str) -> Finding:
    """Mathematics: whether all values are as demanded."""
    outcome = Outcome.HOLDS if holds.all() else Outcome.FAILS
    return Finding(outcome, f"{holds.sum()} of {len(holds)} values are {demand}")


def judge_agreement(holds: pd.Series, demand: str, unit: str) -> Finding:
    """A comparison: whether the values, by seed, unit and draw, are as demanded and not by chance.

    `demand` and `unit` are words for the reason, such as "above 0" and "seeds".
    """
    votes = holds.groupby(level=["seed", "unit"], dropna=False).mean() > 0.5
    agreeing, units, share = int(votes.sum()), len(votes), float(holds.mean())
    p_value = sign_test(agreeing, units)
    reason = (
        f"{holds.sum()} of {len(holds)} values are {demand}, most of them in {agreeing} of {units} "
        f"{unit} (p = {p_value:.2g})"
    )
    if units < LEAST_UNITS:
        outcome = Outcome.UNDECIDED
        reason += f"; fewer than {LEAST_UNITS} cannot tell it from chance"
    elif p_value > CHANCE:
        outcome = Outcome.NOT_REPRODUCED
        if too_few_agree(agreeing, units) > CHANCE:
            outcome = Outcome.UNDECIDED
            reason += "; it could be true of 95 % of them, too"
    else:
        outcome = Outcome.REPRODUCED if share >= AGREEMENT else Outcome.PARTLY
    return Finding(outcome, reason, agreeing, units, p_value, share)


def judge_number(
    values: pd.Series, paper: float, half_unit: float, from_one: bool, single_network: bool
) -> Finding:
    """A number: whether the mean of our values, by seed, unit and draw, is near the paper's.

    `from_one` and `single_network` are keys of `Claim`, `half_unit` is a property of it.
    """
    mean = float(values.groupby(level="seed").mean().mean())
    reach, of = near_reach(values, paper, half_unit, from_one, single_network)
    distance = abs(mean - paper)
    reason = f"the mean {mean:.4g} is {distance:.2g} from the paper's {paper:g}"
    if at_most(distance, reach):
        return Finding(Outcome.REPRODUCED, f"{reason}, within {reach:.2g} ({of})")
    partly = at_most(distance, partly_reach(paper, from_one))
    reason += f", beyond {reach:.2g} ({of})" + (f", within {100 * PARTLY:g} %" if partly else "")
    if single_network and len(values) == 1 and not partly:
        return Finding(
            Outcome.UNDECIDED, f"{reason}; one value of each does not tell their scatter"
        )
    return Finding(Outcome.PARTLY if partly else Outcome.NOT_REPRODUCED, reason)


def near_reach(
    values: pd.Series, paper: float, half_unit: float, from_one: bool, single_network: bool
) -> tuple[float, str]:
    """The distance from the paper's number at which a mean is still near, and its rule in words."""
    seeds = values.groupby(level="seed").mean()
    errors = STANDARD_ERRORS * math.sqrt(_variance(seeds) / len(seeds) + _variance(values))
    return max(
        (NEAR * _scale(paper, from_one), f"{100 * NEAR:g} %"),
        (half_unit, "half a unit in its last digit"),
        (errors if single_network else 0.0, "two standard errors"),
    )


def judge_size(mean: float, holds: bool, bound: float, from_one: bool, demand: str) -> Finding:
    """A size: whether the mean meets the criterion or how far it misses the (nearer) bound."""
    if holds:
        return Finding(Outcome.REPRODUCED, f"the mean {mean:.4g} is {demand}")
    reason, allowed = f"the mean {mean:.4g} is not {demand}", partly_reach(bound, from_one)
    if allowed > 0 and at_most(abs(mean - bound), allowed):
        return Finding(Outcome.PARTLY, f"{reason}, but misses it by less than {100 * PARTLY:g} %")
    return Finding(Outcome.NOT_REPRODUCED, reason)


def partly_reach(number: float, from_one: bool) -> float:
    """The distance from a number or bound up to which a mean that misses it is partly there."""
    return PARTLY * _scale(number, from_one)


def _scale(number: float, from_one: bool) -> float:
    return min(abs(number), abs(1 - abs(number))) if from_one else abs(number)


def _variance(values: pd.Series) -> float:
    return float(values.var(ddof=1)) if len(values) > 1 else 0.0


def at_most(distance: float, limit: float) -> bool:
    """Whether a distance is within a limit, up to the rounding of decimals.

    In binary, 0.95 − 0.93 is a little more than 0.02.
    """
    return bool(distance <= limit or np.isclose(distance, limit, rtol=1e-9, atol=1e-12))
