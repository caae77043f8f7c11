import numpy as np
import pytest

from feature_alignment.data.alignment_reversing import AlignmentReversing
from feature_alignment.determinism import stream
from feature_alignment.errors import UserError

N = 160


def draw(gamma: float, **options) -> tuple[np.ndarray, np.ndarray]:
    return AlignmentReversing(N, stream(0, "tests/alignment"), **options).sample(gamma)


def second_derivative_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """ρ of M R M and M R B R M with M = XᵀYX, B = XᵀX, R = Wᵀ diag(a²) W."""
    rng = stream(1, "tests/alignment/network")
    w = rng.standard_normal((N, N)) / np.sqrt(N)
    r = w.T @ (rng.standard_normal((N, 1)) ** 2 * w)
    m, b = x.T @ (y[:, np.newaxis] * x), x.T @ x
    f, g = m @ r @ m, m @ r @ b @ r @ m
    return float(np.sum(f * g) / np.linalg.norm(f) / np.linalg.norm(g))


def test_labels_and_shapes():
    x, y = draw(0.25)
    assert x.shape == (N, N)
    assert y.tolist() == [1 + 1e-5] * 40 + [1e-5] * 120


def test_first_rows_have_the_spiked_covariance():
    spike = np.full(N, 1 / np.sqrt(N))
    along, total = [], []
    for seed in range(12):
        generator = stream(seed, "tests/alignment/covariance")
        x, _ = AlignmentReversing(N, generator, epsilon2=0.0).sample(1.0)
        along.append(np.sum((x @ spike) ** 2))
        total.append(np.sum(x**2))
    # 11ᵀ/d + ε₁ I has 1 + ε₁ along 1/√d and trace 1 + ε₁ d.
    assert np.mean(along) == pytest.approx(1.5, rel=0.1)
    assert np.mean(total) == pytest.approx(1 + 0.5 * N, rel=0.01)


def test_second_rows_invert_the_first_gram_up_to_tempering():
    # Without noise and with γ so small that all rows but one come from X⁽²⁾, the Gram of X⁽²⁾
    # is (S₁ + δ)⁻² in the basis U₁, less one row.
    delta = 0.5
    first, _ = draw(1.0, epsilon2=0.0)
    mixed, _ = draw(1 / N, epsilon2=0.0, delta=delta)
    tempered = np.linalg.inv(first.T @ first + delta * np.eye(N))
    missing = tempered @ tempered - mixed[1:].T @ mixed[1:]
    singular = np.linalg.svd(missing, compute_uv=False)
    assert singular[0] > 0.01
    np.testing.assert_allclose(singular[1:], 0, atol=1e-10)


def test_correlation_falls_with_balance_and_returns_at_one():
    found = {g: second_derivative_correlation(*draw(g)) for g in (0.1, 0.9, 1.0)}
    assert found[0.1] > 0.85
    assert found[0.9] < 0.6
    assert found[1.0] > 0.8


def test_stronger_tempering_gives_a_flatter_curve():
    sharp, soft = (
        second_derivative_correlation(*draw(0.1, delta=d))
        - second_derivative_correlation(*draw(0.9, delta=d))
        for d in (1e-3, 1e-2)
    )
    assert sharp > soft > 0


@pytest.mark.parametrize("gamma", [0.0, -0.1, 1.1, 0.001, float("nan")])
def test_balance_outside_its_range(gamma):
    with pytest.raises(UserError, match=rf"gamma: {gamma} of {N} samples"):
        draw(gamma)


def test_delta_must_be_positive():
    with pytest.raises(UserError, match=r"delta: 0\.0, wanted a positive number"):
        draw(0.5, delta=0.0)


@pytest.mark.parametrize("given", [{"epsilon1": -1.0}, {"epsilon2": -0.1}])
def test_variances_must_not_be_negative(given):
    with pytest.raises(UserError, match="n, epsilon1, epsilon2: 160, "):
        draw(0.5, **given)


@pytest.mark.parametrize("name", ["epsilon1", "epsilon2", "delta", "label_shift"])
def test_numbers_must_be_finite(name):
    with pytest.raises(UserError, match=r"label_shift: .*inf.*, wanted finite numbers"):
        draw(0.5, **{name: float("inf")})


def test_the_default_delta():
    np.testing.assert_array_equal(draw(0.5)[0], draw(0.5, delta=1e-3)[0])


def test_same_stream_same_bytes():
    assert draw(0.5)[0].tobytes() == draw(0.5)[0].tobytes()


def test_balances_share_one_draw():
    data = AlignmentReversing(N, stream(0, "tests/alignment"))
    few, many = data.sample(0.25)[0], data.sample(0.75)[0]
    np.testing.assert_array_equal(few[:40], many[:40])
    np.testing.assert_array_equal(few[120:], many[120:])


def test_square_reading_inverts_the_gram_of_the_spiked_gaussian():
    first, _ = draw(1.0, reading="square", epsilon2=0.0)
    mixed, _ = draw(1 / N, reading="square", epsilon2=0.0)
    rows = mixed[1:] @ (first.T @ first)  # of V₂ U₁ᵀ
    np.testing.assert_allclose(rows @ rows.T, np.eye(N - 1), atol=1e-5)


@pytest.mark.parametrize("gamma", [0.25, 0.5, 0.75])
def test_compact_reading_inverts_the_gram_on_the_rows_it_has(gamma):
    x, _ = draw(gamma, reading="compact", epsilon2=0.0)
    ones = round(gamma * N)
    first, second = x[:ones], x[ones:]
    rank = min(ones, N - ones)
    gram, inverse = first.T @ first, second.T @ second
    values, vectors = np.linalg.eigh(gram)
    top = vectors[:, -rank:]
    np.testing.assert_allclose(top.T @ inverse @ top, np.diag(values[-rank:] ** -2.0), atol=1e-12)
    assert np.linalg.matrix_rank(second) == rank


def test_the_literal_spike_makes_matrices_rank_one_in_effect():
    x, y = draw(0.5, reading="compact")
    assert second_derivative_correlation(x, y) > 0.99


def test_the_literal_spike_has_one_a_coordinate():
    x, _ = draw(1.0, reading="square", epsilon2=0.0)
    assert np.mean(x**2) == pytest.approx(1.5, rel=0.3)  # 1 + ε₁


def test_unknown_reading():
    with pytest.raises(UserError, match="reading: 'sqare' is unknown; did you mean 'square'"):
        draw(0.5, reading="sqare")


def test_rounding_lets_a_singular_gram_be_inverted_along_what_the_samples_leave_out():
    x, _ = draw(0.5, reading="rounded", epsilon2=0.0)
    first, second = x[:80], x[80:]
    assert np.isfinite(second).all()
    basis = np.linalg.svd(first, full_matrices=False)[2]  # the rows' span
    inside = np.linalg.norm(second @ basis.T) / np.linalg.norm(second)
    assert inside < 0.1
    assert np.linalg.norm(second) > 1e4 * np.linalg.norm(draw(0.5, reading="compact")[0][80:])


def test_rounded_reading_does_not_hang_on_the_order_of_summation():
    # What rules it is the rounding of the Gram matrix, once, not what is added up on the way.
    data, other = (
        AlignmentReversing(N, stream(0, "tests/alignment"), reading="rounded", epsilon2=0.0)
        for _ in range(2)
    )
    other._first[:80] = other._first[79::-1].copy()
    found, expected = (one.sample(80 / N)[0][80:] for one in (other, data))
    np.testing.assert_allclose(found, expected, atol=1e-4 * abs(expected).max())


def test_the_last_rows_come_from_the_last_rows_of_the_second_gaussian():
    data = AlignmentReversing(N, stream(0, "tests/alignment"), reading="compact", epsilon2=0.0)
    x, _ = data.sample(0.25)
    own, rows = x[40:] @ x[40:].T, data._other[40:]
    gram = rows @ rows.T  # has the same eigenvectors V₂, so both commute
    scale = np.linalg.norm(own) * np.linalg.norm(gram)
    assert np.linalg.norm(own @ gram - gram @ own) < 1e-9 * scale


def test_the_rounded_reading_has_the_last_rows_of_the_whole_inverse():
    data = AlignmentReversing(N, stream(0, "tests/alignment"), reading="rounded", epsilon2=0.0)
    x, _ = data.sample(0.25)
    gram = (x[:40].T @ x[:40]).astype(np.float32).astype(float)
    whole = np.linalg.svd(data._other)[0] / np.linalg.svd(gram, compute_uv=False)
    expected = (whole @ whole.T)[40:, 40:]
    np.testing.assert_allclose(x[40:] @ x[40:].T, expected, atol=1e-3 * np.abs(expected).max())


def test_the_rounded_gram_is_inverted_in_double_precision():
    x, _ = draw(0.5, reading="rounded", epsilon2=0.0)
    gram = (x[:80].T @ x[:80]).astype(np.float32).astype(float)
    rows = x[80:] @ gram  # of V₂ U₁ᵀ
    np.testing.assert_allclose(rows @ rows.T, np.eye(80), atol=1e-4)


def test_noise_has_the_deviation_epsilon2():
    noise = draw(0.5, epsilon2=0.01)[0] - draw(0.5, epsilon2=0.0)[0]
    assert noise.std() == pytest.approx(0.01, rel=0.02)


def test_the_number_of_ones_is_rounded():
    assert (draw(0.2995)[1] > 0.5).sum() == 48  # of 47.92
