"""The embedded stand-ins of the image sets: always at hand, the same in every run."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator

from feature_alignment.data.embedded_digits import (
    digits_on_photographs,
    enlarged_digits,
    street_digits,
)
from feature_alignment.data.embedded_faces import drawn_faces
from feature_alignment.data.embedded_glyphs import brush_glyphs
from feature_alignment.data.embedded_photos import (
    REGION_NAMES,
    Drawn,
    photograph_parts,
    photograph_regions,
)
from feature_alignment.data.embedded_signs import traffic_signs
from feature_alignment.data.sklearn_files import package_origin
from feature_alignment.determinism import stream

StandIn = Callable[[str, int, Generator], Drawn]
"""From the split, "train" or "test", the number n of images and the source of all draws."""

# One seed for all: a stand-in is a data set, not a draw.
_SEED = 0

_GENERATORS: dict[str, tuple[StandIn, int, int]] = {
    "mnist": (enlarged_digits, 1437, 360),
    "kmnist": (brush_glyphs, 4000, 1000),
    "cifar10": (photograph_regions, 4000, 1000),
    "cifar100": (digits_on_photographs, 5000, 1000),
    "svhn": (street_digits, 4000, 1000),
    "stl10": (photograph_parts, 3000, 1000),
    "gtsrb": (traffic_signs, 3440, 860),
    "celeba": (drawn_faces, 2000, 500),
}


def embedded_images(
    name: str, numbers: tuple[int, int] | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Generate the stand-in of an image set.

    Args:
        name: an image set of `registry.DATASETS`.
        numbers: of training and of test images; None for the stand-in's own.
    """
    generate, *own_numbers = _GENERATORS[name]
    arrays = {}
    for split, number in zip(("train", "test"), numbers or own_numbers, strict=True):
        x, y = generate(split, number, stream(_SEED, f"embedded/{name}/{split}"))
        arrays |= {f"x_{split}": x, f"y_{split}": y}
    extra: dict[str, Any] = {"origin": [package_origin()], "notes": []}
    if name == "cifar10":
        extra["class_names"] = list(REGION_NAMES)
    if name == "cifar100":
        extra["class_names"] = [f"{digit} on {r}" for digit in range(10) for r in REGION_NAMES]
    return arrays, extra
