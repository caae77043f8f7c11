"""Files of a user's own that are damaged, or made to do harm: one sentence, and nothing is kept."""

import io
import lzma
import os
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feature_alignment.data import archives
from feature_alignment.data.canonical import load
from feature_alignment.data.prepare import prepare_dataset
from feature_alignment.errors import UserError


def arrays(**changed):
    """What an npz file of CelebA's form holds, with some arrays changed; None leaves one out."""
    x = np.random.default_rng(0).integers(0, 256, (4, 96, 96, 3), np.uint8)
    y = np.array([0, 1, 0, 1])
    whole = {"x_train": x, "y_train": y, "x_test": x, "y_test": y, **changed}
    return {key: value for key, value in whole.items() if value is not None}


def npz(**changed):
    file = io.BytesIO()
    np.savez(file, **arrays(**changed))
    return file.getvalue()


def npz_of(name, content, compression=zipfile.ZIP_STORED):
    """An npz file one of whose members is not what NumPy writes."""
    file = io.BytesIO(npz(**{name: None}))
    with zipfile.ZipFile(file, "a", compression) as archive:
        archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def npy(header):
    """A .npy file with a header of one's own and four bytes."""
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + b"\n" + bytes(4)


class Evil:
    """Pickled, it makes a file."""

    def __reduce__(self):
        return open, ("evil", "w")


NUMBER = "{'descr': '|u1', 'fortran_order': False, 'shape': %s}"
NPZ = {
    "a pickle": (npz(y_test=np.array([Evil()], dtype=object)), "plain arrays .*allow_pickle"),
    "an endless array": (npz_of("x_test", npy(NUMBER % f"({10**15},)")), "whole .npz file"),
    "an array without end": (npz_of("x_test", npy(NUMBER % f"({10**30},)")), "whole .npz file"),
    "a nested header": (npz_of("x_test", npy("(" * 9000)), "whole .npz file"),
    "a long header": (npz_of("x_test", npy(" " * 20_000)), "whole .npz file"),
    "a header that is code": (npz_of("x_test", npy("open('evil', 'w')")), "whole .npz file"),
    "a bomb": (npz_of("x_test", bytes(3 * 2**20), zipfile.ZIP_DEFLATED), "unpacks to more than"),
    "numbers with fractions": (npz(x_train=np.full((4, 96, 96, 3), np.nan)), "pixels are float64"),
    "labels with fractions": (npz(y_train=np.array([0, 1, np.nan, 1])), "labels are float64"),
    "labels of bytes": (npz(y_train=np.array([b"a", b"b", b"a", b"b"])), r"labels are \|S1"),
    "labels out of range": (npz(y_test=np.array([0, 1, 2, -1])), "labels from -1 to 2, wanted"),
    "huge labels": (npz(y_test=np.array([0, 1, 1, 2**63], np.uint64)), "labels from 0 to 92233"),
    "too few labels": (npz(y_test=np.array([0])), r"shape \(1,\), wanted \(4,\)"),
    "no labels": (npz(x_test=np.zeros((0, 9, 9), np.uint8), y_test=np.zeros(0, int)), "no image"),
    "a missing array": (npz(y_test=None), "there is no array 'y_test'"),
    "records": (npz(x_test=np.zeros(4, [("a", "u1")])), "wanted uint8"),
    "one image, flat": (npz(x_test=np.zeros(27648, np.uint8)), r"shape \(27648,\), wanted"),
    "nothing": (b"", "whole .npz file"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def at_work(tmp_path, monkeypatch):
    """A working folder, and a limit that a small bomb is over."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(archives, "LIMIT", 2**20)


def refused(name, says, **options):
    """Prepare a dataset, which is to end in one sentence and change nothing."""
    before = sorted(os.walk("."))
    with pytest.raises(UserError, match=says) as caught:
        prepare_dataset(name, options)
    said = str(caught.value)
    assert said.isprintable()
    assert len(said) <= 400
    assert sorted(os.walk(".")) == before


@pytest.mark.parametrize("kind", NPZ)
@pytest.mark.parametrize("path", ["mine.npz", "mine.npz.xz"])
def test_an_npz_file_with(kind, path):
    content, says = NPZ[kind]
    Path(path).write_bytes(lzma.compress(content) if path.endswith("xz") else content)
    refused("celeba", says, source="npz", path=path)


def test_an_xz_bomb():
    with lzma.open("mine.npz.xz", "wb") as file:
        file.write(bytes(3 * 2**20))
    refused("celeba", "unpacks to more than 0.000977 GiB", source="npz", path="mine.npz.xz")


@pytest.fixture
def folder(tmp_path):
    """An image folder of CelebA's form, and an image beside it."""
    Image.new("RGB", (96, 96), (9, 9, 9)).save(tmp_path / "private.png")
    for split in ("train", "test"):
        for number, name in enumerate("ab"):
            place = tmp_path / "work" / "mine" / split / name
            place.mkdir(parents=True)
            Image.new("RGB", (96, 96), (90 * number, 0, 0)).save(place / "0.png")
    return tmp_path / "work" / "mine"


def moved(place, target):
    """Put a link in the place of a file or folder."""
    place.rename(place.with_name(".gone"))
    place.symlink_to(target)


FOLDERS = {
    "a link to a file outside": (
        lambda f: (f / "test/a/1.png").symlink_to("../../../../private.png"),
        r"test/a/1\.png: is a link that leads nowhere or out of mine",
    ),
    "a link to nowhere": (
        lambda f: (f / "test/a/1.png").symlink_to("nowhere.png"),
        r"1\.png: is a link that leads nowhere",
    ),
    "a link to itself": (
        lambda f: (f / "test/a/1.png").symlink_to("1.png"),
        r"1\.png: Too many levels of symbolic links",
    ),
    "a class that is a link": (lambda f: moved(f / "test/a", f.parent), "test/a: is a link that"),
    "a split that is a link": (lambda f: moved(f / "test", f.parents[1]), "mine/test: is a link"),
    "a split that is a file": (
        lambda f: [moved(f / "test", f / "x"), (f / "x").touch()],
        "mine/test: no such folder",
    ),
    "an empty file": (lambda f: (f / "test/a/1.png").touch(), r"1\.png: not a whole image file"),
    "a text": (lambda f: (f / "test/a/1.png").write_text("x"), r"1\.png: not a whole image file"),
    "an image of 400 million pixels": (
        lambda f: (f / "test/a/1.png").write_bytes(b"P5 20000 20000 255 x"),
        r"1\.png: not a whole image file \(.*decompression bomb",
    ),
    "an image of 100 million pixels": (
        lambda f: (f / "test/a/1.png").write_bytes(b"P5 10000 10000 255 x"),
        r"1\.png: not a whole image file \(.*decompression bomb",
    ),
    "a class too many": (lambda f: (f / "test/c").mkdir(), "3 class folders .*'c' is in one of"),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_an_image_folder_with(kind, folder):
    change, says = FOLDERS[kind]
    change(folder)
    refused("celeba", says, source="imagefolder", path="mine")


def test_links_inside_an_image_folder_are_followed_and_pipes_are_not_waited_for(folder):
    (folder / "test/a/1.png").symlink_to("../../train/b/0.png")
    os.mkfifo(folder / "test/a/2.png")
    (folder / "test/a/3.png").mkdir()
    os.mkfifo(folder / "test/c.png")
    found, info = prepare_dataset("celeba", {"source": "imagefolder", "path": "mine"})
    assert len(found["x_test"]) == 3
    told = "3 files or folders are not read (test/c.png, test/a/2.png, test/a/3.png)"
    assert told in info["warnings"]


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "tif", "bmp", "ppm", "webp"])
def test_an_image_with_any_byte_changed_is_read_or_refused(suffix, folder):
    rng = np.random.default_rng(1)
    file = folder / f"train/a/0.{suffix}"
    (folder / "train/a/0.png").unlink()
    noise = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file)
    whole = file.read_bytes()
    for at in {*range(64), *rng.integers(0, len(whole), 64)}:
        content = bytearray(whole)
        content[at % len(whole)] ^= rng.integers(1, 256)
        file.write_bytes(content)
        with suppress(UserError):
            prepare_dataset("celeba", {"source": "imagefolder", "path": "mine"})


@pytest.mark.parametrize(
    ("name", "options", "make", "says"),
    [
        ("celeba", {"source": "npz"}, os.mkdir, "is no file, but source 'npz'"),
        ("celeba", {"source": "npz"}, os.mkfifo, "is no file, but source 'npz'"),
        ("shakespeare", {"source": "file"}, os.mkfifo, "is no file, but source 'file'"),
        ("celeba", {"source": "imagefolder"}, os.mkfifo, "is no folder, but source 'imagefolder'"),
        ("celeba", {"source": "npz"}, lambda p: Path(p).symlink_to(p), "no such file 'mine'"),
    ],
)
def test_what_is_no_file_is_not_waited_for(name, options, make, says):
    make("mine")
    refused(name, says, path="mine", **options)


@pytest.mark.parametrize("path", ["\0", "x" * 5000, "a/" * 3000, "\udcff", "\x1b[31m"])
@pytest.mark.parametrize("source", ["npz", "imagefolder", "torchvision"])
def test_a_path_that_no_system_has(path, source):
    refused("celeba", r"datasets\.celeba\.path: ", source=source, path=path)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "0 characters, wanted at least 10"), (b"\xff" * 20, "not UTF-8 text"),
     (b"a\xed\xa0\x80bcdefghij", "not UTF-8 text"),
     ("".join(map(chr, range(1000, 2000))).encode(), "1000 different characters")],
)  # fmt: skip
def test_a_text(content, says):
    Path("mine.txt").write_bytes(content)
    refused("shakespeare", says, source="file", path="mine.txt")


@pytest.mark.parametrize(
    "content", [npz(info_json=np.array([Evil()], dtype=object)), npz_of("info_json", b"x"), npz()]
)
def test_a_prepared_file_that_runs_code_is_not_believed(content):
    Path("mine.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"mine\.npz: not a whole prepared data set .*delete it"):
        load("mine.npz")
    assert [*Path().iterdir()] == [Path("mine.npz")]
