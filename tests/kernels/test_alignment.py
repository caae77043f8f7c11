import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_alignment.determinism import stream
from feature_alignment.kernels.alignment import (
    LabelAlignmentForm,
    centred_kernel_alignment,
    kernel_alignment,
    label_alignment,
    label_alignments,
)

N, C = 9, 3
seeds = st.integers(0, 1000)
scales = st.floats(1e-6, 1e6)
examples = settings(deadline=None, derandomize=True, max_examples=40)


def gram(size=N * C, rank=5, seed=0):
    features = stream(seed, "features").standard_normal((size, rank))
    return features @ features.T


def one_hot(seed=0):
    return np.eye(C)[stream(seed, "classes").integers(C, size=N)]


def test_kernels_and_labels_may_be_of_any_size():
    kernel, y = gram(), one_hot()
    expected = label_alignments(kernel, y)
    alike = kernel_alignment(kernel, kernel @ kernel)
    for scale in (1e-250, 1e-170, 1e170, 1e250):
        assert label_alignments(scale * kernel, y) == pytest.approx(expected)
        assert label_alignments(kernel, scale * y) == pytest.approx(expected)
        assert kernel_alignment(scale * kernel, kernel @ kernel) == pytest.approx(alike)


def oracle(features, y, form):
    """The alignment from explicit features (n, c, p) and an explicit YYᵀ, by the definitions."""
    n, c, p = features.shape
    if form in ("released", "equation_7"):
        features = features - features.mean(axis=0)
    if form in ("released", "uncentred_kernel"):
        y = y - y.mean(axis=0)
    kernel = features.reshape(n * c, p) @ features.reshape(n * c, p).T
    labels = np.outer(y.ravel(), y.ravel())
    if form in ("equation_7", "equation_7_raw"):
        centring = np.eye(n * c) - np.ones((n * c, n * c)) / (n * c)
        kernel, labels = (centring @ matrix @ centring for matrix in (kernel, labels))
    return np.trace(kernel @ labels) / np.linalg.norm(kernel) / np.linalg.norm(labels)


@pytest.mark.parametrize("form", LabelAlignmentForm)
@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_label_alignment_is_its_definition_on_explicit_features(form, kind):
    features, y = stream(0, "features").standard_normal((N, C, 4)) + 0.5, one_hot()
    flat = features.reshape(N * C, 4)
    found = label_alignment(kind(flat @ flat.T), kind(y), form)
    assert found == pytest.approx(oracle(features, y, form), rel=1e-12)
    values = {other: oracle(features, y, other) for other in LabelAlignmentForm}
    assert len({round(value, 6) for value in values.values()}) == 5  # the forms do differ


def test_the_paper_form_differs_from_the_released_one_by_the_labels_norms_only():
    kernel, y = gram(), one_hot()
    released, paper = (label_alignment(kernel, y, form) for form in ("released", "equation_7"))
    factor = ((y - y.mean(axis=0)) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    assert paper / released == pytest.approx(factor)
    assert factor < 1
    balanced = np.eye(C)[np.arange(N) % C]
    released, paper = (
        label_alignment(kernel, balanced, form) for form in ("released", "equation_7")
    )
    assert paper == pytest.approx(released)


def test_cka_with_the_label_kernel_is_the_label_alignment():
    kernel, y = gram(), one_hot()
    labels = np.outer(y, y)
    assert centred_kernel_alignment(kernel, labels) == pytest.approx(
        label_alignment(kernel, y, "equation_7_raw")
    )
    assert centred_kernel_alignment(kernel, labels, C) == pytest.approx(
        label_alignment(kernel, y, "released")
    )
    assert kernel_alignment(kernel, labels) == pytest.approx(
        label_alignment(kernel, y, "uncentred")
    )


@examples
@given(seeds, scales, scales)
def test_alignments_ignore_scale_and_lie_between_zero_and_one(seed, first, second):
    a, b, y = gram(seed=seed), gram(rank=3, seed=seed + 2000), one_hot(seed)
    for measure in (kernel_alignment, centred_kernel_alignment):
        value = measure(a, b)
        assert 0 <= value <= 1
        assert measure(first * a, second * b) == pytest.approx(value, rel=1e-9)
        assert measure(b, a) == pytest.approx(value, rel=1e-12)
        assert measure(a, first * a) == pytest.approx(1)
    for form in LabelAlignmentForm:
        value = label_alignment(a, y, form)
        assert 0 <= value <= 1
        assert label_alignment(first * a, second * y, form) == pytest.approx(value, rel=1e-9)


@examples
@given(seeds, st.floats(-5, 5))
def test_centred_forms_ignore_a_shift_of_all_features_and_labels(seed, shift):
    features, y = stream(seed, "features").standard_normal((N * C, 5)), one_hot(seed)
    moved = features + shift
    a, b = features @ features.T, moved @ moved.T
    for form in ("released", "equation_7", "equation_7_raw"):
        value = label_alignment(a, y, form)
        assert label_alignment(b, y + shift, form) == pytest.approx(value, rel=1e-8, abs=1e-10)


def test_class_wise_centring_ignores_a_shift_of_each_class():
    features, y = stream(0, "features").standard_normal((N, C, 5)), one_hot()
    shifts = stream(1, "shifts").standard_normal((C, 5))
    a, b = (f.reshape(N * C, 5) for f in (features, features + shifts))
    a, b, moved = a @ a.T, b @ b.T, y + shifts[:, 0]
    assert label_alignment(b, moved) == pytest.approx(label_alignment(a, y))
    raw = [label_alignment(k, y, "equation_7_raw") for k in (a, b)]
    assert raw[0] != pytest.approx(raw[1], rel=0.01)


def test_features_equal_for_all_samples_have_no_centred_alignment():
    features = np.tile(stream(0, "features").standard_normal((C, 5)), (N, 1))
    kernel = features @ features.T
    with pytest.raises(ValueError, match=r"zero to rounding, .*: the features .* samples\.$"):
        label_alignment(kernel, one_hot())
    with pytest.raises(ValueError, match=r"in float32; .* subtract their mean"):
        label_alignment(torch.from_numpy(kernel).float(), one_hot())
    label_alignment(features @ features.T, one_hot(), "equation_7_raw")


def test_orthogonal_and_parallel_kernels():
    y = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    other = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    for form in LabelAlignmentForm:
        assert label_alignment(np.outer(y, y), y, form) == pytest.approx(1)
        assert label_alignment(np.outer(other, other), y, form) == pytest.approx(0, abs=1e-13)
    # Of two equally strong directions one is the labels'.
    both = np.outer(y, y) + np.outer(other, other)
    assert label_alignment(both, y) == pytest.approx(1 / np.sqrt(2))


@pytest.mark.parametrize(
    ("kernel", "y", "options", "message"),
    [
        (np.ones((4, 4)) * 0.3, np.arange(4.0)[:, None], {}, "once centred, the kernel is zero"),
        (np.full((4, 4), np.nan), np.arange(4.0)[:, None], {}, "not finite"),
        (np.eye(4), np.full((4, 1), 0.3), {}, "all samples have the same"),
        (np.eye(6), np.full((6, 1), 0.1), {}, "all samples have the same"),  # but for rounding
        (np.eye(4), np.arange(3.0), {}, r"labels must be \(n, c\)"),
        (np.eye(4), np.array([0, 2]), {}, "whole numbers from 0 to 1"),
        (np.eye(4), np.array([0.5, 1.0]), {}, "whole numbers from 0 to 1"),
        (np.eye(4), np.array([-1, 0]), {}, "whole numbers from 0 to 1"),
        (np.eye(4), np.ones((3, 1)), {}, "for a kernel of 4 rows"),
        (np.eye(4), np.ones(0), {}, "for a kernel of 4 rows"),
        (np.eye(4), np.arange(4.0).reshape(2, 2, 1), {}, r"labels must be \(n, c\)"),
        (np.diag([np.inf, 1, 1, 1]), np.arange(4.0)[:, None], {"form": "uncentred"}, "not finite"),
        (np.ones((4, 3)), np.ones((4, 1)), {}, "must be square"),
        (np.eye(4, k=1) + np.eye(4), np.arange(4.0)[:, None], {}, "is not symmetric"),
        (np.eye(4), np.arange(4.0)[:, None], {"form": "eq7"}, "'eq7' is unknown"),
        (np.eye(4), np.arange(4.0)[:, None], {"form": "centred"}, "did you mean 'uncentred'[?]"),
    ],
)
def test_label_alignments_that_are_not_defined_are_refused(kernel, y, options, message):
    with pytest.raises(ValueError, match=message):
        label_alignment(kernel, y, **options)


def test_reversed_and_read_only_arrays_are_accepted():
    kernel, y = gram(), one_hot()
    expected = label_alignment(kernel, y)
    kernel, y = kernel[::-1, ::-1][::-1, ::-1], np.broadcast_to(y, y.shape)
    assert label_alignment(kernel, y) == pytest.approx(expected, rel=1e-12)


def test_kernels_that_have_no_alignment_are_refused():
    with pytest.raises(ValueError, match=r"shapes \(2, 2\) and \(3, 3\)"):
        kernel_alignment(np.eye(2), np.eye(3))
    for shape in ((4,), (2, 2, 2)):
        with pytest.raises(ValueError, match="it must be square"):
            kernel_alignment(np.ones(shape), np.ones(shape))
    with pytest.raises(ValueError, match="the kernel is zero"):
        kernel_alignment(np.eye(2), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="outputs: 0; it must be a whole number"):
        centred_kernel_alignment(np.eye(2), np.eye(2), outputs=0)


@pytest.mark.parametrize("alignment", [kernel_alignment, centred_kernel_alignment])
def test_kernels_between_two_sets_of_samples_have_no_alignment(alignment):
    between = np.array([[1.0, 3.0], [0.0, 1.0]])
    for pair in ((between, np.eye(2)), (np.eye(2), between)):
        with pytest.raises(ValueError, match="not symmetric, as if between two sets of samples"):
            alignment(*pair)


def test_rounding_errors_of_a_nearly_constant_kernel_are_no_asymmetry():
    kernel = 1 + 1e-4 * gram() / np.abs(gram()).max()
    rounded = kernel + 1e-7 * np.triu(np.ones_like(kernel), 1)
    exact, found = (centred_kernel_alignment(k, gram(seed=1)) for k in (kernel, rounded))
    assert found == pytest.approx(exact, abs=0.01)


def test_several_forms_at_once_are_those_one_by_one():
    features = np.random.default_rng(3).standard_normal((20, 40))
    y = np.eye(2)[np.random.default_rng(4).integers(2, size=10)]
    kernel = features @ features.T
    expected = {form: label_alignment(kernel, y, form) for form in LabelAlignmentForm}
    # One product with several columns sums in another order than one with a single column, on
    # some processors: 400 terms may each leave a few rounding errors of 1.1e-16.
    assert label_alignments(kernel, y) == pytest.approx(expected, rel=1e-12)


def test_no_forms_have_no_alignments():
    assert label_alignments(np.eye(2), np.array([[1.0], [-1.0]]), []) == {}


@pytest.mark.parametrize("form", ["released", LabelAlignmentForm.RELEASED])
def test_a_single_form_is_no_list_of_forms(form):
    with pytest.raises(ValueError, match=r"forms: 'released'; give a list of forms"):
        label_alignments(np.eye(2), np.array([[1.0], [-1.0]]), form)


def test_class_numbers_stand_for_one_hot_labels():
    features = np.random.default_rng(0).normal(size=(12, 20))
    numbers = np.array([0, 2, 1, 1])
    found = label_alignment(features @ features.T, numbers)
    assert found == label_alignment(features @ features.T, np.eye(3)[numbers])


def test_plain_values_are_the_labels_of_a_single_output():
    features = np.random.default_rng(0).normal(size=(4, 9))
    values = np.array([0.5, -1.0, 2.0, 0.1])
    found = label_alignment(features @ features.T, values)
    assert found == label_alignment(features @ features.T, values[:, None])


@pytest.mark.parametrize("scale", [1e200, -1e200, 1e-200])
def test_labels_whose_squares_leave_the_range_align_as_others(scale):
    features = np.random.default_rng(0).normal(size=(4, 9))
    values = np.array([0.5, 1.0, 2.0, 0.1])
    for y in (values, values[:, None]):
        expected = label_alignment(features @ features.T, y)
        assert label_alignment(features @ features.T, scale * y) == pytest.approx(expected)
