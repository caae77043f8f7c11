from dataclasses import replace

import numpy as np
import pytest

from feature_alignment.adaptive.factorised_flow import FactorisedModel, factorised_flow


@pytest.fixture(scope="module")
def problem():
    generator = np.random.default_rng(0)
    features = [generator.standard_normal((4, 3, 4)), generator.standard_normal((4, 1, 3))]
    return features, 5 * generator.standard_normal(4)


def test_the_flow_interpolates_and_conserves(problem):
    features, targets = problem
    models = factorised_flow(features, targets, 10.0)
    f = sum(
        np.einsum("nkd,kd->n", block, m.coefficients)
        for block, m in zip(features, models, strict=True)
    )
    np.testing.assert_allclose(f, targets, atol=1e-8)
    assert max(m.conservation_error() for m in models) < 1e-9
    assert all(np.abs(m.weight).max() > 0.1 for m in models)


def test_what_is_not_conserved_is_seen_on_either_side():
    start = FactorisedModel(np.eye(4), np.zeros((3, 4)), np.eye(3))
    assert start.conservation_error() == 0
    for side in ("on_inputs", "on_outputs"):
        moved = replace(start, **{side: 2 * getattr(start, side)})
        assert moved.conservation_error() == 3


def test_small_steps_of_gradient_descent_follow_the_flow(problem):
    features, targets = problem
    state = [[np.eye(4), np.zeros((3, 4)), np.eye(3)], [np.eye(3), np.zeros((1, 3)), np.eye(1)]]
    steps, duration = 4000, 0.05
    for _ in range(steps):
        f = sum(
            np.einsum("nkd,kd->n", block, b @ w @ a)
            for block, (a, w, b) in zip(features, state, strict=True)
        )
        new = []
        for block, (a, w, b) in zip(features, state, strict=True):
            pull = np.einsum("n,nkd->kd", targets - f, block) * duration / steps
            new.append([a + w.T @ b.T @ pull, w + b.T @ pull @ a.T, b + pull @ a.T @ w.T])
        state = new
    for (a, w, b), model in zip(state, factorised_flow(features, targets, duration), strict=True):
        np.testing.assert_allclose(model.coefficients, b @ w @ a, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize(
    ("features", "targets", "message"),
    [
        ([np.full((3, 2, 4), np.nan)], np.ones(3), "must be finite"),
        ([np.ones((3, 2, 4))], np.array([1, np.nan, 1]), "must be finite"),
        ([np.ones((3, 2, 4))], np.ones(1), "give one for each"),
        ([np.ones((3, 2, 4))], np.ones((3, 1)), r"of shape \(3, 1\) for features of 3 samples"),
        ([], np.ones(3), "features: there are none"),
    ],
)
def test_what_cannot_be_integrated_is_refused(features, targets, message):
    with pytest.raises(ValueError, match=message):
        factorised_flow(features, targets, 1.0)


def test_a_flow_of_no_duration_stays_at_its_start():
    (model,) = factorised_flow([np.ones((3, 2, 4))], np.ones(3), 0)
    start = FactorisedModel(np.eye(4), np.zeros((2, 4)), np.eye(2))
    for side in ("on_inputs", "weight", "on_outputs"):
        np.testing.assert_array_equal(getattr(model, side), getattr(start, side))


def test_a_flow_beyond_double_precision_is_not_integrated():
    with np.errstate(all="ignore"), pytest.raises(RuntimeError, match="was not integrated: "):
        factorised_flow([np.full((3, 2, 4), 1e160)], np.ones(3), 1.0)


@pytest.mark.parametrize("duration", [-1.0, np.nan, np.inf])
def test_a_flow_lasts_a_finite_time(duration):
    with pytest.raises(ValueError, match=r"^duration: .*; give a finite number of at least 0"):
        factorised_flow([np.ones((3, 2, 4))], np.ones(3), duration)
