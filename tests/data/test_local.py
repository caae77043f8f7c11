import dataclasses
import hashlib
import io
import lzma
import os
import shutil
import zipfile

import numpy as np
import pytest
from PIL import Image

from feature_alignment.data.local import load_imagefolder, load_npz
from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError

MNIST, CIFAR10, CELEBA = DATASETS["mnist"], DATASETS["cifar10"], DATASETS["celeba"]


@pytest.fixture
def members() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.integers(0, 256, (5, 28, 28), dtype=np.uint8),
        "y_train": np.array([3, 0, 9, 1, 1], dtype=np.uint8),
        "x_test": rng.integers(0, 256, (2, 28, 28), dtype=np.uint8),
        "y_test": np.array([0, 5], dtype=np.uint8),
        "class_names": np.array(["other", "arrays", "are", "ignored"]),
    }


def test_npz_keeps_order_and_pixels(tmp_path, members):
    path = tmp_path / "a.npz"
    np.savez(path, **members)
    arrays, extra = load_npz(MNIST, str(path))
    assert sorted(arrays) == ["x_test", "x_train", "y_test", "y_train"]
    np.testing.assert_array_equal(arrays["x_train"][..., 0], members["x_train"])
    np.testing.assert_array_equal(arrays["y_train"], members["y_train"])
    assert extra["notes"] == []
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert extra["origin"] == [{"file": str(path), "sha256": digest}]


def test_npz_compressed_by_xz_gives_the_same(tmp_path, members):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **members)
    (tmp_path / "a.npz").write_bytes(buffer.getvalue())
    (tmp_path / "a.npz.xz").write_bytes(lzma.compress(buffer.getvalue()))
    plain, _ = load_npz(MNIST, str(tmp_path / "a.npz"))
    packed, extra = load_npz(MNIST, str(tmp_path / "a.npz.xz"))
    assert extra["notes"] == ["unpacked from .xz"]
    for key, array in plain.items():
        np.testing.assert_array_equal(packed[key], array)


def test_npz_of_another_size_is_resized_and_says_so(tmp_path, members):
    np.savez(tmp_path / "a.npz", **members)
    arrays, extra = load_npz(CIFAR10, str(tmp_path / "a.npz"))
    assert arrays["x_train"].shape == (5, 32, 32, 3)
    assert extra["notes"] == [
        "images of 28x28 pixels resized to 32x32 (Pillow, bilinear with antialiasing)",
        "grey images made colour, with three equal channels",
    ]


@pytest.mark.parametrize("name", ["a.npz", "a.npz.xz"])
@pytest.mark.parametrize("damage", ["empty", "text", "cut", "middle", "npy"])
def test_damaged_npz(tmp_path, members, name, damage):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **members)
    raw = buffer.getvalue()
    content = lzma.compress(raw) if name.endswith("xz") else raw
    if damage == "npy":
        single = io.BytesIO()
        np.save(single, members["x_train"])
        content = lzma.compress(single.getvalue()) if name.endswith("xz") else single.getvalue()
    middle = len(content) // 2
    content = {
        "empty": b"",
        "text": b"no archive",
        "cut": content[:middle],
        "middle": content[:middle] + bytes(20) + content[middle + 20 :],
        "npy": content,
    }[damage]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=r"a\.npz\S*: not a whole \.npz file .*copy it again") as e:
        load_npz(MNIST, str(tmp_path / name))
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("changed", "array", "message"),
    [
        ("x_test", None, r"no array 'x_test', but x_train, y_train, y_test, class_na"),
        ("x_train", np.array([None, "evil"], dtype=object), "plain arrays"),  # not unpickled
        ("y_test", np.array([0, 10]), r"a\.npz, y_test: labels from 0 to 10, wanted 0 to 9"),
    ],
)
def test_npz_with_a_wrong_array(tmp_path, members, changed, array, message):
    members[changed] = array
    np.savez(tmp_path / "a.npz", **{k: v for k, v in members.items() if v is not None})
    with pytest.raises(UserError, match=message):
        load_npz(MNIST, str(tmp_path / "a.npz"))


@pytest.mark.parametrize("content", [b"", b"hello"])
def test_npz_with_a_member_that_is_no_array(tmp_path, members, content):
    del members["x_train"]
    np.savez(tmp_path / "a.npz", **members)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("x_train.npy", content)
    with pytest.raises(UserError, match=r"a\.npz: x_train is no array; write it with"):
        load_npz(MNIST, str(tmp_path / "a.npz"))


@pytest.fixture
def folder(tmp_path):
    """Two classes named by number, three training and one test image each, one colour each."""
    for split, number in (("train", 3), ("test", 1)):
        for label, name in enumerate(("9", "10")):
            place = tmp_path / split / name
            place.mkdir(parents=True)
            for i in range(number):
                image = Image.new("RGB", (96, 96), (100 * label, 10 * i, 0))
                image.save(place / f"image{i + 9}.png")
    return tmp_path


def test_imagefolder_takes_classes_in_turn(folder):
    (folder / "train" / "9" / "Thumbs.db").write_text("not an image")
    (folder / "train" / ".hidden").mkdir()
    arrays, extra = load_imagefolder(CELEBA, str(folder))
    assert arrays["y_train"].tolist() == [0, 1, 0, 1, 0, 1]
    assert arrays["x_train"][:, 0, 0, 1].tolist() == [0, 0, 10, 10, 20, 20]
    assert arrays["x_train"][:, 0, 0, 0].tolist() == [0, 100] * 3
    assert extra["class_names"] == ["9", "10"]
    assert extra["notes"] == ["images taken in turn from each class"]


def test_imagefolder_hash_sees_every_image(folder):
    _, before = load_imagefolder(CELEBA, str(folder))
    Image.new("RGB", (96, 96), (1, 2, 3)).save(folder / "test" / "10" / "image9.png")
    _, after = load_imagefolder(CELEBA, str(folder))
    assert before["origin"][0]["sha256"] != after["origin"][0]["sha256"]


def test_imagefolder_of_several_sizes_says_so(folder):
    Image.new("RGB", (50, 40)).save(folder / "test" / "10" / "image9.png")
    Image.new("RGB", (50, 41)).save(folder / "test" / "9" / "image9.png")
    _, extra = load_imagefolder(CELEBA, str(folder))
    assert "images of several sizes resized to 96x96" in extra["notes"][1]
    sizes, numbering = extra["warnings"]
    assert sizes == "images of 3 sizes (40x50, 41x50, 96x96) are brought to one"
    assert numbering.endswith(
        "other names than the set's classes, and are numbered so: 9 is 0, 10 is 1"
    )


@pytest.mark.parametrize("names", [("0", "1"), ("00", "01"), ("no eyeglasses", "eyeglasses")])
def test_folders_with_the_sets_own_names_or_numbers_need_no_warning(folder, names):
    for old, new in zip(("9", "10"), names, strict=True):
        for split in ("train", "test"):
            (folder / split / old).rename(folder / split / new)
    assert load_imagefolder(CELEBA, str(folder))[1]["warnings"] == []


def test_what_lies_in_a_folder_and_is_not_read_is_told(folder):
    (folder / "train" / "9" / "more").mkdir()
    (folder / "train" / "9" / "image9.png").rename(folder / "train" / "9" / "image9.jfif")
    (folder / "test" / "stray.png").write_bytes(b"")
    (folder / "test" / ".DS_Store").write_bytes(b"")
    (folder / "readme.txt").write_text("of the whole")
    _, extra = load_imagefolder(CELEBA, str(folder))
    told = "3 files or folders are not read (train/9/image9.jfif, train/9/more, test/stray.png)"
    assert told in extra["warnings"]
    (folder / "test" / "stray2.png").write_bytes(b"")
    _, extra = load_imagefolder(CELEBA, str(folder))
    told = "4 files or folders are not read (train/9/image9.jfif, train/9/more, test/stray.png, …)"
    assert told in extra["warnings"]


def test_classes_that_have_no_names_need_no_warning(folder):
    unnamed = dataclasses.replace(CELEBA, class_names=None)
    assert load_imagefolder(unnamed, str(folder))[1]["warnings"] == []


@pytest.mark.parametrize("remove", [lambda place: place.rmdir(), lambda place: None])
def test_a_class_without_images_in_a_split_keeps_its_number(folder, remove):
    (folder / "test" / "9" / "image9.png").unlink()
    remove(folder / "test" / "9")
    arrays, extra = load_imagefolder(CELEBA, str(folder))
    assert arrays["y_test"].tolist() == [1]
    assert extra["class_names"] == ["9", "10"]


@pytest.mark.parametrize(
    ("damage", "info", "message"),
    [
        (lambda f: shutil.rmtree(f / "test"), CELEBA, "test: no such folder; an image folder"),
        (lambda f: None, CIFAR10, r": 2 class folders, wanted 10 for CIFAR-10; .* an empty one"),
        (
            lambda f: (f / "test" / "10").rename(f / "test" / "11"),
            CELEBA,
            r"3 class folders \('10' is in one of train/ and test/ only\), wanted 2",
        ),
        (
            lambda f: [file.unlink() for file in f.glob("test/*/*.png")],
            CELEBA,
            r"test: no image in class folders .* put one folder of images for each class there",
        ),
        (
            lambda f: (
                os.mkfifo(f / "pipe"),
                (f / "train" / "10" / "image1.png").symlink_to(f / "pipe"),
            ),
            CELEBA,
            r"image1\.png: is a link that leads nowhere or out of",
        ),
        (
            lambda f: (f / "train" / "10" / "image10.png").write_bytes(b"\x89PNG"),
            CELEBA,
            r"train/10/image10\.png: not a whole image file",
        ),
        (
            lambda f: [
                (f / split / "10").rename(os.fsdecode(os.fsencode(f / split) + b"/caf\xe9"))
                for split in ("train", "test")
            ],
            CELEBA,
            "is not named in UTF-8; rename it",
        ),
    ],
)
def test_imagefolder_that_is_not_whole(folder, damage, info, message):
    damage(folder)
    with pytest.raises(UserError, match=message):
        load_imagefolder(info, str(folder))
