"""The embedded stand-ins of the image sets: always available, the same in every run."""

from collections.abc import Callable

from numpy.random import Generator

from feature_alignment.data import embedded_drawings as drawings
from feature_alignment.data import embedded_photos as photos
from feature_alignment.data.canonical import Loaded
from feature_alignment.data.sklearn_files import package_origin
from feature_alignment.determinism import stream

StandIn = Callable[[str, int, Generator], photos.Drawn]
"""Called with the split, "train" or "test", the number n of images and a random generator."""

STAND_INS: dict[str, tuple[StandIn, int, int]] = {
    "mnist": (photos.enlarged_digits, 1437, 360),
    "kmnist": (drawings.brush_glyphs, 4000, 1000),
    "cifar10": (photos.photograph_regions, 4000, 1000),
    "cifar100": (photos.digits_on_photographs, 5000, 1000),
    "svhn": (photos.street_digits, 4000, 1000),
    "stl10": (photos.photograph_parts, 3000, 1000),
    "gtsrb": (drawings.traffic_signs, 3440, 860),
    "celeba": (drawings.drawn_faces, 2000, 500),
}
"""Generating function of each image set, and its numbers of training and of test images."""


def embedded_images(name: str, numbers: tuple[int, int] | None = None) -> Loaded:
    """Generate the stand-in of an image set, a fixed data set that is always the same.

    `numbers` are the numbers of training and of test images; None for the stand-in's own.
    """
    generate, *own_numbers = STAND_INS[name]
    arrays = {}
    for split, number in zip(("train", "test"), numbers or own_numbers, strict=True):
        x, y = generate(split, number, stream(0, f"embedded/{name}/{split}"))
        arrays |= {f"x_{split}": x, f"y_{split}": y}
    regions = [region.name for region in photos.REGIONS]
    names = {
        "cifar10": regions,
        "cifar100": [f"{digit} on {region}" for digit in range(10) for region in regions],
    }
    return arrays, {"origin": [package_origin()], "notes": [], "class_names": names.get(name)}
