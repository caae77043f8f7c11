"""Prepare a data set: from its name and options to its canonical arrays and description."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from feature_alignment.data.canonical import Loaded, content_sha256
from feature_alignment.data.embedded import embedded_images
from feature_alignment.data.identity import OWN_SOURCES
from feature_alignment.data.local import load_imagefolder, load_npz
from feature_alignment.data.registry import (
    DOWNLOAD_FOLDER,
    DatasetInfo,
    check_options,
    dataset_info,
)
from feature_alignment.data.text import embedded_text, load_text_file
from feature_alignment.errors import UserError

log = logging.getLogger(__name__)


def prepare_dataset(
    name: str, options: Mapping[str, Any], progress: Callable[[str], None] = lambda line: None
) -> Loaded:
    """Read, fetch or generate a data set and convert it to canonical form.

    Args:
        name: a key of `registry.DATASETS`.
        options: `source` (default "embedded") and `path` (default None), as in the config, and
            optionally `sha256`, the `identity.content_hash` of a user's files when planning.
        progress: receives progress messages, one line at a time.

    Returns:
        The arrays that `canonical.Dataset` describes, and the info: name, title, source,
        stand_in, description (one line for figures), origin (files with their SHA-256, or the
        package they come from), notes on conversions, warnings, shape (height, width, channels),
        counts, class_counts, class_names (or None), sha256 of the arrays. Warnings are also logged.

    Raises:
        UserError: for wrong options or files, identical images, or a failed download.
    """
    info, options = dataset_info(name), dict(options)
    planned = options.pop("sha256", None)
    check_options(name, options)
    source = options.get("source", "embedded")
    progress(f"{info.title}: reading from source {source!r}")
    try:
        arrays, extra = _read(info, source, options.get("path") or DOWNLOAD_FOLDER, progress)
    except OSError as error:
        raise UserError(
            f"datasets.{name}: {error.filename or error}: {error.strerror or 'not readable'}; "
            "check access rights and free space there, or choose another source."
        ) from error
    if planned is not None and extra["origin"][0]["sha256"] != planned:
        raise UserError(
            f"datasets.{name}.path: {options['path']!r} has changed since the workflow planned; "
            "run it again."
        )
    class_counts = {}
    for split in ("train", "test") if info.classes else ():
        _refuse_sameness(name, split, arrays[f"x_{split}"])
        class_counts[split] = np.bincount(arrays[f"y_{split}"], minlength=info.classes).tolist()
    warnings = list(extra.get("warnings", []))
    if class_counts and source in OWN_SOURCES:
        warnings += _oddities(arrays)
    for split, counts in class_counts.items():
        if absent := [str(label) for label, count in enumerate(counts) if count == 0]:
            warnings.append(f"no {split} image of class {', '.join(absent)}")
    for warning in warnings:
        log.warning("datasets.%s: %s", name, warning)
    stand_in = source == "embedded"
    origin_line = {
        "embedded": f"embedded stand-in: {info.stand_in}",
        "torchvision": "published files",
        "download": "published file",
    }.get(source, f"local {source}: {Path(options.get('path') or '').name}")
    class_names = extra.get("class_names")
    # A stand-in's classes may differ from the real set's: a patch of sky is not an airplane.
    same = not stand_in or info.name in ("mnist", "svhn", "celeba")
    if class_names is None and info.class_names and same:
        class_names = list(info.class_names)
    first = "text" if info.kind == "text" else "x"
    return arrays, {
        "name": name,
        "title": info.title,
        "source": source,
        "stand_in": stand_in,
        "description": f"{info.title} ({origin_line})",
        "origin": extra["origin"],
        "notes": extra["notes"],
        "warnings": warnings,
        "shape": list(info.shape) or None,
        "counts": {split: len(arrays[f"{first}_{split}"]) for split in ("train", "test")},
        "class_counts": class_counts,
        "class_names": class_names,
        "sha256": content_sha256(arrays),
    }


def _refuse_sameness(name: str, split: str, x: np.ndarray) -> None:
    # Subtracting their mean would turn such images into zeros.
    if x.min() == x.max():
        same = f"all pixels of all {split} images are {x.min()}"
    elif split == "train" and len(x) > 1 and all(np.array_equal(x[0], other) for other in x):
        same = f"all {len(x)} {split} images are the same"
    else:
        return
    raise UserError(f"datasets.{name}: {same}; correct them, or choose another source.")


def _oddities(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """One sentence for each likely mistake in a user's own images."""
    found = [
        f"no pixel of the {split} images is above 1, of 255"
        for split in ("train", "test")
        if arrays[f"x_{split}"].max() <= 1
    ]
    of_training = {image.tobytes() for image in arrays["x_train"]}
    if twice := sum(image.tobytes() in of_training for image in arrays["x_test"]):
        number = len(arrays["x_test"])
        found.append(f"{twice} of {number} test images are also training images, to the pixel")
    return found


def _read(info: DatasetInfo, source: str, path: str, progress: Callable[[str], None]) -> Loaded:
    if source == "embedded":
        return embedded_text() if info.kind == "text" else embedded_images(info.name)
    if source == "npz":
        return load_npz(info, path)
    if source == "imagefolder":
        return load_imagefolder(info, path)
    if source == "file":
        return load_text_file(path)
    from feature_alignment.data import official  # takes a second, for torchvision

    return official.load_official(info, path, progress)
