import pytest

from feature_alignment.errors import UserError
from feature_alignment.training.schedule import every, explicit, geometric


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


def test_explicit_sorts_and_removes_repeats():
    assert explicit([10, 0, 3, 3], 10) == [0, 3, 10]


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (lambda: explicit([11], 9), "measure_at: step 11 is outside the run's 0 to 9"),
        (lambda: explicit([-1], 9), "measure_at: step -1 is outside"),
        (lambda: every(0, 9), "every 0 steps is not possible"),
        (lambda: geometric(9, ratio=1.0), "ratio 1.0 do not make a growing schedule"),
        (lambda: geometric(9, first=0.5), "first 0.5 and ratio 1.15 do not make"),
    ],
)
def test_impossible_schedules_are_refused(schedule, message):
    with pytest.raises(UserError, match=message):
        schedule()
