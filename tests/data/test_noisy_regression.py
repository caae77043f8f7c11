import numpy as np
import pytest

from feature_alignment.data.synthetic import expected_loss, noisy_regression
from feature_alignment.determinism import stream
from feature_alignment.errors import UserError


def test_labels_are_the_signal_plus_noise_along_the_noise_features():
    problem = noisy_regression(40, 6, 0.1, stream(0, "data"))
    signal, noise = problem.features[:, 0], problem.features[:, 1:]
    left = problem.y - signal
    # It is in the span of the noise features, with the coefficients that interpolate.
    fitted = np.linalg.lstsq(noise, left, rcond=None)[0]
    np.testing.assert_allclose(noise @ fitted, left, atol=1e-12)
    np.testing.assert_allclose(problem.interpolator, [1, *fitted], atol=1e-12)
    np.testing.assert_allclose(problem.features @ problem.interpolator, problem.y)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"projection": "Printed"}, "did you mean 'printed'"),
        ({"variance": -1.0}, "at least 0"),
        ({"variance": float("inf")}, "variance: inf, wanted a finite number of at least 0"),
    ],
)
def test_mistakes_are_one_sentence(given, message):
    with pytest.raises(UserError, match=message):
        noisy_regression(**({"n": 4, "d": 2, "variance": 0.1} | given), generator=stream(0, "data"))


def test_variances_are_the_papers():
    n, d, variance = 20_000, 4, 0.25
    problem = noisy_regression(n, d, variance, stream(1, "data"))
    np.testing.assert_allclose(problem.features.var(axis=0), [1, *[1 / d] * d], rtol=0.05)
    # φ_noiseᵀε has variance σ² Σ φ²= σ² n/d in each component.
    draws = [noisy_regression(50, d, variance, stream(s, "x")).interpolator[1:] for s in range(400)]
    assert np.var(draws) == pytest.approx(variance * 50 / d, rel=0.1)


def test_without_variance_labels_are_the_signal():
    problem = noisy_regression(5, 2, 0.0, stream(0, "data"))
    assert problem.interpolator.tolist() == [1, 0, 0]
    np.testing.assert_array_equal(problem.y, problem.features[:, 0])


def test_expected_loss_is_that_of_many_fresh_inputs():
    weights = np.array([[0.4, 1.0, -2.0, 0.5], [1.0, 0.0, 0.0, 0.0]])
    fresh = noisy_regression(200_000, 3, 0.1, stream(2, "data")).features
    sampled = np.mean((fresh @ weights.T - fresh[:, :1]) ** 2, axis=0)
    np.testing.assert_allclose(expected_loss(weights), sampled, rtol=0.02)


def test_an_orthogonal_projection_leaves_of_the_noise_what_the_features_span():
    problem = noisy_regression(40, 6, 0.1, stream(0, "data"), "orthogonal")
    rng = stream(0, "data")
    signal, noise = rng.standard_normal(40), rng.standard_normal((40, 6))
    epsilon = np.sqrt(0.1) * rng.standard_normal(40)
    q, _ = np.linalg.qr(noise)
    np.testing.assert_allclose(problem.y, signal + q @ (q.T @ epsilon))
