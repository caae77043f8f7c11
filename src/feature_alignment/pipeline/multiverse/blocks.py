"""Run some universes of a group, and pack the finished runs into one archive."""

import logging
import shutil
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path

from feature_alignment.errors import UserError
from feature_alignment.pipeline.run import NotFiniteError, run_experiment, write_run
from feature_alignment.pipeline.spec import Spec, canonical_json, dataset_keys, spec_hash
from feature_alignment.training.checkpoint import Checkpoints
from feature_alignment.training.errors import MetricNotFiniteError, TrainingDivergedError

log = logging.getLogger(__name__)
_MEMBERS = ("spec.json", "metrics.csv", "arrays.npz")
_UNDEFINED = TrainingDivergedError, MetricNotFiniteError, NotFiniteError
_TIME = (1980, 1, 1, 0, 0, 0)  # of all members, so that equal runs make equal archives


def run_block(
    spec: Spec,
    data: Mapping[str, Path],
    scratch: Path,
    identity: str,
    to: Path,
    ending: threading.Event,
) -> None:
    """Run the universes of one of `design.block_specs`, and write their runs into one zip file.

    Equal runs are run once. A run whose training diverges, or that measures a value that is not
    finite, is recorded in the archive as `failed` with the reason. `scratch` keeps finished runs
    and checkpoints, from which a killed job resumes. `identity` is what the runs depend on besides
    their specs, and `ending` is set when the block is to save its state and end.

    Raises:
        KeyboardInterrupt: if the block is to end, once its state is saved.
    """
    finished = set[Path]()
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        for universe in spec["universes"]:
            log.info("universe %d: %s", universe["number"], universe["levels"])
            failed = {}
            for name, run in universe["runs"].items():
                folder = scratch / spec_hash({**run, "point": ""})
                if folder not in finished:
                    _finish(run, data, folder, identity, ending)
                    finished.add(folder)
                    if ending.is_set():
                        raise KeyboardInterrupt
                reason = folder / "result" / "failed.txt"
                if reason.exists():
                    failed[name] = reason.read_text(encoding="utf-8")
                    continue
                for member in _MEMBERS:
                    content = (folder / "result" / member).read_bytes()
                    _put(archive, f"{universe['number']}/{name}/{member}", content)
            told = {k: universe[k] for k in ("number", "levels", "figures")} | {"failed": failed}
            _put(archive, f"{universe['number']}/universe.json", canonical_json(told).encode())


def _put(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)


def _finish(
    run: Spec, data: Mapping[str, Path], folder: Path, identity: str, ending: threading.Event
) -> None:
    wanted, marker = f"{identity} {canonical_json(run)}", folder / "finished.txt"
    if marker.exists() and marker.read_text(encoding="utf-8") == wanted:
        return
    result = folder / "result"
    shutil.rmtree(result, ignore_errors=True)
    result.mkdir(parents=True)
    files = [data[run["data"][key]["name"]] for key in dataset_keys(run)]
    checkpoints = Checkpoints(folder / "checkpoints", wanted, ending=ending)
    try:
        found = run_experiment(run, *files, checkpoints=checkpoints)
    except UserError as error:
        if not isinstance(error.__cause__ or error, _UNDEFINED):
            raise
        log.info("it fails: %s", error)
        (result / "failed.txt").write_text(str(error), encoding="utf-8")
    else:
        write_run(run, found, *(result / member for member in _MEMBERS))
    marker.write_text(wanted, encoding="utf-8")
