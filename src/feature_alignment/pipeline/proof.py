"""Proof that results are what their jobs wrote: each provenance file has its outputs' hashes."""

import json
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from feature_alignment.data.identity import content_hash
from feature_alignment.errors import UserError, shortened, suggestion
from feature_alignment.files import read_regular, sha256_of
from feature_alignment.pipeline.imports import closure_hash
from feature_alignment.pipeline.spec import PRESETS, Spec, spec_hash


def read_provenance(file: Path) -> dict[str, Any]:
    """The record of a provenance file.

    Raises:
        UserError: if it is missing or damaged.
    """
    try:
        record = json.loads(read_regular(file))
        if isinstance(record["outputs"], dict):
            return record
        reason = "holds no hashes of outputs"
    except FileNotFoundError:
        reason = "is missing"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        reason = "is damaged, or of an older version"
    raise UserError(f"{file}: {reason}; {_cure([file])}.")


def other_than_planned(record: Mapping[str, Any], spec: Spec, modules: Sequence[str]) -> str:
    """What differs between a job's record and the plan: "settings", "code", or "" if neither."""
    if record.get("spec_sha256") != spec_hash(spec):
        return "settings"
    return "" if record.get("library_sha256") == closure_hash(*modules) else "code"


def outputs_of(provenance: Path) -> dict[Path, str]:
    """The hashes of a job's outputs, by file.

    Raises:
        UserError: as `read_provenance`, and if it names a file outside of its result.
    """
    outputs, home = read_provenance(provenance)["outputs"], provenance.parent
    # Normalised as text, as they were written: `..` of a linked folder leads elsewhere.
    files = {Path(os.path.normpath(home / name)): written for name, written in outputs.items()}
    places, parts = [home], home.parts
    for i in (i for i, part in enumerate(parts[:-1]) if part in ("results", "figures")):
        name = parts[i + 1 : i + 3] if parts[i + 1] == ".replay" else parts[i + 1 : i + 2]
        places += [Path(*parts[:i], top, *name) for top in ("results", "figures")]
    for file in files:
        if not any(file.is_relative_to(os.path.normpath(place)) for place in places):
            raise UserError(
                f"{provenance}: tells of {shortened(str(file))}, which is outside of its result; "
                "remove it."
            )
    return files


def faults(provenance: Path, hash_of: Callable[[Path], str] = sha256_of) -> Iterator[str]:
    """One sentence for each output that is not as the job wrote it."""
    files = outputs_of(provenance)
    for file, written in files.items():
        try:
            if hash_of(file) != written:
                yield f"{file}: has been changed since it was written; {_cure(files)}."
        except FileNotFoundError:
            yield f"{file}: is missing; {_cure(files)}."
        except (OSError, ValueError) as error:  # the latter of a name that no system has
            yield f"{file}: cannot be read ({getattr(error, 'strerror', error)}); {_cure(files)}."


def check_proof(provenance: Path) -> None:
    """Check that a job's outputs are as the job wrote them.

    Raises:
        UserError: naming the first file that is not, and how to remake it.
    """
    for fault in faults(provenance):
        raise UserError(fault)


def provenance_files(name: str) -> list[Path]:
    """The provenance files of a result.

    Raises:
        UserError: if there is no such result.
    """
    folders = [Path("results") / name, Path("figures") / name]
    every = (path for folder in folders for path in _below(folder))
    if found := sorted(path for path in every if path.name.endswith("provenance.json")):
        return found
    raise UserError(f"{folders[0]}: holds no results; make them with {making(name)}.")


def verify(name: str) -> int:
    """Check that a result's files and their inputs are unchanged; return the number of jobs.

    Raises:
        UserError: if there is no such result, or with all faults, one per line.
    """
    folders = [Path("results") / name, Path("figures") / name]
    records, found = provenance_files(name), list[str]()
    proven, hash_of = set(records), cache(sha256_of)  # several jobs read the same files
    for record in records:
        try:
            proven |= outputs_of(record).keys()
            found += faults(record, hash_of)
            found += _others_since(record, folders, hash_of)
        except UserError as error:
            found.append(str(error))
        except OSError as error:  # of an input
            found.append(f"{error.filename}: cannot be read ({error.strerror}); make it readable.")
    found += [
        f"{file}: no provenance file lists it; remove it (rm -f {shlex.quote(str(file))}), or "
        "what made it, and start Snakemake again."
        for file in sorted({*_made(folders)} - proven)
    ]
    if found:
        raise UserError("\n".join(found))
    return len(records)


def _others_since(
    provenance: Path, folders: Sequence[Path], hash_of: Callable[[Path], str]
) -> Iterator[str]:
    """One sentence for the first input of a job that is no longer what it read.

    Provenance files are not compared: the inputs that they record may be remade to the same bytes.
    Nor are the verdicts of a comparison, which the next selection of figures overwrites.
    """
    record = read_provenance(provenance)
    spec = record.get("spec", {})
    if "data" in record and "sha256" in spec:  # a dataset from the user's own files
        found = content_hash(spec["source"], spec["path"])
        if found not in (None, spec["sha256"]):  # None if they are no longer there
            yield (
                f"{provenance}: was made from an earlier version of {spec['path']}; give the "
                "command that made it again, which updates all that depends on it."
            )
    inputs = record.get("inputs", {}).items()
    for told, read in (one for one in inputs if not one[0].endswith("provenance.json")):
        name = told.rpartition(f"{folders[0].as_posix()}/")[2]  # some are recorded by full path
        if provenance.parent.name == "compare" and name.startswith("selected/"):
            continue
        there = [folder / name for folder in folders if (folder / name).exists()]
        if not there:
            missing = folders["/" not in name and name != "claims.csv"] / name
            yield (
                f"{provenance}: was made from {missing}, which is missing; to make it again, start "
                f"Snakemake with `-- {missing}` at the end of the command."
            )
        elif all(hash_of(file) != read for file in there):
            yield (
                f"{provenance}: was made from an earlier version of {there[0]}; give the command "
                "that made it again, which updates all that depends on it."
            )
        else:
            continue
        return


def _made(folders: Iterable[Path]) -> Iterator[Path]:
    """The files of a result, except logs and hidden files."""
    for folder in folders:
        for file in _below(folder):
            below = file.relative_to(folder).parts
            if file.is_file() and below[0] != "logs" and not any(p[0] == "." for p in below):
                yield file


def _below(folder: Path) -> Iterator[Path]:
    """All that is below a result's folder, also if its `runs` are a link to another disk."""
    for top in (folder, *(path for path in folder.glob("*") if path.is_symlink())):
        yield from top.rglob("*")


def verdicts_file(name: str, figures: Collection[str] = ()) -> Path:
    """The verdicts of a finished result: for all its figures, or else for the last selection.

    Those on `figures` must be on the tables that are there; if they are not among the verdicts for
    all figures, the last selection must be of all of these figures.

    Raises:
        UserError: if there are none, or none on these tables.
    """
    folder, outdated = Path("results") / name, ""
    for file in filter(Path.exists, (folder / "claims.csv", folder / "selected" / "claims.csv")):
        judged, others = _judged(file, figures)
        if not others and not (outdated and judged < {*figures}):
            return file
        outdated = outdated or (
            f"{file}: is on an earlier version of {others[0]}; make the verdicts again, with "
            f"{making(name)}."
        )
    if outdated:
        raise UserError(outdated)
    whole, selected = (Path("results").glob(f"*/{part}claims.csv") for part in ("", "selected/"))
    finished = sorted({file.parts[1] for file in (*whole, *selected)})
    raise UserError(
        f"with: there is no finished result {shortened(name)} in results; "
        f"{suggestion(name, finished)}. "
        f"Make it first, with {making(name)}."
    )


def _judged(verdicts: Path, figures: Collection[str]) -> tuple[set[str], list[Path]]:
    """Those of some figures that verdicts are on, and their tables that are others since."""
    record = verdicts.with_name("claims.provenance.json")
    if not figures or not record.exists():  # which the job that compares refuses
        return set(), []
    read = read_provenance(record).get("inputs", {})
    folder, tables = Path("results", verdicts.parts[1]), dict[Path, str]()
    for told in read:
        if told.startswith("tables/") and Path(told).stem in figures:
            tables[folder / told] = read[told]
    others = [file for file in tables if file.exists() and sha256_of(file) != tables[file]]
    return {file.stem for file in tables}, others


def making(name: str) -> str:
    """The option of Snakemake for making a result of this name."""
    return f"--config {'preset' if name in PRESETS else 'name'}={name}"


def _cure(files: Iterable[Path]) -> str:
    """How to remake a job's outputs: Snakemake makes missing files."""
    several = [shlex.quote(str(file)) for file in files]
    return (
        f"to remake it, remove it (rm -f {' '.join(several)}) and start Snakemake again, with "
        f"`-- {several[0]}` at the end of the command"
    )
