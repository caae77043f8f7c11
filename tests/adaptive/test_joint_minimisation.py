import numpy as np
import pytest
import scipy.optimize
import torch

from feature_alignment.adaptive.adaptive_scales import adaptive_scales
from feature_alignment.adaptive.joint_minimisation import (
    logarithmic_matrix_penalty,
    minimise_jointly,
    square_penalty,
)
from feature_alignment.adaptive.penalties import PowerPenalty, logarithmic_penalty


def test_one_sample_of_one_feature_is_the_scalar_problem():
    feature, target = torch.tensor([[[2.0]]], dtype=torch.float64), torch.tensor([3.0]).double()
    penalties = {square_penalty: PowerPenalty(2), logarithmic_matrix_penalty: logarithmic_penalty}
    for penalty, omega in penalties.items():
        found = minimise_jointly([feature], target, penalty, np.random.default_rng(0), 2, [False])
        expected = adaptive_scales(omega, omega, np.array([1.5])).penalty
        np.testing.assert_allclose(found.objective, expected, rtol=1e-10)
        np.testing.assert_allclose(found.coefficients[0], [[1.5]], rtol=1e-9)


def test_the_best_end_interpolates():
    generator = torch.Generator().manual_seed(0)
    features = [torch.randn(3, k, d, generator=generator).double() for k, d in [(2, 3), (1, 2)]]
    targets = torch.randn(3, generator=generator).double()
    first, found = (
        minimise_jointly(
            features, targets, square_penalty, np.random.default_rng(1), starts, [False, True]
        )
        for starts in (1, 3)
    )
    assert found.objective <= first.objective
    f = sum(
        torch.einsum("nkd,kd->n", block, b)
        for block, b in zip(features, found.coefficients, strict=True)
    )
    torch.testing.assert_close(f, targets)


@pytest.mark.parametrize("features", [[[1, 0, 0]] * 2, np.eye(2, 3) * [1, 1e-9, 0], np.eye(2, 1)])
def test_targets_that_cannot_all_be_fitted_are_refused(features):
    block, targets = torch.tensor(features)[:, None].double(), torch.ones(2).double()
    with pytest.raises(ValueError, match=r"^features: rank 1 for 2 targets; they cannot all"):
        minimise_jointly([block], targets, square_penalty, np.random.default_rng(0), 1, [True])


@pytest.mark.parametrize("options", [{}, {"identity_first": True}, {"identity_first": False}])
def test_starts_are_those_asked_for_and_the_best_end_counts(monkeypatch, options):
    def minimise(function, start, *, original=scipy.optimize.minimize, **given):
        if len(starts) != 1:  # the first and the last descent end early
            given["options"] = {"maxiter": 1}
        starts.append(start)
        ends.append(original(function, start, **given).fun)
        return original(function, start, **given)

    starts, ends, generator = [], [], torch.Generator().manual_seed(0)
    monkeypatch.setattr(scipy.optimize, "minimize", minimise)
    features = [torch.randn(2, 1, 3, generator=generator).double()]
    targets = torch.tensor([3.0, -2.0]).double()
    found = minimise_jointly(
        features, targets, square_penalty, np.random.default_rng(1), 3, [True], **options
    )
    assert found.objective == ends[1] < min(ends[0], ends[2])
    at_identity = [np.array_equal(start, np.eye(3).ravel()) for start in starts]
    assert at_identity == [options.get("identity_first", True), False, False]
