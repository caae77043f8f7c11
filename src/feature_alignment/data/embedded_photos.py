"""Five stand-ins from scikit-learn's photographs and digits, and the backgrounds of a sixth."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from PIL import Image

from feature_alignment.data.sklearn_files import digits, photograph
from feature_alignment.determinism import stream

Drawn = tuple[np.ndarray, np.ndarray]
"""Images uint8 (n, height, width, channels) and labels int64 (n,)."""
Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels

SIZE = 32
TEST_PER_CLASS = 36  # handwritten digits of each class that are reserved for testing
_REGION_SIDES = (20, 32)
_PART_SIDES = (56, 80)
_NOISE = 6.0
_INK = 16  # the darkest value in the file of digits


@dataclass(frozen=True)
class Region:
    """A class of patches: its name, the photograph, and the boxes that patches are cut from.

    The boxes for testing share no pixel with any training box of the same set.
    """

    name: str
    photo: str
    train: tuple[Box, ...]
    test: tuple[Box, ...]


# fmt: off
REGIONS = (
    Region("sky", "china", ((330, 0, 520, 130),), ((530, 0, 640, 130),)),
    Region("roof", "china", ((150, 65, 265, 125), (75, 250, 340, 289)), ((95, 155, 320, 190),)),
    Region("gallery", "china", ((85, 290, 325, 345),), ((105, 191, 312, 240),)),
    Region("lake", "china", ((345, 235, 455, 290),), ((480, 216, 548, 250),)),
    Region("shrubs", "china", ((400, 300, 560, 427), (20, 360, 100, 427)),
           ((340, 340, 399, 427), (110, 365, 200, 427))),
    Region("horizon", "china", ((335, 180, 440, 225),), ((445, 180, 545, 215),)),
    Region("petals", "flower", ((175, 150, 240, 290), (240, 92, 370, 140), (250, 295, 370, 350)),
           ((378, 150, 440, 290),)),
    Region("flower heart", "flower", ((242, 145, 335, 290),), ((337, 145, 376, 290),)),
    Region("leaf", "flower", ((0, 90, 130, 240),), ((0, 245, 110, 320),)),
    Region("shade", "flower", ((470, 230, 640, 360),), ((40, 335, 165, 427),)),
)
# Five vertical bands of each photograph; a strip across the middle is reserved for testing.
PARTS = tuple(
    Region(f"{photo} part {band + 1}", photo,
           ((128 * band, 0, 128 * band + 128, 165), (128 * band, 255, 128 * band + 128, 427)),
           ((128 * band, 170, 128 * band + 128, 250),))
    for photo in ("china", "flower") for band in range(5)
)
# fmt: on


def balanced_labels(n: int, classes: int, generator: Generator) -> np.ndarray:
    """Labels in random order, int64 (n,), with class counts that differ by at most one."""
    return generator.permutation(np.arange(n) % classes).astype(np.int64)


def backgrounds(
    split: str,
    labels: np.ndarray,
    generator: Generator,
    regions: tuple[Region, ...] = REGIONS,
    sides: tuple[int, int] = _REGION_SIDES,
) -> np.ndarray:
    """One patch from its class's boxes for each label (n,), at random place, size and exposure.

    Returns float32 (n, SIZE, SIZE, channels=3), about 0 to 255, not rounded. Labels are positions
    in `regions`; `sides` are the shortest and longest side of the cut square, in pixels.
    """
    result = np.empty((len(labels), SIZE, SIZE, 3), dtype=np.float32)
    for i, label in enumerate(labels):
        region = regions[label]
        boxes = region.train if split == "train" else region.test
        left, top, right, bottom = boxes[generator.integers(len(boxes))]
        longest = min(sides[1], right - left, bottom - top)
        side = int(generator.integers(min(sides[0], longest), longest + 1))
        x0 = int(generator.integers(left, right - side + 1))
        y0 = int(generator.integers(top, bottom - side + 1))
        cut = Image.fromarray(photograph(region.photo)[y0 : y0 + side, x0 : x0 + side])
        patch = np.asarray(cut.resize((SIZE, SIZE), Image.Resampling.BICUBIC), dtype=np.float32)
        result[i] = patch[:, ::-1] if generator.random() < 0.5 else patch
    # Exposure and white balance vary, so that the mean colour alone does not reveal the class; they
    # never brighten, because the sky would be clipped to uniform white.
    exposure = generator.uniform(0.5, 0.95, (len(labels), 1, 1, 1))
    balance = generator.uniform(0.85, 1.05, (len(labels), 1, 1, 3))
    return result * (exposure * balance).astype(np.float32)


def as_pixels(images: np.ndarray, generator: Generator) -> np.ndarray:
    """Add camera noise to images, then round and clip them to uint8; same shape."""
    noisy = images + _NOISE * generator.standard_normal(images.shape, dtype=np.float32)
    return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)


def photograph_regions(split: str, n: int, generator: Generator) -> Drawn:
    """CIFAR-10: small patches classed by what they show, (n, 32, 32, 3)."""
    labels = balanced_labels(n, len(REGIONS), generator)
    return as_pixels(backgrounds(split, labels, generator), generator), labels


def photograph_parts(split: str, n: int, generator: Generator) -> Drawn:
    """STL-10: large patches classed by photograph and vertical band, (n, 32, 32, 3)."""
    labels = balanced_labels(n, len(PARTS), generator)
    images = backgrounds(split, labels, generator, PARTS, _PART_SIDES)
    return as_pixels(images, generator), labels


def digit_split(split: str) -> Drawn:
    """The fixed split of `digits`: 360 for testing and 1437 for training."""
    images, labels = digits()
    order = stream(0, "embedded/digits").permutation(len(labels))
    testing = np.concatenate([order[labels[order] == c][:TEST_PER_CLASS] for c in range(10)])
    chosen = order[np.isin(order, testing) == (split == "test")]
    return images[chosen], labels[chosen]


def _enlarged(digit: np.ndarray, side: int) -> np.ndarray:
    """One digit's ink, 0 to 1, float32 (side, side)."""
    image = Image.fromarray(digit.astype(np.float32) / _INK)
    image = image.resize((side, side), Image.Resampling.BICUBIC)
    return np.clip(np.asarray(image), 0.0, 1.0)


def enlarged_digits(split: str, n: int, generator: Generator) -> Drawn:
    """MNIST: digits enlarged to 20x20 and centred in 28x28, (n, 28, 28, 1), with no randomness.

    Raises:
        ValueError: if there are fewer than n.
    """
    images, labels = digit_split(split)
    if n > len(images):
        raise ValueError(f"n: {n} digits of {len(images)} {split} ones; ask for fewer.")
    x = np.zeros((n, 28, 28, 1), dtype=np.uint8)
    for i, digit in enumerate(images[:n]):
        x[i, 4:24, 4:24, 0] = np.rint(255 * _enlarged(digit, 20))
    return x, labels[:n]


def _ink_masks(split: str, labels: np.ndarray, generator: Generator) -> np.ndarray:
    """Ink of a random digit for each label, at random size and place, (n, SIZE, SIZE, 1)."""
    images, classes = digit_split(split)
    masks = np.zeros((len(labels), SIZE, SIZE, 1), dtype=np.float32)
    for i, label in enumerate(labels):
        digit = images[generator.choice(np.flatnonzero(classes == label))]
        side = int(generator.integers(24, 31))
        # At most 3 pixels off centre, like the crops of house numbers.
        margin = SIZE - side
        low, high = max(0, margin // 2 - 3), min(margin, margin // 2 + 3)
        top, left = generator.integers(low, high + 1, size=2)
        masks[i, top : top + side, left : left + side, 0] = _enlarged(digit, side)
    return masks


def street_digits(split: str, n: int, generator: Generator) -> Drawn:
    """SVHN: digits lighter than the photograph patches behind them, (n, 32, 32, 3).

    The splits share neither digits nor patches.
    """
    labels = balanced_labels(n, 10, generator)
    walls = backgrounds(split, generator.integers(len(REGIONS), size=n), generator)
    alpha = _ink_masks(split, labels, generator)
    mean = walls.mean(axis=(1, 2), keepdims=True)  # (n, 1, 1, 3)
    # A background of low contrast keeps the ink visible, like paint on a wall.
    wall = np.minimum(mean + 0.45 * (walls - mean), 150.0)
    ink = np.minimum(wall.mean(axis=(1, 2), keepdims=True) + 90, 200.0)
    ink = ink + generator.uniform(-25.0, 55.0, (n, 1, 1, 3)).astype(np.float32)
    return as_pixels((1 - alpha) * wall + alpha * ink, generator), labels


def digits_on_photographs(split: str, n: int, generator: Generator) -> Drawn:
    """CIFAR-100: digits over photograph patches, classed by both: 10 · digit + region.

    Like `street_digits`, with labels from 0 to 99.
    """
    labels = balanced_labels(n, 100, generator)
    patches = backgrounds(split, labels % 10, generator)
    alpha = _ink_masks(split, labels // 10, generator)
    # Black or white, whichever contrasts more, so that the region alone determines the colours.
    light = patches.mean(axis=(1, 2, 3), keepdims=True) < 110
    ink = np.where(light, 235.0, 20.0).astype(np.float32)
    return as_pixels((1 - 0.8 * alpha) * patches + 0.8 * alpha * ink, generator), labels
