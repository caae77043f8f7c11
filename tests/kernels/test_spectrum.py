import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from feature_alignment.determinism import stream
from feature_alignment.kernels.spectrum import (
    effective_rank,
    kernel_eigenvalues,
    trace_ratio,
)
from toys import gram

spectra = arrays(
    np.float64, st.integers(1, 12), elements=st.floats(0, 1e6, allow_subnormal=False)
).filter(lambda values: values.max() > 1e-3)
examples = settings(deadline=None, derandomize=True, max_examples=60)


def test_eigenvalues_are_the_squared_singular_values_in_descending_order():
    features = stream(0, "features").standard_normal((12, 5))
    found = kernel_eigenvalues(features @ features.T)
    singular = np.linalg.svd(features, compute_uv=False)
    np.testing.assert_allclose(found, [*singular**2, *np.zeros(7)], atol=1e-12)
    assert (found >= 0).all()


def test_eigenvalues_that_rounding_made_negative_are_zero():
    assert kernel_eigenvalues(np.diag([-1e-6, 0.5, 1.0])).tolist() == [1, 0.5, 0]
    assert kernel_eigenvalues(np.diag([-1e3, 1e9])).tolist() == [1e9, 0]


def test_float32_kernels_of_low_rank_are_accepted():
    kernel = torch.tensor(gram(200, 3), dtype=torch.float32)
    assert np.linalg.eigvalsh(kernel.numpy().astype(float)).min() < 0
    found = kernel_eigenvalues(kernel)
    assert (found >= 0).all()
    np.testing.assert_allclose(found[:3], kernel_eigenvalues(gram(200, 3))[:3], rtol=1e-5)


def test_kernels_of_which_rounding_moves_the_effective_rank_by_a_tenth_are_refused():
    kernel = gram(400, 3) / np.linalg.norm(gram(400, 3), 2)
    noise = stream(0, "noise").standard_normal(kernel.shape)
    noise = (noise + noise.T) / np.sqrt(8 * len(kernel))  # eigenvalues from -1 to 1
    exact = effective_rank(kernel_eigenvalues(kernel))
    close = effective_rank(kernel_eigenvalues(kernel + 1e-5 * noise))
    assert close == pytest.approx(exact, rel=0.01)
    far_off = effective_rank(np.linalg.eigvalsh(kernel + 6e-4 * noise).clip(0))
    assert far_off > 1.1 * exact
    with pytest.raises(ValueError, match=r"negative that add up to \d\.\d% of the trace"):
        kernel_eigenvalues(kernel + 6e-4 * noise, 1e-2)


def test_both_triangles_of_a_kernel_count_the_same():
    kernel = gram() * (1 + 1e-6 * np.triu(np.ones((12, 12)), 1))
    np.testing.assert_allclose(
        kernel_eigenvalues(kernel), kernel_eigenvalues(kernel.T), rtol=1e-13, atol=1e-11
    )


@pytest.mark.parametrize("number", range(2, 60))
def test_rounding_does_not_lead_past_the_bounds(number):
    equal = np.full(number, 0.1)
    assert trace_ratio(equal, number) <= 1
    assert effective_rank(equal) <= number
    assert effective_rank(np.eye(number)[0]) == 1


def test_large_eigenvalues_do_not_overflow():
    assert effective_rank(np.full(4, 1e308)) == pytest.approx(4)
    assert trace_ratio(np.full(4, 1e308), 1) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (np.ones((2, 3)), r"shape \(2, 3\)"),
        (np.ones((0, 0)), r"shape \(0, 0\)"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "not finite"),
        (np.array([[1.0, 2.0], [0.0, 1.0]]), "not symmetric"),
        (np.diag([1.0, -0.1]), "not positive semidefinite: eigenvalues from -0.1 to 1"),
        (-np.eye(2), "not positive semidefinite"),
        (1e-9 * np.array([[1.0, 2.0], [0.0, 1.0]]), "not symmetric"),
        (1e-9 * np.diag([1.0, -0.1]), "not positive semidefinite"),
        (1j * np.eye(2), "kernel: it is complex"),
        (torch.eye(2, dtype=torch.complex64), "kernel: it is complex"),
    ],
)
def test_what_is_no_kernel_is_refused(kernel, message):
    with pytest.raises(ValueError, match=message):
        kernel_eigenvalues(kernel)


@examples
@given(spectra, st.floats(1e-6, 1e6))
def test_effective_rank_is_between_one_and_the_rank_and_ignores_scale(values, scale):
    found = effective_rank(values)
    assert 1 <= found <= np.count_nonzero(values) * (1 + 1e-12)
    assert effective_rank(scale * values) == pytest.approx(found, rel=1e-9)
    assert effective_rank(values[::-1]) == pytest.approx(found, rel=1e-12)
    assert effective_rank(np.append(values, 0)) == pytest.approx(found, rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_effective_rank_of_the_identity_is_its_size_and_of_rank_one_is_one(size):
    assert effective_rank(kernel_eigenvalues(np.eye(size))) == pytest.approx(size)
    assert effective_rank(kernel_eigenvalues(np.ones((size, size)))) == pytest.approx(1)


def test_effective_rank_is_its_formula():
    values = np.array([4.0, 3.0, 2.0, 1.0])
    mu = values / 10
    assert effective_rank(values) == pytest.approx(np.prod(mu**-mu))
    # Two equal blocks of a spectrum double the effective rank.
    assert effective_rank(np.tile(values, 2)) == pytest.approx(2 * effective_rank(values))


def test_rounding_below_zero_adds_nothing_and_more_is_refused():
    assert effective_rank(np.array([1.0, 1.0, -1e-9])) == pytest.approx(2)
    many = np.repeat([1.0, -5e-6], [100, 10_000])  # which add up to less than 1 % of the trace
    assert effective_rank(many) == pytest.approx(100)
    with pytest.raises(ValueError, match="not positive semidefinite"):
        effective_rank(np.array([1.0, 1.0, -1e-3]))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(3), "all eigenvalues are zero"),
        (np.array([]), "all eigenvalues are zero"),
        (np.array([1.0, np.inf]), "finite"),
        (np.eye(2), "a vector"),
        (np.array([-1.0, -2.0]), "not positive semidefinite"),
    ],
)
def test_spectra_without_an_effective_rank_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        effective_rank(values)


def test_trace_ratio_sums_exactly_the_k_largest():
    values = np.array([1.0, 6.0, 3.0, 0.0])
    assert [trace_ratio(values, k) for k in (1, 2, 3, 4)] == pytest.approx([0.6, 0.9, 1, 1])
    kernel = gram(10, 10)
    largest = np.sort(np.linalg.eigvals(kernel).real)[::-1][:4].sum()
    expected = largest / np.trace(kernel)
    assert trace_ratio(kernel_eigenvalues(kernel), 4) == pytest.approx(expected)


@examples
@example(np.array([1.0, 6.04077531e5, 1.75625e2, 5.0, 0.0, 0.0, 0.0, 0.0]))
@given(spectra)
def test_trace_ratios_rise_to_one_at_or_above_the_uniform_share(values):
    ratios = [trace_ratio(values, k) for k in range(1, len(values) + 1)]
    assert ratios == sorted(ratios)
    assert ratios[-1] == pytest.approx(1)
    uniform = np.arange(1, len(values) + 1) / len(values)
    assert (np.array(ratios) >= uniform - 1e-12).all()


def test_tensors_of_any_kind_have_a_spectrum():
    values = torch.tensor([3.0, 1.0], requires_grad=True)
    assert trace_ratio(values, np.int64(1)) == 0.75
    assert effective_rank(values) == effective_rank(values.detach().numpy())
    kernel = torch.eye(2, dtype=torch.bfloat16)
    assert kernel_eigenvalues(kernel).tolist() == [1, 1]


@pytest.mark.parametrize("k", [0, 4, 1.5])
def test_trace_ratios_out_of_range_are_refused(k):
    with pytest.raises(ValueError, match=f"k: {k}; it must be a whole number from 1 to 3"):
        trace_ratio(np.ones(3), k)


def test_a_kernel_in_place_of_its_eigenvalues_is_told_what_to_give():
    with pytest.raises(ValueError, match=r"shape \(3, 3\); give a vector, such as that of"):
        effective_rank(np.eye(3))
