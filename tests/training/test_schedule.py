import itertools
import warnings

import pytest
import torch

from feature_alignment.errors import UserError
from feature_alignment.training.schedule import (
    cosine_rate,
    every,
    geometric,
    slow_start_rate,
    warmup_cosine_rate,
)


def test_every_starts_at_0_and_always_measures_the_end():
    assert every(5, 20) == [0, 5, 10, 15, 20]
    assert every(7, 20) == [0, 7, 14, 20]
    assert every(30, 20) == [0, 20]


def test_geometric_is_the_released_codes_schedule():
    expected = sorted({0} | {int(5 * 1.15**j) for j in range(60) if int(5 * 1.15**j) <= 5000})
    assert geometric(5000) == expected
    assert expected[:6] == [0, 5, 6, 7, 8, 10]
    assert geometric(40, first=5, ratio=2) == [0, 5, 10, 20, 40]  # a last step that it hits
    assert geometric(39, first=5, ratio=2) == [0, 5, 10, 20]


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (lambda: every(0, 9), "every 0 steps is not possible"),
        (lambda: every(1, -1), "steps: -1; it must be a whole number of at least 0"),
        (lambda: geometric(9, ratio=1.0), "ratio 1.0 do not make a growing schedule"),
        (lambda: geometric(9, first=0.5), "first 0.5 and ratio 1.15 do not make"),
        (lambda: geometric(9, first=float("nan")), "first nan and ratio 1.15 do not make"),
        (lambda: geometric(9, ratio=float("inf")), "first 5 and ratio inf do not make"),
    ],
)
def test_impossible_schedules_are_refused(schedule, message):
    with pytest.raises(UserError, match=message):
        schedule()


@pytest.mark.parametrize("trained", [5, 20])  # the longer training goes up and down again
def test_cosine_per_epoch_is_pytorchs_schedule_stepped_once_per_epoch(trained):
    epochs, per_epoch = 5, 3
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    ours = cosine_rate(epochs * per_epoch, per_epoch)
    for t in range(trained * per_epoch):
        assert ours(t) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-12)
        if t % per_epoch == per_epoch - 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # no optimizer.step() is needed here
                theirs.step()


def test_cosine_falls_from_1_to_0():
    rate = cosine_rate(10)
    values = [rate(t) for t in range(11)]
    assert values[0] == 1
    assert values[5] == pytest.approx(0.5)
    assert values[10] == pytest.approx(0, abs=1e-15)
    assert values == sorted(values, reverse=True)


def test_warmup_rises_to_1_and_falls_to_the_floor():
    rate = warmup_cosine_rate(steps=110, warmup=10, floor=0.1)
    factors = [rate(t) for t in range(111)]
    assert factors[:11] == pytest.approx([(t + 1) / 11 for t in range(11)])
    assert factors[10] == pytest.approx(1)
    assert all(a > b for a, b in itertools.pairwise(factors[10:]))
    assert factors[60] == pytest.approx(0.55)
    assert factors[110] == pytest.approx(0.1)
    with pytest.raises(UserError, match="warmup_steps: 5 of 5 steps"):
        warmup_cosine_rate(steps=5, warmup=5, floor=0.1)


def test_a_cosine_needs_updates():
    with pytest.raises(ValueError, match="both must be positive"):
        cosine_rate(0)


def test_a_last_epoch_that_is_not_finished_counts_as_one():
    rate, whole = cosine_rate(10, 4), cosine_rate(12, 4)
    assert [rate(t) for t in range(10)] == [whole(t) for t in range(10)]


def test_a_warmup_may_take_no_update():
    rate = warmup_cosine_rate(steps=10, warmup=0, floor=0.0)
    assert [rate(t) for t in range(10)] == [cosine_rate(10)(t) for t in range(10)]


def test_a_slow_start_takes_as_many_updates_as_given():
    assert [slow_start_rate(2, 0.1)(t) for t in range(4)] == [0.1, 0.1, 1, 1]
