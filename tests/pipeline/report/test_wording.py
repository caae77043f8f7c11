import math

import pytest

from feature_alignment.pipeline.report.wording import (
    duration_text,
    measured_text,
    memory_text,
    number_text,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.95349, "0.953"),
        (0.9996, "1"),
        (0.00200, "0.002"),
        (5.99, "5.99"),
        (1234.0, "1230"),
        (100.0, "100"),
        (1.5e-9, "1.50e−09"),
        (-0.25, "−0.25"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_numbers_have_three_significant_digits(value, text):
    assert number_text(value) == text


def test_a_spread_has_two():
    assert measured_text(0.5, 0.01234) == "0.5 ± 0.012"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.0 s"), (59.9, "59.9 s"), (59.96, "1 min 0 s"), (3599.7, "1 h 0 min")],
)
def test_durations_carry_over(seconds, text):
    assert duration_text(seconds) == text


def test_memory_changes_unit_at_a_gibibyte():
    assert (memory_text(1023), memory_text(1024)) == ("1023 MiB", "1.0 GiB")
