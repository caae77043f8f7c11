"""Make the runs of a result, the most valuable first, for as long as a machine is available.

    python tools/time_budget.py spend MINUTES [--config KEY=VALUE ...] [--configfile FILE ...]
            [--first FIGURE ...] [--cores N] [--grace SECONDS] [--pack FILE] [-- SNAKEMAKE OPTIONS]
        makes unfinished runs, figure by figure: the figures of --first, then those with the most
        judged claims per minute. When the time is over, runs save their state and end; the same
        command resumes from there.
    python tools/time_budget.py merge FILE [--config KEY=VALUE ...] [--configfile FILE ...]
        adds the runs and saved states in --pack's FILE to the results of this checkout.

A run is expected to take what it took before (workflow/measured.csv), or else the median of the
other points of its experiment, or else the limit of a run. What is merged has the same settings,
code and data, by hash; Snakemake then makes tables, pictures and verdicts from it.
"""

import argparse
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from feature_alignment.data.archives import DAMAGE, refuse_size
from feature_alignment.errors import UserError, check_choice, reason, shortened
from feature_alignment.files import sha256_of, whole_file
from feature_alignment.pipeline.config import PRESETS, resolve_config
from feature_alignment.pipeline.lock import lock_result
from feature_alignment.pipeline.papers import add_papers, all_figures, modules_of_run
from feature_alignment.pipeline.plan import Plan, make_plan
from feature_alignment.pipeline.proof import check_proof, other_than_planned, read_provenance
from feature_alignment.pipeline.provenance import package_versions
from feature_alignment.pipeline.submissions import key_of, read_measured
from feature_alignment.pipeline.yaml_files import merge, read_entries, read_mapping
from feature_alignment.training.checkpoint import read_state

WORKFLOW = Path("workflow")
MEASURED = WORKFLOW / "measured.csv"
FILES = ("spec.json", "metrics.csv", "arrays.npz", "provenance.json")
SCRATCH = ".provenance.scratch"
"""The folder of a run's saved states, next to its files."""
Run = tuple[str, str]
"""An experiment and one of its points."""


def configured(options: argparse.Namespace) -> Plan:
    """The plan of the options' configuration, as Snakemake would make it."""
    typed = read_entries(options.config)
    settings: dict[str, Any] = {}
    files = [Path("config.yaml"), *options.configfile]
    for file in files:
        settings = merge(settings, read_mapping(file))
    settings = merge(settings, typed)
    add_papers(settings.get("papers_path"))
    config = resolve_config(settings, WORKFLOW, None, files, typed)
    return make_plan(config, resolve_config({}, WORKFLOW, config.preset))


def folder_of(plan: Plan, run: Run) -> Path:
    """The folder of a run's files."""
    return Path("results", plan.name, "runs", *run)


def _other_than_planned(plan: Plan, run: Run, record: Mapping[str, Any]) -> str:
    return other_than_planned(record, plan.specs[run], modules_of_run(run[0]))


def is_finished(plan: Plan, run: Run) -> bool:
    """Whether a run has all its files, from the plan's settings and this checkout's code."""
    files = [folder_of(plan, run) / name for name in FILES]
    if not all(file.exists() for file in files):
        return False
    return not _other_than_planned(plan, run, read_provenance(files[-1]))


def identity_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """What a saved state depends on, as in provenance files."""
    return json.loads(state["identity"].rpartition(" torch ")[0])


def unfinished(plan: Plan, figure: str) -> list[Run]:
    """The runs of a figure that are still to be made."""
    return [run for run in plan.runs_of(figure) if not is_finished(plan, run)]


def expected_minutes(plan: Plan) -> dict[Run, float]:
    """How long each run is expected to take."""
    known = {key: seconds / 60 for key, seconds in read_measured(MEASURED).items()}
    found = {}
    for run, spec in plan.specs.items():
        others = [minutes for (experiment, _), minutes in known.items() if experiment == run[0]]
        guess = statistics.median(others) if others else float(plan.config.resources.runtime)
        found[run] = known.get(key_of(spec), guess)
    return found


def in_order(plan: Plan, first: Sequence[str]) -> list[str]:
    """The figures of `first`, then the other selected ones by judged claims per expected minute."""
    minutes = expected_minutes(plan)

    size = PRESETS.index(plan.config.preset)

    def value(figure: str) -> float:
        judged = [
            claim
            for claim in plan.claims
            if claim.figure == figure
            and claim.kind != "ours"
            and PRESETS.index(claim.lowest_preset) <= size
        ]
        left = sum(minutes[run] for run in unfinished(plan, figure))
        return len(judged) / max(left, 0.1)

    others = [figure for figure in plan.figures if figure not in first]
    return [*first, *sorted(others, key=value, reverse=True)]


def spend(options: argparse.Namespace) -> int:
    """Make what the time allows; return the number of remaining runs.

    Raises:
        UserError: if there is time only to save states, or another process is making the result.
    """
    if 60 * options.minutes <= options.grace:
        raise UserError(
            f"MINUTES: {options.minutes:g}; more than the {options.grace:g} seconds are needed "
            "that --grace leaves runs to save their state."
        )
    deadline = time.monotonic() + 60 * options.minutes
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as by Ctrl-C
    plan = configured(options)
    for figure in options.first:
        check_choice("--first", figure, all_figures())
    os.close(lock_result(Path("results", plan.name)))  # else Snakemake is refused at each figure
    given = ["--config", *options.config] if options.config else []
    given += ["--configfile", *map(str, options.configfile)] if options.configfile else []
    base = [sys.executable, "-m", "snakemake", "--cores", options.cores, "--keep-going"]
    # Forced, since without records Snakemake would keep a run of other settings or code.
    base += ["--rerun-incomplete", "--force", *options.snakemake, *given, "--"]
    order = in_order(plan, options.first)
    minutes = expected_minutes(plan)
    try:
        for figure in order:
            runs = unfinished(plan, figure)
            left = deadline - options.grace - time.monotonic()
            if not runs or left <= 0:
                continue
            expected = sum(minutes[run] for run in runs)
            print(
                f"{figure}: {len(runs)} runs, some {expected:.0f} minutes of one process; "
                f"{left / 60:.1f} minutes are left",
                flush=True,
            )
            targets = [str(folder_of(plan, run) / "metrics.csv") for run in runs]
            _run([*base, *targets], left, options.grace)
    finally:  # also after an interrupt
        runs_left = {run for figure in order for run in unfinished(plan, figure)}
        print(f"{len(runs_left)} runs of {plan.name} are left")
        if options.pack:
            pack(plan, options.pack)
    return len(runs_left)


def _run(command: Sequence[str], seconds: float, grace: float) -> None:
    """Run a command for at most `seconds`, then give it at most `grace` more to save its state.

    Raises:
        KeyboardInterrupt: when it has ended after an interrupt.
    """
    process = subprocess.Popen(command, start_new_session=True)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        print("the time is over: runs save their state and end, for Snakemake an error", flush=True)
        _end(process, grace)
    except KeyboardInterrupt:
        _end(process, grace)
        raise


def _end(process: subprocess.Popen[bytes], grace: float) -> None:
    """Terminate a process and all its descendants, and kill what is alive after `grace` seconds."""
    all_of_it = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for part in all_of_it:
        try:
            part.send_signal(signal.SIGTERM)
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(all_of_it, timeout=grace)
    for part in alive:
        part.kill()
    process.wait()


def pack(plan: Plan, file: Path) -> None:
    """Pack the finished runs of a result, and the saved states of the others.

    Raises:
        UserError: if the file cannot be written.
    """
    try:
        with whole_file(file) as partial, tarfile.open(partial, "w:gz") as archive:
            for run in sorted(plan.specs):
                for path in _parts(plan, run):
                    archive.add(path, path.relative_to(Path("results", plan.name, "runs")))
    except OSError as error:
        raise UserError(
            f"--pack: {file}: cannot be written ({reason(error)}); all is kept in "
            f"results/{plan.name}: give the command again with another file."
        ) from error


def _parts(plan: Plan, run: Run) -> Iterator[Path]:
    folder = folder_of(plan, run)
    if is_finished(plan, run):
        yield from (folder / name for name in FILES)
    else:
        yield from sorted((folder / SCRATCH).glob("*.pt"))


def _unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Extract the files of a pack; `filter="data"` would do, but needs Python 3.11.4.

    Raises:
        TarError: for a member that leads out of the folder, or is neither a file nor a folder.
    """
    size = 0
    for member in archive:
        refuse_size(size := size + member.size)
        place = (folder / member.name).resolve()
        if not place.is_relative_to(folder) or not (member.isdir() or member.isfile()):
            raise tarfile.TarError(f"{member.name} is no file of its own folder")
        content = archive.extractfile(member)
        if content is not None:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.read())


def merge_runs(options: argparse.Namespace) -> None:
    """Put packed runs into their places; those finished here stay.

    Raises:
        UserError: for the first run that is of other settings, code or data, or damaged; or if
            Snakemake is making the result.
    """
    plan = configured(options)
    root = Path("results", plan.name, "runs")
    lock_result(root.parent)
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent) as unpacked:
        try:
            with tarfile.open(options.file) as archive:
                _unpack(archive, Path(unpacked).resolve())
        except (OSError, *DAMAGE) as error:
            why = getattr(error, "strerror", None) or reason(error).partition(":")[0]
            raise UserError(f"{options.file}: no pack of runs that can be read: {why}.") from error
        folders = sorted({path.parent for path in Path(unpacked).glob("*/*/*")})
        records = [record for folder in folders for record in _checked(plan, folder, options.file)]
        _check_data(plan, records, options.file)
        merged = []
        for folder in folders:
            run = folder.parent.name, folder.name
            target = root.joinpath(*run)
            target.mkdir(parents=True, exist_ok=True)
            if is_finished(plan, run):
                print(f"{'/'.join(run)}: is finished here, and stays")
            elif (folder / SCRATCH).exists():
                (target / SCRATCH).mkdir(exist_ok=True)
                states = list((folder / SCRATCH).iterdir())
                later = [p for p in states if not _is_ahead(plan, run, target / SCRATCH, p)]
                for path in later:
                    path.replace(target / SCRATCH / path.name)
                which = "its saved state" if later else "the state that is here"
                print(f"{'/'.join(run)}: goes on from {which}")
            else:
                for name in FILES:
                    os.utime(folder / name)  # newer than the data it was made from
                    (folder / name).replace(target / name)
                    merged.append(str(target / name))
                print(f"{'/'.join(run)}: finished")
    _forget(merged)


def _forget(files: Sequence[str]) -> None:
    """Remove Snakemake's records of the files that these have replaced, if any."""
    if files and Path(".snakemake").exists():
        command = [sys.executable, "-m", "snakemake", "--cleanup-metadata", *files]
        subprocess.run(command, capture_output=True, check=False)


def _is_ahead(plan: Plan, run: Run, folder: Path, packed: Path) -> bool:
    """Whether the state here is usable, and the packed one is not a later one of the same run."""
    try:
        own = read_state(folder / packed.name)
        if _other_than_planned(plan, run, identity_of(own)):
            return False
    except Exception:  # none, or a damaged one, which the run would refuse
        return False
    other = read_state(packed)
    return own["identity"] != other["identity"] or own["seconds"] >= other["seconds"]


def _checked(plan: Plan, folder: Path, file: Path) -> list[Mapping[str, Any]]:
    """What a run, or each of its saved states, was made from.

    Raises:
        UserError: if that is not as planned, or damaged.
    """
    run = folder.parent.name, folder.name
    about = f"{file}: {'/'.join(run)}"
    if run not in plan.specs:
        raise UserError(f"{about}: no run of {plan.name} in this checkout.")
    try:
        if (folder / SCRATCH).exists():
            states = sorted((folder / SCRATCH).iterdir())
            records = [identity_of(read_state(path)) for path in states]
        else:
            check_proof(folder / "provenance.json")
            records = [read_provenance(folder / "provenance.json")]
    except Exception as error:  # readers of damaged files may raise anything
        raise UserError(
            f"{about}: is not as its job wrote it; make it and pack it again."
        ) from error
    for other in filter(None, (_other_than_planned(plan, run, record) for record in records)):
        raise UserError(
            f"{about}: made from other {other} than are planned here; give the same --config, and "
            "merge it in a checkout of the commit that its provenance.json names."
        )
    here = package_versions()
    for name, version in ((n, v) for record in records for n, v in record["versions"].items()):
        if here.get(name, version) != version:
            raise UserError(
                f"{about}: made with {name} {version}, where {here[name]} is installed; merge it "
                "in an environment with the same versions (requirements.lock)."
            )
    return records


def _check_data(plan: Plan, records: Iterable[Mapping[str, Any]], file: Path) -> None:
    # If Snakemake prepared data after the merge, it would make the merged runs again.
    read = {pair for record in records for pair in record["inputs"].items()}
    if odd := [name for name, _ in read if not re.fullmatch(r"data/\w[\w.]*\.npz", name)]:
        raise UserError(f"{file}: a run has read {shortened(odd[0])}, which is no prepared data.")
    here = {(Path("results", plan.name, name), written) for name, written in read}
    missing = sorted({str(data) for data, _ in here if not data.exists()})
    if missing:
        raise UserError(
            f"{file}: its runs have read data that are not here; make them first, with the same "
            f"--config: snakemake --cores 1 {' '.join(missing)}"
        )
    for data, written in sorted(here):
        if sha256_of(data) != written:
            raise UserError(f"{file}: its runs have read another {data} than is here.")


def _minutes(text: str, least: float = -math.inf, needed: str = "a number of minutes") -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number < math.inf or number == -math.inf:
        raise argparse.ArgumentTypeError(f"{text}: {needed} is needed.")
    return number


def _seconds(text: str) -> float:
    return _minutes(text, 0, "a number of seconds from 0 on")


def _cores(text: str) -> str:
    if text != "all" and not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text}: a number from 1 on is needed, or all.")
    return text


def _new_file(text: str) -> Path:
    # Reported now, since the pack is written at the end, when all of the time is spent.
    file = Path(text).absolute()
    home = next(place for place in file.parents if place.exists())
    try:
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError:
        home = file  # which then is no folder
    if file.is_dir() or not home.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: no file can be written there.")
    return file


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit status, 3 if runs remain."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    spending = commands.add_parser("spend", help="make runs for some minutes")
    spending.add_argument("minutes", type=_minutes)
    spending.add_argument("--first", nargs="+", default=[], metavar="FIGURE")
    spending.add_argument("--cores", default="all", type=_cores, metavar="NUMBER|all")
    spending.add_argument("--grace", type=_seconds, default=60, help="seconds to save states in")
    spending.add_argument("--pack", type=_new_file)
    merging = commands.add_parser("merge", help="put packed runs among those here")
    merging.add_argument("file", type=Path)
    for command in (spending, merging):
        command.add_argument("--config", nargs="+", action="extend", default=[])
        command.add_argument("--configfile", nargs="+", action="extend", default=[], type=Path)
    place = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:place])
    options.snakemake = arguments[place + 1 :]
    try:
        if "minutes" in options:
            return 3 if spend(options) else 0
        merge_runs(options)
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped. The same command goes on from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
