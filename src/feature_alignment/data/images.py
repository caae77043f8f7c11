"""Conversion of images and labels to canonical arrays; unsuitable ones are refused."""

import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from feature_alignment.data.archives import refuse_size
from feature_alignment.data.registry import DatasetInfo
from feature_alignment.errors import UserError, reason

Form = tuple[int, ...]
"""Height, width and channels (1 for grey, 3 for colour) of an image before conversion; also True if
its file has other frames."""
Converted = tuple[dict[str, np.ndarray], set[Form]]
"""Arrays `x_<split>` uint8 (n, height, width, channels) and `y_<split>` int64 (n,); the forms."""
_GREY_MODES = ("1", "L", "LA")
# 16-bit and float images would be clipped silently by Pillow's conversion.
_EIGHT_BIT_MODES = (*_GREY_MODES, "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")


def canonical_image(image: Image.Image, shape: tuple[int, ...]) -> np.ndarray:
    """Convert an image with 8 bits per channel to uint8 of shape (height, width, 1 or 3 channels).

    Resizing uses Pillow's bilinear filter, which averages over source pixels when shrinking.
    """
    height, width, channels = shape
    image = image.convert("L" if channels == 1 else "RGB")
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image, dtype=np.uint8).reshape(shape)


def read_image(
    path: Path, shape: tuple[int, ...], *, square: bool = False
) -> tuple[np.ndarray, Form]:
    """Read one image file, or its central square: uint8 of the canonical shape, and its form.

    Raises:
        UserError: if the file is not an image, is truncated, has transparent pixels, more than 8
            bits per channel, or more pixels than Pillow considers safe (89 million).
        PermissionError: if the file is not readable.
    """
    try:
        too_large = {"action": "error", "category": Image.DecompressionBombWarning}
        with warnings.catch_warnings(**too_large), Image.open(path) as image:
            deep = _is_cut_to_8_bits(image)
            others = (True,) if getattr(image, "is_animated", False) else ()
            image.load()
            image = ImageOps.exif_transpose(image)
            mode, (width, height) = image.mode, image.size
            if mode in _EIGHT_BIT_MODES and not deep:
                _refuse_transparency(path, image)
                form = (height, width, 1 if mode in _GREY_MODES else 3, *others)
                side = min(width, height)
                left, top = (width - side) // 2, (height - side) // 2
                part = image.crop((left, top, left + side, top + side)) if square else image
                return canonical_image(part, shape), form
    except (PermissionError, UserError):
        raise
    except Exception as error:  # decoders may raise anything on bytes that are not an image
        raise UserError(
            f"{path}: not a whole image file ({reason(error)}); replace or remove it."
        ) from error
    pixels = f"{mode!r}, of 16 bits" if mode in _EIGHT_BIT_MODES else repr(mode)
    raise UserError(
        f"{path}: pixels of mode {pixels}, wanted 8 bits a channel; convert it to an 8-bit image."
    )


def _refuse_transparency(path: Path, image: Image.Image) -> None:
    # Invisible pixels can have any colour, often the drawing's own, which would then disappear.
    if image.has_transparency_data and np.asarray(image.convert("RGBA"))[..., 3].min() < 255:
        raise UserError(f"{path}: has transparent pixels; put it on a ground of one colour.")


def _is_cut_to_8_bits(image: Image.Image) -> bool:
    """Whether Pillow will read only the first 8 of 16 bits per channel, having no mode for them."""
    for decoder, _, _, arguments in getattr(image, "tile", ()):
        parts = arguments if isinstance(arguments, tuple) else (arguments,)
        largest = max([part for part in parts if isinstance(part, int)], default=0)
        if ";16" in str(parts[0]) or (decoder == "ppm" and largest > 255):
            return True
    return False


def from_files(
    info: DatasetInfo,
    splits: Mapping[str, tuple[Sequence[Path], Iterable[int]]],
    where: str,
    *,
    square: bool = False,
) -> Converted:
    """Canonical arrays of image files, or of their central squares, and their labels, by split.

    Raises:
        UserError: if a file cannot be read, see `read_image`, or a label is out of range.
    """
    arrays, forms = {}, set()
    for split, (files, labels) in splits.items():
        images, found = zip(*(read_image(f, info.shape, square=square) for f in files), strict=True)
        arrays[f"x_{split}"] = np.stack(images)
        y = np.array(list(labels), dtype=np.int64)
        arrays[f"y_{split}"] = _labels(y, len(images), info, f"{where}, {split}")
        forms.update(found)
    return arrays, forms


def from_arrays(
    info: DatasetInfo, splits: Mapping[str, tuple[np.ndarray, np.ndarray]], where: str
) -> Converted:
    """Canonical arrays of images and labels, by split, from the file `where`.

    Images are uint8 (n, height, width) or (n, height, width, channels) with 1 or 3 channels; labels
    are integers (n,) from 0 to classes − 1.

    Raises:
        UserError: if a type, shape, number or range is wrong, or there are no images.
    """
    arrays, forms = {}, set()
    for split, (x, y) in splits.items():
        arrays[f"x_{split}"] = _images(x, info, f"{where}, x_{split}")
        arrays[f"y_{split}"] = _labels(y, len(x), info, f"{where}, y_{split}")
        forms.add((*x.shape[1:3], x.shape[3] if x.ndim == 4 else 1))
    return arrays, forms


def _images(x: np.ndarray, info: DatasetInfo, where: str) -> np.ndarray:
    if x.dtype != np.uint8:
        fits = x.dtype.kind in "iu" and x.size and x.min() >= 0 and x.max() <= 255
        hint = "cast them" if fits else "scale them to 0..255, round and cast them"
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
    if x.shape[1:] == info.shape:
        return np.ascontiguousarray(x)
    try:
        refuse_size(len(x) * math.prod(info.shape))
    except ValueError as error:
        raise UserError(f"{where}: {error}; give fewer images.") from error
    images = (Image.fromarray(one[..., 0] if x.shape[-1] == 1 else one) for one in x)
    return np.stack([canonical_image(image, info.shape) for image in images])


def _labels(y: np.ndarray, n: int, info: DatasetInfo, where: str) -> np.ndarray:
    if y.shape != (n,):
        cure = "take their argmax over axis 1" if y.shape == (n, info.classes) else "correct them"
        raise UserError(
            f"{where}: labels of shape {y.shape}, wanted ({n},), one for each image; {cure}."
        )
    if y.dtype.kind not in "iu":
        cure = "cast them" if y.dtype.kind in "bf" else f"number them 0 to {info.classes - 1}"
        raise UserError(f"{where}: labels are {y.dtype}, wanted integers; {cure}.")
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= info.classes:
        raise UserError(
            f"{where}: labels from {low} to {high}, wanted 0 to {info.classes - 1} "
            f"for {info.title}; renumber them."
        )
    return y.astype(np.int64)


def conversion_notes(forms: set[Form], info: DatasetInfo) -> list[str]:
    """Notes for readers on how images of these forms were converted, one for each conversion.

    Example:
        >>> from feature_alignment.data.registry import DATASETS
        >>> conversion_notes({(96, 96, 3)}, DATASETS["stl10"])
        ['images of 96x96 pixels resized to 32x32 (Pillow, bilinear with antialiasing)']
        >>> conversion_notes({(28, 28, 3)}, DATASETS["mnist"])
        ['colour images made grey (Pillow, ITU-R 601-2 luma)']
    """
    height, width, channels = info.shape
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
    if any(len(form) > 3 for form in forms):
        notes.append("only the first frame read of files with several")
    return notes


def size_warnings(forms: set[Form]) -> list[str]:
    """A sentence that names the sizes of images, if there are several; otherwise nothing.

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


def natural_order(names: Iterable[str]) -> list[str]:
    """Names in ascending order, with numbers in them compared by value.

    Example:
        >>> natural_order(["10", "9", "b", "a2", "a10"])
        ['9', '10', 'a2', 'a10', 'b']
    """

    def key(name: str) -> tuple[list[tuple[int, int, str]], str]:
        parts = [part for part in re.split(r"(\d+)", name) if part]
        return [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts], name

    return sorted(names, key=key)
