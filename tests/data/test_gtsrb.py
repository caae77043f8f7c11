"""GTSRB on small made-up archives in the published layout."""

import hashlib
import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from feature_alignment.data import official
from feature_alignment.data.official import load_official
from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError

GTSRB = DATASETS["gtsrb"]


def ppm(label: int, side: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (5 * label, 0, 255)).save(buffer, "PPM")
    return buffer.getvalue()


def class_list(names: list[str], label: int) -> bytes:
    rows = [f"{name};40;40;5;5;35;35;{label}" for name in names]
    return "\n".join(["Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId", *rows]).encode()


def published() -> dict[str, dict[str, bytes]]:
    training, test = {}, {}
    for label in range(43):
        names = ["00000_00000.ppm", "00000_00001.ppm"]
        for name in names:
            training[f"GTSRB/Training/{label:05d}/{name}"] = ppm(label, 30 + label)
        training[f"GTSRB/Training/{label:05d}/GT-{label:05d}.csv"] = class_list(names, label)
        test[f"GTSRB/Final_Test/Images/{label:05d}.ppm"] = ppm(42 - label, 40)
    rows = class_list([f"{i:05d}.ppm" for i in range(43)], 0).decode().splitlines()
    rows = [*(f"{row[:-1]}{42 - i}" for i, row in enumerate(rows[1:])), rows[0]][::-1]
    return {
        "GTSRB-Training_fixed.zip": training,
        "GTSRB_Final_Test_Images.zip": test,
        "GTSRB_Final_Test_GT.zip": {"GT-final_test.csv": "\n".join(rows).encode()},
    }


@pytest.fixture
def root(tmp_path, monkeypatch, quick_downloads):
    """A download folder that holds the archives, and no network."""
    monkeypatch.setattr(official, "GTSRB_URL", "http://127.0.0.1:9/")
    monkeypatch.setattr(official, "GTSRB_IMAGES", {"train": 86, "test": 43})
    base = tmp_path / "gtsrb"
    base.mkdir()
    checksums = {}
    for name, members in published().items():
        with zipfile.ZipFile(base / name, "w") as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        checksums[name] = hashlib.md5((base / name).read_bytes()).hexdigest()
    archives = {s: {n: checksums[n] for n in names} for s, names in official.GTSRB_ARCHIVES.items()}
    monkeypatch.setattr(official, "GTSRB_ARCHIVES", archives)
    return tmp_path


def check(arrays):
    assert arrays["y_train"].tolist() == [label for label in range(43) for _ in range(2)]
    assert arrays["y_test"].tolist() == list(range(43))  # in the order of the table
    for split in ("train", "test"):
        assert arrays[f"x_{split}"].shape[1:] == (32, 32, 3)
        np.testing.assert_array_equal(arrays[f"x_{split}"][:, 9, 9, 0], 5 * arrays[f"y_{split}"])


def test_archives_are_unpacked_and_read(root):
    arrays, extra = load_official(GTSRB, str(root), print)
    check(arrays)
    assert extra["notes"][0] == "training images ordered by class"
    assert "images of several sizes resized to 32x32" in extra["notes"][1]


def test_images_without_archives_are_enough(root):
    load_official(GTSRB, str(root), print)
    remove_archives(root)
    arrays, _ = load_official(GTSRB, str(root), print)
    check(arrays)


@pytest.mark.parametrize(
    "lost",
    [
        "GTSRB/Training/00042/00000_00001.ppm",
        "GTSRB/Final_Test/Images/00007.ppm",
        "GT-final_test.csv",
    ],
)
def test_lost_files_are_unpacked_again(root, lost):
    load_official(GTSRB, str(root), print)
    (root / "gtsrb" / lost).unlink()
    arrays, _ = load_official(GTSRB, str(root), print)
    check(arrays)
    remove_archives(root)
    (root / "gtsrb" / lost).unlink()
    with pytest.raises(UserError, match=r"\.zip: is missing, wanted md5:.* by hand or use source"):
        load_official(GTSRB, str(root), print)


def test_a_test_table_of_other_images_is_unpacked_again(root):
    load_official(GTSRB, str(root), print)
    (root / "gtsrb" / "GT-final_test.csv").write_text("Filename;ClassId\n00000.ppm;1\n")
    check(load_official(GTSRB, str(root), print)[0])


def remove_archives(root):
    for archive in (root / "gtsrb").glob("*.zip"):
        archive.unlink()


def test_a_class_folder_of_another_name_is_none(root):
    load_official(GTSRB, str(root), print)
    (root / "gtsrb/GTSRB/Training/00003").rename(root / "gtsrb/GTSRB/Training/00003 (copy)")
    check(load_official(GTSRB, str(root), print)[0])


def test_cut_image_without_archives_is_named(root):
    load_official(GTSRB, str(root), print)
    remove_archives(root)
    cut = root / "gtsrb" / "GTSRB" / "Training" / "00003" / "00000_00000.ppm"
    cut.write_bytes(cut.read_bytes()[:100])
    with pytest.raises(UserError, match=r"00003/00000_00000\.ppm: not a whole image file"):
        load_official(GTSRB, str(root), print)


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ("Filename;ClassId\n00000.ppm;\n", "00000"),
        ("Filename;ClassId\n00000.ppm;1\n00000.ppm;1\n", "00000.ppm has no allowed value, or two"),
        ("Filename;ClassId\n0\x1b[31m.ppm;\n", r"0\\x1b\[31m"),
        ("<html>log in first</html>", ".+"),
    ],
)
def test_wrong_test_table_is_named(root, table, fault):
    load_official(GTSRB, str(root), print)
    remove_archives(root)
    (root / "gtsrb" / "GT-final_test.csv").write_text(table)
    says = rf"GT-final_test\.csv: not in the published form \({fault}"
    with pytest.raises(UserError, match=says):
        load_official(GTSRB, str(root), print)
