import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_alignment.complexity.rademacher import (
    interpolator_bound,
    linear_class_bound,
    minimum_norm_interpolator,
    optimal_bound_range,
    optimal_norm_scales,
)
from feature_alignment.determinism import stream


def case(seed, n=5, p=8):
    generator = stream(seed, "case")
    return generator.standard_normal((n, p)), generator.standard_normal(n)


def test_it_interpolates_with_the_least_norm():
    features, y = case(0)
    weights = minimum_norm_interpolator(features, y).weights
    np.testing.assert_allclose(features @ weights, y, atol=1e-12)
    np.testing.assert_allclose(weights, np.linalg.pinv(features) @ y, atol=1e-12)


def test_eq_83_is_the_bound_of_the_linear_class_at_the_interpolators_norm():
    features, y = case(1)
    found = minimum_norm_interpolator(features, y)
    nu = np.array([0.3, 1.0, 2.0, 5.0, 0.1])
    right = np.linalg.svd(features, full_matrices=False)[2]
    a = right.T @ np.diag(np.sqrt(nu)) @ right + np.eye(8) - right.T @ right
    expected = linear_class_bound(features, a, np.linalg.norm(a.T @ found.weights))
    assert interpolator_bound(found.eigenvalues, found.coefficients, nu) == pytest.approx(expected)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(0, 10_000), st.floats(0.01, 100))
def test_proposition_14_no_other_scales_are_better_and_kappa_does_not_matter(seed, kappa):
    features, y = case(seed)
    found = minimum_norm_interpolator(features, y)
    lam, modes = found.eigenvalues, found.coefficients
    best = interpolator_bound(lam, modes, optimal_norm_scales(lam, modes))
    scaled = interpolator_bound(lam, modes, optimal_norm_scales(lam, modes, kappa))
    assert scaled == pytest.approx(best)
    assert best == pytest.approx(
        np.abs(modes).mean()
    )  # Σ_j |u_jᵀy|/n, whatever the features' sizes
    other = np.exp(stream(seed, "other").standard_normal(5))
    assert interpolator_bound(lam, modes, other) >= best * (1 - 1e-12)


def test_the_range_of_optimal_bounds_is_that_over_bases_of_eigenspaces():
    y = case(0, n=6)[1]
    values = np.array([4.0, 2.0, 2.0, 2.0, 1.0, 1.0])
    least, most = optimal_bound_range(values, y)
    assert optimal_bound_range(np.arange(6.0, 0, -1), y) == pytest.approx([abs(y).mean()] * 2)
    found = []
    for seed in range(200):
        turned = y.copy()
        for space in (slice(1, 4), slice(4, 6)):
            k = space.stop - space.start
            basis = np.linalg.qr(stream(seed, "basis").standard_normal((k, k)))[0]
            turned[space] = basis.T @ y[space]
        found.append(abs(turned).mean())
    assert least <= min(found) < max(found) <= most
    first, second = np.linalg.norm(y[1:4]), np.linalg.norm(y[4:])
    assert least == pytest.approx((abs(y[0]) + first + second) / 6)  # one vector along Py
    assert most == pytest.approx((abs(y[0]) + 3**0.5 * first + 2**0.5 * second) / 6)  # alike


def test_eigenvalues_apart_by_rounding_share_an_eigenspace():
    y, eps = case(0)[1], np.finfo(float).eps
    expected = optimal_bound_range(np.array([9.0, 4.0, 4.0, 4.0, 1.0]), y)
    values = 1e4 * np.array([9.0, 4.0 + 20 * eps, 4.0, 4.0 - 20 * eps, 1.0])
    assert optimal_bound_range(values, y) == expected


def test_labels_that_cannot_be_met_are_refused():
    features, y = case(2)
    features[1] = features[0]
    with pytest.raises(ValueError, match="rank 4 for 5 labels"):
        minimum_norm_interpolator(features, y)


@pytest.mark.parametrize("place", ["features", "y"])
def test_what_is_not_finite_cannot_be_fitted(place):
    given = {"features": np.eye(2), "y": np.ones(2)}
    given[place] = given[place] * np.nan
    with pytest.raises(ValueError, match=r"^features and y: they must be finite"):
        minimum_norm_interpolator(**given)


def test_a_singular_value_of_rounding_s_size_is_none():
    with pytest.raises(ValueError, match="rank 1 for 2 labels"):
        minimum_norm_interpolator(np.diag([1.0, 1e-16]), np.ones(2))
    with pytest.raises(ValueError, match="rank 1 for 2 labels"):
        minimum_norm_interpolator(np.diag([1.0, 1e-13]) @ np.eye(2, 1000), np.ones(2))
    weights = minimum_norm_interpolator(np.diag([1.0, 1e-15]), np.ones(2)).weights
    np.testing.assert_allclose(weights, [1, 1e15])


def test_scales_without_kappa_are_eigenvalues_over_coefficients():
    scales = optimal_norm_scales(np.array([6.0, 2.0]), np.array([-3.0, 4.0]))
    np.testing.assert_array_equal(scales, [2.0, 0.5])
    scales = optimal_norm_scales(np.array([6.0, 2.0]), np.array([-3.0, 4.0]), 3.0)
    np.testing.assert_array_equal(scales, [6.0, 1.5])


def test_single_precision_does_not_hide_a_low_rank():
    rng = np.random.default_rng(0)
    features = (rng.normal(size=(5, 3)) @ rng.normal(size=(3, 8))).astype(np.float32)
    with pytest.raises(ValueError, match="labels"):
        minimum_norm_interpolator(features.astype(float).round(12), np.arange(5.0)[:, None])
    features = rng.normal(size=(4, 8)).astype(np.float32)
    found = minimum_norm_interpolator(features, np.arange(4.0))
    assert found.weights.dtype == np.float64
    np.testing.assert_allclose(features.astype(float) @ found.weights, np.arange(4.0), atol=1e-12)
