"""One job of the workflow: logging, environment check, atomic outputs, provenance.

The only module that knows the workflow's `snakemake` object; everything below it is plain Python.
"""

import importlib.util
import json
import logging
import os
import shutil
import site
import socket
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from feature_alignment.errors import UserError
from feature_alignment.files import sha256_of, unfinished
from feature_alignment.pipeline.contracts import DISK_FAULTS, PaperError, short_traceback
from feature_alignment.pipeline.imports import SOURCE_ROOT, closure_hash, external_imports, importer
from feature_alignment.pipeline.proof import check_proof, read_provenance
from feature_alignment.pipeline.provenance import (
    git_state,
    machine_name,
    package_versions,
    provenance,
)
from feature_alignment.pipeline.spec import Spec, spec_hash

log = logging.getLogger("feature_alignment")


def set_environment() -> None:
    """Set the environment of the jobs that this process starts.

    Jobs import the same library as the planner, even if their Python would find another checkout.
    They also keep the memory that tensors free, for later ones: requesting it from the system page
    by page costs a few per cent of a training's time (glibc; other allocators ignore the settings).

    Raises:
        UserError: if the library's path cannot be part of PYTHONPATH.
    """
    if os.pathsep in str(SOURCE_ROOT):
        raise UserError(
            f"{SOURCE_ROOT}: jobs would not find the library in a path with {os.pathsep!r}; rename "
            "the folder."
        )
    paths = [str(SOURCE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(32 * 2**20))
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", str(2**30))


class Job:
    """A running job: its task, and where it may write."""

    def __init__(self, snakemake: Any, modules: list[str]) -> None:
        self.spec: Spec = snakemake.params.spec  # the job's spec, its rule's `params.spec`
        self.input: Any = snakemake.input  # the rule's named inputs
        self.modules = modules  # dotted names of the library modules that the job runs
        # Elapsed time of parts of the job, for the provenance; set by the script.
        self.seconds_by_part: Mapping[str, float] = {}
        # Elapsed and processor time of interrupted attempts that the job resumed from; set by the
        # script.
        self.earlier_seconds = (0.0, 0.0)
        self.earlier_machines: Collection[str] = ()  # and on what machines, if others
        self.facts: Mapping[str, Any] = {}  # further entries of the provenance; set by the script
        self._outputs = {name: Path(path) for name, path in snakemake.output.items()}
        self._git = git_state()
        self._started = time.monotonic()
        self._record: dict[str, Any] = {}

    @property
    def scratch(self) -> Path:
        """Folder next to the outputs that remains if the job fails or is killed.

        It is removed with its contents when the job succeeds.
        """
        provenance = self._outputs["provenance"]
        return provenance.with_name(f".{provenance.stem}.scratch")

    def identity(self) -> dict[str, Any]:
        """What the job's results depend on: spec, code, packages, device, and inputs by content."""
        files = [Path(str(file)) for file in self.input]
        return {
            "spec_sha256": spec_hash(self.spec),
            "library_sha256": closure_hash(*self.modules),
            "versions": package_versions(),
            "device": self._device(),
            "inputs": {"/".join(file.parts[2:]): sha256_of(file) for file in sorted(files)},
        }

    def _device(self) -> str:
        """The name of the GPU that the spec's runs may use here, else "cpu"."""
        torch = sys.modules.get("torch")
        of_universes = [run for u in self.spec.get("universes", ()) for run in u["runs"].values()]
        runs = [self.spec] if "device" in self.spec else of_universes
        asked = {run["device"] for run in runs} - {"cpu"}
        if not asked or torch is None or not torch.cuda.is_available():
            return "cpu"
        return torch.cuda.get_device_name()

    def adopt(self) -> bool:
        """Copy what the same job made for a result of another name, if it exists; whether it does.

        That job must have the same identity, and its files must be as it wrote them.
        """
        own = self._outputs["provenance"]
        below = Path(*own.parts[2:])  # within results/<name>
        identity = self.identity()
        for other in sorted(Path(own.parts[0]).glob(f"*/{below}")):
            if other != own and self._take(other, identity):
                log.info("taken over from %s: the same spec, code, packages and data", other)
                return True
        return False

    def _take(self, other: Path, identity: Mapping[str, Any]) -> bool:
        try:
            if other.stat().st_uid != os.getuid():  # it may be of data that nobody has seen
                log.info("not taken over from %s: it is another user's", other)
                return False
            record = read_provenance(other)
            if any(record.get(key) != value for key, value in identity.items()):
                return False
            check_proof(other)
            for name, final in self._outputs.items():
                shutil.copyfile(other.with_name(final.name), self.output(name))
        except (UserError, FileNotFoundError) as error:  # damaged, or just being remade
            log.info("not taken over from %s: %s", other, error)
            return False
        self._record = {**record, "taken_over_from": str(other)}
        return True

    def output(self, name: str) -> Path:
        """Temporary path of the named output, which is moved into place when the job succeeds.

        The path keeps the suffix, from which writers choose the format.
        """
        path = unfinished(self._outputs[name])
        if path.is_symlink():  # another put it there, to be written through
            path.unlink()
        return path

    def _open(self) -> None:
        for file in self.input:  # after a clock was set back, Snakemake would refuse the outputs
            if Path(str(file)).stat().st_mtime > time.time():
                os.utime(str(file))
        for final in self._outputs.values():
            final.parent.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(final)

    def _commit(self) -> None:
        written = {name: path for name, path in self._outputs.items() if name != "provenance"}
        missing = [name for name in written if not self.output(name).exists()]
        if missing:
            raise RuntimeError(f"the job ended without writing {', '.join(missing)}")
        now = (time.monotonic() - self._started, time.process_time())
        elapsed, processor = (sum(both) for both in zip(now, self.earlier_seconds, strict=True))
        others = {*self.earlier_machines} - {machine_name()}
        record = self._record or {
            "spec": self.spec,
            "modules": self.modules,
            "git": self._git,
            **self.identity(),
            **provenance(elapsed, processor, self.seconds_by_part),
            **({"earlier_machines": sorted(others)} if others else {}),
            **self.facts,
        }
        home = self._outputs["provenance"].parent
        record["outputs"] = {
            os.path.relpath(path, home): sha256_of(self.output(name))
            for name, path in written.items()
        }
        self.output("provenance").unlink(missing_ok=True)
        self.output("provenance").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        for name, final in self._outputs.items():
            self.output(name).replace(final)
        _remove(self.scratch)


@contextmanager
def open_job(snakemake: Any, *modules: str) -> Iterator[Job]:
    """Run the body of a workflow script as a job.

    Outputs appear together, and only if the body succeeds. A `UserError` ends the process with its
    one sentence, an interrupt with a line in the log file. Other errors, and those in a paper's
    code, leave a full traceback in the log file and a short one on stderr.

    The rule needs `params.spec`, a log and an output named `provenance`; `modules` are the dotted
    names of the modules that the script uses.

    Raises:
        OSError: unless it is a fault of the disk, which also ends the process with one sentence.
    """
    job = Job(snakemake, list(modules))
    try:
        _set_up_logging(Path(snakemake.log[0]))
        _check_environment(job.modules)
        _check_code(snakemake, job.modules)
        job._open()
        yield job
        job._commit()
    except UserError as error:
        log.error("%s", error, exc_info=error.__cause__ if isinstance(error, PaperError) else None)
        sys.exit(1)
    except KeyboardInterrupt:
        log.info("interrupted; the next job of this name goes on")
        sys.exit(130)
    except OSError as error:
        if error.errno not in DISK_FAULTS:
            raise
        log.error(
            "the disk of %s: %s; fix it and try again: finished jobs are kept.",
            error.filename or job.scratch.parent.resolve(),
            error.strerror,
        )
        sys.exit(1)
    finally:
        for name in job._outputs:
            _remove(job.output(name))
    log.info("done in %.1f s", time.monotonic() - job._started)


def _set_up_logging(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():  # another put it there, to be written through
        path.unlink()
    to_file = logging.FileHandler(path, mode="w", encoding="utf-8")
    to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    to_stderr = logging.StreamHandler()
    to_stderr.setLevel(logging.WARNING)
    to_stderr.setFormatter(_Short())
    logging.basicConfig(level=logging.WARNING, handlers=[to_file, to_stderr], force=True)
    log.setLevel(logging.INFO)  # other libraries report every font they subset
    logging.raiseExceptions = False  # a full disk, where the log is, too, is reported once
    sys.excepthook = lambda _, error, __: log.critical("the job failed", exc_info=error)


class _Short(logging.Formatter):
    """The format of stderr: only the frames of a traceback that matter; the log file has all."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{record.levelname}: {record.getMessage()}"
        error = record.exc_info[1] if record.exc_info else None
        return f"{text}\n{short_traceback(error).rstrip()}" if error else text


def _check_environment(modules: list[str]) -> None:
    # Snakemake appends its own packages to the search path of scripts in conda environments, so a
    # package missing there would silently come from the host, in whatever version.
    homes = [Path(sys.prefix), Path(sys.base_prefix), Path(site.getusersitepackages())]
    for name in sorted(external_imports(*modules) - set(sys.stdlib_module_names)):
        found = importlib.util.find_spec(name)
        if found is None or not found.origin:
            raise UserError(
                f"{importer(name, *modules)}: package {name} is not installed in the environment "
                f"{sys.prefix}; correct the name, install it (what the project needs is in "
                "requirements.lock), or add it to the rule's file in envs/."
            )
        origin = Path(found.origin)
        if not any(origin.is_relative_to(home) for home in homes):
            raise UserError(
                f"package {name} comes from {origin.parent}, outside the environment {sys.prefix}; "
                "add it to the rule's file in envs/, or run without --use-conda; without it, "
                "install the package there, not by -e, since its code could change unseen, and "
                "take its folder out of PYTHONPATH."
            )


def _check_code(snakemake: Any, modules: list[str]) -> None:
    # Snakemake records the code of when it planned: of an edit that is taken back it knows nothing.
    planned = getattr(snakemake.params, "library", "").rpartition(" ")[2]
    if planned and planned != closure_hash(*modules):
        raise UserError(
            "the code has changed since Snakemake was started; give the same command again."
        )


def _remove_leftovers(final: Path) -> None:
    """Remove the unfinished outputs of jobs that were killed, but not those of living jobs.

    Of another machine's jobs none with this output lives, since Snakemake starts it only once.
    """
    for path in final.parent.glob(f".*.{final.name}"):
        owner, _, host = path.name.removesuffix(f".{final.name}")[1:].partition(".")
        if owner.isdigit() and not (host == socket.gethostname() and _lives(int(owner))):
            _remove(path)


def _lives(process: int) -> bool:
    # A killed process remains as a zombie until its parent asks, which in containers may be never.
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:  # another user's, where these are hidden
        return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
