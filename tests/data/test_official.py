"""The published sets, on small made-up files in the published layout."""

import functools
import gzip
import hashlib
import io
import pickle
import struct
import tarfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from torchvision import datasets

from feature_alignment.data import official
from feature_alignment.data.official import load_official
from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError

NOWHERE = "http://127.0.0.1:9/"


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        """Say nothing."""


@pytest.fixture
def site(tmp_path, quick_downloads):
    """A folder, and the address it is served at on this machine."""
    folder = tmp_path / "site"
    folder.mkdir()
    handler = functools.partial(QuietHandler, directory=str(folder))
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    yield folder, f"http://127.0.0.1:{http.server_port}/"
    http.shutdown()
    http.server_close()
    thread.join()


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


class Mnist:
    """Six training and four test digits, published as .gz files at `site`."""

    def __init__(self, site, monkeypatch, source=datasets.MNIST):
        rng = np.random.default_rng(0)
        self.x = {
            s: rng.integers(0, 256, (n, 28, 28), np.uint8) for s, n in (("train", 6), ("t10k", 4))
        }
        self.y = {s: (np.arange(len(x)) * 3 % 10).astype(np.uint8) for s, x in self.x.items()}
        self.plain = {}
        for split in ("train", "t10k"):
            self.plain[f"{split}-images-idx3-ubyte"] = idx(self.x[split])
            self.plain[f"{split}-labels-idx1-ubyte"] = idx(self.y[split])
        packed = {f"{name}.gz": gzip.compress(raw, mtime=1) for name, raw in self.plain.items()}
        folder, url = site
        for name, content in packed.items():
            (folder / name).write_bytes(content)
        checksums = {name: md5(raw) for name, raw in self.plain.items()}
        monkeypatch.setattr(official, "MNIST_UNCOMPRESSED_MD5", checksums)
        monkeypatch.setattr(source, "resources", [(n, md5(c)) for n, c in packed.items()])
        monkeypatch.setattr(source, "mirrors", [NOWHERE, url])

    def check(self, arrays):
        for split, prefix in (("train", "train"), ("test", "t10k")):
            np.testing.assert_array_equal(arrays[f"x_{split}"][..., 0], self.x[prefix])
            np.testing.assert_array_equal(arrays[f"y_{split}"], self.y[prefix])


@pytest.fixture
def mnist(site, monkeypatch):
    return Mnist(site, monkeypatch)


def test_mnist_is_fetched_from_the_second_mirror_then_read_offline(mnist, tmp_path, monkeypatch):
    arrays, extra = load_official(DATASETS["mnist"], str(tmp_path / "data"), print)
    mnist.check(arrays)
    assert len(extra["origin"]) == 4
    monkeypatch.setattr(datasets.MNIST, "mirrors", [NOWHERE])
    again, _ = load_official(DATASETS["mnist"], str(tmp_path / "data"), print)
    mnist.check(again)


@pytest.mark.parametrize("form", ["plain", "recompressed"])
def test_mnist_in_other_forms_is_read_offline(mnist, tmp_path, monkeypatch, form):
    monkeypatch.setattr(datasets.MNIST, "mirrors", [NOWHERE])
    raw = tmp_path / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, content in mnist.plain.items():
        if form == "plain":
            (raw / name).write_bytes(content)
        else:
            (raw / f"{name}.gz").write_bytes(gzip.compress(content, 1, mtime=7))
    before = sorted(raw.iterdir())
    arrays, extra = load_official(DATASETS["mnist"], str(tmp_path / "data"), print)
    mnist.check(arrays)
    assert sorted(raw.iterdir()) == before  # the folder may be read-only
    assert extra["notes"] == ([] if form == "plain" else ["read from gzipped files"])


@pytest.mark.parametrize(
    "damaged", [b"damaged", gzip.compress(b"", mtime=1)[:10] + b"\xff"], ids=["text", "packed"]
)
def test_damaged_mnist_files_are_replaced(mnist, tmp_path, damaged):
    load_official(DATASETS["mnist"], str(tmp_path), print)
    raw = tmp_path / "MNIST" / "raw"
    (raw / "train-images-idx3-ubyte").write_bytes(b"damaged")
    (raw / "train-images-idx3-ubyte.gz").write_bytes(damaged)
    arrays, _ = load_official(DATASETS["mnist"], str(tmp_path), print)
    mnist.check(arrays)


def test_damaged_mnist_without_network_is_an_error(mnist, tmp_path, monkeypatch):
    load_official(DATASETS["mnist"], str(tmp_path), print)
    monkeypatch.setattr(datasets.MNIST, "mirrors", [NOWHERE])
    raw = tmp_path / "MNIST" / "raw"
    (raw / "t10k-labels-idx1-ubyte").write_bytes(b"damaged")
    whole = (raw / "t10k-labels-idx1-ubyte.gz").read_bytes()
    (raw / "t10k-labels-idx1-ubyte.gz").write_bytes(whole[:-5])
    with pytest.raises(UserError, match=r"t10k-labels-idx1-ubyte\.gz: is there with other content"):
        load_official(DATASETS["mnist"], str(tmp_path), print)


def test_unchecked_processed_files_are_not_read(mnist, tmp_path):
    processed = tmp_path / "MNIST" / "processed"
    processed.mkdir(parents=True)
    for name in ("training.pt", "test.pt"):
        (processed / name).write_bytes(b"anything")
    arrays, _ = load_official(DATASETS["mnist"], str(tmp_path), print)
    mnist.check(arrays)


def test_kmnist_is_checked_by_its_gz_files(site, tmp_path, monkeypatch):
    kmnist = Mnist(site, monkeypatch, datasets.KMNIST)
    load_official(DATASETS["kmnist"], str(tmp_path), print)
    # No uncompressed file of this set has a published checksum: one that is MNIST's is not its.
    name, other = "train-labels-idx1-ubyte", idx(np.zeros(6, np.uint8))
    monkeypatch.setitem(official.MNIST_UNCOMPRESSED_MD5, name, md5(other))
    (tmp_path / "KMNIST" / "raw" / name).write_bytes(other)
    arrays, _ = load_official(DATASETS["kmnist"], str(tmp_path), print)
    kmnist.check(arrays)


def tar_gz(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


CIFAR = {
    "cifar10": (datasets.CIFAR10, "labels", "label_names", 10),
    "cifar100": (datasets.CIFAR100, "fine_labels", "fine_label_names", 100),
}


@pytest.fixture(params=CIFAR)
def cifar(request, site, monkeypatch):
    """Name, torchvision class, training pixels (n, 3, 32, 32) and labels."""
    source, key, names_key, classes = CIFAR[request.param]
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (4, 3072), np.uint8)
    y = [0, classes - 1, 5, 2]
    batches = {
        name: pickle.dumps({"data": x + np.uint8(i), key: y})
        for i, (name, _) in enumerate([*source.train_list, *source.test_list])
    }
    meta = pickle.dumps({names_key: [f"class {i}" for i in range(classes)]})
    members = {**batches, source.meta["filename"]: meta}
    archive = tar_gz({f"{source.base_folder}/{name}": raw for name, raw in members.items()})
    folder, url = site
    (folder / source.filename).write_bytes(archive)
    for attribute in ("train_list", "test_list"):
        lists = [[name, md5(batches[name])] for name, _ in getattr(source, attribute)]
        monkeypatch.setattr(source, attribute, lists)
    monkeypatch.setattr(source, "meta", {**source.meta, "md5": md5(meta)})
    monkeypatch.setattr(source, "url", url + source.filename)
    monkeypatch.setattr(source, "tgz_md5", md5(archive))
    return request.param, source, x.reshape(-1, 3, 32, 32), y


def test_cifar_is_fetched_unpacked_and_then_read_offline(cifar, tmp_path, monkeypatch):
    name, source, x, y = cifar
    arrays, extra = load_official(DATASETS[name], str(tmp_path / "data"), print)
    np.testing.assert_array_equal(arrays["x_train"][:4], x.transpose(0, 2, 3, 1))
    assert arrays["y_train"].tolist() == y * len(source.train_list)
    assert extra["class_names"][-1] == f"class {DATASETS[name].classes - 1}"
    (tmp_path / "data" / source.filename).unlink()
    monkeypatch.setattr(source, "url", NOWHERE)
    again, _ = load_official(DATASETS[name], str(tmp_path / "data"), print)
    np.testing.assert_array_equal(again["x_test"], arrays["x_test"])
    assert sorted(entry.name for entry in (tmp_path / "data").iterdir()) == [source.base_folder]


def test_damaged_cifar_batch_is_unpacked_again_without_network(cifar, tmp_path, monkeypatch):
    name, source, _, _ = cifar
    before, _ = load_official(DATASETS[name], str(tmp_path), print)
    monkeypatch.setattr(source, "url", NOWHERE)
    (tmp_path / source.base_folder / source.test_list[0][0]).write_bytes(b"cut")
    after, _ = load_official(DATASETS[name], str(tmp_path), print)
    np.testing.assert_array_equal(after["x_test"], before["x_test"])


def test_a_pickle_that_is_exchanged_after_the_check_is_not_loaded(cifar, tmp_path, monkeypatch):
    name, source, _, _ = cifar
    load_official(DATASETS[name], str(tmp_path), print)
    batch, marker = tmp_path / source.base_folder / source.test_list[0][0], tmp_path / "marker"

    class Evil:
        def __reduce__(self):
            return Path.touch, (marker,)

    def exchanged(*given):
        found = official_checked(*given)
        batch.write_bytes(pickle.dumps(Evil()))
        return found

    official_checked = official._complete_from_tar
    monkeypatch.setattr(official, "_complete_from_tar", exchanged)
    with pytest.raises(UserError, match="its files have been changed; fetch them again"):
        load_official(DATASETS[name], str(tmp_path), print)
    assert not marker.exists()


def test_cifar_without_network(cifar, tmp_path, monkeypatch):
    name, source, _, _ = cifar
    monkeypatch.setattr(source, "url", NOWHERE)
    with pytest.raises(
        UserError, match=rf"{source.filename}: is missing, wanted md5:.* by hand or"
    ):
        load_official(DATASETS[name], str(tmp_path), print)
    assert not (tmp_path / source.base_folder).exists()


def test_archive_that_lacks_a_member(cifar, site, tmp_path, monkeypatch):
    name, source, _, _ = cifar
    archive = tar_gz({f"{source.base_folder}/other": b""})
    (site[0] / source.filename).write_bytes(archive)
    monkeypatch.setattr(source, "tgz_md5", md5(archive))
    with pytest.raises(UserError, match=r"not a whole archive .* delete it and run again"):
        load_official(DATASETS[name], str(tmp_path / "data"), print)
    assert [entry.name for entry in (tmp_path / "data").iterdir()] == [source.filename]


def test_svhn_calls_the_digit_zero_0(site, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, url = site
    x = np.random.default_rng(2).integers(0, 256, (32, 32, 3, 5), np.uint8)
    splits = {}
    for split in ("train", "test"):
        name = f"{split}_32x32.mat"
        y = np.array([[10], [1], [9], [10], [2]], np.uint8)
        scipy.io.savemat(folder / name, {"X": x, "y": y})
        splits[split] = [url + name, name, md5((folder / name).read_bytes())]
    monkeypatch.setattr(datasets.SVHN, "split_list", splits)
    arrays, _ = load_official(DATASETS["svhn"], "~", print)  # taken literally
    assert arrays["y_train"].tolist() == [0, 1, 9, 0, 2]
    np.testing.assert_array_equal(arrays["x_test"], x.transpose(3, 0, 1, 2))


def test_stl10_needs_no_unlabelled_images_and_is_resized(site, tmp_path, monkeypatch):
    folder, url = site
    members, lists = {}, {}
    for split in ("train", "test"):
        x = np.zeros((3, 3, 96, 96), np.uint8)  # (n, c, w, h): the files are column-major
        x[:, 0, :48] = 200  # left half red
        members[f"{split}_X.bin"] = x.tobytes()
        members[f"{split}_y.bin"] = np.array([1, 10, 3], np.uint8).tobytes()
        names = [f"{split}_X.bin", f"{split}_y.bin"]
        lists[split] = [[name, md5(members[name])] for name in names]
    archive = tar_gz({f"stl10_binary/{name}": raw for name, raw in members.items()})
    (folder / "stl10_binary.tar.gz").write_bytes(archive)
    unlabelled = [["unlabeled_X.bin", "0" * 32]]
    monkeypatch.setattr(datasets.STL10, "train_list", lists["train"] + unlabelled)
    monkeypatch.setattr(datasets.STL10, "test_list", lists["test"])
    monkeypatch.setattr(datasets.STL10, "url", url + "stl10_binary.tar.gz")
    monkeypatch.setattr(datasets.STL10, "tgz_md5", md5(archive))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~" / "stl10_binary").mkdir(parents=True)
    (tmp_path / "~" / "stl10_binary" / "class_names.txt").write_bytes(b"\xff")  # is not read
    arrays, extra = load_official(DATASETS["stl10"], "~", print)  # taken literally
    assert arrays["y_train"].tolist() == [0, 9, 2]
    assert arrays["x_train"].shape == (3, 32, 32, 3)
    assert (arrays["x_test"][:, :, :15] == [200, 0, 0]).all()
    assert (arrays["x_test"][:, :, 17:] == 0).all()
    assert "images of 96x96 pixels resized to 32x32" in extra["notes"][0]


def test_published_checksums_are_torchvisions():
    # The attributes that the loaders read; if torchvision renames one, this fails first.
    for source in (datasets.MNIST, datasets.KMNIST):
        assert len(source.resources) == 4
        assert set(official.MNIST_UNCOMPRESSED_MD5) == {n[:-3] for n, _ in source.resources}
    for source in (datasets.CIFAR10, datasets.CIFAR100, datasets.STL10):
        assert source.url.endswith(source.filename)
        assert len(source.tgz_md5) == 32
    assert [name for name, _ in datasets.STL10.train_list[:2]] == ["train_X.bin", "train_y.bin"]
    assert {"train", "test"} <= set(datasets.SVHN.split_list)
    assert Path(datasets.CelebA.base_folder).name == "celeba"
