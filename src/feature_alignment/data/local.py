"""Image sets that a user brings: an image folder, or one NumPy archive."""

import hashlib
import io
import lzma
import zipfile
import zlib
from pathlib import Path

import numpy as np

from feature_alignment.data.canonical import Loaded
from feature_alignment.data.images import (
    canonical_images,
    canonical_labels,
    image_form,
    natural_order,
    read_image,
    resize_note,
)
from feature_alignment.data.registry import DatasetInfo
from feature_alignment.errors import UserError

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".bmp", ".gif", ".tif", ".tiff", ".webp")
_NPZ_KEYS = ("x_train", "y_train", "x_test", "y_test")


def load_npz(info: DatasetInfo, path: str) -> Loaded:
    """Read images and labels from a .npz file, or from one compressed as a whole by xz.

    Args:
        info: the data set.
        path: file with `x_train`, `x_test` uint8 (n, height, width[, channels]) and `y_train`,
            `y_test` integers (n,); other arrays in it are not read.

    Raises:
        UserError: if the file is damaged or an array is missing or not as it should be.
    """
    try:
        content = Path(path).read_bytes()
        raw = lzma.decompress(content) if path.endswith(".xz") else content
        with zipfile.ZipFile(io.BytesIO(raw)):
            pass  # np.load would read other formats as well
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            found = archive.files
            arrays = {key: archive[key] for key in _NPZ_KEYS if key in found}
    except (OSError, ValueError, EOFError, lzma.LZMAError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(
            f"{path}: not a whole .npz file of plain arrays ({error}); copy it again, or write it "
            f"with numpy.savez and the arrays {', '.join(_NPZ_KEYS)}."
        ) from error
    missing = [key for key in _NPZ_KEYS if key not in arrays]
    if missing:
        raise UserError(
            f"{path}: no array {missing[0]!r} (found: {', '.join(sorted(found)) or 'none'}); "
            f"write it with numpy.savez and the arrays {', '.join(_NPZ_KEYS)}."
        )
    sizes = {arrays[key].shape[1:3] for key in ("x_train", "x_test")}
    canonical = {}
    for split in ("train", "test"):
        x = canonical_images(arrays[f"x_{split}"], info, f"{path}, x_{split}")
        y = canonical_labels(arrays[f"y_{split}"], len(x), info, f"{path}, y_{split}")
        canonical |= {f"x_{split}": x, f"y_{split}": y}
    origin = [{"file": path, "sha256": hashlib.sha256(content).hexdigest()}]
    return canonical, {"origin": origin, "notes": resize_note(sizes, info)}


def load_imagefolder(info: DatasetInfo, path: str) -> Loaded:
    """Read images from train/<class>/ and test/<class>/.

    Class folders are numbered in ascending order of their names, numbers compared as numbers.
    Images are taken in turn from each class, so that a prefix of the set is balanced; files whose
    names do not end like an image's, and hidden ones, are not read.

    Args:
        info: the data set.
        path: the folder that holds train/ and test/.

    Raises:
        UserError: if a folder is missing or empty, the classes are not as many as the set has or
            differ between train and test, or an image cannot be read.
    """
    root = Path(path)
    names = _class_names(info, root / "train")
    test_names = _class_names(info, root / "test")
    if names != test_names:
        odd = sorted(set(names) ^ set(test_names))[0]
        has, lacks = ("train", "test") if odd in names else ("test", "train")
        raise UserError(
            f"{path}: class folder {odd!r} is in {has}/ but not in {lacks}/; "
            "give both the same class folders."
        )
    shape, _ = image_form(info)
    arrays: dict[str, np.ndarray] = {}
    sizes: set[tuple[int, int]] = set()
    digest = hashlib.sha256()
    for split in ("train", "test"):
        images, labels = [], []
        for label, file in _files_in_turn(root / split, names):
            image, size = read_image(file, shape)
            images.append(image)
            labels.append(label)
            sizes.add(size)
            digest.update(file.relative_to(root).as_posix().encode() + b"\n" + file.read_bytes())
        arrays[f"x_{split}"] = np.stack(images)
        arrays[f"y_{split}"] = np.array(labels, dtype=np.int64)
    notes = ["images taken in turn from each class", *resize_note(sizes, info)]
    origin = [{"folder": path, "sha256": digest.hexdigest()}]
    return arrays, {"origin": origin, "notes": notes, "class_names": names}


def _class_names(info: DatasetInfo, folder: Path) -> list[str]:
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder; an image folder needs train/ and test/, "
            "each with one folder per class."
        )
    names = natural_order(
        [entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != "."]
    )
    if len(names) != info.classes:
        raise UserError(
            f"{folder}: {len(names)} class folders, wanted {info.classes} for {info.title}; "
            "give one folder per class."
        )
    return names


def _files_in_turn(folder: Path, names: list[str]) -> list[tuple[int, Path]]:
    """(label, file) pairs: the first file of each class, then the second of each, and so on.

    Raises:
        UserError: if a class has no image.
    """
    ranked = []
    for label, name in enumerate(names):
        files = [
            entry.name
            for entry in (folder / name).iterdir()
            if entry.suffix.lower() in IMAGE_SUFFIXES and entry.name[0] != "."
        ]
        if not files:
            raise UserError(
                f"{folder / name}: no image in it (names ending in {' '.join(IMAGE_SUFFIXES)}); "
                "put the class's images there."
            )
        ranked += [
            (rank, label, folder / name / file) for rank, file in enumerate(natural_order(files))
        ]
    return [(label, file) for _, label, file in sorted(ranked)]
