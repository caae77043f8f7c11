from fractions import Fraction

import numpy as np
import pytest
import torch

from emulated_gpu import GPU
from feature_alignment.determinism import torch_stream
from feature_alignment.errors import UserError
from feature_alignment.free_probability.random_features import (
    gaussian_even_moments,
    limiting_moments,
    matrix_moments,
    sample_r,
    second_moment_at_finite_size,
)


@pytest.mark.parametrize("c", [Fraction(1, 4), 1, Fraction(8, 3)])
def test_gaussian_readout(c):
    found = limiting_moments(c, gaussian_even_moments(4))
    assert found == [1, 1 + 3 * c, 1 + 9 * c + 15 * c**2, 1 + 18 * c + 78 * c**2 + 105 * c**3]


def test_readout_of_signs_gives_marchenko_pastur():
    # Narayana polynomials in c.
    c = Fraction(2, 5)
    expected = [1, 1 + c, 1 + 3 * c + c**2, 1 + 6 * c + 6 * c**2 + c**3]
    assert limiting_moments(c, [1, 1, 1, 1]) == expected


def test_a_sparse_readout_is_a_narrower_network():
    # With probability p a² = 1/p, else 0: pk units of weight 1/p.
    p, c = Fraction(1, 3), Fraction(1, 2)
    sparse = limiting_moments(c, [p ** (1 - n) for n in range(1, 5)])
    assert sparse == limiting_moments(c / p, [1, 1, 1, 1])


@pytest.mark.parametrize(
    "ratio", [0, -1.0, float("nan"), float("inf"), np.array(-1), torch.tensor(-1.0)]
)
def test_ratio_must_be_positive(ratio):
    with pytest.raises(UserError, match=r"ratio d/k: found .*; it must be positive"):
        limiting_moments(ratio, [1])


@pytest.mark.parametrize(
    "moments",
    [
        *([1, 0.5, 0.1], [1, 0.9999], [1, np.nan], [1, np.inf], [-1, 3], [0, 0], [1, 3, 8]),
        torch.tensor([1, 0.9]),
    ],
)
def test_moments_that_no_readout_has_are_refused(moments):
    with pytest.raises(UserError, match=r"^even_moments: found .*; give E.a².* do not fall\.$"):
        limiting_moments(0.5, moments)


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_moments_of_almost_equal_weights_are_taken(kind):
    weights = 1.3 + 1e-7 * torch.randn(1000, generator=torch_stream(0, "tests/r"))
    assert limiting_moments(0.5, kind([float((weights**n).mean()) for n in range(1, 5)]))


def sampled_moments(d, k, draws):
    generator = torch_stream(0, "tests/r")
    return torch.tensor([matrix_moments(sample_r(d, k, generator)) for _ in range(draws)])


@pytest.mark.parametrize(("d", "k"), [(10, 10), (6, 18), (12, 5)])
def test_second_moment_at_finite_size(d, k):
    sampled = sampled_moments(d, k, 4000)[:, 1]
    exact = second_moment_at_finite_size(d, k, gaussian_even_moments(2))
    error = sampled.std() / len(sampled) ** 0.5
    assert abs(sampled.mean() - exact) < 4 * error
    # The limit, 5/k below, is not within the error.
    limit = limiting_moments(d / k, gaussian_even_moments(2))[1]
    assert exact - limit == pytest.approx(5 / k)


def test_a_readout_twice_as_large_makes_r_four_times_as_large():
    for d, k in ((10, 10), (6, 18)):
        scaled = second_moment_at_finite_size(d, k, [4, 16 * 3])
        assert scaled == pytest.approx(16 * second_moment_at_finite_size(d, k, [1, 3]))


def test_the_generator_alone_decides_the_draw():
    first, again = (sample_r(4, 6, torch_stream(0, "tests/r")) for _ in range(2))
    assert torch.equal(first, again)
    assert first.dtype == torch.float64
    generator = torch_stream(0, "tests/r")
    w, a = (torch.randn(6, n, generator=generator, dtype=torch.float64) for n in (4, 1))
    torch.testing.assert_close(first, w.T @ (a**2 * w) / 6, rtol=1e-13, atol=1e-15)


def test_a_draw_is_moved_to_its_device(emulation):
    expected = sample_r(4, 6, torch_stream(0, "tests/r"))
    with emulation():
        found = sample_r(4, 6, torch_stream(0, "tests/r"), GPU)
        assert found.device == GPU
        torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "k"), [(600, 1200), (1000, 500)])
def test_limits_in_large_samples(d, k):
    sampled = sampled_moments(d, k, 30)
    error = sampled.std(dim=0) / len(sampled) ** 0.5
    limit = torch.tensor(limiting_moments(d / k, gaussian_even_moments(4)))
    assert (abs(sampled.mean(dim=0) - limit) < 4 * error + 20 * limit / k).all()


def test_moments_are_traces_of_powers():
    r = sample_r(7, 4, torch_stream(1, "tests/r"))
    expected = [float(torch.linalg.matrix_power(r, n).trace()) / 7 for n in range(1, 5)]
    assert matrix_moments(r) == pytest.approx(expected)
