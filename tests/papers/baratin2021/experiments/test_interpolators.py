import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.papers.baratin2021.experiments import interpolators
from feature_alignment.papers.baratin2021.experiments.interpolators import (
    _features,
    _measure,
    run_seed,
)
from feature_alignment.papers.baratin2021.parameters import Interpolators
from feature_alignment.pipeline.run import SeedRun


@pytest.fixture(scope="module")
def result():
    parameters = Interpolators(points=200, samples=20, subsets=8, scales=[0.0, 0.2, 0.9, 0.99])
    return run_seed(SeedRun(0, parameters, torch.device("cpu")))


def curve(result, metric):
    frame = pd.DataFrame(result.rows)
    return frame[frame["metric"] == metric].set_index("scale")["value"]


def test_white_features_predict_nothing_and_have_known_bounds(result):
    # At scale 0 the features are orthonormal: f = 0 off the sample, and the bound is ‖y‖√n/n = 1.
    assert curve(result, "error")[0.0] == pytest.approx(0.5)
    assert curve(result, "norm_bound")[0.0] == pytest.approx(1)


def test_anisotropy_loosens_the_norm_bound_alone(result):
    norm, optimal = curve(result, "norm_bound"), curve(result, "optimal_bound")
    assert (optimal <= norm * (1 + 1e-12)).all()
    assert norm[0.99] > 2 * norm[0.2]
    assert optimal[0.99] == pytest.approx(optimal[0.2], rel=0.1)
    assert curve(result, "error")[0.9] < 0.1
    assert curve(result, "spread_ratio")[0.99] > 2 * curve(result, "spread_ratio")[0.0]


def test_the_optimal_bound_of_white_features_may_be_anything_from_one_vector_to_all(result):
    # At scale 0 all directions are eigenvectors, y among them: ‖y‖/n = 1/√n, and √n‖y‖/n = 1.
    optimal, least, most = (curve(result, f"optimal_bound{end}") for end in ("", "_least", "_most"))
    assert least[0.0] == pytest.approx(20**-0.5)
    assert most[0.0] == pytest.approx(1)
    assert (least <= optimal).all()
    assert (optimal <= most).all()
    assert most[0.2] - least[0.2] > 0.05  # the small eigenvalues are 1 − c up to rounding


@pytest.mark.parametrize("bound", ["norm_bound", "optimal_bound"])
def test_bounds_are_also_told_as_multiples_of_the_error(result, bound):
    found = curve(result, f"{bound}_over_error")
    expected = curve(result, bound) / curve(result, "error")
    assert found.to_dict() == pytest.approx(expected.to_dict())


def test_solutions_are_centred_and_their_spread_is_the_ratio(result):
    solutions = result.arrays["solutions/0.9"]
    assert solutions.shape == (8, 2)
    np.testing.assert_allclose(solutions.mean(axis=0), 0, atol=1e-12)
    ratio = solutions[:, 1].std() / solutions[:, 0].std()
    assert curve(result, "spread_ratio")[0.9] == pytest.approx(ratio)


def test_scales_between_white_and_the_features_depend_on_what_is_scaled():
    def bounds(scaled):
        parameters = Interpolators(
            points=60, samples=10, subsets=2, scales=[0.0, 0.5, 0.9], scaled=scaled
        )
        return curve(run_seed(SeedRun(0, parameters, torch.device("cpu"))), "norm_bound")

    squares, themselves = bounds("eigenvalues"), bounds("singular_values")
    assert themselves[0.0] == pytest.approx(squares[0.0])
    # √(1 − c) of white features is left where singular values are small, else 1 − c.
    assert themselves[0.9] > 1.5 * squares[0.9]


def test_the_agreement_is_the_rank_correlation_of_norm_bound_and_error(result):
    frame = pd.DataFrame(result.rows)
    found = frame[frame["metric"] == "norm_bound_agreement"]["value"].item()
    expected = curve(result, "norm_bound").corr(curve(result, "error"), method="spearman")
    assert found == pytest.approx(expected)
    assert found != pytest.approx(
        curve(result, "optimal_bound").corr(curve(result, "error"), method="spearman")
    )


def test_solutions_are_measured_along_the_modes_of_the_figure():
    y = np.arange(1.0, 14.0)
    error, *_, first, second = _measure(np.eye(13), y, np.arange(12))
    assert (first, second) == (2, 11)  # of φ_1 and φ_10, counted from 0
    assert error == 0.5 * 13  # half of |0 − y| on the one point that is left


def test_features_are_those_of_the_gaussian_kernel_from_minus_a_to_a():
    p = Interpolators(points=400, half_width=2.0, gamma=0.5)
    modes, squared = _features(SeedRun(0, p, torch.device("cpu")))
    x = np.linspace(-2, 2, 400)
    kernel = np.exp(-0.5 * np.subtract.outer(x, x) ** 2)
    assert np.linalg.norm(modes * squared @ modes.T - kernel) < 0.15 * np.linalg.norm(kernel)


def test_labels_are_the_signs_of_the_second_mode(monkeypatch):
    seen = []
    monkeypatch.setattr(interpolators, "_measure", lambda *given: seen.append(given) or 1 / 0)
    p = Interpolators(points=60, samples=10, subsets=2, scales=[0.0, 0.5])
    with pytest.raises(ZeroDivisionError):
        run_seed(SeedRun(0, p, torch.device("cpu")))
    modes, y, _ = seen[0]  # at scale 0 the features are the modes
    assert y.tolist() == np.sign(modes[:, 1]).tolist()


def test_features_are_rescaled_and_results_are_means_over_subsets(monkeypatch):
    seen = []

    def kept(features, y, subset, own=_measure):
        seen.append((features, own(features, y, subset)))
        return seen[-1][1]

    monkeypatch.setattr(interpolators, "_measure", kept)
    p = Interpolators(points=60, samples=10, subsets=3, scales=[0.0, 0.5], scaled="singular_values")
    run = SeedRun(0, p, torch.device("cpu"))
    result = run_seed(run)
    modes, squared = _features(run)
    assert seen[-1][0] == pytest.approx(modes * (1 + 0.5 * (np.sqrt(squared) - 1)))
    errors = [found[0] for _, found in seen[3:]]
    assert curve(result, "error")[0.5] == pytest.approx(np.mean(errors))


def test_features_and_subsets_are_drawn_apart(monkeypatch):
    names = []
    own = SeedRun.stream
    monkeypatch.setattr(SeedRun, "stream", lambda run, name: names.append(name) or own(run, name))
    p = Interpolators(points=60, samples=10, subsets=2, scales=[0.0, 0.5])
    run_seed(SeedRun(0, p, torch.device("cpu")))
    assert sorted(names) == ["features", "subsets"]


def test_a_small_prediction_is_none_of_the_ties():
    features = np.eye(3)
    features[2] = [1e-4, 0, 0]
    error, *_ = _measure(np.pad(features, ((0, 0), (0, 10))), np.ones(3), np.arange(2))
    assert error == 0
