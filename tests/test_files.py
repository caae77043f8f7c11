import errno
import os

import pytest

from feature_alignment.files import (
    read_regular,
    sha256_of,
    unfinished,
    whole_file,
    write_whole,
)


def test_a_file_takes_its_place_at_the_end(tmp_path):
    path = tmp_path / "sub" / "table.csv"
    with whole_file(path) as partial:
        partial.write_text("new")
        assert partial.suffix == path.suffix
        assert not path.exists()
    assert [file.name for file in path.parent.iterdir()] == ["table.csv"]


def test_a_failure_keeps_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")

    def fail():
        with whole_file(path) as partial:
            partial.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path):
    with pytest.raises(OSError, match=r"full: '.*table\.csv'"), whole_file(tmp_path / "table.csv"):
        raise OSError(errno.ENOSPC, "full")


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_has_no_end_is_not_read(tmp_path, kind):
    file = tmp_path / "x.csv"
    os.mkfifo(file) if kind == "pipe" else file.symlink_to("/dev/zero")
    for read in (read_regular, sha256_of):
        with pytest.raises(OSError, match="a pipe or device in place of a file"):
            read(file)


def test_machines_that_share_a_disk_write_to_different_files(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    here = unfinished(path)
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    assert unfinished(path) != here


def test_nothing_is_written_through_a_link_in_the_place_of_a_partial_file(tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    unfinished(tmp_path / "table.csv").symlink_to(other)
    write_whole(tmp_path / "table.csv", "a,b\n")
    assert (other.read_text(), (tmp_path / "table.csv").read_text()) == ("mine", "a,b\n")
