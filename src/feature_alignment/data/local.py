"""A user's own image sets: an image folder, or one NumPy archive."""

import io
import itertools
import lzma
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from feature_alignment.data import images
from feature_alignment.data.archives import refuse_size, unpacked
from feature_alignment.data.canonical import Loaded
from feature_alignment.data.identity import IMAGE_SUFFIXES, class_folders, content_hash, is_image
from feature_alignment.data.registry import DatasetInfo
from feature_alignment.errors import UserError, reason, shortened

_NPZ_KEYS = ("x_train", "y_train", "x_test", "y_test")


def load_npz(info: DatasetInfo, path: str) -> Loaded:
    """Read images and labels from a .npz file, or from one compressed as a whole with xz.

    It contains `x_train`, `x_test` uint8 (n, height, width[, channels]) and `y_train`, `y_test`
    integers (n,); other arrays are ignored.

    Raises:
        UserError: if the file is damaged, or an array is missing or unsuitable.
        OSError: if the file is not readable.
    """
    packed = path.endswith(".xz")
    try:
        with lzma.open(path) if packed else Path(path).open("rb") as file:
            raw = unpacked(file)
        with zipfile.ZipFile(io.BytesIO(raw)) as members:  # np.load also reads other formats
            refuse_size(sum(member.file_size for member in members.infolist()))
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            names = [shortened(name, quoted=False) for name in archive.files[:8]]
            arrays = {key: archive[key] for key in _NPZ_KEYS if key in archive.files}
    except OSError:
        raise
    except Exception as error:  # readers may raise anything on bytes that are not an archive
        raise UserError(
            f"{path}: not a whole .npz file of plain arrays ({reason(error)}); copy it again, or "
            f"write it with numpy.savez and the arrays {', '.join(_NPZ_KEYS)}."
        ) from error
    for key in _NPZ_KEYS:
        if key not in arrays:
            raise UserError(
                f"{path}: there is no array {key!r}, but {', '.join(names) or 'none at all'}; "
                f"write it with numpy.savez and the arrays {', '.join(_NPZ_KEYS)}."
            )
        if isinstance(arrays[key], bytes):  # what np.load returns for a member that is no array
            raise UserError(f"{path}: {key} is no array; write it with numpy.savez.")
    splits = {s: (arrays[f"x_{s}"], arrays[f"y_{s}"]) for s in ("train", "test")}
    canonical, forms = images.from_arrays(info, splits, path)
    origin = {"file": path, "sha256": content_hash("npz", path)}
    return canonical, _described(info, origin, ["unpacked from .xz"] if packed else [], forms)


def load_imagefolder(info: DatasetInfo, path: str) -> Loaded:
    """Read images from train/<class>/ and test/<class>/.

    Class folders of train/ and test/ together are numbered in `natural_order`, or as in the set if
    they have its class names. Images are taken from each class in turn, so that a prefix of the set
    is balanced. All else than files with an image suffix is skipped, with a warning unless hidden.

    Raises:
        UserError: if a folder is missing or contains no image, the number of classes is not that of
            the set, an image cannot be read, or a link leads out of the folder.
        OSError: if a file or folder is not readable.
    """
    root = Path(path)
    found = {split: _class_files(root, split) for split in ("train", "test")}
    names = _class_names(info, root, found)
    splits = {}
    for split, files in found.items():  # the first file of each class, then the second, and so on
        rounds = itertools.zip_longest(*(files.get(name, []) for name in names))
        taken = [(file, label) for one in rounds for label, file in enumerate(one) if file]
        splits[split] = [file for file, _ in taken], [label for _, label in taken]
    arrays, forms = images.from_files(info, splits, path)
    origin = {"folder": path, "sha256": content_hash("imagefolder", path)}
    described = _described(info, origin, ["images taken in turn from each class"], forms)
    told = _left_out(root, names) + _numbering(info, names)
    return arrays, described | {"warnings": described["warnings"] + told, "class_names": names}


def _left_out(root: Path, names: list[str]) -> list[str]:
    """A sentence on entries in the folders of both splits that are neither read nor hidden."""
    places = [root / split / name for split in ("train", "test") for name in ("", *names)]
    odd = [
        entry.relative_to(root).as_posix()
        for place in places
        if place.is_dir()
        for entry in sorted(place.iterdir())
        if entry.name[0] != "."
        and not (
            entry.is_dir() if place.parent == root else is_image(entry.name) and entry.is_file()
        )
    ]
    shown = ", ".join(shortened(name, quoted=False) for name in odd[:3]) + ", …" * (len(odd) > 3)
    return [f"{len(odd)} files or folders are not read ({shown})"] if odd else []


def _numbering(info: DatasetInfo, names: list[str]) -> list[str]:
    """A sentence on the numbers of the class folders, if these lack the set's own names."""
    numbers = [str(int(name)) if name.isdecimal() else name for name in names]
    if info.class_names in (None, tuple(names)) or numbers == [str(i) for i in range(len(names))]:
        return []
    shown = ", ".join(
        f"{shortened(name, quoted=False)} is {number}" for number, name in enumerate(names)
    )
    return [f"class folders have other names than the set's classes, and are numbered so: {shown}"]


def _described(
    info: DatasetInfo, origin: dict[str, str | None], notes: list[str], forms: set[images.Form]
) -> dict[str, list]:
    return {
        "origin": [origin],
        "notes": notes + images.conversion_notes(forms, info),
        "warnings": images.size_warnings(forms),
    }


def _class_files(root: Path, split: str) -> dict[str, list[Path]]:
    # The images of each class folder, in natural order of their names.
    folder = root / split
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder; an image folder needs train/ and test/, "
            "each with one folder per class."
        )
    entries = class_folders(folder)
    links = [Path(file) for files in entries.values() for file in files if file.is_symlink()]
    for place in (folder, *(folder / name for name in entries), *links):
        inside = Path(os.path.realpath(place)).is_relative_to(os.path.realpath(root))
        if not (inside and (place.is_file() or place.is_dir())):
            raise UserError(
                f"{place}: is a link that leads nowhere or out of {root}; put there what it is to "
                "lead to."
            )
    if not any(entries.values()):
        raise UserError(
            f"{folder}: no image in class folders (names ending in {' '.join(IMAGE_SUFFIXES)}); "
            "put one folder of images for each class there."
        )
    return {
        name: [folder / name / file for file in images.natural_order(file.name for file in files)]
        for name, files in entries.items()
    }


def _class_names(
    info: DatasetInfo, root: Path, found: Mapping[str, Mapping[str, list[Path]]]
) -> list[str]:
    names = images.natural_order(found["train"].keys() | found["test"].keys())
    for name in names:
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise UserError(f"{root}: the class folder {name!r} is not named in UTF-8; rename it.")
    if info.class_names is not None and set(names) == set(info.class_names):
        return list(info.class_names)  # in the authors' order
    if len(names) == info.classes:
        return names
    odd = sorted(found["train"].keys() ^ found["test"].keys())
    where = f" ({odd[0]!r} is in one of train/ and test/ only)" if odd else ""
    raise UserError(
        f"{root}: {len(names)} class folders{where}, wanted {info.classes} for {info.title}; "
        "give one folder per class, an empty one for a class without images."
    )
