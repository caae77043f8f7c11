"""Real images and texts shipped with scikit-learn, read without its slow import."""

import functools
import gzip
import importlib.metadata
import importlib.util
from pathlib import Path

import numpy as np
from PIL import Image

from feature_alignment.errors import UserError


def sklearn_file(name: str) -> Path:
    """A file or folder of the installed scikit-learn, by its path in the package.

    Raises:
        UserError: if scikit-learn is not installed or has no such file.
    """
    spec = importlib.util.find_spec("sklearn")
    folders = spec.submodule_search_locations if spec else None
    path = Path(folders[0] if folders else "sklearn", name)
    if not path.exists():
        raise UserError(
            f"{path}: no such file in scikit-learn, from which the embedded data sets are made; "
            "install the version that the project's lock file names."
        )
    return path


def package_origin() -> dict[str, str]:
    """The package from which the embedded sets are made, and its version."""
    return {"package": "scikit-learn", "version": importlib.metadata.version("scikit-learn")}


@functools.cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """UCI's optical recognition test set: digits uint8 (1797, 8, 8), 0 to 16, and labels int64."""
    with gzip.open(sklearn_file("datasets/data/digits.csv.gz"), "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    images, labels = table[:, :-1].reshape(-1, 8, 8).astype(np.uint8), table[:, -1].astype(np.int64)
    for array in (images, labels):
        array.setflags(write=False)  # they are shared by all callers
    return images, labels


@functools.cache
def photograph(name: str) -> np.ndarray:
    """One of the two photographs, "china" or "flower": uint8 (427, 640, 3), RGB."""
    with Image.open(sklearn_file(f"datasets/images/{name}.jpg")) as image:
        pixels = np.array(image.convert("RGB"), dtype=np.uint8)
    pixels.setflags(write=False)  # they are shared by all callers
    return pixels
