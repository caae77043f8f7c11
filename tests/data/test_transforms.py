import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_alignment.data.transforms import random_labels, standardise
from feature_alignment.determinism import stream
from feature_alignment.errors import UserError


def images(n, seed=0):
    rng = stream(seed, "tests/standardise")
    return rng.integers(0, [256, 200, 100], (n, 5, 4, 3)).astype(np.uint8)


def test_each_channel_of_the_training_images_has_mean_zero_and_deviation_one():
    (x,) = standardise(images(50))
    assert x.shape == (50, 3, 5, 4)
    assert x.dtype == np.float32
    np.testing.assert_allclose(x.mean(axis=(0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(x.std(axis=(0, 2, 3)), 1, rtol=1e-6)


def test_the_deviation_is_summed_in_double_precision():
    (x,) = standardise(images(2000))
    np.testing.assert_allclose(x.std(axis=(0, 2, 3), dtype=np.float64), 1, rtol=1e-8)


def test_test_images_get_the_scale_of_the_training_images():
    train = images(50)
    one, other = standardise(train, train[:7])
    np.testing.assert_allclose(one[:7], other, rtol=1e-6)


def test_a_constant_channel_becomes_zero_and_is_only_shifted():
    train, test = images(5), images(5, seed=1)
    train[..., 1] = 7
    x, other = standardise(train, test)
    assert not x[:, 1].any()
    np.testing.assert_allclose(other[:, 1], (test[..., 1] - 7.0) / 255, atol=1e-6)
    assert x[:, 0].any()


@settings(deadline=None)
@given(n=st.integers(1, 200), share=st.floats(0, 1), seed=st.integers(0, 10))
def test_the_share_is_exact_and_the_others_are_untouched(n, share, seed):
    labels = np.arange(n) % 10
    new, chosen = random_labels(labels, share, 10, stream(seed, "labels"))
    assert chosen.sum() == round(share * n)
    np.testing.assert_array_equal(new[~chosen], labels[~chosen])
    assert new.dtype == labels.dtype
    assert set(new) <= set(range(10))


def test_random_labels_are_uniform_over_all_classes_the_true_one_included():
    n = 100_000
    new, chosen = random_labels(np.full(n, 3), 0.5, 10, stream(0, "labels"))
    counts = np.bincount(new[chosen], minlength=10)
    # Five standard deviations of a binomial count.
    assert np.abs(counts - 5_000).max() < 5 * np.sqrt(50_000 * 0.1 * 0.9)
    assert np.mean(new != 3) == pytest.approx(0.45, abs=0.005)


def test_the_examples_are_chosen_over_the_whole_set():
    _, chosen = random_labels(np.zeros(10_000, int), 0.5, 10, stream(0, "labels"))
    assert chosen[:5_000].mean() == pytest.approx(0.5, abs=0.03)


def test_same_stream_same_labels_and_the_given_ones_stay():
    labels = np.zeros(50, int)
    one, other = (random_labels(labels, 0.5, 10, stream(1, "labels")) for _ in "ab")
    np.testing.assert_array_equal(one, other)
    assert not labels.any()


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_is_between_nothing_and_all(share):
    with pytest.raises(UserError, match=r"share of random labels: .*, wanted a number from 0 to 1"):
        random_labels(np.zeros(5, int), share, 10, stream(0, "labels"))


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (0, "classes: 0; it must be a whole number of at least 1"),
        (300, "classes: 300 do not fit into uint8 labels; widen"),
    ],
)
def test_labels_can_hold_the_classes(classes, message):
    labels = np.zeros(5, np.uint8)
    with pytest.raises(UserError, match=message):
        random_labels(labels, 1.0, classes, stream(0, "labels"))
    assert random_labels(labels, 1.0, 256, stream(0, "labels"))[0].dtype == np.uint8
