"""Image sets that a user brings: an image folder, or one NumPy archive."""

import hashlib
import io
import lzma
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from feature_alignment.data.canonical import Loaded
from feature_alignment.data.download import file_digest
from feature_alignment.data.identity import IMAGE_SUFFIXES, class_folders, folder_hash
from feature_alignment.data.images import (
    Form,
    canonical_images,
    canonical_labels,
    conversion_notes,
    forms_of,
    image_form,
    natural_order,
    read_image,
    size_warnings,
)
from feature_alignment.data.registry import DatasetInfo
from feature_alignment.errors import UserError

_NPZ_KEYS = ("x_train", "y_train", "x_test", "y_test")


def load_npz(info: DatasetInfo, path: str) -> Loaded:
    """Read images and labels from a .npz file, or from one compressed as a whole by xz.

    Args:
        info: the data set.
        path: file with `x_train`, `x_test` uint8 (n, height, width[, channels]) and `y_train`,
            `y_test` integers (n,); other arrays in it are not read.

    Raises:
        UserError: if the file is damaged or an array is missing or not as it should be.
        OSError: if the file must not be read.
    """
    content = Path(path).read_bytes()
    try:
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
    canonical = {}
    for split in ("train", "test"):
        x = canonical_images(arrays[f"x_{split}"], info, f"{path}, x_{split}")
        y = canonical_labels(arrays[f"y_{split}"], len(x), info, f"{path}, y_{split}")
        canonical |= {f"x_{split}": x, f"y_{split}": y}
    forms = forms_of(arrays["x_train"], arrays["x_test"])
    notes = ["unpacked from .xz"] if path.endswith(".xz") else []
    return canonical, {
        "origin": [{"file": path, "sha256": hashlib.sha256(content).hexdigest()}],
        "notes": notes + conversion_notes(forms, info),
        "warnings": size_warnings(forms),
    }


def load_imagefolder(info: DatasetInfo, path: str) -> Loaded:
    """Read images from train/<class>/ and test/<class>/.

    Class folders, those of train/ and of test/ together, are numbered in ascending order of their
    names, numbers compared as numbers. Images are taken in turn from each class, so that a prefix
    of the set is balanced; files whose names do not end like an image's, and hidden ones, are not
    read.

    Args:
        info: the data set.
        path: the folder that holds train/ and test/.

    Raises:
        UserError: if a folder is missing or holds no image, the classes are not as many as the set
            has, or an image cannot be read.
        OSError: if a file or folder must not be read.
    """
    root = Path(path)
    found = {split: _class_files(root / split) for split in ("train", "test")}
    names = _class_names(info, root, found)
    shape, _ = image_form(info)
    arrays: dict[str, np.ndarray] = {}
    forms: set[Form] = set()
    hashes = {f"{split}/{name}/": "" for split, files in found.items() for name in files}
    for split, files in found.items():
        images, labels = [], []
        for label, file in _in_turn(names, files):
            image, form = read_image(file, shape)
            images.append(image)
            labels.append(label)
            forms.add(form)
            hashes[file.relative_to(root).as_posix()] = file_digest(file, "sha256")
        arrays[f"x_{split}"] = np.stack(images)
        arrays[f"y_{split}"] = np.array(labels, dtype=np.int64)
    return arrays, {
        "origin": [{"folder": path, "sha256": folder_hash(hashes)}],
        "notes": ["images taken in turn from each class", *conversion_notes(forms, info)],
        "warnings": size_warnings(forms),
        "class_names": names,
    }


def _class_files(folder: Path) -> dict[str, list[Path]]:
    """The images of each class folder, in ascending order of their names.

    Raises:
        UserError: if there is no such folder, or no image in it.
    """
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder; an image folder needs train/ and test/, "
            "each with one folder per class."
        )
    found = {
        name: [folder / name / file for file in natural_order([entry.name for entry in entries])]
        for name, entries in class_folders(folder).items()
    }
    if not any(found.values()):
        raise UserError(
            f"{folder}: no image in class folders (names ending in {' '.join(IMAGE_SUFFIXES)}); "
            "put one folder of images for each class there."
        )
    return found


def _class_names(
    info: DatasetInfo, root: Path, found: Mapping[str, Mapping[str, list[Path]]]
) -> list[str]:
    names = natural_order(list(found["train"].keys() | found["test"].keys()))
    if len(names) == info.classes:
        return names
    odd = sorted(found["train"].keys() ^ found["test"].keys())
    where = f" ({odd[0]!r} is in one of train/ and test/ only)" if odd else ""
    raise UserError(
        f"{root}: {len(names)} class folders{where}, wanted {info.classes} for {info.title}; "
        "give one folder per class, an empty one for a class without images."
    )


def _in_turn(names: list[str], files: Mapping[str, list[Path]]) -> list[tuple[int, Path]]:
    """(label, file) pairs: the first file of each class, then the second of each, and so on."""
    ranked = [
        (rank, label, file)
        for label, name in enumerate(names)
        for rank, file in enumerate(files.get(name, []))
    ]
    return [(label, file) for _, label, file in sorted(ranked)]
