import numpy as np

from feature_alignment.data.standardise import standardise
from feature_alignment.determinism import stream


def images(n, seed=0):
    rng = stream(seed, "tests/standardise")
    return rng.integers(0, [256, 200, 100], (n, 5, 4, 3)).astype(np.uint8)


def test_each_channel_of_the_training_images_has_mean_zero_and_deviation_one():
    (x,) = standardise(images(50))
    assert x.shape == (50, 3, 5, 4)
    assert x.dtype == np.float32
    np.testing.assert_allclose(x.mean(axis=(0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(x.std(axis=(0, 2, 3)), 1, rtol=1e-6)


def test_test_images_get_the_scale_of_the_training_images():
    train = images(50)
    one, other = standardise(train, train[:7])
    np.testing.assert_allclose(one[:7], other, rtol=1e-6)


def test_a_constant_channel_becomes_zero():
    train = images(5)
    train[..., 1] = 7
    (x,) = standardise(train)
    assert not x[:, 1].any()
    assert x[:, 0].any()
