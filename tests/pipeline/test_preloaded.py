"""Jobs that are forked from a process with its imports done; here scripts of their own."""

import contextlib
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from feature_alignment.pipeline import forked, preloaded
from feature_alignment.pipeline.forked import OFFER
from feature_alignment.pipeline.preloaded import prefix, start_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no job is forked")
# As Python 3.12 does where there are threads, as BLAS has.
WARNED = """
import os, warnings
def fork(own=os.fork):
    warnings.warn("This process is multi-threaded", DeprecationWarning, stacklevel=2)
    return own()
os.fork = fork
"""


@pytest.fixture(autouse=True)
def interruptible():
    """What is started here can be interrupted, which what a background shell starts cannot."""
    own = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, own)


@pytest.fixture(autouse=True)
def swept(monkeypatch, tmp_path):  # which pytest makes before, in the old place
    """What servers that are killed leave goes with the test; a short path, as sockets need."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield


@pytest.fixture
def server(tmp_path, monkeypatch, request):
    """A server of this process that has imported a module, as slow as it is rarely imported."""
    module = getattr(request, "param", "slow")
    (tmp_path / "slow.py").write_text("print('imported', flush=True)\n")
    (tmp_path / "warned.py").write_text(WARNED)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv(OFFER, "{}")
    with stderr_in(tmp_path / "aside"):
        start_server([module], threads=1)
    process = preloaded._servers.pop()
    place = Path(json.loads(os.environ[OFFER])["socket"])
    yield process
    process.stdin.close()
    assert process.wait(60) == 0
    assert not place.parent.exists()
    assert (tmp_path / "aside").read_text() == ""


@contextlib.contextmanager
def stderr_in(path):
    """Have processes that are started meanwhile write what is said aside to a file."""
    own = os.dup(2)
    with path.open("w") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


@pytest.fixture
def begin(tmp_path):
    """Function that starts a script as the shell of a job does."""

    def start(body, name="script.py", **environment):
        script = tmp_path / name
        script.write_text("import sys\n" + textwrap.dedent(body))
        return subprocess.Popen(
            [*shlex.split(prefix()), sys.executable, str(script)],
            cwd=tmp_path,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def test_a_script_runs_in_a_fork_as_if_it_had_been_started(server, begin, tmp_path):
    running = begin(
        """
        import os, subprocess
        loaded = "slow" in sys.modules
        import slow
        done = subprocess.run(["true"]).returncode
        told = (os.environ["OWN"], os.getcwd(), sys.argv, os.getppid(), loaded, done)
        print(*told, sep="\\n")
        print("aside", file=sys.stderr)
        sys.exit(3)
        """,
        OWN="mine",
    )
    printed, aside = running.communicate()
    script = str(tmp_path / "script.py")
    own = ["mine", str(tmp_path), str([script]), str(server.pid), "True", "0"]
    assert (printed.splitlines(), aside, running.returncode) == (own, "aside\n", 3)


def test_a_fork_has_the_bytes_of_what_the_server_reads_in_another_encoding(
    request, tmp_path, monkeypatch
):
    with monkeypatch.context() as other:
        plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        for name, text in plain.items():
            other.setenv(name, text)
        server = request.getfixturevalue("server")
    folder = tmp_path / "caf\u00e9"
    folder.mkdir()
    (folder / "script.py").write_text(
        "import os, sys\n"
        "told = [sys.argv[0], os.getcwd(), os.environ['OWN'], sys.path[0], str(os.getppid())]\n"
        "print(*map(ascii, map(os.fsencode, told)), sys.getfilesystemencoding(), sep='\\n')\n"
    )
    done = subprocess.run(
        [*shlex.split(prefix()), sys.executable, str(folder / "script.py")],
        cwd=folder,
        env=os.environ | {"OWN": "na\u00efve"},
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [str(folder / "script.py"), str(folder), "na\u00efve", str(folder), str(server.pid)]
    assert done.stdout.splitlines() == [*(ascii(path.encode()) for path in paths), "ascii"]


def test_a_script_finds_modules_where_it_would_by_itself(server, begin, tmp_path):
    body = "import json, os; print(os.getppid(), json.dumps(sys.path))"
    own = os.environ["PYTHONPATH"].split(os.pathsep)  # where an installed package may be, too
    paths = os.pathsep.join([str(tmp_path / "first"), "second"])
    (above, forked), (without, alone) = (
        begin(body, PYTHONPATH=paths, **offer).communicate()[0].split(maxsplit=1)
        for offer in ({}, {OFFER: "{}"})
    )
    assert (int(above), int(without)) == (server.pid, os.getpid())
    found, expected = (
        [path for path in json.loads(paths) if path not in own] for paths in (forked, alone)
    )
    assert found == expected
    assert json.loads(forked)[:3] == [str(tmp_path / name) for name in ("", "first", "second")]


def test_another_command_is_run_as_it_is(server):
    """As Snakemake asks the Python of a conda environment for its version."""
    asked = [*shlex.split(prefix()), sys.executable, "-c", "import os; print(os.getppid())"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{os.getpid()}\n", "")


def test_the_prefix_is_a_command_wherever_the_library_is(monkeypatch):
    monkeypatch.setattr(forked, "__file__", "/a {folder} of 'mine'/forked.py")
    assert shlex.split(prefix().format())[-1] == forked.__file__


@pytest.mark.parametrize("server", ["warned"], indirect=True)
def test_a_fork_beside_threads_is_none_to_warn_of(server, begin):
    assert begin("print(1)").communicate() == ("1\n", "")


def test_the_fork_finds_the_library_where_the_script_does(server, begin, tmp_path, root):
    other = tmp_path / "another"
    other.mkdir()
    (other / "feature_alignment").symlink_to(root / "src" / "feature_alignment")
    body = "import os, feature_alignment as own; print(own.__file__, os.getppid())"
    running = begin(body, PYTHONPATH=str(other))
    found, parent = running.communicate()[0].split()
    assert Path(found).is_relative_to(other)
    assert int(parent) == server.pid


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ("raise ValueError('wrong')", 1, "ValueError: wrong"),
        ("sys.exit('so')", 1, "so"),
        ("sys.exit()", 0, ""),
        ("import os; os.kill(os.getpid(), 9)", 137, ""),
    ],
)
def test_the_end_of_the_fork_is_that_of_the_script(server, begin, body, status, told):
    running = begin(body)
    aside = running.communicate()[1]
    assert running.returncode == status
    assert aside.strip().endswith(told)
    assert bool(aside) == bool(told)


WAIT = """
import os, signal, time
try:
    print(os.getpid(), flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
"""


def test_an_interrupt_is_passed_on(server, begin):
    with begin(WAIT) as running:
        assert int(running.stdout.readline()) != running.pid
        running.send_signal(signal.SIGINT)
        assert running.stdout.read() == "interrupted\n"
    assert running.returncode == 130


def test_an_interrupt_that_the_script_does_not_handle_yet_is_no_traceback(server, begin):
    with begin("import os, time; print(os.getpid(), flush=True); time.sleep(600)") as running:
        running.stdout.readline()
        running.send_signal(signal.SIGINT)
        assert (running.stdout.read(), running.stderr.read()) == ("", "")
    assert running.returncode == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_ends_the_script_ends_its_fork(server, begin, number):
    with begin(WAIT) as running:
        fork = psutil.Process(int(running.stdout.readline()))
        assert fork.ppid() == server.pid
        running.send_signal(number)
        fork.wait(60)


def ask(script, told, sent):
    """Ask for a fork as `run_forked` does, with output to a file; only a share of it is sent."""
    asking = socket.socket(socket.AF_UNIX)
    asking.connect(json.loads(os.environ[OFFER])["socket"])
    text = forked.request(str(script))
    if sent is not None:
        socket.send_fds(asking, [len(text).to_bytes(8)], [told.fileno()] * 2)
        asking.sendall(text[: int(sent * len(text))])
    return asking


@pytest.mark.parametrize(
    ("sent", "read"), [(None, False), (0, False), (0.5, False), (1, False), (1, True)]
)
def test_who_is_killed_while_it_asks_leaves_nothing(server, begin, tmp_path, sent, read):
    script, above = tmp_path / "waits.py", psutil.Process(server.pid)
    script.write_text("import time; time.sleep(600)\n")
    with (tmp_path / "told").open("w+") as told:
        for _ in range(5):  # ends before the fork answers, or, if it is read, after
            asking = ask(script, told, sent)
            if read:
                select.select([asking], [], [], 60)
            asking.close()
        assert begin("import os; print(os.getppid())").communicate()[0] == f"{server.pid}\n"
        assert psutil.wait_procs(above.children(), timeout=60)[1] == []
        told.seek(0)
        assert told.read() == ""


def test_a_server_that_ends_unasked_lets_the_script_start_by_itself(begin, tmp_path, monkeypatch):
    place = tmp_path / "jobs"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    offer = {"socket": str(place), "from": os.getpid(), **forked.home(sys.executable, "1")}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()
        running = begin("import os; print(os.getppid())", **{OFFER: json.dumps(offer)})
        select.select([listener], [], [], 60)
        time.sleep(0.2)  # long enough to have asked, most times
    assert running.communicate() == (f"{os.getpid()}\n", "")


@pytest.mark.parametrize("other", ["executable", "threads", "from", "socket"])
def test_who_is_of_another_environment_or_process_starts_by_itself(server, begin, other):
    offer = json.loads(os.environ[OFFER])
    offer |= {other: server.pid if other == "from" else "another"}
    running = begin("import os; print(os.getppid())", **{OFFER: json.dumps(offer)})
    assert running.communicate()[0] == f"{os.getpid()}\n"


@pytest.mark.parametrize("server", ["matplotlib.figure"], indirect=True)
def test_a_fork_has_what_is_imported_when_a_picture_is_written(server, begin):
    running = begin("print('matplotlib.backends.backend_pdf' in sys.modules)")
    assert running.communicate()[0] == "True\n"


@pytest.mark.parametrize("other", [None, "executable", "threads", "from", "socket"])
def test_a_process_takes_the_server_of_one_above_it_if_it_fits(server, other):
    offer = json.loads(os.environ[OFFER])
    offer |= {other: server.pid if other == "from" else "another"} if other else {}
    code = "from feature_alignment.pipeline import preloaded as p; p.start_server(['json'], 1);"
    done = subprocess.run(
        [sys.executable, "-c", f"{code} print(len(p._servers)); [s.kill() for s in p._servers]"],
        env=os.environ | {OFFER: json.dumps(offer)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{int(other is not None)}\n"


def test_where_no_job_may_be_forked_no_server_is_found(server, begin):
    refuse = "from feature_alignment.pipeline import preloaded as p; p.refuse_server();"
    ask = "import os; print(os.environ.get('FEATURE_ALIGNMENT_PRELOADED'))"
    done = subprocess.run(
        [sys.executable, "-c", f"{refuse} {ask}"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "None\n"


@pytest.fixture
def importing(tmp_path, monkeypatch):
    """A server that imports until a file is there."""
    waits = "import pathlib, time\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.01)\n"
    (tmp_path / "slow.py").write_text(waits.format(str(tmp_path / "go")))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv(OFFER, "{}")
    start_server(["slow"], threads=1)
    server = preloaded._servers.pop()
    yield server
    server.kill()
    server.wait()
    server.stdin.close()


def test_who_comes_before_all_is_imported_waits(importing, begin, tmp_path):
    running = begin("import os; print(os.getppid())")
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(0.4)
    (tmp_path / "go").touch()
    assert running.communicate()[0] == f"{importing.pid}\n"


def test_who_has_little_to_import_does_not_wait_for_long(importing, begin):
    running = begin("import os; print(os.getppid())", "some.prepare_dataset.py")
    assert running.communicate()[0] == f"{os.getpid()}\n"


def test_who_waits_starts_by_itself_when_the_server_is_killed(importing, begin):
    running = begin("import os; print(os.getppid())")
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(0.4)
    importing.kill()
    assert running.communicate()[0] == f"{os.getpid()}\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_waits_can_be_ended(importing, begin, number):
    running = begin("print('never')")
    while not psutil.Process(running.pid).net_connections("unix"):  # it has not asked yet
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(number)
    assert running.communicate(timeout=60) == ("", "")
    assert running.returncode == -number


def test_processes_that_are_hidden_are_not_those_asked_for(monkeypatch):
    def hidden(path, **options):
        raise FileNotFoundError(path)

    monkeypatch.setattr("builtins.open", hidden)
    assert list(forked._above()) == [os.getppid()]


def test_without_room_for_a_socket_jobs_start_by_themselves(tmp_path, monkeypatch):
    monkeypatch.setenv(OFFER, "{}")
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    start_server(["json"], threads=1)
    assert os.environ[OFFER] == "{}"
    assert list(long.iterdir()) == []


def test_the_server_ends_with_its_process_however_that_ends():
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time; from feature_alignment.pipeline import preloaded as p;"
            "p.start_server(['json'], 1); print(p._servers[0].pid, flush=True); time.sleep(600)",
        ],
        stdout=subprocess.PIPE,
    ) as begun:
        server = psutil.Process(int(begun.stdout.readline()))
        begun.kill()
        server.wait(60)
