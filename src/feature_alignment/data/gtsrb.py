"""GTSRB in torchvision's folder: gtsrb/GTSRB/Training, Final_Test/Images and the test labels."""

import csv
import hashlib
from pathlib import Path

import numpy as np

from feature_alignment.data.archives import holds_zip, unpack_zip
from feature_alignment.data.canonical import Loaded
from feature_alignment.data.download import Report, fetch, has_checksum
from feature_alignment.data.images import (
    Form,
    canonical_labels,
    conversion_notes,
    image_form,
    read_image,
)
from feature_alignment.data.registry import DatasetInfo
from feature_alignment.errors import UserError

# torchvision has these inside its download method, out of reach.
BASE_URL = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"
ARCHIVES = {
    "train": {"GTSRB-Training_fixed.zip": "513f3c79a4c5141765e10e952eaa2478"},
    "test": {
        "GTSRB_Final_Test_Images.zip": "c7e4e6327067d32654124b0fe9e82185",
        "GTSRB_Final_Test_GT.zip": "fe31e9c9270bbcd7b84b7f21a9d9d9e5",
    },
}
_TEST_LABELS = "GT-final_test.csv"


def load_gtsrb(info: DatasetInfo, root: Path, report: Report | None = None) -> Loaded:
    """Read GTSRB, fetching and unpacking its archives where images are missing.

    The training images come in torchvision's order: by class, then by file name.

    Args:
        info: the registry's entry.
        root: torchvision's `root`, the folder that holds `gtsrb/`.
        report: told the progress, one line at a time.

    Raises:
        UserError: if an archive cannot be fetched or a file is not as published.
    """
    base = root / "gtsrb"
    shape, classes = image_form(info)
    arrays: dict[str, np.ndarray] = {}
    forms: set[Form] = set()
    digest = hashlib.sha256()
    for split, listed in (("train", _listed_training), ("test", _listed_test)):
        if not _is_complete(base, split, listed(base, classes)):
            for name, md5 in ARCHIVES[split].items():
                fetch(f"{BASE_URL}{name}", f"md5:{md5}", base / name, report=report)
                if report:
                    report(f"{name}: unpacking")
                unpack_zip(base / name, base)
        files, labels = listed(base, classes)
        if not files:
            raise UserError(f"{base}: no {split} images after unpacking; delete it and run again.")
        images = []
        for file in files:
            image, form = read_image(file, shape)
            images.append(image)
            forms.add(form)
            digest.update(file.name.encode() + b"\n" + file.read_bytes())
        arrays[f"x_{split}"] = np.stack(images)
        arrays[f"y_{split}"] = canonical_labels(
            np.array(labels), len(files), info, f"{base}, {split}"
        )
    origin = [{"folder": base.as_posix(), "sha256": digest.hexdigest()}]
    notes = ["training images ordered by class", *conversion_notes(forms, info)]
    return arrays, {"origin": origin, "notes": notes}


def _is_complete(base: Path, split: str, found: tuple[list[Path], list[int]]) -> bool:
    archives = [base / name for name in ARCHIVES[split]]
    if all(has_checksum(base / name, f"md5:{md5}") for name, md5 in ARCHIVES[split].items()):
        return all(holds_zip(archive, base) for archive in archives)
    # Without the archives, the lists that come with the images say what should be there.
    return bool(found[0]) and all(file.is_file() for file in found[0])


def _listed_training(base: Path, classes: int) -> tuple[list[Path], list[int]]:
    """Training files and labels: those found and those the class lists name; none if one lacks."""
    files: list[Path] = []
    labels: list[int] = []
    for label in range(classes):
        folder = base / "GTSRB" / "Training" / f"{label:05d}"
        names = {file.name for file in folder.glob("*.ppm")} if folder.is_dir() else set()
        if not names:
            return [], []
        class_list = folder / f"GT-{label:05d}.csv"
        if class_list.is_file():
            names |= {row["Filename"] for row in _rows(class_list)}
        files += [folder / name for name in sorted(names)]
        labels += [label] * len(names)
    return files, labels


def _listed_test(base: Path, classes: int) -> tuple[list[Path], list[int]]:
    """Test files and labels as the published list names them; none if there is no list."""
    table = base / _TEST_LABELS
    if not table.is_file():
        return [], []
    rows = _rows(table)
    folder = base / "GTSRB" / "Final_Test" / "Images"
    return [folder / row["Filename"] for row in rows], [int(row["ClassId"]) for row in rows]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = list(csv.DictReader(file, delimiter=";", skipinitialspace=True))
    for number, row in enumerate(rows, start=2):
        if not row.get("Filename") or not (row.get("ClassId") or "").strip().isdecimal():
            raise UserError(
                f"{path}, line {number}: no Filename and ClassId; delete the file and its archive "
                "and run again."
            )
    return rows
