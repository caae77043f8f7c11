from typing import get_args

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_alignment.data.synthetic import noisy_regression
from feature_alignment.determinism import stream
from feature_alignment.papers.baratin2021.checks.supernat import (
    optimal_update_scales,
    supernat,
    update_bound,
)
from feature_alignment.papers.baratin2021.parameters import Kappa
from feature_alignment.training.errors import TrainingDivergedError

KAPPAS = get_args(Kappa)


@pytest.fixture
def problem():
    generator = stream(0, "problem")
    return generator.standard_normal((9, 4)), generator.standard_normal(9)


@pytest.mark.parametrize("rates", [0.4, 0.4 * 0.9 ** np.arange(30)])
def test_without_kappa_it_is_gradient_descent(problem, rates):
    features, y = problem
    flow = supernat(features, y, rates, 30, None)
    w = np.zeros(4)
    for step in range(30):
        np.testing.assert_allclose(flow.weights[step], w, atol=1e-12)
        w = w - np.broadcast_to(rates, 30)[step] * features.T @ (features @ w - y) / 9
    assert (flow.log_eigenvalues == flow.log_eigenvalues[0]).all()


def matrix_supernat(features, y, rate, steps, kappa_of):
    """The three steps of Figure 5 with matrices; returns weights in the original features."""
    left, _, right = np.linalg.svd(features, full_matrices=False)
    w, scaled, transform = np.zeros(features.shape[1]), features, np.eye(features.shape[1])
    found = [w]
    spectra = [np.linalg.svd(scaled, compute_uv=False) ** 2]
    for _ in range(steps):
        gradient = (scaled @ w - y) / len(y)
        size = np.abs(left.T @ gradient)
        lam = np.einsum("ij,ij->j", scaled.T @ left, scaled.T @ left)
        a = right.T @ np.diag(np.sqrt(kappa_of(size, lam) / size)) @ right
        w = a.T @ (w - rate * scaled.T @ gradient)
        scaled = np.linalg.solve(a, scaled.T).T
        transform = transform @ a
        found.append(np.linalg.solve(transform.T, w))
        spectra.append(np.linalg.svd(scaled, compute_uv=False) ** 2)
    return np.array(found), np.array(spectra)


ORACLES = {
    "max": lambda size, lam: size.max(),
    "literal": lambda size, lam: 1.0,
    "trace": lambda size, lam: (lam * size).sum() / lam.sum(),
    "lambda_max": lambda size, lam: (lam * size).max() / lam.max(),
}


@pytest.mark.parametrize("kappa", ORACLES)
def test_modes_follow_the_algorithm_with_matrices(problem, kappa):
    features, y = problem
    flow = supernat(features, y, 0.3, 3, kappa)
    weights, spectra = matrix_supernat(features, y, 0.3, 3, ORACLES[kappa])
    np.testing.assert_allclose(flow.weights, weights, rtol=1e-8, atol=1e-10)
    ours = np.sort(np.exp(flow.log_eigenvalues), axis=1)[:, ::-1]
    np.testing.assert_allclose(ours, spectra, rtol=1e-7)


def log10_eigenvalues_in_600_digits(features, y, rate, steps, kappa):
    """The recursion as it is printed, residual by difference, with numbers that can afford it."""
    left, singular_values, _ = np.linalg.svd(features, full_matrices=False)
    with mpmath.workdps(600):
        target = [mpmath.mpf(float(value)) for value in left.T @ y]
        lam = [mpmath.mpf(float(value)) ** 2 for value in singular_values]
        outputs, first = [mpmath.mpf(0)] * len(target), None
        for _ in range(steps):
            gradient = [(a - b) / len(y) for a, b in zip(outputs, target, strict=True)]
            size = [abs(value) for value in gradient]
            first = first or max(size)
            grown = [a * b for a, b in zip(lam, size, strict=True)]
            constant = {
                "max": max(size),
                "fixed": first,
                "literal": mpmath.mpf(1),
                "trace": sum(grown) / sum(lam),
                "lambda_max": max(grown) / max(lam),
            }[kappa]
            outputs = [
                a - mpmath.mpf(rate) * b * c for a, b, c in zip(outputs, lam, gradient, strict=True)
            ]
            lam = [value / constant for value in grown]
        return np.array([float(mpmath.log10(value)) for value in lam])


@pytest.mark.parametrize("rate", [0.5, 0.2, 0.1])
@pytest.mark.parametrize("kappa", KAPPAS)
def test_fitted_modes_go_on_as_in_600_digits(kappa, rate):
    steps = 300  # as in the figure, with its problem and rates
    problem = noisy_regression(50, 10, 0.1, stream(0, "data"))
    flow = supernat(problem.features, problem.y, rate, steps, kappa)
    expected = log10_eigenvalues_in_600_digits(problem.features, problem.y, rate, steps, kappa)
    # Constants that let modes grow make rounding grow, too: by 0.003 of -588 here at most.
    tolerance = 0.1 if kappa in ("trace", "lambda_max") else 1e-9
    np.testing.assert_allclose(flow.log_eigenvalues[-1] / np.log(10), expected, atol=tolerance)


def test_each_kappa_keeps_what_it_says(problem):
    features, y = problem
    lam = {k: np.exp(supernat(features, y, 0.2, 8, k).log_eigenvalues) for k in KAPPAS}
    np.testing.assert_allclose(lam["trace"].sum(1), lam["trace"][0].sum(), rtol=1e-12)
    np.testing.assert_allclose(lam["lambda_max"].max(1), lam["lambda_max"][0].max(), rtol=1e-12)
    growth = lam["max"][1:] / lam["max"][:-1]
    np.testing.assert_allclose(growth.max(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(lam["fixed"][1], lam["max"][1], rtol=1e-12)
    ratios = [lam[k][1] / lam[k][1, 0] for k in KAPPAS]  # the first step's shape is the same
    for ratio in ratios[1:]:
        np.testing.assert_allclose(ratio, ratios[0], rtol=1e-12)


def test_logarithms_go_on_where_eigenvalues_underflow(problem):
    features, y = problem
    flow = supernat(features, y, 0.4, 2000, "max")
    assert np.isfinite(flow.log_eigenvalues).all()
    assert flow.log_eigenvalues.min() < np.log(np.finfo(float).tiny)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(0, 10_000), st.floats(0.01, 100))
def test_proposition_3_no_other_scales_are_better_and_kappa_does_not_matter(seed, kappa):
    generator = stream(seed, "case")
    lam, gradient = generator.exponential(size=5), generator.standard_normal(5)
    best = update_bound(lam, gradient, optimal_update_scales(gradient))
    assert update_bound(lam, gradient, optimal_update_scales(gradient, kappa)) == pytest.approx(
        best
    )
    assert best == pytest.approx(np.sum(lam * np.abs(gradient)))  # Cauchy–Schwarz, attained
    other = np.exp(generator.standard_normal(5))
    assert update_bound(lam, gradient, other) >= best * (1 - 1e-12)


def test_the_bound_is_the_product_of_the_two_norms(problem):
    features, y = problem
    left, s, right = np.linalg.svd(features, full_matrices=False)
    nu = np.array([0.5, 2.0, 3.0, 1.0])
    a = right.T @ np.diag(np.sqrt(nu)) @ right
    step = features.T @ y
    expected = np.linalg.norm(a.T @ step) * np.linalg.norm(np.linalg.solve(a, features.T))
    assert update_bound(s**2, left.T @ y, nu) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 50.0, "kappa": None}, "learning rate 50.0 and kappa None diverges"),
        ({"learning_rate": 50.0, "kappa": "literal"}, "diverges; take a smaller"),
        ({"features": np.ones((9, 4))}, "rank-deficient"),
        ({"features": np.eye(9, 4) * [1, 1, 1, 1e-15]}, "rank-deficient"),  # to rounding
    ],
)
def test_what_cannot_be_trained_is_refused(problem, change, message):
    features, y = problem
    arguments = {"features": features, "y": y, "learning_rate": 0.3, "kappa": "max", **change}
    with pytest.raises(ValueError, match=message):
        supernat(steps=400, **arguments)


def test_the_losss_factor_multiplies_the_gradient(problem):
    features, y = problem
    for kappa in (None, "max", "trace"):  # of which the learning rate is multiplied, no more
        doubled = supernat(features, y, 0.1, 9, kappa, factor=1.0)
        expected = supernat(features, y, 0.2, 9, kappa)
        np.testing.assert_allclose(doubled.weights, expected.weights)
    printed, doubled = (supernat(features, y, 0.1, 1, "literal", factor=c) for c in (0.5, 1.0))
    growth = [flow.log_eigenvalues[1] - flow.log_eigenvalues[0] for flow in (printed, doubled)]
    np.testing.assert_allclose(growth[1] - growth[0], np.log(2))


def test_divergence_is_told_from_other_mistakes(problem):
    with pytest.raises(TrainingDivergedError):
        supernat(*problem, 50.0, 400, None)


def test_eigenvalues_that_grow_without_end_are_a_divergence_even_if_nothing_moves():
    """Each step multiplies them by a gradient of 1e50, up to 1e100 in the second."""
    with pytest.raises(TrainingDivergedError, match=r"^step 2: .* rate 0\.0 and kappa literal"):
        supernat(np.eye(2), np.full(2, 2e50), 0.0, 10, "literal")


@pytest.mark.parametrize("kappa", [None, *KAPPAS])
def test_a_mode_fitted_in_one_step_and_one_without_a_target_stay_what_they_are(kappa):
    flow = supernat(np.diag([1.0, 0.5]), np.array([3.0, 0.0]), 2.0, 5, kappa)
    np.testing.assert_array_equal(flow.weights, [[0, 0], *[[3, 0]] * 5])
    assert np.isfinite(flow.log_eigenvalues).all()
