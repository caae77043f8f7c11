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


@pytest.mark.parametrize(
    ("mean", "sd", "text"),
    [
        (0.5, 0.01234, "0.500 ± 0.012"),
        (-0.3832, 0.161, "−0.38 ± 0.16"),
        (0.00001, 0.5, "0.00 ± 0.50"),
        (12345.6, 120.0, "12350 ± 120"),
        (1.5, 0.0, "1.5 ± 0"),
        (9.6e-16, 1.1e-15, "9.60e−16 ± 1.1e−15"),
        (3e7, 2e6, "3.00e+07 ± 2000000"),
    ],
)
def test_a_mean_ends_where_the_second_digit_of_its_spread_does(mean, sd, text):
    assert measured_text(mean, sd) == text


@pytest.mark.parametrize(
    ("value", "bounds", "text"),
    [
        (1.0026, [1.0], "1.003"),
        (0.99996, [None, 1.0], "0.99996"),
        (1.0, [1.0], "1"),
        (1.08, [1.0], "1.08"),
        (1.2, [math.nan], "1.2"),
        (1.00000001, [1.0], "1"),  # bounds that differ by rounding
        (0.00034, [0.0], "0.00034"),
    ],
)
def test_a_number_beside_a_bound_does_not_read_like_it(value, bounds, text):
    assert number_text(value, 3, *bounds) == text
    assert measured_text(value, None, *bounds) == text


@pytest.mark.parametrize(
    ("mean", "sd", "bound", "text"),
    [
        (0.89968, 0.0213, 0.9, "0.8997 ± 0.021"),
        (0.0003, 0.7313, 0.0, "0.0003 ± 0.73"),
        (1004.0, 120.0, 1000.0, "1004 ± 120"),
        (0.9, 0.0213, 0.9, "0.900 ± 0.021"),
    ],
)
def test_a_mean_beside_a_bound_has_the_digits_that_tell_them_apart(mean, sd, bound, text):
    assert measured_text(mean, sd, math.nan, bound) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.0 s"), (59.9, "59.9 s"), (59.96, "1 min 0 s"), (3599.7, "1 h 0 min")],
)
def test_durations_carry_over(seconds, text):
    assert duration_text(seconds) == text


def test_memory_changes_unit_at_a_gibibyte():
    assert (memory_text(1023), memory_text(1024)) == ("1023 MiB", "1.0 GiB")


def test_a_bound_that_is_equal_needs_no_digits():
    assert number_text(1.0026, 3, 1.0026, 1.0) == "1.003"
