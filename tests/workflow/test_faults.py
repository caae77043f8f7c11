"""What a machine does to the pipeline: the same command goes on, or one sentence says why not."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.workflow.faults import main

from feature_alignment.errors import UserError
from feature_alignment.pipeline.proof import verify

pytestmark = pytest.mark.slow
COMMAND = ("--cores", "2", "--config", "preset=smoke", "papers=example2030")
# Root may write anywhere; without these two it is refused as everybody is.
SETPRIV = shutil.which("setpriv")
AS_EVERYBODY = (SETPRIV, "--bounding-set=-dac_override,-dac_read_search")
UNPROVEN = {".log"}


@pytest.fixture(scope="module")
def undisturbed(made_up):
    return made_up


@pytest.fixture
def copy(undisturbed, tmp_path):
    return undisturbed.copy(tmp_path / "copy")


@pytest.fixture(scope="module")
def restricted(pipeline_class):
    """The class of copies whose processes may write only where permissions allow it."""
    if os.geteuid() == 0 and SETPRIV is None:
        pytest.skip("root may write anywhere, and no setpriv is here to restrict it")

    class Restricted(pipeline_class):
        by_itself = True

        def command(self, *arguments):
            prefix = AS_EVERYBODY if os.geteuid() == 0 else ()
            return [*prefix, *super().command(*arguments)]

    return Restricted


def told(done):
    """The sentences of a run that failed, which has no traceback."""
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert "Traceback" not in text, text
    return text


@pytest.mark.exhaustive
def test_after_signals_at_random_moments_the_same_command_goes_on(capsys):
    status = main(["--times", "3", "--seed", "3"])
    printed = capsys.readouterr().out
    assert status == 0, printed
    assert printed.count("the same bytes") == 3
    assert "no job was killed" not in printed


def test_a_file_that_a_power_cut_truncates_is_named_and_its_cure_works(
    undisturbed, copy, monkeypatch
):
    monkeypatch.chdir(copy.folder)
    verify("smoke")
    files = [
        path
        for folder in ("results/smoke", "figures/smoke")
        for path in Path(folder).rglob("*")
        if path.is_file() and path.suffix not in UNPROVEN and path.name != ".lock"
    ]
    assert len(files) > 25
    cures = []
    for file in files:
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(UserError, match=re.escape(str(file))) as caught:
            verify("smoke")
        cures.append(re.search(r"rm -f ([^)]*)\).* with `-- ([^`]*)`", str(caught.value)).groups())
        file.write_bytes(whole)
    for file, (removed, target) in list(zip(files, cures, strict=True))[::6]:
        file.write_bytes(b"")
        for path in removed.split():
            Path(path).unlink(missing_ok=True)
        copy.succeed(*COMMAND, "--", target)
        copy.succeed(*COMMAND)
        verify("smoke")
        assert copy.results() == undisturbed.results()


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("a small disk can be mounted by root only")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_is_one_sentence_and_with_room_the_same_command_goes_on(
    undisturbed, copy, small_disk
):
    for top in ("results", "figures"):
        (small_disk / top).mkdir()
        (copy.folder / top).rename(copy.folder / f"before_{top}")
        (copy.folder / top).symlink_to(small_disk / top)
    said = told(copy.run(*COMMAND))
    assert "No space left on device; fix it and try again: finished jobs are kept." in said
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    copy.succeed(*COMMAND)
    made = {name: (copy.folder / name).read_bytes() for name in undisturbed.results()}
    assert made == undisturbed.results()


@pytest.mark.parametrize(
    "place", ["results/smoke", pytest.param("figures/smoke", marks=pytest.mark.exhaustive)]
)
def test_a_folder_that_must_not_be_written_to_is_named(undisturbed, tmp_path, restricted, place):
    copy = undisturbed.copy(tmp_path / "copy", restricted)
    (copy.folder / "figures/smoke/example2030_fig1.png").unlink()
    (copy.folder / place).chmod(0o555)
    assert f"{place}: is not writable; change its permissions" in told(copy.run(*COMMAND))
    (copy.folder / place).chmod(0o755)
    copy.succeed(*COMMAND)
    assert copy.results() == undisturbed.results()


@pytest.mark.parametrize("days", [-400, pytest.param(400, marks=pytest.mark.exhaustive)])
def test_a_clock_that_jumps_reruns_nothing_and_loses_nothing(undisturbed, copy, days):
    then = time.time() + days * 86400
    for path in (copy.folder / "results").rglob("*"):
        os.utime(path, (then, then))
    assert copy.planned(*COMMAND) == {}
    (copy.folder / "figures/smoke/example2030_fig1.png").unlink()
    copy.succeed(*COMMAND)
    assert copy.results() == undisturbed.results()


@pytest.mark.exhaustive
def test_an_awkward_place_gives_the_same_bytes(undisturbed, tmp_path, restricted):
    # Spaces and letters of other scripts, no git, a home that is not writable.
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "which"):
        (tools / name).symlink_to(shutil.which(name))
    (tmp_path / "home").mkdir(mode=0o555)
    kept = {key: value for key, value in os.environ.items() if key != "XDG_CACHE_HOME"}

    class Awkward(restricted):
        def environment(self):
            return {**kept, "HOME": str(tmp_path / "home"), "PATH": str(tools)}

    place = Awkward(tmp_path / "Œuvre d'été (копия)" / "特徴 学習")
    said = place.succeed(*COMMAND)
    assert "Traceback" not in said
    assert place.results() == undisturbed.results()
    record = (place.folder / "figures/smoke/example2030_fig1.provenance.json").read_text()
    assert json.loads(record)["git"] == {"commit": None, "dirty": None}


AT_THE_END = """
import signal, threading, time, os
def work():
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.5)
exec(STOP, globals())
signal.signal(signal.SIGINT, stop)
threading.Thread(target=work).start()
"""


def test_an_interrupt_when_all_is_done_is_one_line(root):
    # What the Snakefile does, in a Python that waits for its threads.
    text = (root / "workflow/rules/command_line.smk").read_text()
    stop = re.search(r"^def stop\(.*?(?=\n\n\n)", text, re.DOTALL | re.MULTILINE)[0]
    code = f"import logging, sys\nSTOP = {stop!r}\n{AT_THE_END}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == "Stopped. The same command goes on from here.\n"
