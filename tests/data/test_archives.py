import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from feature_alignment.data import archives
from feature_alignment.data.archives import unpack, unpacked
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
        archive.mkdir("folder")
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
    unpack(tar, tmp_path / "out", ["folder/a.bin", "c.txt"])
    assert files(tmp_path / "out") == {n: MEMBERS[n] for n in ("folder/a.bin", "c.txt")}


def test_unpacking_replaces_damaged_files_and_keeps_others(tar, tmp_path):
    out = tmp_path / "out"
    (out / "folder").mkdir(parents=True)
    (out / "folder" / "a.bin").write_bytes(b"damaged")
    (out / "folder" / "mine.txt").write_bytes(b"mine")
    unpack(tar, out, MEMBERS)
    assert files(out) == {**MEMBERS, "folder/mine.txt": b"mine"}


def test_damaged_tar_leaves_nothing(tar, tmp_path):
    tar.write_bytes(tar.read_bytes()[:-30])
    with pytest.raises(UserError, match=r"all\.tar\.gz: not a whole archive .*delete it and run"):
        unpack(tar, tmp_path / "out", MEMBERS)
    assert list((tmp_path / "out").iterdir()) == []


def tar_of(path, *entries):
    with tarfile.open(path, "w:gz") as archive:
        for entry, content in entries:
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def link_in_tar(path, target):
    link = tarfile.TarInfo("a.bin")
    link.type, link.linkname = tarfile.SYMTYPE, target
    tar_of(path, (tarfile.TarInfo("b.bin"), b"b"), (link, b""))


def zip_of(path, name, content=b"evil", **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr(name, content)


def secret_zip(path):
    zip_of(path, "a.bin")
    content = bytearray(path.read_bytes())
    for header in (b"PK\3\4", b"PK\1\2"):
        at = content.index(header) + (6 if header == b"PK\3\4" else 8)
        content[at] |= 1  # the flag of a password
    path.write_bytes(content)


HOSTILE = {
    "climbs.tar.gz": lambda p: tar_of(p, (tarfile.TarInfo("../../a.bin"), b"evil")),
    "absolute.tar.gz": lambda p: tar_of(p, (tarfile.TarInfo("/tmp/a.bin"), b"evil")),
    "link.tar.gz": lambda p: link_in_tar(p, "/etc/passwd"),
    "link_inside.tar.gz": lambda p: link_in_tar(p, "b.bin"),
    "climbs.zip": lambda p: zip_of(p, "../../a.bin"),
    "absolute.zip": lambda p: zip_of(p, "/tmp/a.bin"),
    "bomb.zip": lambda p: zip_of(p, "a.bin", bytes(3 * 2**20), compression=zipfile.ZIP_DEFLATED),
    "bomb.tar.gz": lambda p: tar_of(p, (tarfile.TarInfo("a.bin"), bytes(3 * 2**20))),
    "secret.zip": secret_zip,
    "empty.zip": lambda p: p.touch(),
    "text.tar.gz": lambda p: p.write_text("<html>log in first</html>"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_one_sentence_and_leaves_nothing(name, tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "LIMIT", 2**20)
    path, out = tmp_path / "deep" / "in" / name, tmp_path / "deep" / "out"
    path.parent.mkdir(parents=True)
    HOSTILE[name](path)
    members = [n for n in ("a.bin", "../../a.bin", "/tmp/a.bin") if n in str(path.read_bytes())]
    if name.endswith(".tar.gz") and name != "text.tar.gz":
        with tarfile.open(path) as archive:
            members = archive.getnames()
    with pytest.raises(
        UserError, match=rf"{name}: not a whole archive \(.+\); delete it"
    ) as caught:
        unpack(path, out, members)
    assert "\n" not in str(caught.value)
    assert list(out.iterdir()) == []
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == [name]
    assert not Path("/tmp/a.bin").exists()


def test_a_zip_is_unpacked_whole(zip_file, tmp_path):
    unpack(zip_file, tmp_path / "out")
    assert files(tmp_path / "out") == MEMBERS


def test_damaged_zip_leaves_nothing(zip_file, tmp_path):
    content = bytearray(zip_file.read_bytes())
    content[content.index(b"aaaa") + 5] ^= 1
    zip_file.write_bytes(content)
    with pytest.raises(UserError, match=r"all\.zip: not a whole archive"):
        unpack(zip_file, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_what_unpacks_to_too_much_is_not_unpacked_further(monkeypatch):
    monkeypatch.setattr(archives, "LIMIT", 2**20)
    with gzip.open(io.BytesIO(gzip.compress(bytes(50 * 2**20)))) as file:
        with pytest.raises(ValueError, match=r"more than 0\.000977 GiB"):
            unpacked(file)
        assert file.tell() <= 2 * 2**20
    with gzip.open(io.BytesIO(gzip.compress(b"x" * 2**20))) as file:
        assert unpacked(file) == b"x" * 2**20
