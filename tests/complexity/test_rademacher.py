import numpy as np
import pytest
from scipy.optimize import minimize

from feature_alignment.complexity.rademacher import (
    all_signs,
    finite_class_complexity,
    interpolator_bound,
    linear_class_bound,
    linear_class_maximisers,
    margin,
    multiclass_bound,
    ramp_loss,
)
from feature_alignment.determinism import stream


@pytest.fixture
def linear():
    generator = stream(0, "linear")
    features = generator.standard_normal((6, 4))
    transform = np.eye(4) + 0.4 * generator.standard_normal((4, 4))
    return features, transform, 1.7


def test_signs_are_all_there_once():
    signs = all_signs(5)
    assert signs.shape == (32, 5)
    assert len(np.unique(signs, axis=0)) == 32
    assert set(signs.ravel()) == {-1.0, 1.0}


def test_complexity_of_a_finite_class_is_its_definition():
    values, signs = stream(0, "values").standard_normal((7, 4)), all_signs(4)
    slow = np.mean([max(np.mean(sigma * f) for f in values) for sigma in signs])
    assert finite_class_complexity(values, signs) == pytest.approx(slow)


def test_maximisers_are_those_of_a_numerical_search(linear):
    features, transform, radius = linear
    signs = all_signs(6)[:5]
    for sigma, w in zip(
        signs, linear_class_maximisers(features, transform, radius, signs), strict=True
    ):
        assert np.linalg.norm(transform.T @ w) == pytest.approx(radius)

        def on_the_ball(v):
            v = np.linalg.solve(transform.T, v)
            return v * radius / np.linalg.norm(transform.T @ v)

        found = minimize(lambda v: -sigma @ features @ on_the_ball(v), np.ones(4))  # noqa: B023
        assert sigma @ features @ w == pytest.approx(-found.fun, rel=1e-6)


def test_proposition_10_holds_and_is_within_khintchines_factor(linear):
    features, transform, radius = linear
    signs = all_signs(6)
    best = linear_class_maximisers(features, transform, radius, signs)
    complexity = np.mean(signs * (best @ features.T))
    bound = linear_class_bound(features, transform, radius)
    assert bound / np.sqrt(2) <= complexity <= bound
    kernel = features @ np.linalg.inv(transform @ transform.T) @ features.T
    assert bound == pytest.approx(radius / 6 * np.sqrt(np.trace(kernel)))


def test_the_bound_is_attained_by_orthogonal_features():
    signs = all_signs(4)
    best = linear_class_maximisers(np.eye(4), np.eye(4), 1.0, signs)
    assert np.mean(signs * best) == pytest.approx(linear_class_bound(np.eye(4), np.eye(4), 1.0))


def test_margins_and_ramp_are_their_definitions():
    generator = stream(1, "scores")
    scores, labels = generator.standard_normal((3, 5, 4)), generator.integers(4, size=5)
    slow = [
        [
            row[y] - max(s for k, s in enumerate(row) if k != y)
            for row, y in zip(f, labels, strict=True)
        ]
        for f in scores
    ]
    np.testing.assert_allclose(margin(scores, labels), slow)
    assert ramp_loss(np.array([-0.1, 0.0, 0.3, 0.6, 7.0]), 0.6).tolist() == [1, 1, 0.5, 0, 0]


def test_the_multiclass_bound_follows_from_lemma_12_and_proposition_10():
    generator = stream(2, "multiclass")
    features = generator.standard_normal((5, 3, 6))
    transform = np.eye(6) + 0.3 * generator.standard_normal((6, 6))
    by_class = [linear_class_bound(features[:, y], transform, 2.0) for y in range(3)]
    bound = multiclass_bound(features, transform, 2.0, 0.5)
    assert 3 / 0.5 * sum(by_class) <= bound  # Jensen
    features[:, 1:] = features[:, :1]
    equal = linear_class_bound(features[:, 0], transform, 2.0)
    assert multiclass_bound(features, transform, 2.0, 0.5) == pytest.approx(3 / 0.5 * 3 * equal)


def test_what_every_weight_maximises_has_weight_zero():
    features = np.array([[1.0, 0.0], [1.0, 0.0]])
    signs = all_signs(2)
    w = linear_class_maximisers(features, np.eye(2), 1.0, signs)
    assert np.isfinite(w).all()
    assert np.linalg.norm(w, axis=1) == pytest.approx([1, 0, 0, 1])
    with pytest.raises(ValueError, match="gamma"):
        ramp_loss(np.ones(2), 0.0)
    with pytest.raises(ValueError, match="labels from -1 to 0; give whole numbers from 0 to 2"):
        margin(np.ones((2, 3)), np.array([0, -1]))


def test_margins_take_labels_of_any_type_and_refuse_what_are_none():
    scores = np.array([[3.0, 1.0], [0.0, 5.0]])
    for labels in ([0, 1], [False, True], [0.0, 1.0]):
        assert margin(scores, np.array(labels)).tolist() == [2, 5]
    for labels in ([0, 2], [0, 0.5], [0, np.nan]):
        with pytest.raises(ValueError, match="whole numbers from 0 to 1"):
            margin(scores, np.array(labels))
    for labels in ([0, 1], [[0]]):
        with pytest.raises(ValueError, match=r"labels of shape \(.*\) for 1 samples"):
            margin(scores[:1], np.array(labels))


def test_one_class_has_no_margin():
    with pytest.raises(ValueError, match=r"^scores: of 1 classes; a margin needs two or more"):
        margin(np.ones((2, 1)), np.array([0, 0]))


def test_the_bound_of_a_ball_of_radius_0_is_0():
    assert linear_class_bound(np.eye(2), np.eye(2), 0.0) == 0
    assert not linear_class_maximisers(np.eye(2), np.eye(2), 0.0, np.ones((1, 2))).any()


@pytest.mark.parametrize("value", [-1.0, np.nan])
def test_bounds_refuse_radii_and_margins_out_of_range(value):
    with pytest.raises(ValueError, match=r"^radius: .*; it must be at least 0"):
        linear_class_bound(np.eye(2), np.eye(2), value)
    with pytest.raises(ValueError, match=r"^radius: .*; it must be at least 0"):
        linear_class_maximisers(np.eye(2), np.eye(2), value, np.ones((1, 2)))
    for gamma in (value, 0.0):
        with pytest.raises(ValueError, match=r"^gamma: .*; it must be above 0"):
            multiclass_bound(np.ones((2, 3, 2)), np.eye(2), 1.0, gamma)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: margin(np.array([[np.nan, 1.0]]), np.array([1])), "scores: found values that are"),
        (lambda: ramp_loss(np.array([np.nan]), 1.0), "margins: found values that are not finite"),
        (lambda: linear_class_bound(np.full((1, 2), np.inf), np.eye(2), 1.0), "features: found"),
        (lambda: linear_class_bound(np.eye(2), np.full((2, 2), np.nan), 1.0), "transform: found"),
        (
            lambda: linear_class_bound(np.ones((8, 3)), np.eye(2), 1.0),
            r"of shapes \(8, 3\) and \(2",
        ),
        (
            lambda: linear_class_bound(np.ones(3), np.eye(3), 1.0),
            r"\(n, p\) and \(p, p\) are needed",
        ),
        (lambda: linear_class_bound(np.eye(2), np.ones((2, 2)), 1.0), "transform: is singular"),
        (
            lambda: linear_class_maximisers(np.eye(2), np.ones((2, 2)), 1.0, np.ones((1, 2))),
            "transform: is singular",
        ),
        (lambda: interpolator_bound(np.ones(2), np.ones(2), np.zeros(2)), "they must be above 0"),
        (lambda: interpolator_bound(np.full(2, np.nan), np.ones(2), np.ones(2)), "above 0"),
        (lambda: interpolator_bound(np.ones(2), np.full(2, np.inf), np.ones(2)), "coefficients:"),
    ],
)
def test_values_that_are_not_finite_have_no_bound(call, says):
    with pytest.raises(ValueError, match=says):
        call()
