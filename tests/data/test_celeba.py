"""CelebA on small made-up files in the published layout."""

import hashlib

import numpy as np
import pytest
from PIL import Image

from feature_alignment.data import official
from feature_alignment.data.official import CELEBA_LISTS, load_official
from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError

INFO = DATASETS["celeba"]
# (partition, eyeglasses) of each portrait, in the published order; 1 is validation.
PORTRAITS = [
    (0, 0), (0, 0), (0, 1), (1, 1), (0, 0), (0, 1), (0, 1), (2, 1), (2, 0), (2, 0), (0, 1)
]  # fmt: skip


@pytest.fixture
def root(tmp_path, monkeypatch):
    base = tmp_path / "celeba"
    (base / "img_align_celeba").mkdir(parents=True)
    attributes = [str(len(PORTRAITS)), "Bald Eyeglasses Young"]
    partitions = []
    for number, (part, glasses) in enumerate(PORTRAITS, start=1):
        name = f"{number:06d}.jpg"
        image = Image.new("RGB", (178, 218), (0, 0, 0))
        image.paste((20 * number,) * 3, (0, 20, 178, 198))  # the central square
        image.save(base / "img_align_celeba" / name, quality=95)
        attributes.append(f"{name} -1 {2 * glasses - 1:2d}  1")
        partitions.append(f"{name} {part}")
    (base / "list_attr_celeba.txt").write_text("\n".join(attributes) + "\n")
    (base / "list_eval_partition.txt").write_text("\n".join(partitions) + "\n")
    own = {name: hashlib.md5((base / name).read_bytes()).hexdigest() for name in CELEBA_LISTS}
    monkeypatch.setattr(official, "CELEBA_LISTS", own)
    return tmp_path


def test_first_portraits_of_both_classes_in_order(root):
    arrays, extra = load_official(INFO, str(root), print)
    assert arrays["y_train"].tolist() == [0, 0, 1, 0, 1, 1]
    assert arrays["y_test"].tolist() == [1, 0]
    shades = arrays["x_train"][:, 48, 48, 0].astype(int)
    assert np.abs(shades - [20, 40, 60, 100, 120, 140]).max() <= 2
    assert arrays["x_train"].shape[1:] == (96, 96, 3)
    assert arrays["x_train"][0].min() >= 12  # the dark bars above and below are cut off
    assert "central square" in extra["notes"][1]
    assert len(extra["origin"]) == 3
    image = root / "celeba" / "img_align_celeba" / "000001.jpg"
    image.write_bytes(image.read_bytes() + b"more")
    assert load_official(INFO, str(root), print)[1]["origin"][0] != extra["origin"][0]


def test_limit_keeps_the_classes_balanced(root, monkeypatch):
    monkeypatch.setattr(official, "CELEBA_PER_CLASS", {"train": 2, "test": 1})
    arrays, _ = load_official(INFO, str(root), print)
    assert arrays["y_train"].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "name", ["img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt"]
)
def test_missing_files_say_what_to_place_where(root, name):
    (root / "celeba" / name).rename(root / "away")
    with pytest.raises(UserError, match=rf"celeba/{name}: missing; CelebA cannot be fetched") as e:
        load_official(INFO, str(root), print)
    for wanted in ("img_align_celeba/", "list_attr_celeba.txt", "list_eval_partition.txt"):
        assert wanted in str(e.value)
    assert str(root / "celeba") in str(e.value)


@pytest.mark.parametrize("name", CELEBA_LISTS)
def test_lists_that_are_not_the_published_ones_are_named(root, name):
    file = root / "celeba" / name
    file.write_text(file.read_text() + "\n")
    with pytest.raises(UserError, match=rf"celeba/{name}: is not the published file, of MD5"):
        load_official(INFO, str(root), print)


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_damaged_portraits_are_named(root, damage):
    path = root / "celeba" / "img_align_celeba" / "000002.jpg"
    content = path.read_bytes()
    path.unlink() if damage == "gone" else path.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"000002\.jpg: not a whole image file"):
        load_official(INFO, str(root), print)
