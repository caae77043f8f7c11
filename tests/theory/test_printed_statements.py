from fractions import Fraction

import pytest
import torch

from feature_alignment.determinism import torch_stream
from feature_alignment.theory.free_probability import canonical_rotation, free_trace, moment_trace
from feature_alignment.theory.printed_statements import (
    expected_agop_derivative,
    expected_agop_derivative_as_printed,
    second_denominator_as_printed,
)

TRACES = {"A": 2, "B": 3, "AA": 7, "AB": 11, "BB": 13, "AAB": 31, "ABB": 37, "ABAB": 101}


def trace(word):
    return Fraction(TRACES[canonical_rotation(word)])


def test_equation_28_lacks_one_term():
    moments = [Fraction(m) for m in (2, 5, 17, 61)]
    derived = free_trace("ARBRARBR", {"R": moment_trace(moments), "AB": trace})
    missing = (trace("AA") - trace("A") ** 2) * trace("B") ** 2 * moments[1] ** 2
    assert derived - second_denominator_as_printed(trace, moments) == missing


def task(n=7, d=4):
    generator = torch_stream(0, "tests/task")
    rng = {"generator": generator, "dtype": torch.float64}
    return torch.randn(n, d, **rng), torch.randn(n, **rng)


def test_one_unit_makes_printed_and_corrected_statements_equal():
    x, y = task()
    torch.testing.assert_close(
        expected_agop_derivative(x, y, 1), expected_agop_derivative_as_printed(x, y)
    )


def test_many_units_leave_the_pairs_alone():
    x, y = task()
    c = x.T @ (y[:, None] * x)
    torch.testing.assert_close(expected_agop_derivative(x, y, 10**9), c @ x.T @ x @ c)


@pytest.mark.parametrize("width", [2, 5])
def test_the_correction_is_the_mean_over_networks(width):
    x, y = task()
    c, b = x.T @ (y[:, None] * x), x.T @ x
    rng = {"generator": torch_stream(0, "tests/networks"), "dtype": torch.float64}
    scaled = torch.randn(200_000, width, 1, **rng) * torch.randn(200_000, width, 4, **rng)
    r = scaled.mT @ scaled / width
    sampled = c @ (r @ b @ r).mean(dim=0) @ c
    expected = expected_agop_derivative(x, y, width)
    assert (sampled - expected).norm() < 0.1 * expected.norm()
