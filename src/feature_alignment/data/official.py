"""The published data sets, in torchvision's folders: fetched if missing, then read.

The network is not used if the files are complete. Addresses and checksums are torchvision's.
"""

import gzip
import hashlib
import shutil
import struct
import tempfile
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torchvision import datasets

from feature_alignment.data.archives import DAMAGE, unpack, unpacked
from feature_alignment.data.canonical import Loaded
from feature_alignment.data.download import Report, fetch, has_checksum
from feature_alignment.data.images import conversion_notes, from_arrays, from_files
from feature_alignment.data.registry import DatasetInfo
from feature_alignment.data.text import load_text_file
from feature_alignment.errors import UserError, reason, shortened
from feature_alignment.files import open_regular, sha256_of

SHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
# MNIST is often distributed recompressed or uncompressed; torchvision has checksums of the .gz
# files only.
MNIST_UNCOMPRESSED_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
# torchvision has these only inside its download method.
GTSRB_URL = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"
GTSRB_ARCHIVES = {
    "train": {"GTSRB-Training_fixed.zip": "513f3c79a4c5141765e10e952eaa2478"},
    "test": {
        "GTSRB_Final_Test_Images.zip": "c7e4e6327067d32654124b0fe9e82185",
        "GTSRB_Final_Test_GT.zip": "fe31e9c9270bbcd7b84b7f21a9d9d9e5",
    },
}
GTSRB_IMAGES = {"train": 26640, "test": 12630}  # numbers of images in the archives
CELEBA_LISTS = {  # MD5 of the published lists, from torchvision
    "list_attr_celeba.txt": "75e246fa4810816ffd6ee81facbd244c",
    "list_eval_partition.txt": "d32c9cbf5e040fd4025c592c306e6668",
}
CELEBA_PER_CLASS = {"train": 3750, "test": 1000}  # at most; also bounds memory
_CELEBA_PARTITION = {"train": 0, "test": 2}


def load_official(info: DatasetInfo, folder: str, report: Report) -> Loaded:
    """Read a published set from a folder, torchvision's `root`, fetching what is missing.

    Images and texts are kept in the published order.

    Raises:
        UserError: if a file cannot be fetched or is not as published.
    """
    return _LOADERS[info.name](info, Path(folder), report)


def _load_mnist(info: DatasetInfo, root: Path, report: Report) -> Loaded:
    source = getattr(datasets, info.title)  # MNIST or KMNIST
    known = MNIST_UNCOMPRESSED_MD5 if info.name == "mnist" else {}
    files, parts = [], {}
    # Not by torchvision's class, which would unpack next to the files, perhaps read-only.
    for name, md5 in source.resources:
        packed = root / source.__name__ / "raw" / name
        plain = packed.with_suffix("")
        wanted = known.get(plain.name)
        there = (f for f in (plain, packed) if hashlib.md5(_content(f)).hexdigest() == wanted)
        file = next(there, None)
        if file is None:
            first, *mirrors = (f"{mirror}{name}" for mirror in source.mirrors)
            fetch(first, f"md5:{md5}", file := packed, report, mirrors=mirrors)
        files.append(file)
        parts[plain.name] = _idx_array(_content(file))
    arrays = {
        split: (parts[f"{prefix}-images-idx3-ubyte"], parts[f"{prefix}-labels-idx1-ubyte"])
        for split, prefix in (("train", "train"), ("test", "t10k"))
    }
    return _canonical(info, arrays, files)


def _content(file: Path) -> bytes:
    """Content of a file, unpacked if it is gzipped; empty if the file is missing or damaged."""
    try:
        with open_regular(file) as stream:
            return bytes(unpacked(gzip.open(stream) if file.suffix == ".gz" else stream))
    except (FileNotFoundError, *DAMAGE):
        return b""


def _idx_array(content: bytes) -> np.ndarray:
    """The array in an IDX file of bytes: 0, 0, type 8, number of axes; lengths; values."""
    axes = content[3]
    shape = struct.unpack_from(f">{axes}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _load_cifar(info: DatasetInfo, root: Path, report: Report) -> Loaded:
    source = getattr(datasets, info.name.upper())
    checksums = [*source.train_list, *source.test_list]
    checksums.append((source.meta["filename"], source.meta["md5"]))
    files = _complete_from_tar(source, checksums, root, report)
    # The files are pickles, which could be exchanged after the check, so private copies are read.
    with tempfile.TemporaryDirectory() as private:
        (copies := Path(private, source.base_folder)).mkdir()
        for file in files:
            shutil.copy(file, copies)
        try:
            sets = {split: source(private, train=split == "train") for split in ("train", "test")}
        except RuntimeError as error:
            raise UserError(f"{root}: its files have been changed; fetch them again.") from error
    arrays = {split: (s.data, np.array(s.targets)) for split, s in sets.items()}
    loaded, extra = _canonical(info, arrays, files)
    return loaded, extra | {"class_names": list(sets["train"].classes)}


def _load_stl10(info: DatasetInfo, root: Path, report: Report) -> Loaded:
    class LabelledSTL10(datasets.STL10):
        # torchvision also requires the 2.8 GB of unlabelled images, which are not used here.
        train_list = datasets.STL10.train_list[:2]
        class_names_file = ""  # is not checked, so it is not read

    checksums = [*LabelledSTL10.train_list, *LabelledSTL10.test_list]
    files = _complete_from_tar(LabelledSTL10, checksums, root, report)
    sets = {split: LabelledSTL10(root, split=split) for split in ("train", "test")}
    return _canonical(info, {split: _channels_last(s) for split, s in sets.items()}, files)


def _load_svhn(info: DatasetInfo, root: Path, report: Report) -> Loaded:
    files, arrays = [], {}
    for split in ("train", "test"):
        url, name, md5 = datasets.SVHN.split_list[split]
        files.append(root / name)
        fetch(url, f"md5:{md5}", files[-1], report)
        arrays[split] = _channels_last(datasets.SVHN(root, split=split))
    return _canonical(info, arrays, files)


def _channels_last(loaded: Any) -> tuple[np.ndarray, np.ndarray]:
    """Images of a torchvision set, (n, c, h, w) -> (n, h, w, c), and its labels."""
    return loaded.data.transpose(0, 2, 3, 1), np.asarray(loaded.labels, dtype=np.int64)


def _complete_from_tar(source: Any, checksums: list, root: Path, report: Report) -> list[Path]:
    """Make sure that the files of a torchvision class exist, if necessary from its archive."""
    names = {f"{source.base_folder}/{name}": f"md5:{md5}" for name, md5 in checksums}
    if not all(has_checksum(root / name, md5) for name, md5 in names.items()):
        archive = root / source.filename
        fetch(source.url, f"md5:{source.tgz_md5}", archive, report)
        report(f"{archive.name}: unpacking")
        unpack(archive, root, names)
    return [root / name for name in names]


def _canonical(
    info: DatasetInfo, sets: dict[str, tuple[np.ndarray, np.ndarray]], files: list[Path]
) -> Loaded:
    arrays, forms = from_arrays(info, sets, info.title)
    notes = conversion_notes(forms, info)
    if any(file.suffix == ".gz" for file in files):
        notes.append("read from gzipped files")
    return arrays, {"origin": [_origin(file) for file in files], "notes": notes}


def _origin(file: Path) -> dict[str, str]:
    return {"file": file.as_posix(), "sha256": sha256_of(file)}


def _folder_origin(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\n" + file.read_bytes())
    return {"folder": folder.as_posix(), "sha256": digest.hexdigest()}


def _load_gtsrb(info: DatasetInfo, root: Path, report: Report) -> Loaded:
    base = root / "gtsrb"
    splits = {}
    for split, archives in GTSRB_ARCHIVES.items():
        if not _gtsrb_files(base, split)[0]:
            for name, md5 in archives.items():
                fetch(f"{GTSRB_URL}{name}", f"md5:{md5}", base / name, report)
                report(f"{name}: unpacking")
                unpack(base / name, base)
        splits[split] = _gtsrb_files(base, split)
        if not splits[split][0]:
            raise UserError(
                f"{base}: other {split} images than the {GTSRB_IMAGES[split]} published ones; "
                "delete its folder GTSRB and run again."
            )
    arrays, forms = from_files(info, splits, base.as_posix())
    origin = _folder_origin(base, [*splits["train"][0], *splits["test"][0]])
    notes = ["training images ordered by class", *conversion_notes(forms, info)]
    return arrays, {"origin": [origin], "notes": notes}


def _gtsrb_files(base: Path, split: str) -> tuple[list[Path], list[int]]:
    """Images and labels of a split, by class or in order of its list; empty if incomplete."""
    pattern = "Training/" + 5 * "[0-9]" if split == "train" else "Final_Test/Images"
    files = sorted(base.glob(f"GTSRB/{pattern}/*.ppm"))
    table = base / "GT-final_test.csv"
    if len(files) != GTSRB_IMAGES[split] or (split == "test" and not table.is_file()):
        return [], []
    if split == "train":
        return files, [int(file.parent.name) for file in files]
    labels = _column(
        table, "ClassId", range(43), sep=";", skipinitialspace=True, index_col="Filename"
    )
    if {file.name for file in files} != set(labels.index):
        return [], []
    return [files[0].with_name(str(name)) for name in labels.index], labels.tolist()


def _load_celeba(info: DatasetInfo, root: Path, report: Report) -> Loaded:
    # The first `CELEBA_PER_CLASS` images of both classes of each split, or as many as the rarer one
    # has, in the published order; cropped to their central square and resized.
    # Source: Beaglehole et al. 2024, Figure 16 and Appendix J (balanced subset of 7500).
    base = root / "celeba"
    names = ("img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt")
    images, attributes, partition = (base / name for name in names)
    for path in (images, attributes, partition):
        if not path.exists():
            raise UserError(
                f"{path}: missing; CelebA cannot be fetched without accepting its agreement "
                f"(mmlab.ie.cuhk.edu.hk/projects/CelebA.html): place {names[0]}/, {names[1]} and "
                f"{names[2]} in {base}, or use source 'embedded'."
            )
    for path in (attributes, partition):
        if not has_checksum(path, f"md5:{CELEBA_LISTS[path.name]}"):
            raise UserError(
                f"{path}: is not the published file, of MD5 {CELEBA_LISTS[path.name]}; fetch it "
                "again, or give images of your own as source 'imagefolder'."
            )
    glasses = _column(attributes, "Eyeglasses", (-1, 1), sep=r"\s+", skiprows=1)
    parts = _column(partition, 1, (0, 1, 2), sep=r"\s+", header=None, index_col=0)
    splits = {}
    for split, limit in CELEBA_PER_CLASS.items():
        listed = parts.index[parts == _CELEBA_PARTITION[split]]
        labels = (glasses[listed] == 1).astype(int)
        number = min(limit, int(labels.sum()), int((1 - labels).sum()))
        chosen = labels.groupby(labels).head(number)
        splits[split] = [images / str(name) for name in chosen.index], chosen.tolist()
        report(f"{info.title}: reading {len(chosen)} {split} images")
    arrays, _ = from_files(info, splits, base.as_posix(), square=True)
    origin = _folder_origin(images, [*splits["train"][0], *splits["test"][0]])
    height, width, _ = info.shape
    notes = [
        f"first images of both classes, at most {CELEBA_PER_CLASS['train']} each for training and "
        f"{CELEBA_PER_CLASS['test']} for testing",
        f"central square resized to {height}x{width} (Pillow, bilinear with antialiasing)",
    ]
    return arrays, {"origin": [origin, _origin(attributes), _origin(partition)], "notes": notes}


def _load_shakespeare(info: DatasetInfo, root: Path, report: Report) -> Loaded:
    file, checksum = root / "tinyshakespeare" / "input.txt", f"sha256:{SHAKESPEARE_SHA256}"
    fetch(SHAKESPEARE_URL, checksum, file, report, alternative="use source 'file'")
    return load_text_file(file.as_posix())


def _column(path: Path, column: str | int, allowed: Collection[int], **options: Any) -> pd.Series:
    # A column of a published table, indexed by image names, which must be unique.
    try:
        found = pd.read_csv(path, encoding_errors="replace", **options)[column]
        bad = found.index[~found.isin(allowed) | found.index.duplicated()]
        if bad.empty:
            return found.astype(int)
        fault = f"{shortened(str(bad[0]), quoted=False)} has no allowed value, or two"
    except Exception as error:  # pandas may raise anything on bytes that are no table
        fault = reason(error)
    raise UserError(f"{path}: not in the published form ({fault}); fetch it again.")


_LOADERS: dict[str, Callable[[DatasetInfo, Path, Report], Loaded]] = {
    "mnist": _load_mnist,
    "kmnist": _load_mnist,
    "cifar10": _load_cifar,
    "cifar100": _load_cifar,
    "svhn": _load_svhn,
    "stl10": _load_stl10,
    "gtsrb": _load_gtsrb,
    "celeba": _load_celeba,
    "shakespeare": _load_shakespeare,
}
