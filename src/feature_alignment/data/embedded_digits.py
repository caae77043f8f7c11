"""scikit-learn's handwritten digits: the stand-ins of MNIST, SVHN and CIFAR-100."""

import numpy as np
from numpy.random import Generator
from PIL import Image

from feature_alignment.data.embedded_photos import (
    REGIONS,
    SIZE,
    Drawn,
    as_pixels,
    balanced_labels,
    photograph_backgrounds,
)
from feature_alignment.data.sklearn_files import digits
from feature_alignment.determinism import stream

TEST_PER_CLASS = 36
_INK = 16  # the darkest value in the digits' files


def digit_split(split: str) -> tuple[np.ndarray, np.ndarray]:
    """The fixed division of the 1797 digits: 36 of each class for testing, 1437 for training.

    Returns:
        uint8 (n, 8, 8), 0 to 16, and int64 (n,).
    """
    images, labels = digits()
    order = stream(0, "embedded/digits").permutation(len(labels))
    testing = np.concatenate([order[labels[order] == c][:TEST_PER_CLASS] for c in range(10)])
    is_test = np.isin(np.arange(len(labels)), testing)
    chosen = order[is_test[order] == (split == "test")]
    return images[chosen], labels[chosen]


def _enlarged(digit: np.ndarray, side: int) -> np.ndarray:
    """One digit's ink, 0 to 1, float32 (side, side)."""
    image = Image.fromarray(digit.astype(np.float32) / _INK)
    image = image.resize((side, side), Image.Resampling.BICUBIC)
    return np.clip(np.asarray(image), 0.0, 1.0)


def enlarged_digits(split: str, n: int, generator: Generator) -> Drawn:
    """Digits enlarged to 20x20 and centred in 28x28, as MNIST's are, see `embedded.StandIn`.

    At most 1437 for training and 360 for testing; nothing is drawn from the generator.
    """
    images, labels = digit_split(split)
    x = np.zeros((n, 28, 28, 1), dtype=np.uint8)
    for i, digit in enumerate(images[:n]):
        x[i, 4:24, 4:24, 0] = np.rint(255 * _enlarged(digit, 20))
    return x, labels[:n]


def _ink_masks(split: str, labels: np.ndarray, generator: Generator) -> np.ndarray:
    """Ink of a random digit for each label, at random size and place; (n, SIZE, SIZE)."""
    images, classes = digit_split(split)
    masks = np.zeros((len(labels), SIZE, SIZE), dtype=np.float32)
    for i, label in enumerate(labels):
        digit = images[generator.choice(np.flatnonzero(classes == label))]
        side = int(generator.integers(24, 31))
        # Off centre by at most 3 pixels: as far as the crops of house numbers are.
        margin = SIZE - side
        low, high = max(0, margin // 2 - 3), min(margin, margin // 2 + 3)
        top, left = generator.integers(low, high + 1, size=2)
        masks[i, top : top + side, left : left + side] = _enlarged(digit, side)
    return masks


def _painted(backgrounds: np.ndarray, masks: np.ndarray, generator: Generator) -> np.ndarray:
    """Backgrounds with a digit in a colour lighter than the background; (n, SIZE, SIZE, 3)."""
    n = len(masks)
    mean = backgrounds.mean(axis=(1, 2), keepdims=True)  # (n, 1, 1, 3)
    # A flattened background keeps the ink in sight, as paint on a wall does.
    wall = np.minimum(mean + 0.45 * (backgrounds - mean), 150.0)
    ink = np.minimum(wall.mean(axis=(1, 2), keepdims=True) + 90, 200.0)
    ink = ink + generator.uniform(-25.0, 55.0, (n, 1, 1, 3)).astype(np.float32)
    alpha = masks[..., np.newaxis]
    return (1 - alpha) * wall + alpha * ink


def street_digits(split: str, n: int, generator: Generator) -> Drawn:
    """Digits in colour over photograph patches, classed by the digit, see `embedded.StandIn`.

    The splits share neither digits nor patches; (n, 32, 32, 3).
    """
    labels = balanced_labels(n, 10, generator)
    walls = photograph_backgrounds(split, generator.integers(len(REGIONS), size=n), generator)
    images = _painted(walls, _ink_masks(split, labels, generator), generator)
    return as_pixels(images, generator), labels


def digits_on_photographs(split: str, n: int, generator: Generator) -> Drawn:
    """Digits over photograph patches, classed by the pair: label = 10 · digit + region.

    As `street_digits`, with labels from 0 to 99.
    """
    labels = balanced_labels(n, 100, generator)
    backgrounds = photograph_backgrounds(split, labels % 10, generator)
    alpha = _ink_masks(split, labels // 10, generator)[..., np.newaxis]
    # Black or white, whichever the background is farther from: the colours stay the region's.
    light = backgrounds.mean(axis=(1, 2, 3), keepdims=True) < 110
    ink = np.where(light, 235.0, 20.0).astype(np.float32)
    images = (1 - 0.8 * alpha) * backgrounds + 0.8 * alpha * ink
    return as_pixels(images, generator), labels
