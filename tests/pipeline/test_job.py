"""Jobs write all outputs or none, clean up after killed ones, and tell users' mistakes shortly."""

import errno
import json
import os
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from feature_alignment.errors import UserError
from feature_alignment.files import unfinished
from feature_alignment.pipeline.contracts import owed_by
from feature_alignment.pipeline.imports import SOURCE_ROOT, closure_hash
from feature_alignment.pipeline.job import Job, _check_environment, open_job, set_environment
from feature_alignment.pipeline.provenance import machine_name
from feature_alignment.pipeline.spec import spec_hash

MODULE = "feature_alignment.pipeline.spec"


@pytest.fixture
def fake(tmp_path):
    """What Snakemake hands to a script, with two outputs and a provenance file."""
    names = {"spec": "spec.json", "table": "sub/table.csv", "provenance": "provenance.json"}
    return SimpleNamespace(
        params=SimpleNamespace(spec={"a": 1}),
        input=[],
        output={name: str(tmp_path / file) for name, file in names.items()},
        log=[str(tmp_path / "job.log")],
    )


def write_all(job):
    job.output("spec").write_text("{}")
    job.output("table").write_text("x\n")


def files_below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))


def test_a_job_that_ends_well_writes_everything(fake, tmp_path):
    with open_job(fake, MODULE) as job:
        write_all(job)
        job.seconds_by_part = {"training": 1.23456}
        job.earlier_seconds = (3600.0, 1800.0)
        job.earlier_machines = {machine_name(), "another processor"}
        assert not (tmp_path / "sub/table.csv").exists()
    assert (tmp_path / "sub/table.csv").read_text() == "x\n"
    record = json.loads((tmp_path / "provenance.json").read_text())
    assert record["spec_sha256"] == spec_hash({"a": 1})
    assert record["peak_memory_mib"] > 1
    assert record["seconds_by_part"] == {"training": 1.235}
    assert 3600 < record["wall_seconds"] < 3660
    assert record["cpu_seconds"] > 1800
    assert record["earlier_machines"] == ["another processor"]
    assert files_below(tmp_path) == ["job.log", "provenance.json", "spec.json", "sub/table.csv"]


def test_a_job_runs_only_the_code_that_was_planned(fake, tmp_path, capsys):
    def run():
        with open_job(fake, MODULE) as job:
            write_all(job)

    fake.params.library = f"hash-of-the-script {closure_hash(MODULE)}"
    run()
    (tmp_path / "spec.json").unlink()
    fake.params.library = "hash-of-the-script of-an-edit"
    with pytest.raises(SystemExit):
        run()
    assert "ERROR: the code has changed since Snakemake was started" in capsys.readouterr().err
    assert not (tmp_path / "spec.json").exists()


def test_a_job_tells_the_commit_that_it_began_at(fake, tmp_path, monkeypatch):
    state = {"commit": "before", "dirty": False}
    monkeypatch.setattr("feature_alignment.pipeline.job.git_state", lambda: dict(state))
    with open_job(fake, MODULE) as job:
        write_all(job)
        state["commit"] = "after"
    assert json.loads((tmp_path / "provenance.json").read_text())["git"]["commit"] == "before"


def test_an_interrupted_job_says_so_in_its_log_only(fake, tmp_path, capsys):
    def interrupted():
        with open_job(fake, MODULE) as job:
            write_all(job)
            raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        interrupted()
    assert ended.value.code == 130
    assert files_below(tmp_path) == ["job.log"]
    assert "interrupted" in (tmp_path / "job.log").read_text()
    assert capsys.readouterr().err == ""


def test_a_figures_log_is_free_of_its_fonts(fake, tmp_path):
    from feature_alignment.pipeline.figures.style import new_figure, save

    with open_job(fake, MODULE) as job:
        figure, axes = new_figure(1, 1, 2, 2)
        axes[0, 0].set_title("a font is shortened")
        save(figure, tmp_path / "figure.pdf")
        write_all(job)
    lines = (tmp_path / "job.log").read_text().splitlines()
    assert [line.split()[2:4] for line in lines] == [["INFO", "done"]]


def test_a_jobs_identity_changes_with_its_spec_and_files(fake, tmp_path):
    file = tmp_path / "data.npz"
    file.write_bytes(b"1")

    fake.input = [str(file)]

    def identity():
        with open_job(fake, MODULE) as job:
            write_all(job)
            return job.identity()

    first = identity()
    assert identity() == first
    file.write_bytes(b"12")
    second = identity()
    assert second != first
    fake.params.spec = {"a": 2}
    assert identity() not in (first, second)


@pytest.mark.parametrize(
    ("spec", "device"),
    [
        ({"device": "auto"}, "a GPU"),
        ({"device": "cpu"}, "cpu"),
        ({"figure": "fig1"}, "cpu"),
        ({"universes": [{"runs": {"a": {"device": "cuda"}}}]}, "a GPU"),
        ({"universes": [{"runs": {"a": {"device": "cpu"}}}]}, "cpu"),
    ],
)
def test_what_was_begun_on_a_gpu_does_not_go_on_on_a_cpu(fake, monkeypatch, spec, device):
    names = {"is_available": lambda: True, "get_device_name": lambda: "a GPU"}
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(**names)))
    fake.params.spec = spec
    assert Job(fake, [MODULE]).identity()["device"] == device


def test_scratch_outlives_a_failure_and_not_a_success(fake, tmp_path):
    def attempt(fail):
        with open_job(fake, MODULE) as job:
            job.scratch.mkdir(exist_ok=True)
            (job.scratch / "state.pt").touch()
            if fail:
                raise RuntimeError("boom")
            write_all(job)

    with pytest.raises(RuntimeError, match="boom"):
        attempt(fail=True)
    assert ".provenance.scratch/state.pt" in files_below(tmp_path)
    attempt(fail=False)
    assert files_below(tmp_path) == ["job.log", "provenance.json", "spec.json", "sub/table.csv"]


def test_a_job_that_fails_leaves_old_outputs_and_no_new_ones(fake, tmp_path):
    (tmp_path / "spec.json").write_text("old")

    def fail():
        with open_job(fake, MODULE) as job:
            job.output("spec").write_text("{}")
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert (tmp_path / "spec.json").read_text() == "old"
    assert files_below(tmp_path) == ["job.log", "spec.json"]


def test_a_forgotten_output_is_an_error(fake, tmp_path):
    with pytest.raises(RuntimeError, match="without writing table"), open_job(fake, MODULE) as job:
        job.output("spec").write_text("{}")
    assert files_below(tmp_path) == ["job.log"]


def test_a_users_mistake_is_logged_as_one_sentence(fake, tmp_path):
    with pytest.raises(SystemExit) as caught, open_job(fake, MODULE):
        raise UserError("file x: is empty; make it again.")
    assert caught.value.code == 1
    log = (tmp_path / "job.log").read_text()
    assert "ERROR file x: is empty; make it again." in log
    assert "Traceback" not in log


def test_a_fault_in_a_papers_code_has_one_short_traceback(fake, tmp_path, capsys):
    code = "def draw(depth):\n    return draw(depth - 1) if depth else int('x')\n"
    space = {"__name__": "feature_alignment.papers.example2030.figures.made_up"}
    exec(compile(code, "made_up.py", "exec"), space)

    def job():
        with open_job(fake, MODULE), owed_by("draw", space["__name__"], "example2030_fig1"):
            space["draw"](20)

    with pytest.raises(SystemExit):
        job()
    said = "example2030_fig1: draw of feature_alignment.papers.example2030.figures.made_up failed "
    shown, log = capsys.readouterr().err, (tmp_path / "job.log").read_text()
    for text in (shown, log):
        assert text.count(said + "(made_up.py:2: ValueError: invalid literal") == 1
        assert text.count("Traceback") == 1
    assert "test_job.py" not in shown
    assert "test_job.py" in log
    assert len(log.splitlines()) > len(shown.splitlines())


def end_a_job_by(fake, error):
    """Raise an error in a paper's code."""
    with (
        pytest.raises(SystemExit),
        open_job(fake, MODULE),
        owed_by("draw", "feature_alignment.papers.made_up", "made_up_fig1"),
    ):
        raise error


@pytest.mark.parametrize("fault", ["ENOSPC", "EFBIG", "ESTALE", "ETIMEDOUT", "ESHUTDOWN"])
def test_a_fault_of_a_disk_is_blamed_on_the_disk_wherever_it_is_met(fake, tmp_path, capsys, fault):
    why = os.strerror(number := getattr(errno, fault))
    end_a_job_by(fake, OSError(number, why, "results/quick/table.csv"))
    shown = capsys.readouterr().err
    assert shown.startswith(f"ERROR: the disk of results/quick/table.csv: {why}; fix it and")
    assert "made_up" not in shown
    assert "Traceback" not in shown + (tmp_path / "job.log").read_text()
    with pytest.raises(FileNotFoundError), open_job(fake, MODULE):
        raise FileNotFoundError(errno.ENOENT, "no such file", "x")


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_a_want_of_memory_is_not_the_papers_fault(fake, capsys, error):
    end_a_job_by(fake, error)
    shown = capsys.readouterr().err
    assert shown.startswith("ERROR: made_up_fig1: there is not enough memory for these settings (")
    assert "Traceback" not in shown


LOG_ON_THE_DISK = """
import errno, logging, os, sys
from types import SimpleNamespace
from feature_alignment.pipeline.job import open_job

def fault(number, file):
    raise OSError(number, os.strerror(number), file)

if sys.argv[1] == "read-only.log":
    logging.FileHandler = lambda file, **options: fault(errno.EROFS, file)
output = {"provenance": "provenance.json"}
told = SimpleNamespace(
    params=SimpleNamespace(spec={}), input=[], output=output, log=[sys.argv[1]]
)
with open_job(told, "feature_alignment.pipeline.spec"):
    fault(errno.ENOSPC, "table.csv")
"""


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("/dev/full", "ERROR: the disk of table.csv: No space left on device; "),
        ("read-only.log", "the disk of read-only.log: Read-only file system; "),
    ],
)
def test_a_disk_that_holds_the_log_too_is_told_once(tmp_path, log, told):
    done = subprocess.run(
        [sys.executable, "-c", LOG_ON_THE_DISK, log],
        env={"PYTHONPATH": str(SOURCE_ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(told)
    assert done.stderr.count("\n") == 1


def test_inputs_from_the_future_are_dated_now(fake, tmp_path):
    file = tmp_path / "input.csv"
    file.write_text("x\n")
    fake.input = [str(file)]
    os.utime(file, (time.time() + 86400,) * 2)
    with open_job(fake, MODULE) as job:
        write_all(job)
    assert file.stat().st_mtime <= (tmp_path / "spec.json").stat().st_mtime
    os.utime(file, (1, 1))
    with open_job(fake, MODULE) as job:
        write_all(job)
    assert file.stat().st_mtime == 1


def test_leftovers_of_killed_jobs_go_and_those_of_living_ones_stay(fake, tmp_path):
    ended, unasked = (subprocess.Popen([sys.executable, "-c", ""]) for _ in range(2))
    ended.wait()
    while psutil.Process(unasked.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    here = socket.gethostname()
    dead, zombie, elsewhere, alive = files = [
        tmp_path / f".{pid}.{host}.spec.json"
        for pid, host in (
            (ended.pid, here),
            (unasked.pid, here),
            (os.getppid(), "another.machine"),
            (os.getppid(), here),
        )
    ]
    for file in files:
        file.write_text("half")
    with open_job(fake, MODULE) as job:
        write_all(job)
    unasked.wait()
    assert not any(file.exists() for file in (dead, zombie, elsewhere))
    assert alive.exists()


def test_leftovers_of_processes_that_others_hide_stay(fake, tmp_path, monkeypatch):
    leftover = tmp_path / f".1.{socket.gethostname()}.spec.json"
    leftover.write_text("half")

    def refuse(process):
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr("psutil.Process.status", refuse)  # as where /proc has hidepid=1
    with open_job(fake, MODULE) as job:
        write_all(job)
    assert (tmp_path / "spec.json").exists()
    assert leftover.exists()


def test_a_package_from_outside_the_environment_is_refused(tmp_path):
    stranger = tmp_path / "elsewhere" / "pydantic"
    stranger.mkdir(parents=True)
    (stranger / "__init__.py").write_text("")
    code = "from feature_alignment.pipeline.job import _check_environment as check; check([{!r}])"
    done = subprocess.run(
        [sys.executable, "-c", code.format("feature_alignment.pipeline.config")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{stranger.parent}:{SOURCE_ROOT}"},
    )
    assert done.returncode != 0
    assert f"package pydantic comes from {stranger}, outside the environment" in done.stderr
    assert "install the package there, not by -e, since its code could" in done.stderr


def test_a_library_that_no_job_would_find_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", "before")
    monkeypatch.setattr("feature_alignment.pipeline.job.SOURCE_ROOT", tmp_path / "at 18:30" / "src")
    with pytest.raises(UserError, match=r"18:30/src: jobs would not find the library in a path"):
        set_environment()


def test_a_package_that_is_nowhere_is_told_with_the_file_that_imports_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"^/.*\.py: package \w+ is not installed in the environment"
    ):
        _check_environment(["feature_alignment.pipeline.config"])


def test_provenance_records_the_commit(fake, tmp_path, root):
    with open_job(fake, MODULE) as job:
        write_all(job)
    git = json.loads((tmp_path / "provenance.json").read_text())["git"]
    asked = ["git", "-c", f"safe.directory={root}", "-C", str(root), "rev-parse", "HEAD"]
    head = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert git["commit"] == (head.stdout.strip() or None)


def test_nothing_is_written_through_a_link_that_another_has_put_there(fake, tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    unfinished(tmp_path / "spec.json").symlink_to(other)
    (tmp_path / "job.log").symlink_to(other)
    with open_job(fake, MODULE) as job:
        job.scratch.symlink_to(tmp_path)
        unfinished(tmp_path / "sub" / "table.csv").symlink_to(other)
        write_all(job)
    assert other.read_text() == "mine"
    assert (tmp_path / "sub" / "table.csv").read_text() == "x\n"
    assert not job.scratch.is_symlink()


@pytest.mark.parametrize("user", ["own", "another"])
def test_runs_of_another_user_are_not_taken_over(fake, tmp_path, monkeypatch, user):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        fake.output = {key: f"results/{name}/{key}.json" for key in ("spec", "table", "provenance")}
        with open_job(fake, MODULE) as job:
            taken = job.adopt()
            if not taken:
                write_all(job)
        if user == "another":
            monkeypatch.setattr(os, "getuid", lambda: 1234567)
    assert taken == (user == "own")
