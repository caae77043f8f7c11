import pytest

from feature_alignment.errors import UserError
from feature_alignment.training.schedule import every, explicit, geometric, measurement_schedule


def test_every_starts_at_0_and_stays_inside_the_run():
    assert every(5, 20) == [0, 5, 10, 15, 20]
    assert every(7, 20) == [0, 7, 14]


def test_geometric_is_the_released_codes_schedule():
    expected = sorted({0} | {int(5 * 1.15**j) for j in range(60) if int(5 * 1.15**j) <= 5000})
    assert geometric(5000) == expected
    assert expected[:6] == [0, 5, 6, 7, 8, 10]
    assert geometric(40, first=5, ratio=2) == [0, 5, 10, 20, 40]  # a last step that it hits
    assert geometric(39, first=5, ratio=2) == [0, 5, 10, 20]


def test_explicit_sorts_and_removes_repeats():
    assert explicit([10, 0, 3, 3], 10) == [0, 3, 10]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([0, 3], [0, 3, 9]),
        ({"every": 4}, [0, 4, 8, 9]),
        ({"geometric": {}}, [0, 5, 6, 7, 8, 9]),
        ({"geometric": {"first": 1, "ratio": 3}}, [0, 1, 3, 9]),
    ],
)
def test_settings_of_a_spec_always_measure_the_end(settings, expected):
    assert measurement_schedule(settings, 9) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([11], "measure_at: step 11 is outside the run's 0 to 9"),
        ([-1], "measure_at: step -1 is outside"),
        ({"every": 0}, "every 0 steps is not possible"),
        ({"geometric": {"ratio": 1.0}}, "ratio 1.0 do not make a growing schedule"),
        ({"geometric": {"ratios": 2}}, "'ratios' is not a setting; did you mean 'ratio'"),
        ({"often": 3}, "measure_at: .* is not a schedule"),
    ],
)
def test_impossible_schedules_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        measurement_schedule(settings, 9)
