"""The data sets by name, their canonical form, and validation of their options.

This module imports nothing beyond the standard library: the workflow reads it at every start.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from feature_alignment.errors import UserError, check_known, shortened

DOWNLOAD_FOLDER = "data"

_WANTED_FILES = {
    "imagefolder": "a folder with train/ and test/, each with one folder per class",
    "npz": "a .npz or .npz.xz file with x_train, y_train, x_test, y_test",
    "file": "a UTF-8 text file",
    "torchvision": "a folder, which may be empty",
    "download": "a folder, which may be empty",
}


@dataclass(frozen=True)
class DatasetInfo:
    """Facts about a data set that are known before any of its files is read."""

    name: str  # the key in the config
    title: str  # the name in print
    real: str  # description of the real set
    stand_in: str  # description of the embedded stand-in
    class_names: tuple[str, ...] | None = None  # if the set's authors defined them
    classes: int = 10  # number of classes; 0 for text
    shape: tuple[int, ...] = (32, 32, 3)  # height, width, channels; empty for text
    kind: Literal["image", "text"] = "image"

    @property
    def sources(self) -> tuple[str, ...]:
        """The values that `source` may take for this set."""
        image = self.kind == "image"
        own = ("torchvision", "imagefolder", "npz") if image else ("download", "file")
        return "embedded", *own


_DIGITS = tuple("0123456789")

# fmt: off
_ALL = (
    DatasetInfo("mnist", "MNIST", "70,000 handwritten digits, 28x28 grey",
                "scikit-learn digits at 28x28", _DIGITS, shape=(28, 28, 1)),
    DatasetInfo("kmnist", "KMNIST", "70,000 cursive hiragana, 28x28 grey",
                "generated brush glyphs, two forms a class",
                ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"), shape=(28, 28, 1)),
    DatasetInfo("cifar10", "CIFAR-10", "60,000 photographs of ten kinds of object, 32x32 colour",
                "patches of two scikit-learn photographs, classed by what they show",
                ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
                 "truck")),
    DatasetInfo("cifar100", "CIFAR-100",
                "60,000 photographs of a hundred kinds of object, 32x32 colour",
                "scikit-learn digits over photograph patches, classed by the pair", classes=100),
    DatasetInfo("svhn", "SVHN",
                "99,289 house-number digits cropped from street photographs, 32x32 colour",
                "coloured scikit-learn digits over photograph patches", _DIGITS),
    DatasetInfo("stl10", "STL-10",
                "13,000 labelled photographs of ten kinds of object, 96x96 colour, here at 32x32",
                "large patches of two scikit-learn photographs, classed by position",
                ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship",
                 "truck")),
    DatasetInfo("gtsrb", "GTSRB",
                "photographs of 43 kinds of German traffic sign, of many sizes, here at 32x32",
                "generated signs with the real ones' outlines and colours", classes=43),
    DatasetInfo("celeba", "CelebA eyeglasses",
                "portraits, with and without eyeglasses in equal numbers, here at 96x96",
                "drawn faces with and without glasses",
                ("no eyeglasses", "eyeglasses"), classes=2, shape=(96, 96, 3)),
    DatasetInfo("shakespeare", "Shakespeare characters",
                "1,115,394 characters of Shakespeare's plays (tiny Shakespeare)",
                "the descriptions of scikit-learn's data sets",
                classes=0, shape=(), kind="text"),
)
# fmt: on

DATASETS: Mapping[str, DatasetInfo] = {info.name: info for info in _ALL}


def dataset_info(name: str) -> DatasetInfo:
    """The entry of one data set.

    Raises:
        UserError: if there is no data set with this name.

    Example:
        >>> dataset_info("gtsrb").classes
        43
    """
    check_known(f"datasets.{name}: no such data set", name, DATASETS)
    return DATASETS[name]


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Check a data set's options, and that the local files they name exist.

    The options are `source` and, if it needs one, `path`, relative to the working directory.

    Raises:
        UserError: if the name, a key or the source is unknown, or the path is missing, does not
            exist, is of the wrong kind or is not readable.
    """
    info = dataset_info(name)
    where = f"datasets.{name}"
    for key in options:
        check_known(f"{where}.{key}: no such key", key, ("source", "path"))
    source, path = options.get("source", "embedded"), options.get("path")
    check_known(f"{where}.source: found {shortened(source)}", source, info.sources)
    if path is not None and (not isinstance(path, str) or not path):
        raise UserError(
            f"{where}.path: found {shortened(path)}, where a path such as 'data' or null is needed."
        )
    downloads = source in ("torchvision", "download")
    if source == "embedded" and path not in (None, DOWNLOAD_FOLDER):
        raise UserError(
            f"{where}.path: found {shortened(path)}, but source 'embedded' reads no files; set "
            f"{where}.source to {' or '.join(s for s in info.sources if s != 'embedded')}."
        )
    if source == "embedded" or (downloads and path in (None, DOWNLOAD_FOLDER)):
        return
    if path is None:
        raise UserError(
            f"{where}.path: missing; source {source!r} needs the path of {_WANTED_FILES[source]}; "
            "set it or use source 'embedded'."
        )
    try:
        _check_path(where, source, Path(path), downloads)
    except OSError as error:
        raise UserError(
            f"{where}.path: {shortened(error.filename)} cannot be read ({error.strerror}); "
            "check access rights there, or choose another source."
        ) from error


def _check_path(where: str, source: str, found: Path, downloads: bool) -> None:
    what = "folder" if downloads or source == "imagefolder" else "file"
    shown, wanted = shortened(str(found)), f"source {source!r} needs {_WANTED_FILES[source]}"
    if found.is_file() if what == "file" else found.is_dir():
        if what == "file":
            found.open("rb").close()
        for folder in (found, found / "train", found / "test"):
            if folder.is_dir():
                os.scandir(folder).close()
    elif found.exists():
        raise UserError(
            f"{where}.path: {shown} is no {what}, but {wanted}; correct the path or the source."
        )
    else:
        literal = " (~ and variables are taken literally)" if str(found)[0] in "~$" else ""
        cure = (
            f"create it first, or leave path out to download to {DOWNLOAD_FOLDER!r}"
            if downloads
            else "correct the path or use source 'embedded'"
        )
        raise UserError(f"{where}.path: no such {what} {shown}{literal}; {wanted}; {cure}.")
