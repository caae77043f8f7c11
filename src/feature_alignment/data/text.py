"""Texts as character codes."""

import hashlib
from pathlib import Path

import numpy as np

from feature_alignment.data.canonical import Loaded
from feature_alignment.data.sklearn_files import package_origin, sklearn_file
from feature_alignment.errors import UserError

_MAX_VOCABULARY = 256
NUL = "\0"


def character_codes(text: str, where: str) -> dict[str, np.ndarray]:
    """A text's first 90 % and last 10 % as positions in its sorted alphabet; `where` is its file.

    Returns `text_train`, `text_test` uint8 (n,) and `vocabulary`, uint32 Unicode code points.

    Source: Beaglehole et al. 2024, Appendix J (nanoGPT's Shakespeare characters).

    Raises:
        UserError: if the text has fewer than 10 characters, or 1 or more than 256 different ones.

    Example:
        >>> codes = character_codes("abracadabra", "example")
        >>> codes["text_train"].tolist(), codes["text_test"].tolist()
        ([0, 1, 4, 0, 2, 0, 3, 0, 1], [4, 0])
    """
    if len(text) < 10:
        raise UserError(f"{where}: {len(text)} characters, wanted at least 10; give a longer text.")
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    vocabulary, codes = np.unique(points, return_inverse=True)
    if len(vocabulary) == 1:
        raise UserError(f"{where}: nothing but {text[0]!r}, {len(text)} times; give a text.")
    if len(vocabulary) > _MAX_VOCABULARY:
        raise UserError(
            f"{where}: {len(vocabulary)} different characters, wanted at most {_MAX_VOCABULARY}; "
            "give a text in an alphabetic script."
        )
    codes = codes.astype(np.uint8)
    cut = len(codes) * 9 // 10
    return {
        "text_train": codes[:cut],
        "text_test": codes[cut:],
        "vocabulary": vocabulary.astype(np.uint32),
    }


def load_text_file(path: str) -> Loaded:
    """Read a UTF-8 text file; all kinds of line ends become newlines.

    Raises:
        UserError: if the file is not UTF-8 text, or `character_codes` refuses it.
    """
    content = Path(path).read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: not UTF-8 text (byte {error.start}); convert it, "
            "for example with iconv -f LATIN1 -t UTF-8, or -f UTF-16."
        ) from error
    if NUL in text:
        raise UserError(
            f"{path}: holds characters 0, as UTF-16 does that is read as UTF-8; convert it, for "
            f"example with iconv -f UTF-16{'BE' if text[0] == NUL else 'LE'} -t UTF-8."
        )
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    origin = [{"file": path, "sha256": hashlib.sha256(content).hexdigest()}]
    return character_codes(text, path), {"origin": origin, "notes": []}


def embedded_text() -> Loaded:
    """English prose that is always available: scikit-learn's descriptions of its data sets."""
    folder = sklearn_file("datasets/descr")
    files = sorted(folder.glob("*.rst"))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    # A few accented names would each add a character that occurs only once.
    text = text.encode("ascii", "ignore").decode()
    return character_codes(text, str(folder)), {"origin": [package_origin()], "notes": []}
