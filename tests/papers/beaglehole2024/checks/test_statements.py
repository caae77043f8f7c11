from fractions import Fraction

import pytest
import torch

from feature_alignment.determinism import torch_stream
from feature_alignment.free_probability.centred_correlation import data_matrices
from feature_alignment.free_probability.random_features import sample_r
from feature_alignment.free_probability.words import canonical_rotation, free_trace, moment_trace
from feature_alignment.layer_features.feature_covariance import layer_feature_matrices
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.beaglehole2024.checks.statements import (
    Expansion,
    alternating_as_printed,
    expansion_errors,
    expected_agop_derivative,
    expected_agop_derivative_as_printed,
    first_denominator_as_printed,
    linearised_kernel,
    numerator_as_printed,
    second_denominator_as_printed,
)

TRACES = {"A": 2, "B": 3, "AA": 7, "AB": 11, "BB": 13, "AAB": 31, "ABB": 37, "ABAB": 101}
TRACES |= {"AAA": 23, "AAAB": 59}


def trace(word):
    """Of words in A and B, and in C and D, which are A and B minus their traces."""
    for centred, letter in ("CA", "DB"):
        if centred in word:
            rest = word.replace(centred, "", 1)
            mean = TRACES[letter] * (trace(rest) if rest else 1)
            return trace(word.replace(centred, letter, 1)) - mean
    return Fraction(TRACES[canonical_rotation(word)])


@pytest.mark.parametrize(
    ("word", "formula"), [("ARARBR", numerator_as_printed), ("ARAR", first_denominator_as_printed)]
)
def test_equations_20_and_22_are_the_free_traces_of_their_words(word, formula):
    moments = [Fraction(m) for m in (2, 5, 17, 61)]
    derived = free_trace(word, {"R": moment_trace(moments), "AB": trace})
    assert formula(trace, moments) == derived


@pytest.mark.parametrize(
    ("letters", "powers"), [("C", (1,)), ("CD", (1, 2)), ("CCD", (1, 2, 1)), ("CDCC", (1, 2, 1, 1))]
)
def test_equations_12_to_15_are_the_free_traces_of_alternating_words(letters, powers):
    moments = [Fraction(m) for m in (2, 5, 17, 61, 97)]
    word = "".join(c + "R" * power for c, power in zip(letters, powers, strict=True))
    derived = free_trace(word, {"R": moment_trace(moments), "CD": trace})
    assert alternating_as_printed(trace, moments, letters, powers) == derived


def test_expansions_hold_but_for_the_last_term_of_equation_19_and_the_roots_of_equation_11():
    x, y = task()
    errors = expansion_errors(x, y, sample_r(4, 4, torch_stream(0, "tests/r")))
    wrong = {name for name, error in errors.items() if error > 1e-12}
    assert wrong == {"equation_11_as_printed", "equation_19_as_printed"}
    assert min(errors[name] for name in wrong) > 0.01


def test_the_misprints_of_equations_11_and_19_are_off_by_what_is_misprinted():
    def t(*factors):
        return float(torch.linalg.multi_dot([*factors, torch.eye(4).to(x)]).trace()) / 4

    (x, y), r = task(), sample_r(4, 4, torch_stream(0, "tests/r"))
    errors, data = expansion_errors(x, y, r), data_matrices(x, y)
    ar, br = data["A"] @ r, data["B"] @ r
    squared = t(ar, ar) * t(ar, br, ar, br)  # of the denominator, by which it multiplies
    assert errors["equation_11_as_printed"] == pytest.approx(abs(squared - 1))
    cubes = t(data["A"]) ** 2 * t(data["B"]) * (t(r) ** 3 - t(r, r, r))
    assert errors["equation_19_as_printed"] == pytest.approx(abs(cubes / t(ar, ar, br)))


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


def quadratic_kernel(u):
    return 2 + 3 * u + 5 * u**2 / 2


EXPANSION = Expansion(at_zero=2, slope=3, curvature=5, at_one=7.5)


def test_the_linearised_kernel_is_exact_on_the_diagonal_up_to_the_curvature():
    gram = torch.tensor([[4.0, 0.0], [0.0, 4.0]])  # d = 4
    found = linearised_kernel(gram, 4, EXPANSION)
    assert found[0, 0] == pytest.approx(7.5 + 5 / 8)
    assert found[0, 1] == pytest.approx(2 + 5 / 8)


def test_the_mean_of_the_kernel_is_that_of_the_corrected_linearisation():
    d = 16
    x = torch.randn(2000, d, generator=torch_stream(0, "tests/sphere"), dtype=torch.float64)
    x *= d**0.5 / x.norm(dim=1, keepdim=True)
    gram = x @ x.T
    off_diagonal = ~torch.eye(len(x), dtype=torch.bool)
    rest = quadratic_kernel(gram / d) - linearised_kernel(gram, d, EXPANSION)
    printed = quadratic_kernel(gram / d) - linearised_kernel(gram, d, EXPANSION, as_printed=True)
    assert rest[off_diagonal].mean().item() == pytest.approx(0, abs=1e-3)
    assert printed[off_diagonal].mean().item() == pytest.approx(-5 / (2 * d), rel=0.01)


def test_nfm_and_agop_are_as_wide_as_the_layers_inputs():
    model = MLP(3, [5, 4], 1, "relu", False, torch_stream(0, "tests/model"), dtype=torch.float64)
    x = torch.randn(6, 3, generator=torch_stream(0, "tests/x"), dtype=torch.float64)
    for layer, width in zip(layer_feature_matrices(model, x).values(), (3, 5, 4), strict=True):
        assert layer.nfm.shape == layer.agop.shape == (width, width)  # not k_{l+1}, as printed
