"""From a data set's name and options to its canonical arrays and their description."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from feature_alignment.data.canonical import Loaded, content_sha256
from feature_alignment.data.download import fetch
from feature_alignment.data.embedded import embedded_images
from feature_alignment.data.local import load_imagefolder, load_npz
from feature_alignment.data.official import load_official
from feature_alignment.data.registry import (
    DOWNLOAD_FOLDER,
    DatasetInfo,
    check_options,
    dataset_info,
)
from feature_alignment.data.text import embedded_text, load_text_file
from feature_alignment.errors import UserError

SHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def prepare_dataset(
    name: str, options: Mapping[str, Any], progress: Callable[[str], None] | None = None
) -> Loaded:
    """Read, fetch or generate a data set and bring it into canonical form.

    Args:
        name: a key of `registry.DATASETS`.
        options: `source` (default "embedded") and `path` (default None), as in the config.
        progress: told what happens, one line at a time.

    Returns:
        The arrays that `canonical.Dataset` describes, and the info: name, title, source,
        stand_in, description (one line for figures), origin (files with their SHA-256, or the
        package they come from), notes, counts, class_names (or None), sha256 of the arrays.

    Raises:
        UserError: if an option or a file is not as it should be, or a download fails.
    """
    info = dataset_info(name)
    check_options(name, options)
    source = options.get("source", "embedded")
    if progress:
        progress(f"{info.title}: reading from source {source!r}")
    try:
        arrays, extra = _read(info, source, options.get("path") or DOWNLOAD_FOLDER, progress)
    except OSError as error:
        raise UserError(
            f"datasets.{name}: {error.filename or error}: {error.strerror or 'not readable'}; "
            "check access rights and free space there, or choose another source."
        ) from error
    stand_in = source == "embedded"
    origin_line = {
        "embedded": f"embedded stand-in: {info.stand_in}",
        "torchvision": "published files",
        "download": "published file",
    }.get(source, f"local {source}: {Path(options.get('path') or '').name}")
    class_names = extra.get("class_names")
    # A stand-in's classes may be others than the real set's: a patch of sky is not an airplane.
    same = not stand_in or info.name in ("mnist", "svhn", "celeba")
    if class_names is None and info.class_names and same:
        class_names = list(info.class_names)
    return arrays, {
        "name": name,
        "title": info.title,
        "source": source,
        "stand_in": stand_in,
        "description": f"{info.title} ({origin_line})",
        "origin": extra["origin"],
        "notes": extra["notes"],
        "counts": {
            split: len(arrays[f"{'text' if info.kind == 'text' else 'x'}_{split}"])
            for split in ("train", "test")
        },
        "class_names": class_names,
        "sha256": content_sha256(arrays),
    }


def _read(
    info: DatasetInfo, source: str, path: str, progress: Callable[[str], None] | None
) -> Loaded:
    if source == "embedded":
        return embedded_text() if info.kind == "text" else embedded_images(info.name)
    if source == "npz":
        return load_npz(info, path)
    if source == "imagefolder":
        return load_imagefolder(info, path)
    if source == "file":
        return load_text_file(path)
    if source == "torchvision":
        return load_official(info, path, progress)
    file = Path(path) / "tinyshakespeare" / "input.txt"
    fetch(
        SHAKESPEARE_URL,
        f"sha256:{SHAKESPEARE_SHA256}",
        file,
        alternative="use source 'file'",
        report=progress,
    )
    return load_text_file(file.as_posix())
