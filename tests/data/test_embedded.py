import numpy as np
import pytest

from feature_alignment.data.embedded import STAND_INS, embedded_images
from feature_alignment.data.embedded_photos import (
    PARTS,
    REGIONS,
    TEST_PER_CLASS,
    Box,
    digit_split,
)
from feature_alignment.data.registry import DATASETS
from feature_alignment.data.sklearn_files import digits, photograph, sklearn_file
from feature_alignment.determinism import stream
from feature_alignment.errors import UserError

IMAGE_SETS = [name for name, info in DATASETS.items() if info.kind == "image"]

NUMBERS = (1400, 360)

# Least test accuracy of the better of ridge regression and 1-nearest-neighbour, where chance is
# 1 / classes. Measured values are 0.03 to 0.12 higher.
LEAST_ACCURACY = {
    "mnist": 0.95,
    "kmnist": 0.9,
    "cifar10": 0.55,
    "cifar100": 0.22,
    "svhn": 0.55,
    "stl10": 0.3,
    "gtsrb": 0.6,
    "celeba": 0.65,
}


@pytest.fixture(scope="module")
def stand_ins() -> dict[str, dict[str, np.ndarray]]:
    """The stand-ins with fewer images than they have, to save time."""
    return {name: embedded_images(name, NUMBERS)[0] for name in IMAGE_SETS}


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_form_is_canonical_and_images_differ_in_mixed_order(stand_ins, name):
    info, arrays = DATASETS[name], stand_ins[name]
    for split, number in zip(("train", "test"), NUMBERS, strict=True):
        x, y = arrays[f"x_{split}"], arrays[f"y_{split}"]
        assert x.dtype == np.uint8
        assert y.dtype == np.int64
        assert x.shape == (number, *info.shape)
        assert y.shape == (number,)
        counts = np.bincount(y, minlength=info.classes)
        assert len(counts) == info.classes
        assert counts.min() >= 0.85 * counts.max() - 1
    # Experiments take prefixes: the first quarter must show most classes.
    y = arrays["y_train"]
    assert len(np.unique(y[: len(y) // 4])) >= 0.9 * info.classes
    x = np.concatenate([arrays["x_train"], arrays["x_test"]])
    assert x.min() <= 10
    assert x.max() >= 245
    assert len({one.tobytes() for one in x}) == len(x)


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_same_stream_same_images(name):
    generate, *_ = STAND_INS[name]
    first, again = (generate("train", 12, stream(5, "tests/embedded")) for _ in range(2))
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])


def features(x: np.ndarray) -> np.ndarray:
    step = 3 if x.shape[1] > 32 else 1
    return x[:, ::step, ::step].reshape(len(x), -1).astype(np.float32) / 255


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_learnable_far_above_chance(stand_ins, name):
    arrays = stand_ins[name]
    y, y_test = arrays["y_train"], arrays["y_test"]
    x, x_test = features(arrays["x_train"]), features(arrays["x_test"])
    x, x_test = x - x.mean(axis=0), x_test - x.mean(axis=0)
    gram, cross = x @ x.T, x_test @ x.T
    targets = np.eye(DATASETS[name].classes)[y]
    ridge = 0.01 * np.trace(gram) / len(gram) * np.eye(len(gram))
    scores = cross @ np.linalg.solve(gram + ridge, targets - targets.mean(axis=0))
    neighbours = y[np.argmin(np.diag(gram) - 2 * cross, axis=1)]
    accuracy = max(np.mean(scores.argmax(axis=1) == y_test), np.mean(neighbours == y_test))
    assert accuracy >= LEAST_ACCURACY[name]


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stl10", "gtsrb"])
def test_mean_brightness_alone_tells_much_less_than_the_image(stand_ins, name):
    arrays = stand_ins[name]
    mean = {s: arrays[f"x_{s}"].mean(axis=(1, 2, 3)) for s in ("train", "test")}
    nearest = np.abs(mean["test"][:, np.newaxis] - mean["train"]).argmin(axis=1)
    assert np.mean(arrays["y_train"][nearest] == arrays["y_test"]) < 0.65 * LEAST_ACCURACY[name]


def overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


@pytest.mark.parametrize("classes", [REGIONS, PARTS], ids=["regions", "parts"])
def test_training_and_test_patches_share_no_pixel(classes):
    for one in classes:
        for other in classes:
            if one.photo == other.photo:
                assert not any(overlap(a, b) for a in one.train for b in other.test)


@pytest.mark.parametrize("region", [*REGIONS, *PARTS], ids=lambda region: region.name)
def test_boxes_lie_in_the_photograph_and_hold_a_patch(region):
    height, width, _ = photograph(region.photo).shape
    for left, top, right, bottom in (*region.train, *region.test):
        assert 0 <= left < left + 20 <= right <= width
        assert 0 <= top < top + 20 <= bottom <= height


def test_digits_are_divided_by_class_without_overlap():
    images, labels = digits()
    train, y_train = digit_split("train")
    test, y_test = digit_split("test")
    assert (len(train), len(test)) == (1437, 360)
    assert np.bincount(y_test).tolist() == [TEST_PER_CLASS] * 10
    rows = sorted(one.tobytes() for one in images)
    assert sorted(one.tobytes() for one in np.concatenate([train, test])) == rows
    assert np.bincount(np.concatenate([y_train, y_test])).tolist() == np.bincount(labels).tolist()


def test_digits_are_scikit_learns():
    images, labels = digits()
    assert images[0, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert labels[:10].tolist() == list(range(10))
    # As its description of the set counts them.
    counts = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.bincount(labels).tolist() == counts


def test_what_callers_share_is_read_only():
    assert not any(shared.flags.writeable for shared in (*digits(), photograph("china")))


@pytest.mark.parametrize("name", ["kmnist", "celeba"])  # whose splits are drawn in the same way
def test_the_splits_are_other_draws(name):
    arrays, _ = embedded_images(name, (2, 2))
    assert not np.array_equal(arrays["x_train"], arrays["x_test"])


def test_cifar100s_classes_are_named_by_digit_then_region():
    _, extra = embedded_images("cifar100", (1, 1))
    assert extra["class_names"][12] == "1 on gallery"


def test_missing_package_file_is_told():
    with pytest.raises(UserError, match=r"no such file in scikit-learn, .* lock file names"):
        sklearn_file("datasets/images/venice.jpg")


def test_more_digits_than_there_are_are_refused():
    with pytest.raises(ValueError, match="361 digits of 360 test ones"):
        embedded_images("mnist", numbers=(10, 361))
