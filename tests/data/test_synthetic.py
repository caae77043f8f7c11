import numpy as np
import pytest

from feature_alignment.data import synthetic
from feature_alignment.determinism import stream
from feature_alignment.errors import UserError


@pytest.fixture
def rng() -> np.random.Generator:
    return stream(0, "tests/synthetic")


def slow_chain(x: np.ndarray, r: int) -> float:
    """Equation 2 as printed, for one sample, k = 1..r."""
    return sum(x[k % r] * x[(k + 1) % r] for k in range(1, r + 1))


@pytest.mark.parametrize("r", [1, 2, 3, 4, 5, 8])
def test_chain_monomial_is_the_printed_sum(rng, r):
    x = rng.standard_normal((6, 8))
    expected = [slow_chain(one, r) for one in x]
    np.testing.assert_allclose(synthetic.chain_monomial(x, r), expected, rtol=1e-12)


@pytest.mark.parametrize("r", [1, 2, 3, 4, 5, 6, 8])
def test_chain_egop_is_the_mean_gradient_product(rng, r):
    # Whitened samples have second moment exactly I, so the mean is exact.
    d = 10
    x = rng.standard_normal((40, d))
    x = x @ np.linalg.inv(np.linalg.cholesky(x.T @ x / len(x))).T
    step = 0.5  # central differences of a quadratic are exact for any
    gradient = np.stack(
        [
            (synthetic.chain_monomial(x + h, r) - synthetic.chain_monomial(x - h, r)) / (2 * step)
            for h in step * np.eye(d)
        ],
        axis=1,
    )
    expected = gradient.T @ gradient / len(x)
    np.testing.assert_allclose(synthetic.chain_monomial_egop(d, r), expected, atol=1e-12)


def test_chain_egop_has_the_known_entries():
    five = synthetic.chain_monomial_egop(7, 5)
    assert np.diag(five).tolist() == [2, 2, 2, 2, 2, 0, 0]
    assert five[0].tolist() == [2, 0, 1, 1, 0, 0, 0]
    three = synthetic.chain_monomial_egop(3, 3)
    np.testing.assert_array_equal(three, np.ones((3, 3)) + np.eye(3))
    four = synthetic.chain_monomial_egop(4, 4)
    assert set(four.ravel()) == {0.0, 2.0}
    ranks = [np.linalg.matrix_rank(synthetic.chain_monomial_egop(9, r)) for r in (3, 4, 5, 8)]
    assert ranks == [3, 2, 5, 6]


@pytest.mark.parametrize("r", [0, 5])
def test_chain_of_impossible_length(r):
    with pytest.raises(UserError, match=f"chain length {r}: wanted 1 to the input dimension 4"):
        synthetic.chain_monomial(np.zeros((2, 4)), r)
    with pytest.raises(UserError, match=f"chain length {r}: wanted 1 to the input dimension 4"):
        synthetic.chain_monomial_egop(4, r)


def test_a_chain_has_a_whole_length():
    with pytest.raises(UserError, match="chain length: a float; give a whole number"):
        synthetic.chain_monomial(np.zeros((2, 4)), 1.5)


def test_haar_is_orthogonal_and_unbiased(rng):
    q = synthetic.haar_orthogonal(20, rng)
    np.testing.assert_allclose(q @ q.T, np.eye(20), atol=1e-12)
    # Without the sign correction the diagonal of R, not of Q, is free, and these means are not 0.
    draws = np.stack([synthetic.haar_orthogonal(2, rng) for _ in range(2000)])
    np.testing.assert_allclose(draws.mean(axis=0), 0, atol=0.06)
    np.testing.assert_allclose((draws**2).mean(axis=0), 0.5, atol=0.03)
    assert abs(np.mean(np.linalg.det(draws))) < 0.08


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
def test_power_law_gaussian_has_its_spectrum(rng, alpha, first):
    d = 5
    x = synthetic.power_law_gaussian(60_000, d, alpha, rng, first)
    found = np.linalg.eigvalsh(x.T @ x / len(x))[::-1]
    expected = [1 / (1 + k**alpha) for k in range(first, first + d)]
    np.testing.assert_allclose(found, expected, rtol=0.03)


def test_power_laws_count_from_one():
    x, again = (synthetic.power_law_gaussian(3, 4, 1.0, stream(0, "x"), *n) for n in ((), (1,)))
    np.testing.assert_array_equal(x, again)


def test_power_law_eigenbasis_is_random(rng):
    x = synthetic.power_law_gaussian(5000, 4, 2.0, rng)
    covariance = x.T @ x / len(x)
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() > 0.05


def test_uniform_sphere(rng):
    x = synthetic.uniform_sphere(20_000, 4, 3.0, rng)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 3.0, rtol=1e-12)
    np.testing.assert_allclose(x.T @ x / len(x), np.eye(4) * 9 / 4, atol=0.08)


def test_disk_fills_the_square_and_is_balanced(rng):
    x, y = synthetic.disk(20_000, rng)
    assert x.shape == (20_000, 2)
    assert np.abs(x).max() <= 1
    assert np.quantile(x, 0.25) == pytest.approx(-0.5, abs=0.02)
    assert set(y) == {-1.0, 1.0}
    assert abs(y.mean()) < 0.03  # the disk's area π · 2/π is half the square's 4
    np.testing.assert_array_equal(y == 1, x[:, 0] ** 2 + x[:, 1] ** 2 <= 2 / np.pi)


def test_grid():
    points = synthetic.grid(50)
    assert points.shape == (2500, 2)
    assert points[0].tolist() == [-1, -1]
    assert points[-1].tolist() == [1, 1]
    assert len(np.unique(points, axis=0)) == 2500


def test_high_rank_quadratic_is_a_positive_quadratic_form(rng):
    x = rng.standard_normal((3, 6))
    y = synthetic.high_rank_quadratic(x, stream(1, "q"))
    q = stream(1, "q").standard_normal((6, 6))
    expected = [one @ q.T @ q @ one for one in x]
    np.testing.assert_allclose(y, expected, rtol=1e-12)
    np.testing.assert_allclose(synthetic.high_rank_quadratic(2 * x, stream(1, "q")), 4 * y)


def test_unit_deviation_keeps_the_mean_ratio(rng):
    y = rng.standard_normal(50) + 3
    scaled = synthetic.unit_deviation(y)
    assert scaled.std() == pytest.approx(1)
    assert scaled.mean() / y.mean() == pytest.approx(1 / y.std())
    with pytest.raises(UserError, match="all are equal"):
        synthetic.unit_deviation(np.full(50, 0.10490011715303971))  # of deviation 1e-17
    for values in ([1.0, np.nan], []):
        with pytest.raises(UserError, match="there are none, or some are not finite"):
            synthetic.unit_deviation(np.array(values))


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [("f4", 1e20), ("f4", 1e-20), ("f4", 1e-25), ("f4", 1e-44), ("f8", 1e200), ("f8", 1e-200)],
)
def test_unit_deviation_neither_over_nor_underflows(dtype, scale):
    y = np.array([0, 1, 3], dtype) * np.array(scale, dtype)
    expected = y.astype("longdouble") / y.astype("longdouble").std()
    found = synthetic.unit_deviation(y)
    assert found.dtype == y.dtype
    np.testing.assert_allclose(found, expected, rtol=3e-7 if dtype == "f4" else 1e-15)


def test_same_stream_same_bytes():
    for draw in (
        lambda g: synthetic.power_law_gaussian(5, 4, 1.0, g),
        lambda g: synthetic.uniform_sphere(5, 4, 1.0, g),
        lambda g: synthetic.disk(5, g)[0],
    ):
        assert draw(stream(3, "a")).tobytes() == draw(stream(3, "a")).tobytes()
        assert draw(stream(3, "a")).tobytes() != draw(stream(4, "a")).tobytes()
