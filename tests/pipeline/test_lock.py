"""A result is held by one process at a time, and let go of when that ends."""

import errno
import json
import os
import subprocess
import sys

import pytest

from feature_alignment.errors import UserError
from feature_alignment.pipeline.imports import SOURCE_ROOT
from feature_alignment.pipeline.lock import lock_result

HOLD = "from pathlib import Path; from feature_alignment.pipeline.lock import lock_result; "
HOLD += "lock_result(Path({!r})); print('held', flush=True); input()"


def test_a_held_result_names_its_holder_and_is_free_after_a_kill(tmp_path):
    folder = tmp_path / "results" / "mine"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(str(folder))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(SOURCE_ROOT)},
    )
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match=rf"mine: is being made by process {holder.pid} on"):
            lock_result(folder)
        lock_result(folder.with_name("another"))
        holder.kill()
        holder.wait()
    lock_result(folder)
    assert json.loads((folder / ".lock").read_text())["process"] != holder.pid


def test_the_name_of_an_earlier_holder_is_written_over(tmp_path):
    (tmp_path / ".lock").write_text("a longer name" * 100)
    os.close(lock_result(tmp_path))
    assert json.loads((tmp_path / ".lock").read_text())["process"] == os.getpid()


def test_a_lock_of_another_user_is_told_in_a_sentence(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)  # whoever runs the tests may be allowed all
    with pytest.raises(
        UserError, match=r"\.lock: is not writable; .* with Snakemake by -d <folder>"
    ):
        lock_result(tmp_path)


def test_a_disk_without_room_for_a_lock_is_told_in_a_sentence(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.write", full)
    os.close(lock_result(tmp_path))
    monkeypatch.setattr("os.open", full)  # as on a disk without inodes
    with pytest.raises(UserError, match=r"^the disk of .*\.lock: No space left on device; fix it"):
        lock_result(tmp_path)


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder"])
def test_a_lock_that_is_no_file_is_refused_and_nothing_is_written_through_it(tmp_path, kind):
    other, lock = tmp_path / "other", tmp_path / "mine" / ".lock"
    other.write_text("a text")
    lock.parent.mkdir()
    make = {"link": lambda: lock.symlink_to(other), "hard link": lambda: lock.hardlink_to(other)}
    (make | {"pipe": lambda: os.mkfifo(lock), "folder": lock.mkdir})[kind]()
    with pytest.raises(UserError, match=r"\.lock: is a link or no file; remove it"):
        lock_result(lock.parent)
    assert other.read_text() == "a text"
