import io
import json
import zipfile

import numpy as np
import pytest

from feature_alignment.data.canonical import Dataset, content_sha256, load, save
from feature_alignment.errors import UserError


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.integers(0, 256, (6, 4, 4, 1), dtype=np.uint8),
        "y_train": np.arange(6, dtype=np.int64) % 3,
        "x_test": rng.integers(0, 256, (3, 4, 4, 1), dtype=np.uint8),
        "y_test": np.arange(3, dtype=np.int64),
    }


@pytest.fixture
def info(arrays) -> dict:
    return {"name": "toy", "description": "Toy (local npz: é)", "sha256": content_sha256(arrays)}


def test_what_is_saved_is_loaded(tmp_path, arrays, info):
    save(tmp_path / "new folder" / "toy.npz", arrays, info)
    loaded = load(tmp_path / "new folder" / "toy.npz")
    assert loaded.info == info
    assert loaded.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert loaded.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded.arrays[name], array)
    x, y = loaded.split("test")
    np.testing.assert_array_equal(x, arrays["x_test"])
    np.testing.assert_array_equal(y, arrays["y_test"])


def test_same_content_gives_same_bytes_whatever_the_order(tmp_path, arrays, info):
    save(tmp_path / "a.npz", arrays, info)
    backwards = dict(reversed(arrays.items()))
    save(tmp_path / "b.npz", backwards, dict(reversed(info.items())))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert {member.date_time[0] for member in archive.infolist()} == {1980}


def test_sha256_sees_name_type_shape_and_content(arrays):
    variants = [
        arrays,
        {**arrays, "y_test": arrays["y_test"].astype(np.int32)},
        {**arrays, "y_test": arrays["y_test"][::-1]},
        {**arrays, "x_test": arrays["x_test"].reshape(3, 2, 8, 1)},
        {("z_test" if name == "x_test" else name): array for name, array in arrays.items()},
    ]
    assert len({content_sha256(variant) for variant in variants}) == len(variants)


def test_sha256_ignores_byte_order_and_memory_layout(arrays):
    swapped = {**arrays, "y_test": arrays["y_test"].astype(">i8")}
    strided = {**arrays, "x_test": np.asfortranarray(arrays["x_test"])}
    assert content_sha256(swapped) == content_sha256(strided) == content_sha256(arrays)


def test_save_refuses_a_wrong_hash(tmp_path, arrays, info):
    with pytest.raises(ValueError, match="not the hash"):
        save(tmp_path / "a.npz", arrays, {**info, "sha256": "0"})
    assert list(tmp_path.iterdir()) == []


def test_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, arrays, info, monkeypatch):
    path = tmp_path / "a.npz"
    save(path, arrays, info)
    before = path.read_bytes()

    def half_written(file, **members):
        file.write(b"PK")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", half_written)
    with pytest.raises(OSError, match="disk full"):
        save(path, arrays, info)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.npz"]


def flipped(members, raw):
    at = raw.index(b"x_train.npy") + 200  # in the pixels, where the archive's own checksum sees it
    return raw[:at] + bytes([raw[at] ^ 255]) + raw[at + 1 :]


def written(write, *arguments, **members):
    file = io.BytesIO()
    write(file, *arguments, **members)
    return file.getvalue()


FIRST_PIXEL = np.arange(96).reshape(6, 4, 4, 1) == 0
NAME_ONLY = np.frombuffer(json.dumps({"name": "toy"}).encode(), dtype=np.uint8)
DAMAGES = {
    "cut": lambda members, raw: raw[:-200],
    "empty": lambda members, raw: b"",
    "flipped": flipped,
    "pixel": lambda m, raw: written(np.savez, **{**m, "x_train": m["x_train"] ^ FIRST_PIXEL}),
    "no info": lambda m, raw: written(np.savez, **{k: v for k, v in m.items() if k != "info_json"}),
    "no hash": lambda m, raw: written(np.savez, **{**m, "info_json": NAME_ONLY}),
    "array": lambda m, raw: written(np.save, np.zeros(3)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_name_file_and_cure(tmp_path, arrays, info, damage):
    path = tmp_path / "toy.npz"
    save(path, arrays, info)
    with np.load(path) as archive:
        members = dict(archive)
    path.write_bytes(DAMAGES[damage](members, path.read_bytes()))
    with pytest.raises(UserError, match="delete it and run the workflow again") as caught:
        load(path)
    assert str(caught.value).startswith(str(path))


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"no such file; run the workflow"):
        load(tmp_path / "toy.npz")


def test_draw_is_without_replacement_and_repeats(arrays, info):
    dataset = Dataset(arrays, info)
    x, y = dataset.draw("train", 6, np.random.default_rng(1))
    again, _ = dataset.draw("train", 6, np.random.default_rng(1))
    np.testing.assert_array_equal(x, again)
    rows = {(one.tobytes(), int(label)) for one, label in zip(x, y, strict=True)}
    original = zip(arrays["x_train"], arrays["y_train"], strict=True)
    assert rows == {(one.tobytes(), int(label)) for one, label in original}
    assert len(dataset.draw("train", 1, np.random.default_rng(1))[0]) == 1


@pytest.mark.parametrize("number", [0, 7])
def test_draw_refuses_more_than_there_is(arrays, info, number):
    with pytest.raises(UserError, match=rf"toy: {number} train images .* has 6; ask for 1 to 6"):
        Dataset(arrays, info).draw("train", number, np.random.default_rng(0))


def test_images_are_no_text_and_text_no_images(arrays, info):
    images = Dataset(arrays, info)
    codes = np.zeros(3, dtype=np.uint8)
    text = Dataset(
        {"text_train": codes, "text_test": codes, "vocabulary": np.array([97], np.uint32)}, info
    )
    assert text.vocabulary == ["a"]
    np.testing.assert_array_equal(text.text("test"), codes)
    with pytest.raises(UserError, match="holds images, not text as needed"):
        images.text("train")
    with pytest.raises(UserError, match="holds text, not images as needed"):
        text.split("train")
    with pytest.raises(UserError, match="holds images, not text as needed"):
        _ = images.vocabulary
    with pytest.raises(UserError, match="split: 'tset' is unknown; did you mean 'test'"):
        images.split("tset")
