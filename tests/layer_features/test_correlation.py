import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_alignment.layer_features.feature_matrices import feature_pair


def draw(k, d, seed):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(k, d, generator=generator, dtype=torch.float64)
    root = torch.randn(k, k, generator=generator, dtype=torch.float64)
    return weight, root @ root.T


@settings(deadline=None)
@given(k=st.integers(1, 7), d=st.integers(2, 7), seed=st.integers(0, 100))
def test_it_is_the_comparison_of_the_matrices_themselves(k, d, seed):
    weight, covariance = draw(k, d, seed)
    nfm, agop = weight.T @ weight, weight.T @ covariance @ weight
    pair = feature_pair(weight, covariance)
    assert pair.inner == pytest.approx(float(torch.trace(nfm @ agop)), rel=1e-9)
    cosine = torch.trace(nfm @ agop) / (nfm.norm() * agop.norm())
    assert pair.correlation() == pytest.approx(float(cosine), rel=1e-9)
    centred = [matrix - matrix.mean() for matrix in (nfm, agop)]
    pearson = (centred[0] * centred[1]).sum() / (centred[0].norm() * centred[1].norm())
    assert pair.correlation(subtract_mean=True) == pytest.approx(float(pearson), abs=1e-7)


@pytest.mark.parametrize(("k", "d"), [(3, 9), (9, 3)])
def test_small_and_large_weights_give_the_same_correlation(k, d):
    weight, covariance = draw(k, d, 0)
    expected = feature_pair(weight, covariance).correlation()
    for scale, of_covariance in ((1e-20, 1e20), (1e15, 1e-15), (1e-42, 1), (1e40, 1)):
        found = feature_pair(scale * weight, of_covariance * covariance).correlation()
        assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["weight", "covariance"])
def test_what_is_not_finite_is_refused(name):
    weight, covariance = draw(5, 4, 0)
    (weight if name == "weight" else covariance)[0, 0] = torch.nan
    with pytest.raises(ValueError, match=f"^{name}: it has entries that are not finite"):
        feature_pair(weight, covariance)


def test_a_covariance_of_another_layer_is_refused():
    with pytest.raises(ValueError, match=r"^covariance: of shape \(3, 3\); give \(5, 5\)"):
        feature_pair(draw(5, 4, 0)[0], draw(3, 4, 0)[1])


def test_tiny_float32_changes_do_not_underflow():
    weight, covariance = draw(5, 4, 0)
    tiny = feature_pair((1e-25 * weight).float(), covariance.float()).correlation()
    assert tiny == pytest.approx(feature_pair(weight, covariance).correlation(), rel=1e-6)


def test_a_covariance_of_one_size_correlates_perfectly():
    weight, _ = draw(5, 4, 0)
    assert feature_pair(weight, 3 * torch.eye(5)).correlation() == pytest.approx(1)


def test_a_zero_matrix_has_no_correlation():
    with pytest.raises(ValueError, match=r"zero matrix, or one of equal entries"):
        feature_pair(torch.zeros(2, 3), torch.eye(2)).correlation()


@pytest.mark.parametrize("seed", range(30))
def test_an_agop_of_rounding_has_no_correlation(seed):
    # W in the null space of K: in exact arithmetic WᵀKW is zero.
    generator = torch.Generator().manual_seed(seed)
    v = torch.randn(2, 6, dtype=torch.float64, generator=generator)
    w = torch.linalg.svd(v)[2][2:].T @ torch.randn(4, 7, dtype=torch.float64, generator=generator)
    for weight in (w, w[:, :3]):
        with pytest.raises(ValueError, match="not defined"):
            feature_pair(weight, v.T @ v).correlation()


@pytest.mark.parametrize("leak", [1e-1, 1e-3, 1e-5])
def test_a_small_agop_keeps_its_digits(leak):
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(2, 6, dtype=torch.float64, generator=generator)
    null = torch.linalg.svd(v)[2]
    w = null[2:].T @ torch.randn(4, 7, dtype=torch.float64, generator=generator)
    w = w + leak * null[:2].T @ torch.randn(2, 7, dtype=torch.float64, generator=generator)
    image = v @ w  # K = VᵀV, so tr(FG) = ‖VWWᵀ‖² and ‖G‖ = ‖WᵀVᵀVW‖
    expected = (image @ w.T).norm() ** 2 / (image.T @ image).norm() / (w.T @ w).norm()
    assert feature_pair(w, v.T @ v).correlation() == pytest.approx(float(expected), rel=1e-3)


@pytest.mark.parametrize("name", ["weight", "covariance"])
def test_a_vector_is_no_matrix(name):
    matrices = {"weight": torch.eye(2), "covariance": torch.eye(2), name: torch.ones(2)}
    with pytest.raises(ValueError, match=rf"^{name}: of shape \(2,\); give a matrix"):
        feature_pair(**matrices)
