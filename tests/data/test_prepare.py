import hashlib
import json

import numpy as np
import pytest

from feature_alignment.data import canonical, local, official, prepare
from feature_alignment.data.canonical import content_sha256
from feature_alignment.data.identity import content_hash
from feature_alignment.data.prepare import prepare_dataset
from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError

INFO_KEYS = {
    "name", "title", "source", "stand_in", "description", "origin", "notes", "counts",
    "class_names", "sha256", "warnings", "shape", "class_counts",
}  # fmt: skip


def some_images(number, shape):
    return np.random.default_rng(0).integers(0, 256, (number, *shape), np.uint8)


@pytest.fixture
def tiny_stand_ins(monkeypatch):
    """Stand-ins of one image a split, since generating whole sets takes seconds each."""

    def one_image(name):
        x, y = some_images(1, DATASETS[name].shape), np.zeros(1, np.int64)
        return {"x_train": x, "y_train": y, "x_test": x, "y_test": y}, {"origin": [], "notes": []}

    monkeypatch.setattr(prepare, "embedded_images", one_image)


@pytest.mark.parametrize("name", DATASETS)
def test_every_stand_in_is_described_and_kept(name, tmp_path, tiny_stand_ins):
    arrays, info = prepare_dataset(name, {})
    assert set(info) == INFO_KEYS
    assert info["stand_in"] is True
    assert info["source"] == "embedded"
    expected = f"{DATASETS[name].title} (embedded stand-in: {DATASETS[name].stand_in})"
    assert info["description"] == expected
    assert info["sha256"] == content_sha256(arrays)
    assert not any("pixel" in warning for warning in info["warnings"])
    assert info == json.loads(json.dumps(info))
    if info["class_names"] is not None:
        assert len(info["class_names"]) == DATASETS[name].classes
    canonical.save(tmp_path / "a.npz", arrays, info)
    assert canonical.load(tmp_path / "a.npz").info == info


def test_stand_ins_do_not_take_the_real_classes_names(tiny_stand_ins):
    assert prepare_dataset("stl10", {})[1]["class_names"] is None
    for name in ("mnist", "svhn", "celeba"):
        assert prepare_dataset(name, {})[1]["class_names"] == list(DATASETS[name].class_names or ())


def test_a_whole_stand_in():
    arrays, info = prepare_dataset("cifar10", {})
    assert info["class_names"][0] == "sky"
    assert info["counts"] == {"train": 4000, "test": 1000}
    assert info["origin"][0]["package"] == "scikit-learn"
    assert arrays["x_train"].shape == (4000, 32, 32, 3)


def test_a_local_file_is_no_stand_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = some_images(3, (28, 28)), np.arange(3)
    (tmp_path / "there").mkdir()
    np.savez("there/mine.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    lines: list[str] = []
    _, info = prepare_dataset("kmnist", {"source": "npz", "path": "there/mine.npz"}, lines.append)
    assert info["stand_in"] is False
    assert info["description"] == "KMNIST (local npz: mine.npz)"
    assert info["origin"][0]["file"] == "there/mine.npz"
    assert info["counts"] == {"train": 3, "test": 2}
    assert info["shape"] == [28, 28, 1]
    assert info["class_counts"] == {"train": [1] * 3 + [0] * 7, "test": [1] * 2 + [0] * 8}
    assert info["class_names"][0] == "o"
    assert lines == ["KMNIST: reading from source 'npz'"]


def test_options_are_checked_first():
    with pytest.raises(UserError, match=r"datasets\.mnist\.path: missing"):
        prepare_dataset("mnist", {"source": "npz"})


def test_shakespeare_that_is_there_is_not_fetched(tmp_path, monkeypatch, quick_downloads):
    text = b"To be, or not to be: that is the question.\n"
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_bytes(text)
    monkeypatch.setattr(official, "SHAKESPEARE_URL", "http://127.0.0.1:9/input.txt")
    options = {"source": "download", "path": str(tmp_path)}
    with pytest.raises(UserError, match=r"by hand or use source 'file'\."):
        prepare_dataset("shakespeare", options)
    monkeypatch.setattr(official, "SHAKESPEARE_SHA256", hashlib.sha256(text).hexdigest())
    arrays, info = prepare_dataset("shakespeare", options)
    assert info["description"] == "Shakespeare characters (published file)"
    assert sum(info["counts"].values()) == len(text)
    assert arrays["text_test"].dtype == np.uint8


def test_published_files_are_read_from_the_usual_folder(monkeypatch, tiny_stand_ins):
    def read(info, folder, progress):
        assert folder == "data"
        return prepare.embedded_images(info.name)

    monkeypatch.setattr(official, "load_official", read)
    _, info = prepare_dataset("mnist", {"source": "torchvision"})
    assert info["description"] == "MNIST (published files)"
    assert info["stand_in"] is False


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            PermissionError(13, "Permission denied", "data/MNIST"),
            "data/MNIST: Permission denied; check access rights",
        ),
        (OSError("broken"), "broken: not readable; check access rights"),
    ],
)
def test_unreadable_files_are_reported_with_what_to_check(monkeypatch, error, message):
    def refuse(*arguments):
        raise error

    monkeypatch.setattr(official, "load_official", refuse)
    with pytest.raises(UserError, match=rf"datasets\.mnist: {message}"):
        prepare_dataset("mnist", {"source": "torchvision"})


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Writes `mine.npz` with images of two classes for each split; gives the options to read it."""
    monkeypatch.chdir(tmp_path)

    def write(x_train, x_test):
        y = [np.array([1, 0] * len(x))[: len(x)] for x in (x_train, x_test)]
        np.savez("mine.npz", x_train=x_train, y_train=y[0], x_test=x_test, y_test=y[1])
        return {"source": "npz", "path": "mine.npz"}

    return write


def test_warnings_name_absent_classes_and_mixed_sizes(mine, caplog):
    options = mine(some_images(4, (28, 28)), some_images(1, (28, 30)))
    _, info = prepare_dataset("mnist", options)
    assert info["warnings"] == [
        "images of 2 sizes (28x28, 28x30) are brought to one",
        "no train image of class 2, 3, 4, 5, 6, 7, 8, 9",
        "no test image of class 0, 2, 3, 4, 5, 6, 7, 8, 9",
    ]
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [("WARNING", f"datasets.mnist: {warning}") for warning in info["warnings"]]


def test_what_is_most_likely_a_mistake_is_told(mine):
    train, test = some_images(20, (28, 28)), some_images(12, (28, 28))[10:] + 1
    test[0] = train[3]
    _, info = prepare_dataset("mnist", mine(train, test))
    assert "1 of 2 test images are also training images, to the pixel" in info["warnings"]
    _, info = prepare_dataset("mnist", mine(train, (test > 128).astype(np.uint8)))
    assert "no pixel of the test images is above 1, of 255" in info["warnings"]
    assert not any("train" in warning for warning in info["warnings"][1:] if "pixel" in warning)


def test_constant_images_are_refused_by_name(mine):
    images, grey = some_images(3, (28, 28)), np.full((3, 28, 28), 7, np.uint8)
    for train, test, message in (
        (grey, images, "all pixels of all train images are 7"),
        (images, grey, "all pixels of all test images are 7"),
        (images[[0, 0]], images, "all 2 train images are the same"),
        (images[[0, 0, 0]], images, "all 3 train images are the same"),
    ):
        with pytest.raises(UserError, match=rf"datasets\.mnist: {message}; correct"):
            prepare_dataset("mnist", mine(train, test))
    assert prepare_dataset("mnist", mine(images, images[[0, 0]]))[1]["counts"]["test"] == 2


def test_a_file_that_changed_since_planning_is_refused(mine):
    options = mine(some_images(4, (28, 28)), some_images(4, (28, 28)))
    planned = {**options, "sha256": content_hash("npz", "mine.npz")}
    assert prepare_dataset("mnist", planned)[1]["source"] == "npz"
    mine(some_images(5, (28, 28)), some_images(4, (28, 28)))
    with pytest.raises(UserError, match=r"datasets\.mnist\.path: 'mine\.npz' has changed since"):
        prepare_dataset("mnist", planned)


def test_an_npz_file_that_must_not_be_read_is_not_called_damaged(mine, monkeypatch):
    options = mine(some_images(4, (28, 28)), some_images(4, (28, 28)))

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied", "mine.npz")

    monkeypatch.setattr(local, "unpacked", refuse)
    with pytest.raises(UserError, match=r"datasets\.mnist: mine\.npz: Permission denied; check"):
        prepare_dataset("mnist", options)
