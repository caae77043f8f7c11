import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from feature_alignment.data.archives import gunzipped, holds_zip, unpack_tar, unpack_zip
from feature_alignment.errors import UserError

MEMBERS = {"folder/a.bin": b"a" * 3000, "folder/deeper/b.bin": b"b", "c.txt": b"c"}


@pytest.fixture
def tar(tmp_path):
    path = tmp_path / "all.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in MEMBERS.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


@pytest.fixture
def zip_file(tmp_path):
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in MEMBERS.items():
            archive.writestr(name, content)
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_some_members_of_a_tar(tar, tmp_path):
    unpack_tar(tar, ["folder/a.bin", "c.txt"], tmp_path / "out")
    assert files(tmp_path / "out") == {n: MEMBERS[n] for n in ("folder/a.bin", "c.txt")}


def test_unpacking_replaces_damaged_files_and_keeps_others(tar, tmp_path):
    out = tmp_path / "out"
    (out / "folder").mkdir(parents=True)
    (out / "folder" / "a.bin").write_bytes(b"damaged")
    (out / "folder" / "mine.txt").write_bytes(b"mine")
    unpack_tar(tar, MEMBERS, out)
    assert files(out) == {**MEMBERS, "folder/mine.txt": b"mine"}


def test_damaged_tar_leaves_nothing(tar, tmp_path):
    tar.write_bytes(tar.read_bytes()[:-30])
    with pytest.raises(UserError, match=r"all\.tar\.gz: not a whole archive .*delete it and run"):
        unpack_tar(tar, MEMBERS, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_tar_that_climbs_out_of_the_folder(tmp_path):
    path = tmp_path / "evil.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../../evil.txt"), io.BytesIO(b""))
    with pytest.raises(UserError, match="not a whole archive"):
        unpack_tar(path, ["../../evil.txt"], tmp_path / "out")
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == ["evil.tar.gz"]


def test_zip_and_what_it_holds(zip_file, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    assert not holds_zip(zip_file, out)
    unpack_zip(zip_file, out)
    assert files(out) == MEMBERS
    assert holds_zip(zip_file, out)
    (out / "folder" / "a.bin").write_bytes(b"cut")
    assert not holds_zip(zip_file, out)


def test_damaged_zip_leaves_nothing(zip_file, tmp_path):
    content = bytearray(zip_file.read_bytes())
    content[content.index(b"aaaa") + 5] ^= 1
    zip_file.write_bytes(content)
    with pytest.raises(UserError, match=r"all\.zip: not a whole zip archive"):
        unpack_zip(zip_file, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_gunzipped(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"content" * 100))
    assert gunzipped(path) == b"content" * 100
    for damaged in (path.read_bytes()[:-4], b"", b"no gzip"):
        path.write_bytes(damaged)
        assert gunzipped(path) is None
