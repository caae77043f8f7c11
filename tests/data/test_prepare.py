import hashlib
import json

import numpy as np
import pytest

from feature_alignment.data import canonical, prepare
from feature_alignment.data.canonical import content_sha256
from feature_alignment.data.prepare import prepare_dataset
from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError

INFO_KEYS = {
    "name", "title", "source", "stand_in", "description", "origin", "notes", "counts",
    "class_names", "sha256",
}  # fmt: skip


@pytest.fixture
def tiny_stand_ins(monkeypatch):
    """Stand-ins of one image a split, since generating whole sets takes seconds each."""

    def one_image(name):
        x, y = np.zeros((1, *DATASETS[name].shape), np.uint8), np.zeros(1, np.int64)
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
    assert info == json.loads(json.dumps(info))
    if info["class_names"] is not None:
        assert len(info["class_names"]) == DATASETS[name].classes
    canonical.save(tmp_path / "a.npz", arrays, info)
    assert canonical.load(tmp_path / "a.npz").info == info


def test_stand_ins_do_not_take_the_real_classes_names(tiny_stand_ins):
    assert prepare_dataset("stl10", {})[1]["class_names"] is None
    assert prepare_dataset("mnist", {})[1]["class_names"][0] == "0"


def test_a_whole_stand_in():
    arrays, info = prepare_dataset("cifar10", {})
    assert info["class_names"][0] == "sky"
    assert info["counts"] == {"train": 4000, "test": 1000}
    assert info["origin"][0]["package"] == "scikit-learn"
    assert arrays["x_train"].shape == (4000, 32, 32, 3)


def test_a_local_file_is_no_stand_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = np.zeros((3, 28, 28), np.uint8), np.arange(3)
    np.savez("mine.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    lines: list[str] = []
    _, info = prepare_dataset("kmnist", {"source": "npz", "path": "mine.npz"}, lines.append)
    assert info["stand_in"] is False
    assert info["description"] == "KMNIST (local npz: mine.npz)"
    assert info["origin"][0]["file"] == "mine.npz"
    assert info["counts"] == {"train": 3, "test": 2}
    assert info["class_names"][0] == "o"
    assert lines == ["KMNIST: reading from source 'npz'"]


def test_options_are_checked_first():
    with pytest.raises(UserError, match=r"datasets\.mnist\.path: missing"):
        prepare_dataset("mnist", {"source": "npz"})


def test_shakespeare_that_is_there_is_not_fetched(tmp_path, monkeypatch, quick_downloads):
    text = b"To be, or not to be: that is the question.\n"
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_bytes(text)
    monkeypatch.setattr(prepare, "SHAKESPEARE_URL", "http://127.0.0.1:9/input.txt")
    options = {"source": "download", "path": str(tmp_path)}
    with pytest.raises(UserError, match=r"by hand or use source 'file'\."):
        prepare_dataset("shakespeare", options)
    monkeypatch.setattr(prepare, "SHAKESPEARE_SHA256", hashlib.sha256(text).hexdigest())
    arrays, info = prepare_dataset("shakespeare", options)
    assert info["description"] == "Shakespeare characters (published file)"
    assert sum(info["counts"].values()) == len(text)
    assert arrays["text_test"].dtype == np.uint8


def test_unreadable_files_are_reported_with_what_to_check(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise PermissionError(13, "Permission denied", "data/MNIST")

    monkeypatch.setattr(prepare, "load_official", refuse)
    with pytest.raises(UserError, match=r"Permission denied; check access rights"):
        prepare_dataset("mnist", {"source": "torchvision"})
