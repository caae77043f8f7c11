"""CelebA, attribute Eyeglasses, in torchvision's folder; which must be downloaded by hand."""

import hashlib
from pathlib import Path

import numpy as np
from PIL import Image

from feature_alignment.data.canonical import Loaded
from feature_alignment.data.download import Report, file_digest
from feature_alignment.data.images import canonical_image, image_form
from feature_alignment.data.registry import DatasetInfo
from feature_alignment.errors import UserError

ATTRIBUTE = "Eyeglasses"
# Beaglehole et al. 2024 trains on a balanced subset of 7500; the limit also bounds memory.
PER_CLASS = {"train": 3750, "test": 1000}
_PARTITION = {"train": "0", "test": "2"}
_AGREEMENT = (
    "CelebA cannot be fetched without accepting its agreement "
    "(mmlab.ie.cuhk.edu.hk/projects/CelebA.html)"
)


def load_celeba(info: DatasetInfo, root: Path, report: Report | None = None) -> Loaded:
    """Read the first portraits with and without eyeglasses, in equal numbers.

    Source: Beaglehole et al. 2024, Figure 16 and Appendix J (balanced subset of 7500). From each
    split, the first `PER_CLASS` images of both classes, or as many as the rarer class has, in the
    published order. Images are cut to their central square and resized.

    Args:
        info: the registry's entry.
        root: torchvision's `root`, the folder that holds `celeba/`.
        report: told the progress, one line at a time.

    Raises:
        UserError: if a file is missing or not in the published form.
    """
    base = root / "celeba"
    for name in ("img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt"):
        if not (base / name).exists():
            raise UserError(
                f"{base / name}: missing; {_AGREEMENT}: place img_align_celeba/, "
                f"list_attr_celeba.txt and list_eval_partition.txt in {base}, "
                "or use source 'embedded'."
            )
    labels = _attribute(base / "list_attr_celeba.txt")
    partition = _partition(base / "list_eval_partition.txt")
    shape, _ = image_form(info)
    arrays: dict[str, np.ndarray] = {}
    digest = hashlib.sha256()
    for split, limit in PER_CLASS.items():
        names = [name for name, part in partition.items() if part == _PARTITION[split]]
        unknown = [name for name in names if name not in labels]
        if unknown:
            raise UserError(
                f"{base / 'list_attr_celeba.txt'}: no line for {unknown[0]}; fetch it again."
            )
        chosen = _balanced(names, labels, limit)
        if not chosen:
            raise UserError(
                f"{base / 'list_eval_partition.txt'}: no {split} images of both classes; "
                "fetch it again."
            )
        if report:
            report(f"{info.title}: reading {len(chosen)} {split} images")
        images = []
        for name in chosen:
            file = base / "img_align_celeba" / name
            images.append(_central_square(file, shape))
            digest.update(name.encode() + b"\n" + file.read_bytes())
        arrays[f"x_{split}"] = np.stack(images)
        arrays[f"y_{split}"] = np.array([labels[name] for name in chosen], dtype=np.int64)
    origin = [
        {"folder": (base / "img_align_celeba").as_posix(), "sha256": digest.hexdigest()},
        *(
            {"file": (base / name).as_posix(), "sha256": file_digest(base / name, "sha256")}
            for name in ("list_attr_celeba.txt", "list_eval_partition.txt")
        ),
    ]
    height, width, _ = shape
    notes = [
        f"first images of both classes, at most {PER_CLASS['train']} each for training and "
        f"{PER_CLASS['test']} for testing",
        f"central square resized to {height}x{width} (Pillow, bilinear with antialiasing)",
    ]
    return arrays, {"origin": origin, "notes": notes}


def _attribute(path: Path) -> dict[str, int]:
    """Label of every image: 1 with eyeglasses, 0 without.

    Raises:
        UserError: if the file is not in the published form.
    """
    lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    names = lines[1].split() if len(lines) > 1 else []
    if ATTRIBUTE not in names:
        raise UserError(
            f"{path}: no attribute {ATTRIBUTE} in its second line; fetch the file again."
        )
    column = 1 + names.index(ATTRIBUTE)
    labels = {}
    for number, line in enumerate(lines[2:], start=3):
        cells = line.split()
        if len(cells) != 1 + len(names) or cells[column] not in ("-1", "1"):
            raise UserError(
                f"{path}, line {number}: wanted a file name and {len(names)} values of -1 or 1; "
                "fetch the file again."
            )
        labels[cells[0]] = int(cells[column] == "1")
    return labels


def _partition(path: Path) -> dict[str, str]:
    parts = {}
    text = path.read_text(encoding="ascii", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        cells = line.split()
        if len(cells) != 2 or cells[1] not in ("0", "1", "2"):
            raise UserError(
                f"{path}, line {number}: wanted a file name and 0, 1 or 2; fetch the file again."
            )
        parts[cells[0]] = cells[1]
    return parts


def _balanced(names: list[str], labels: dict[str, int], limit: int) -> list[str]:
    """The first names of both classes, equally many, in their order."""
    with_, without = ([n for n in names if labels[n] == label] for label in (1, 0))
    number = min(limit, len(with_), len(without))
    kept = {*with_[:number], *without[:number]}
    return [name for name in names if name in kept]


def _central_square(path: Path, shape: tuple[int, int, int]) -> np.ndarray:
    try:
        with Image.open(path) as image:
            width, height = image.size
            side = min(width, height)
            left, top = (width - side) // 2, (height - side) // 2
            return canonical_image(image.crop((left, top, left + side, top + side)), shape)
    except PermissionError:
        raise
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(
            f"{path}: not a whole image file ({error}); fetch img_align_celeba again."
        ) from error
