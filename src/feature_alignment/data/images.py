"""Conversion of images and labels to canonical arrays; what does not fit is refused."""

import re
from pathlib import Path

import numpy as np
from PIL import Image

from feature_alignment.data.registry import DatasetInfo
from feature_alignment.errors import UserError

Form = tuple[int, int, int]
"""Height, width and channels, 1 for grey and 3 for colour, of an image as it was found."""
_GREY_MODES = ("1", "L", "LA")
# 16-bit and float images would be clipped silently by Pillow's conversion.
_EIGHT_BIT_MODES = (*_GREY_MODES, "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")


def canonical_image(image: Image.Image, shape: tuple[int, int, int]) -> np.ndarray:
    """One image in canonical size and channels, as uint8.

    Resizing is Pillow's bilinear filter, which averages over the source pixels when shrinking.

    Args:
        image: an image with 8 bits a channel.
        shape: (height, width, channels), channels 1 (grey) or 3 (RGB).
    """
    height, width, channels = shape
    image = image.convert("L" if channels == 1 else "RGB")
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image, dtype=np.uint8).reshape(shape)


def read_image(path: Path, shape: tuple[int, int, int]) -> tuple[np.ndarray, Form]:
    """Read one image file: uint8 of the canonical shape, and the file's own form.

    Raises:
        UserError: if the file is not an image, is cut off, or has more than 8 bits a channel.
        PermissionError: if the file must not be read.
    """
    try:
        with Image.open(path) as image:
            image.load()
            mode, (width, height) = image.mode, image.size
            if mode in _EIGHT_BIT_MODES:
                form = (height, width, 1 if mode in _GREY_MODES else 3)
                return canonical_image(image, shape), form
    except PermissionError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(
            f"{path}: not a whole image file ({error}); replace or remove it."
        ) from error
    raise UserError(
        f"{path}: pixels of mode {mode!r}, wanted 8 bits a channel; convert it to an 8-bit image."
    )


def image_form(info: DatasetInfo) -> tuple[tuple[int, int, int], int]:
    """Canonical shape and number of classes of a set of images.

    Raises:
        ValueError: if the set holds text.
    """
    if info.shape is None or info.classes is None:
        raise ValueError(f"{info.title} is not a set of images.")
    return info.shape, info.classes


def canonical_images(x: np.ndarray, info: DatasetInfo, where: str) -> np.ndarray:
    """Images of one split in canonical size and channels, uint8 (n, *info.shape).

    Args:
        x: uint8 (n, height, width) or (n, height, width, channels) with 1 or 3 channels.
        info: the data set.
        where: file and array, for messages.

    Raises:
        UserError: if type or shape is not one of these, or there is no image.
    """
    if x.dtype != np.uint8:
        hint = "cast them" if x.dtype.kind in "biu" else "scale them to 0..255, round and cast them"
        raise UserError(f"{where}: pixels are {x.dtype}, wanted uint8; {hint} to uint8.")
    if x.ndim == 3:
        x = x[..., np.newaxis]  # (n, h, w) -> (n, h, w, 1)
    if x.ndim != 4 or x.shape[-1] not in (1, 3):
        first = x.ndim == 4 and x.shape[1] in (1, 3)
        cure = "move axis 1 to the end" if first else "reshape it"
        raise UserError(
            f"{where}: shape {x.shape}, wanted (n, height, width) or (n, height, width, channels) "
            f"with 1 or 3 channels; {cure}."
        )
    if 0 in x.shape:
        raise UserError(f"{where}: shape {x.shape} holds no image; give at least one.")
    shape, _ = image_form(info)
    if x.shape[1:] == shape:
        return np.ascontiguousarray(x)
    grey = x.shape[-1] == 1
    return np.stack(
        [canonical_image(Image.fromarray(one[..., 0] if grey else one), shape) for one in x]
    )


def canonical_labels(y: np.ndarray, n: int, info: DatasetInfo, where: str) -> np.ndarray:
    """Labels of one split, checked: int64 (n,), from 0 to classes − 1.

    Args:
        y: integers (n,).
        n: number of images of the split.
        info: the data set.
        where: file and array, for messages.

    Raises:
        UserError: if type, shape, number or range is wrong.
    """
    if y.dtype.kind not in "iu":
        raise UserError(f"{where}: labels are {y.dtype}, wanted integers; cast them.")
    if y.shape != (n,):
        raise UserError(
            f"{where}: shape {y.shape}, wanted ({n},), one label for each image; correct the file."
        )
    low, high = int(y.min()), int(y.max())
    _, classes = image_form(info)
    if low < 0 or high >= classes:
        raise UserError(
            f"{where}: labels from {low} to {high}, wanted 0 to {classes - 1} "
            f"for {info.title}; renumber them."
        )
    return y.astype(np.int64)


def forms_of(*arrays: np.ndarray) -> set[Form]:
    """Forms of arrays of images, (n, height, width) or (n, height, width, channels)."""
    return {(*x.shape[1:3], x.shape[3] if x.ndim == 4 else 1) for x in arrays}


def conversion_notes(forms: set[Form], info: DatasetInfo) -> list[str]:
    """What a reader should know about conversions: a sentence for each, or none.

    Args:
        forms: of the images as found.
        info: the data set.

    Example:
        >>> from feature_alignment.data.registry import DATASETS
        >>> conversion_notes({(96, 96, 3)}, DATASETS["stl10"])
        ['images of 96x96 pixels resized to 32x32 (Pillow, bilinear with antialiasing)']
        >>> conversion_notes({(28, 28, 3)}, DATASETS["mnist"])
        ['colour images made grey (Pillow, ITU-R 601-2 luma)']
        >>> conversion_notes({(32, 32, 3)}, DATASETS["stl10"])
        []
    """
    (height, width, channels), _ = image_form(info)
    notes = []
    others = sorted({form[:2] for form in forms} - {(height, width)})
    if others:
        found = f"{others[0][0]}x{others[0][1]} pixels" if len(others) == 1 else "several sizes"
        how = "Pillow, bilinear with antialiasing"
        notes.append(f"images of {found} resized to {height}x{width} ({how})")
    if any(form[2] != channels for form in forms):
        notes.append(
            "colour images made grey (Pillow, ITU-R 601-2 luma)"
            if channels == 1
            else "grey images made colour, with three equal channels"
        )
    return notes


def size_warnings(forms: set[Form]) -> list[str]:
    """A sentence that names the sizes of images, if there are several; else none.

    Example:
        >>> size_warnings({(28, 28, 1), (28, 30, 1), (28, 30, 3)})
        ['images of 2 sizes (28x28, 28x30) are brought to one']
    """
    sizes = sorted({form[:2] for form in forms})
    if len(sizes) < 2:
        return []
    shown = [f"{height}x{width}" for height, width in sizes]
    named = ", ".join(shown if len(shown) <= 5 else [*shown[:5], "…"])
    return [f"images of {len(sizes)} sizes ({named}) are brought to one"]


def natural_order(names: list[str]) -> list[str]:
    """Names in ascending order, numbers in them compared as numbers.

    Example:
        >>> natural_order(["10", "9", "b", "a2", "a10"])
        ['9', '10', 'a2', 'a10', 'b']
    """
    return sorted(
        names,
        key=lambda name: (
            [(0, int(part), "") if part.isdecimal() else (1, 0, part)
             for part in re.split(r"(\d+)", name) if part],
            name,
        ),
    )  # fmt: skip
