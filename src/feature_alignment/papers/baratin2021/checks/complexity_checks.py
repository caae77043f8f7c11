"""Numerical checks of baratin2021's statements on complexity (Section 4.1, Appendix B).

Expectations over signs are exact, over all sign vectors, except in eq. 56. Axes: see `rademacher`.
"""

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from scipy.stats import gmean

from feature_alignment.complexity import rademacher
from feature_alignment.complexity.rademacher import finite_class_complexity, margin, ramp_loss
from feature_alignment.papers.baratin2021.checks import supernat
from feature_alignment.pipeline.checks import Check, equation, inequality, misprint

SAMPLES, PARAMETERS, CLASSES, MEMBERS, UPDATES = 8, 12, 3, 12, 3
POPULATION, DRAWN, DRAWS, CONFIDENCE = 1000, 100, 200, 0.1
LEARNING_RATE = 0.3


def complexity_checks(generator: np.random.Generator) -> list[Check]:
    """Check Propositions 3, 10 and 14, Theorems 2 and 13 and Lemma 12 on one random case."""
    features = generator.standard_normal((SAMPLES, PARAMETERS))
    y = generator.standard_normal(SAMPLES)
    return [
        *_linear_classes(features, generator),
        *_optimal_scales(features, y),
        *_algorithm(features, y),
        *_interpolator(features, y),
        *_multiclass(generator),
        _generalisation(generator),
    ]


def _transform(generator: np.random.Generator) -> np.ndarray:
    """A random invertible matrix A."""
    return np.eye(PARAMETERS) + 0.2 * generator.standard_normal((PARAMETERS, PARAMETERS))


def _linear_classes(features: np.ndarray, generator: np.random.Generator) -> list[Check]:
    """Proposition 10, and Theorem 2 for a sum of updates, in both its forms."""
    # A flow's class is the product of its updates' classes: maximising each update is exact.
    signs = rademacher.all_signs(SAMPLES)
    complexities, bounds, by_features, norms = [], [], [], []
    for _ in range(UPDATES):
        transform, radius = _transform(generator), generator.uniform(0.5, 2)
        best = rademacher.linear_class_maximisers(features, transform, radius, signs)
        complexities.append(np.mean(signs * (best @ features.T)))
        bounds.append(rademacher.linear_class_bound(features, transform, radius))
        evolved = np.linalg.solve(transform, features.T).T  # Φ_t = A_t⁻¹Φ
        best = rademacher.linear_class_maximisers(evolved, np.eye(PARAMETERS), radius, signs)
        by_features.append(np.mean(signs * (best @ evolved.T)))
        norms.append(radius / SAMPLES * np.linalg.norm(evolved))
    return [
        inequality("prop10", complexities[0], bounds[0]),
        inequality("thm2", sum(complexities), sum(bounds)),
        equation("eq13", by_features, complexities),
        inequality("eq14", sum(by_features), sum(norms)),
    ]


def _optimal_scales(features: np.ndarray, y: np.ndarray) -> list[Check]:
    """Propositions 3 and 14: the closed-form minimisers against numerical ones."""
    left, singular_values, right = np.linalg.svd(features, full_matrices=False)
    eigenvalues, modes = singular_values**2, left.T @ y
    gradient = -modes / SAMPLES  # at f = 0
    update = supernat.optimal_update_scales(gradient)
    norm = rademacher.optimal_norm_scales(eigenvalues, modes)
    numerical_update = _minimiser(lambda nu: supernat.update_bound(eigenvalues, gradient, nu))
    numerical_norm = _minimiser(lambda nu: rademacher.interpolator_bound(eigenvalues, modes, nu))
    size = np.linalg.norm(right.T @ np.diag(norm**-0.5) @ right @ features.T)  # of A⁻¹Φᵀ
    left_side = eigenvalues * gradient**2 * np.sum(eigenvalues / update)  # of eq. 89, without η²
    squares = (LEARNING_RATE * gradient) ** 2
    right_side = eigenvalues / update**2 * np.sum(update * eigenvalues * squares)
    return [
        equation("prop3", numerical_update, update / gmean(update)),
        equation("prop14", numerical_norm, norm / gmean(norm)),
        *misprint("eq88", size, size**2, np.sum(eigenvalues / norm)),
        *misprint("eq89", left_side, LEARNING_RATE**2 * left_side, right_side),
    ]


def _minimiser(objective: Callable[[np.ndarray], float]) -> np.ndarray:
    """Minimiser over ν > 0, (n,), with geometric mean 1, of a scale-invariant objective."""
    found = minimize(
        lambda log: np.log(objective(np.exp(log))),  # convex in log ν
        np.zeros(SAMPLES),
        jac="3-point",
        method="BFGS",
        options={"gtol": 1e-9},
    )
    nu = np.exp(found.x)
    return nu / gmean(nu)


def _algorithm(features: np.ndarray, y: np.ndarray) -> list[Check]:
    """Figure 5's three steps with full matrices: eqs. 16–17, and the natural gradient."""
    left, _, right = np.linalg.svd(features, full_matrices=False)
    transform, scaled = np.eye(PARAMETERS), features  # A_t and Φ_t = Φ A_t⁻ᵀ
    weights, natural = np.zeros(PARAMETERS), np.zeros(PARAMETERS)  # in Φ_t, and in Φ
    outside = np.eye(PARAMETERS) - right.T @ right
    for _ in range(UPDATES):
        gradient = (scaled @ weights - y) / SAMPLES
        metric = transform @ transform.T
        natural = natural - LEARNING_RATE * np.linalg.solve(metric, features.T @ gradient)
        weights = weights - LEARNING_RATE * scaled.T @ gradient
        nu = supernat.optimal_update_scales(left.T @ gradient)
        step = right.T @ np.diag(np.sqrt(nu)) @ right + outside  # eq. 15
        weights, scaled = step.T @ weights, np.linalg.solve(step, scaled.T).T
        transform = transform @ step
    flow = supernat.supernat(features, y, LEARNING_RATE, UPDATES, "literal")
    original = np.linalg.solve(transform.T, weights)  # w = A_t⁻ᵀ w̃
    spectrum = np.linalg.svd(scaled, compute_uv=False)
    return [
        equation("eq17", np.sort(flow.log_eigenvalues[-1])[::-1], 2 * np.log(spectrum)),
        equation("supernat_function", flow.weights[-1], original),
        equation("supernat_natural_gradient", natural, original),
    ]


def _interpolator(features: np.ndarray, y: np.ndarray) -> list[Check]:
    """Eq. 81, and the interpolator's covariance under label noise, which the paper states next."""
    found = rademacher.minimum_norm_interpolator(features, y)
    linear_map = features.T @ np.linalg.inv(features @ features.T)  # w* = linear_map @ y
    right = np.linalg.svd(features, full_matrices=False)[2]
    covariance = right.T @ np.diag(1 / found.eigenvalues) @ right  # for σ = 1
    return [
        equation("eq81", found.weights, np.linalg.lstsq(features, y, rcond=None)[0]),
        equation("noise_covariance", covariance, linear_map @ linear_map.T),
    ]


def _multiclass(generator: np.random.Generator) -> list[Check]:
    """Lemma 12 on finite classes, Theorem 13 on members of a linear class, eqs. 58 and 74."""
    signs = rademacher.all_signs(SAMPLES)
    labels = generator.integers(CLASSES, size=SAMPLES)
    gamma = generator.uniform(0.2, 2)
    scores = generator.standard_normal((MEMBERS, SAMPLES, CLASSES))
    loss = finite_class_complexity(ramp_loss(margin(scores, labels), gamma), signs)
    by_class = sum(finite_class_complexity(scores[..., y], signs) for y in range(CLASSES))
    margins = scores[..., 0] * np.sign(labels - 0.5)  # of a binary classifier
    binary = finite_class_complexity(ramp_loss(margins, gamma), signs)
    contracted = finite_class_complexity(scores[..., 0], signs) / gamma
    features = generator.standard_normal((SAMPLES, CLASSES, PARAMETERS))
    transform, radius = _transform(generator), generator.uniform(0.5, 2)
    rows = np.arange(SAMPLES)
    against = features[rows, labels] - features[rows, (labels + 1) % CLASSES]
    members = rademacher.linear_class_maximisers(against, transform, radius, signs)
    outputs = np.einsum("mp,iyp->miy", members, features)
    linear = finite_class_complexity(ramp_loss(margin(outputs, labels), gamma), signs)
    bound = rademacher.multiclass_bound(features, transform, radius, gamma)
    delta = np.eye(CLASSES)[labels]
    epsilon = 2 * delta - 1
    return [
        inequality("eq58", binary, contracted),
        inequality("lemma12", loss, CLASSES / gamma * by_class),
        inequality("thm13", linear, bound),
        *misprint("eq74", (epsilon + 0.5) / 2, (epsilon + 1) / 2, delta),
    ]


def _generalisation(generator: np.random.Generator) -> Check:
    """Eq. 56 over many samples from a finite population: the bound must hold in 1 − δ of them.

    The smaller side is a quantile of the largest L₀ − L̂_γ over a class's members, divided by the
    rest of the bound, so that the larger side is 1. 200 sign vectors stand for all.
    """
    labels = generator.integers(CLASSES, size=POPULATION)
    scores = generator.standard_normal((MEMBERS, POPULATION, CLASSES)) + np.eye(CLASSES)[labels]
    margins = margin(scores, labels)
    losses = ramp_loss(margins, generator.uniform(0.05, 0.2))
    signs = generator.choice([-1.0, 1.0], (DRAWS, DRAWN))
    confidence = 3 * np.sqrt(np.log(2 / CONFIDENCE) / (2 * DRAWN))
    shares = []
    for _ in range(DRAWS):
        drawn = losses[:, generator.integers(POPULATION, size=DRAWN)]
        excess = ((margins < 0).mean(axis=1) - drawn.mean(axis=1)).max()
        shares.append(excess / (2 * finite_class_complexity(drawn, signs) + confidence))
    return inequality("eq56", float(np.quantile(shares, 1 - CONFIDENCE)), 1.0)
