"""A user's files count by content, and are read once for as long as they stay as they are."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feature_alignment.data import identity
from feature_alignment.data.identity import content_hash
from feature_alignment.data.local import load_imagefolder, load_npz
from feature_alignment.data.registry import DATASETS
from feature_alignment.files import Memory


def forget():
    identity.MEMORY = Memory("contents.json")


@pytest.fixture(autouse=True)
def at_work(tmp_path, monkeypatch):
    """A working folder of Snakemake's."""
    monkeypatch.chdir(tmp_path)
    Path(".snakemake").mkdir()
    forget()
    yield
    forget()


@pytest.fixture
def settled(monkeypatch):
    """Every file counts as one that has long been as it is."""
    monkeypatch.setattr(identity, "_SETTLED_NS", -1)


@pytest.fixture
def reads(monkeypatch):
    """The files that are read."""
    seen = []
    take = identity.hashlib.file_digest

    def watched(file, algorithm):
        seen.append(Path(file.name).name)
        return take(file, algorithm)

    monkeypatch.setattr(identity.hashlib, "file_digest", watched)
    return seen


@pytest.fixture
def folder(tmp_path):
    for split in ("train", "test"):
        for label, name in enumerate(("9", "10")):
            place = tmp_path / "mine" / split / name
            place.mkdir(parents=True)
            Image.new("RGB", (8, 8), (9 * label, 0, 0)).save(place / "a.png")
    return tmp_path / "mine"


def test_content_counts_and_neither_time_nor_path_does(tmp_path):
    Path("a.txt").write_text("content")
    first = content_hash("file", "a.txt")
    os.utime("a.txt")
    Path("b.txt").write_text("content")
    assert content_hash("file", "a.txt") == content_hash("file", "b.txt") == first
    Path("a.txt").write_text("CONTENT")
    assert content_hash("file", "a.txt") != first


def test_published_data_and_what_cannot_be_read_have_no_hash(folder):
    assert content_hash("torchvision", str(folder)) is None
    assert content_hash("embedded", None) is None
    assert content_hash("npz", "nowhere.npz") is None
    assert content_hash("imagefolder", "nowhere") is None
    assert content_hash("npz", None) is None
    os.mkfifo("pipe")  # which would be waited for
    assert content_hash("npz", "pipe") is content_hash("npz", "\0") is None


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (lambda f: (f / "train/9/a.png").write_bytes(b"other"), True),
        (lambda f: (f / "test/10/a.png").rename(f / "test/10/b.png"), True),
        (lambda f: shutil.copy(f / "test/10/a.png", f / "test/9/b.PNG"), True),
        (lambda f: (f / "train/8").mkdir(), True),  # it moves the numbers of the others
        (lambda f: (f / "train/9/Thumbs.db").write_bytes(b"x"), False),
        (lambda f: (f / "train/9/.a.png").write_bytes(b"x"), False),
        (lambda f: (f / "other").mkdir(), False),
    ],
)
def test_of_a_folder_counts_what_is_read(folder, change, counts):
    first = content_hash("imagefolder", str(folder))
    change(folder)
    assert (content_hash("imagefolder", str(folder)) != first) is counts


def test_the_hash_is_that_of_what_the_loaders_read(folder):
    _, extra = load_imagefolder(DATASETS["celeba"], str(folder))
    assert extra["origin"][0]["sha256"] == content_hash("imagefolder", str(folder))
    x, y = np.zeros((2, 28, 28), np.uint8), np.arange(2)
    np.savez("a.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    _, extra = load_npz(DATASETS["mnist"], "a.npz")
    assert extra["origin"][0]["sha256"] == content_hash("npz", "a.npz")


def test_what_stays_is_read_once_also_by_the_next_process(folder, reads, settled):
    first = content_hash("imagefolder", str(folder))
    assert content_hash("imagefolder", str(folder)) == first
    assert len(reads) == 4
    identity.MEMORY.keep()
    forget()
    (folder / "test/9/a.png").write_bytes(b"other")
    reads.clear()
    assert content_hash("imagefolder", str(folder)) != first
    assert len(reads) == 1


def test_what_has_just_been_written_is_read_again(reads):
    Path("a.txt").write_text("content")
    for _ in range(2):
        content_hash("file", "a.txt")
    assert reads == ["a.txt", "a.txt"]


@pytest.mark.parametrize("damage", ["", "[]", '{"a.txt": 3}', '{"a.txt": [1, 2, 3]}'])
def test_a_damaged_memory_is_not_believed(damage, settled):
    Path("a.txt").write_text("content")
    first = content_hash("file", "a.txt")
    forget()
    identity.MEMORY.file.write_text(damage)
    assert content_hash("file", "a.txt") == first


def test_memory_keeps_other_files_that_are_there_and_needs_snakemakes_folder(settled):
    for name in ("a.txt", "b.txt", "c.txt"):
        Path(name).write_text(name)
        content_hash("file", name)
    identity.MEMORY.keep()
    forget()
    Path("a.txt").unlink()
    Path("b.txt").write_text("other")
    content_hash("file", "b.txt")
    identity.MEMORY.keep()
    assert set(json.loads(identity.MEMORY.file.read_text())) == {"b.txt", "c.txt"}
    shutil.rmtree(".snakemake")
    identity.MEMORY.keep()
    assert not Path(".snakemake").exists()


def test_planning_with_it_imports_no_numerical_package(root):
    code = "import sys, feature_alignment.data.identity; print('numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root / "src"
    )
    assert done.stdout.strip() == "False"
