"""Patches of scikit-learn's two photographs: the stand-ins of CIFAR-10 and STL-10."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from PIL import Image

from feature_alignment.data.sklearn_files import photograph

Drawn = tuple[np.ndarray, np.ndarray]
"""Images uint8 (n, height, width, channels) and labels int64 (n,)."""
Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels

SIZE = 32
_REGION_SIDES = (20, 32)
_PART_SIDES = (56, 80)
_NOISE = 6.0


@dataclass(frozen=True)
class Region:
    """A class of patches.

    Attributes:
        name: what its patches show.
        photo: "china" or "flower".
        train: boxes that training patches are cut from.
        test: boxes that test patches are cut from; they share no pixel with any training box of
            the same set.
    """

    name: str
    photo: str
    train: tuple[Box, ...]
    test: tuple[Box, ...]


REGIONS = (
    Region("sky", "china", ((330, 0, 520, 130),), ((530, 0, 640, 130),)),
    Region("roof", "china", ((150, 65, 265, 125), (75, 250, 340, 289)), ((95, 155, 320, 190),)),
    Region("gallery", "china", ((85, 290, 325, 345),), ((105, 191, 312, 240),)),
    Region("lake", "china", ((345, 235, 455, 290),), ((480, 216, 548, 250),)),
    Region(
        "shrubs",
        "china",
        ((400, 300, 560, 427), (20, 360, 100, 427)),
        ((340, 340, 399, 427), (110, 365, 200, 427)),
    ),
    Region("horizon", "china", ((335, 180, 440, 225),), ((445, 180, 545, 215),)),
    Region(
        "petals",
        "flower",
        ((175, 150, 240, 290), (240, 92, 370, 140), (250, 295, 370, 350)),
        ((378, 150, 440, 290),),
    ),
    Region("flower heart", "flower", ((242, 145, 335, 290),), ((337, 145, 376, 290),)),
    Region("leaf", "flower", ((0, 90, 130, 240),), ((0, 245, 110, 320),)),
    Region("shade", "flower", ((470, 230, 640, 360),), ((40, 335, 165, 427),)),
)
REGION_NAMES = tuple(region.name for region in REGIONS)

# Five upright bands of each photograph; a strip across the middle is kept for testing.
PARTS = tuple(
    Region(
        f"{photo} part {band + 1}",
        photo,
        ((128 * band, 0, 128 * band + 128, 165), (128 * band, 255, 128 * band + 128, 427)),
        ((128 * band, 170, 128 * band + 128, 250),),
    )
    for photo in ("china", "flower")
    for band in range(5)
)


def balanced_labels(n: int, classes: int, generator: Generator) -> np.ndarray:
    """Labels in random order, each class as often as the others or once more; int64 (n,)."""
    return generator.permutation(np.arange(n) % classes).astype(np.int64)


def patches(
    regions: tuple[Region, ...],
    labels: np.ndarray,
    split: str,
    sides: tuple[int, int],
    generator: Generator,
) -> np.ndarray:
    """One patch of a class's boxes for each label, at random place, size and exposure.

    Args:
        regions: the classes.
        labels: integers (n,), positions in `regions`.
        split: "train" or "test": which boxes to cut from.
        sides: shortest and longest side of the cut square, in pixels.
        generator: source of the draws.

    Returns:
        float32 (n, SIZE, SIZE, channels=3), about 0 to 255, not rounded.
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
    # Exposure and white balance vary, or else the mean colour alone would tell the class; they
    # never brighten, or else the sky would be clipped to one and the same white.
    exposure = generator.uniform(0.5, 0.95, (len(labels), 1, 1, 1))
    balance = generator.uniform(0.85, 1.05, (len(labels), 1, 1, 3))
    return result * (exposure * balance).astype(np.float32)


def as_pixels(images: np.ndarray, generator: Generator) -> np.ndarray:
    """Images with camera noise, rounded and clipped to uint8 0..255, same shape."""
    noisy = images + _NOISE * generator.standard_normal(images.shape, dtype=np.float32)
    return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)


def photograph_regions(split: str, n: int, generator: Generator) -> Drawn:
    """Small patches classed by what they show, see `embedded.StandIn`; (n, 32, 32, 3)."""
    labels = balanced_labels(n, len(REGIONS), generator)
    images = patches(REGIONS, labels, split, _REGION_SIDES, generator)
    return as_pixels(images, generator), labels


def photograph_parts(split: str, n: int, generator: Generator) -> Drawn:
    """Large patches classed by photograph and upright band, as `photograph_regions`."""
    labels = balanced_labels(n, len(PARTS), generator)
    images = patches(PARTS, labels, split, _PART_SIDES, generator)
    return as_pixels(images, generator), labels


def photograph_backgrounds(split: str, labels: np.ndarray, generator: Generator) -> np.ndarray:
    """Patches (n, 32, 32, 3) to draw on, for labels (n,) that are places in `REGIONS`."""
    return patches(REGIONS, labels, split, _REGION_SIDES, generator)
