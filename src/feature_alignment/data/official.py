"""The published image sets, in torchvision's folders: fetched if missing, then read.

The network is not used where the files are complete. Addresses and checksums are torchvision's.
"""

import gzip
import hashlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from feature_alignment.data.archives import gunzipped, unpack_tar
from feature_alignment.data.canonical import Loaded
from feature_alignment.data.celeba import load_celeba
from feature_alignment.data.download import Report, fetch, file_digest, has_checksum
from feature_alignment.data.gtsrb import load_gtsrb
from feature_alignment.data.images import (
    canonical_images,
    canonical_labels,
    conversion_notes,
    forms_of,
)
from feature_alignment.data.registry import DatasetInfo

# MNIST is often passed on recompressed or uncompressed; torchvision publishes the .gz files'
# checksums only.
MNIST_UNCOMPRESSED_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


def load_official(info: DatasetInfo, folder: str, report: Report | None = None) -> Loaded:
    """Read a published set from torchvision's download folder, fetching what is missing.

    Args:
        info: an image set.
        folder: torchvision's `root`.
        report: told the progress, one line at a time.

    Returns:
        The canonical arrays in the published order, and `origin`, `notes` and perhaps
        `class_names` for the description.

    Raises:
        UserError: if a file cannot be fetched or is not as published.
    """
    return _LOADERS[info.name](info, Path(folder), report)


def _load_mnist(info: DatasetInfo, root: Path, report: Report | None) -> Loaded:
    from torchvision import datasets

    source = getattr(datasets, info.title)  # MNIST or KMNIST
    raw = root / source.__name__ / "raw"
    uncompressed = MNIST_UNCOMPRESSED_MD5 if info.name == "mnist" else {}
    files, parts = [], {}
    for name, md5 in source.resources:
        packed, plain = raw / name, raw / name.removesuffix(".gz")
        known = f"md5:{uncompressed.get(plain.name)}"
        if has_checksum(plain, known):
            files.append(plain)
            parts[plain.name] = _idx_array(plain.read_bytes())
            continue
        content = gunzipped(packed) if packed.is_file() else None
        if content is None or not _content_has(content, known):
            first, *mirrors = [f"{mirror}{name}" for mirror in source.mirrors]
            fetch(first, f"md5:{md5}", packed, mirrors=mirrors, report=report)
            content = gzip.decompress(packed.read_bytes())
        files.append(packed)
        parts[plain.name] = _idx_array(content)
    # Not through the class, which would unpack beside the files, perhaps in a read-only folder.
    arrays = {
        split: (parts[f"{prefix}-images-idx3-ubyte"], parts[f"{prefix}-labels-idx1-ubyte"])
        for split, prefix in (("train", "train"), ("test", "t10k"))
    }
    return _canonical(info, arrays, files)


def _idx_array(content: bytes) -> np.ndarray:
    """The array of an IDX file of bytes: 0, 0, type 8, number of axes; lengths; values."""
    axes = content[3]
    shape = struct.unpack_from(f">{axes}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _content_has(content: bytes, checksum: str) -> bool:
    return hashlib.md5(content).hexdigest() == checksum.removeprefix("md5:")


def _load_cifar(info: DatasetInfo, root: Path, report: Report | None) -> Loaded:
    from torchvision import datasets

    source = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[info.name]
    checksums = [*source.train_list, *source.test_list]
    checksums.append((source.meta["filename"], source.meta["md5"]))
    files = _complete_from_tar(source, checksums, root, report)
    sets = {split: source(str(root), train=split == "train") for split in ("train", "test")}
    arrays = {split: (s.data, np.array(s.targets)) for split, s in sets.items()}
    loaded, extra = _canonical(info, arrays, files)
    return loaded, extra | {"class_names": list(sets["train"].classes)}


def _load_stl10(info: DatasetInfo, root: Path, report: Report | None) -> Loaded:
    from torchvision import datasets

    class LabelledSTL10(datasets.STL10):
        # torchvision also wants the 2.8 GB of unlabelled images, which nothing here uses.
        train_list = datasets.STL10.train_list[:2]

    checksums = [*LabelledSTL10.train_list, *LabelledSTL10.test_list]
    files = _complete_from_tar(LabelledSTL10, checksums, root, report)
    arrays = {}
    for split in ("train", "test"):
        labelled = LabelledSTL10(str(root), split=split)
        # (n, c, h, w) -> (n, h, w, c)
        arrays[split] = (
            labelled.data.transpose(0, 2, 3, 1),
            np.asarray(labelled.labels, dtype=np.int64),
        )
    return _canonical(info, arrays, files)


def _complete_from_tar(source: Any, checksums: list, root: Path, report: Report | None) -> list:
    """Make sure that the files of a torchvision class are there, from its archive if need be."""
    names = [f"{source.base_folder}/{name}" for name, _ in checksums]
    whole = [
        has_checksum(root / source.base_folder / name, f"md5:{md5}") for name, md5 in checksums
    ]
    if not all(whole):
        archive = root / source.filename
        fetch(source.url, f"md5:{source.tgz_md5}", archive, report=report)
        if report:
            report(f"{archive.name}: unpacking")
        unpack_tar(archive, names, root)
    return [root / name for name in names]


def _load_svhn(info: DatasetInfo, root: Path, report: Report | None) -> Loaded:
    from torchvision import datasets

    files, arrays = [], {}
    for split in ("train", "test"):
        url, name, md5 = datasets.SVHN.split_list[split]
        fetch(url, f"md5:{md5}", root / name, report=report)
        loaded = datasets.SVHN(str(root), split=split)
        files.append(root / name)
        # (n, c, h, w) -> (n, h, w, c)
        arrays[split] = loaded.data.transpose(0, 2, 3, 1), loaded.labels
    return _canonical(info, arrays, files)


def _canonical(
    info: DatasetInfo, sets: dict[str, tuple[np.ndarray, np.ndarray]], files: list[Path]
) -> Loaded:
    arrays: dict[str, np.ndarray] = {}
    for split, (x, y) in sets.items():
        where = f"{info.title} {split}"
        arrays[f"x_{split}"] = canonical_images(x, info, where)
        arrays[f"y_{split}"] = canonical_labels(y, len(x), info, where)
    notes = conversion_notes(forms_of(*(x for x, _ in sets.values())), info)
    if any(file.suffix == ".gz" for file in files):
        notes.append("read from gzipped files")
    origin = [{"file": file.as_posix(), "sha256": file_digest(file, "sha256")} for file in files]
    return arrays, {"origin": origin, "notes": notes}


_LOADERS: dict[str, Callable[[DatasetInfo, Path, Report | None], Loaded]] = {
    "mnist": _load_mnist,
    "kmnist": _load_mnist,
    "cifar10": _load_cifar,
    "cifar100": _load_cifar,
    "svhn": _load_svhn,
    "stl10": _load_stl10,
    "gtsrb": load_gtsrb,
    "celeba": load_celeba,
}
