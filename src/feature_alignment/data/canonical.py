"""The canonical form of a data set: a few arrays and their description in one verified file."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feature_alignment.errors import UserError, check_choice, reason
from feature_alignment.files import whole_file

_INFO_KEY = "info_json"

Loaded = tuple[dict[str, np.ndarray], dict[str, Any]]
"""Canonical arrays and their description: `origin`, `notes`, optionally `class_names` and more."""


@dataclass(frozen=True)
class Dataset:
    """A prepared data set.

    Attributes:
        arrays: images: `x_train`, `x_test` uint8 (n, height, width, channels) and `y_train`,
            `y_test` int64 (n,); text: `text_train`, `text_test` uint8 (n,), the positions of
            the characters in `vocabulary`, uint32 Unicode code points in ascending order.
        info: what `prepare.prepare_dataset` tells of it.
    """

    arrays: dict[str, np.ndarray]
    info: dict[str, Any]

    def split(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Images uint8 (n, height, width, channels) and labels int64 (n,) of "train" or "test".

        Raises:
            UserError: if the split does not exist or the data set is a text.
        """
        return self._array("x", split, "images"), self._array("y", split, "images")

    def text(self, split: str) -> np.ndarray:
        """Character codes of "train" or "test", uint8 (n,).

        Raises:
            UserError: if the split does not exist or the data set contains images.
        """
        return self._array("text", split, "text")

    def draw(
        self, split: str, number: int, generator: np.random.Generator, key: str = ""
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw `number` images and their labels without replacement, in random order.

        The files of some sets are ordered by class, so their first images are not representative.
        `key` is the config key that requests this number, for the error message.

        Raises:
            UserError: if the number is not positive, or the split has fewer images.
        """
        x, y = self.split(split)
        if not 0 < number <= len(x):
            raise UserError(
                f"{key or self.info['name']}: {number} {split} images are asked for, but "
                f"{self.info['description']} has {len(x)}; ask for 1 to {len(x)} "
                f"or set datasets.{self.info['name']}.source to a larger set."
            )
        chosen = generator.permutation(len(x))[:number]
        return x[chosen], y[chosen]

    @property
    def vocabulary(self) -> list[str]:
        """The characters that the codes of a text stand for; an error for images, see `text`."""
        self.text("train")
        return [chr(code) for code in self.arrays["vocabulary"]]

    def _array(self, prefix: str, split: str, kind: str) -> np.ndarray:
        check_choice("split", split, ("train", "test"))
        key = f"{prefix}_{split}"
        if key not in self.arrays:
            held = "text" if "vocabulary" in self.arrays else "images"
            raise UserError(
                f"{self.info['name']}: holds {held}, not {kind} as needed here; "
                "choose another data set."
            )
        return self.arrays[key]


def content_sha256(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the arrays' names, types, shapes and bytes, in order of their names.

    Example:
        >>> content_sha256({"y_test": np.arange(2, dtype=np.uint8)})[:8]
        'd64935f0'
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        # Little-endian, so that the hash is the same on every machine.
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()


def to_float(x: np.ndarray) -> np.ndarray:
    """Convert uint8 pixels of any shape to float32 in [0, 1].

    Example:
        >>> to_float(np.array([0, 51, 255], dtype=np.uint8)).tolist()
        [0.0, 0.20000000298023224, 1.0]
    """
    return x.astype(np.float32) / np.float32(255)


def save(path: str | Path, arrays: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> None:
    """Write arrays and description to one file, atomically; equal content gives equal bytes.

    The description consists of plain JSON values.

    Raises:
        ValueError: if `info["sha256"]` is not the `content_sha256` of the arrays.
    """
    if info.get("sha256") != content_sha256(arrays):
        raise ValueError("info['sha256'] is not the hash of the arrays")
    text = json.dumps(dict(info), sort_keys=True, ensure_ascii=False, allow_nan=False)
    members: dict[str, Any] = {name: arrays[name] for name in sorted(arrays)}
    members[_INFO_KEY] = np.frombuffer(text.encode(), dtype=np.uint8)
    with whole_file(Path(path)) as partial, partial.open("wb") as file:
        np.savez(file, **members)


def load(path: str | Path) -> Dataset:
    """Read a data set that `save` wrote and verify its checksum.

    Raises:
        UserError: if the file is missing, was not written by `save`, or is damaged.
    """
    path = Path(path)
    cure = "delete it and run the workflow again, which prepares it anew"
    if not path.is_file():
        raise UserError(f"{path}: no such file; run the workflow, which prepares it.")
    try:
        # An open file, because np.load does not close a file that is not an archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        info = json.loads(arrays.pop(_INFO_KEY).tobytes())
        recorded = info["sha256"]
    except Exception as error:  # readers may raise anything on bytes that are not an archive
        raise UserError(
            f"{path}: not a whole prepared data set ({reason(error)}); {cure}."
        ) from error
    found = content_sha256(arrays)
    if found != recorded:
        raise UserError(
            f"{path}: damaged: its content has SHA-256 {found[:12]}…, recorded is "
            f"{str(recorded)[:12]}…; {cure}."
        )
    return Dataset(arrays, info)
