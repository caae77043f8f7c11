"""Pack finished results small into `evidence/`, join them, and compare them with those made again.

What is packed was made by a checkout without uncommitted changes, or without any to the code that
made it, with one version of each module, which is that of its commit where this checkout has it.
Stand-ins for data that the preset takes real must be named.

In all functions `name` is a result's name, `at` the folder that contains its `results` and
`figures`, and `target` the folder of the packed result, such as `evidence/<name>`.
"""

import contextlib
import io
import json
import lzma
import math
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from measured import working_seconds
from packed import AGAIN, ROBUSTNESS, ROOT, Packed, run_hours
from PIL import Image

from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError, check_known
from feature_alignment.pipeline.config import resolve_config
from feature_alignment.pipeline.papers import figure_order
from feature_alignment.pipeline.plan import make_plan
from feature_alignment.pipeline.proof import read_provenance, verdicts_file, verify

DIGITS = 10
"""Significant digits of a packed table's values."""
COLOURS = 256
VISIBLE, VISIBLE_SHARE = 16, 0.005
"""How far a pixel may be off, of 255, and the share of pixels that may be off by more."""
TILE, TILE_SHARE = 32, 0.1
"""Side of a square of pixels, and the share in any square that may be: a colour bar is small."""
WITHHELD = "(a local copy)"
"""Replaces a user's path, which means nothing to anybody else."""
MULTIVERSE = (ROBUSTNESS, "multiverse.csv.xz", "multiverse.json")
Records = dict[Path, dict[str, Any]]
"""What provenance files record, by file."""


def pack(name: str, at: Path, stand_ins: Iterable[str], target: Path) -> None:
    """Pack a finished result.

    `stand_ins` are datasets that may be a stand-in although the preset takes the real one. Earlier
    records of making it again are kept for the figures whose numbers have not changed.

    Raises:
        UserError: if a file is not as its job wrote it, the code was that of a dirty checkout or of
            several versions, the verdicts belong to other tables, or a dataset is a stand-in that
            has not been named.
    """
    verdicts, made, records = _checked(name, at)
    results, figures = (at.resolve() / part / name for part in ("results", "figures"))
    _check_data(made["spec"], set(stand_ins))
    partial = target.with_name(f".{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    shutil.copyfile(verdicts, partial / "claims.csv")
    for figure in made["spec"]["figures"]:
        table = results / "tables" / f"{figure}.csv"
        _compress(table.name, shortened(table.read_text(encoding="utf-8")), partial / "tables")
        shrink(figures / f"{figure}.png", partial / "figures")
    runs = pd.DataFrame(_runs(records)).sort_values(["experiment", "point"])
    runs.to_csv(partial / "runs.csv", index=False, lineterminator="\n")
    told = _about(made["spec"], records, runs)
    told["commits"] = sorted({*told["commits"], made["git"]["commit"]})
    told |= {"selected": True} if verdicts.parent.name == "selected" else {}
    _write_json(told, partial / "about.json")
    if (target / "about.json").exists():  # a multiverse of the same data is kept
        before = Packed(target).about
        same = all(before[key] == told[key] for key in ("preset", "datasets"))
        for file in MULTIVERSE if same else ():
            if (target / file).exists():
                shutil.copyfile(target / file, partial / file)
        if same and (target / AGAIN).exists():
            packed = Packed(target)
            _write_json(_of_others(packed, _renumbered(packed, Packed(partial))), partial / AGAIN)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def add(name: str, at: Path, stand_ins: Iterable[str], target: Path) -> None:
    """Pack a result's figures into the packed result of that name, replacing the same ones.

    Records of making the packed result again are kept for figures whose numbers have not changed.

    Raises:
        UserError: if there is none; the result could not be packed by itself; its preset, versions,
            data or changed settings differ; or one of its runs differs from the packed one, which a
            figure that it does not have shows, too.
    """
    packed = _packed(name, target)
    with tempfile.TemporaryDirectory() as folder:
        added = Packed(Path(folder) / name)
        pack(name, at, stand_ins, added.folder)
        _check_fits(packed, added, at / "results" / name / "runs")
        partial = target.with_name(f".{target.name}")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(target, partial)
        (partial / AGAIN).unlink(missing_ok=True)
        if others := _of_others(packed, _renumbered(packed, added)):
            _write_json(others, partial / AGAIN)
        for part in ("tables", "figures"):
            shutil.copytree(added.folder / part, partial / part, dirs_exist_ok=True)
        claims = _join_claims(packed.rows, added.rows, list(added.about["figures"]))
        claims.to_csv(partial / "claims.csv", index_label="id", lineterminator="\n")
        keys = ["experiment", "point"]
        runs = pd.concat([packed.runs, added.runs]).drop_duplicates(keys, keep="last")
        runs = runs.sort_values(keys)
        runs.to_csv(partial / "runs.csv", index=False, lineterminator="\n")
        _write_json(_join_about(packed.about, added.about, runs), partial / "about.json")
    shutil.rmtree(target)
    partial.rename(target)


def drop(figures: Sequence[str], target: Path) -> None:
    """Take figures out of a packed result, such as those whose very runs a larger one shows.

    Raises:
        UserError: if a figure is not in it, or no other is left.
    """
    packed = Packed(target)
    for figure in figures:
        check_known(f"{figure}: no such figure in {target}", figure, packed.about["figures"])
    left = [figure for figure in packed.about["figures"] if figure not in figures]
    if not left:
        raise UserError(f"{target}: has no other figures; remove the folder itself.")
    shown = {run for figure in left for run in _runs_of(figure, packed.about["preset"])}
    keys = packed.runs[["experiment", "point"]].itertuples(index=False, name=None)
    kept = np.array([key in shown for key in keys])
    runs, gone = packed.runs[kept], packed.runs[~kept]
    only_theirs = set(gone["commit"]) - set(runs["commit"])
    by_figure = {
        key: {figure: of for figure, of in packed.about[key].items() if figure in left}
        for key in ("figures", "pictures", "summaries")
        if key in packed.about
    }
    commits = [one for one in packed.about["commits"] if one not in only_theirs]
    about = packed.about | by_figure | {"commits": commits} | _cost(runs)
    others = _of_others(packed, set(figures))
    claims = packed.rows[packed.rows["figure"].isin(left)]
    claims.to_csv(target / "claims.csv", index_label="id", lineterminator="\n")
    runs.to_csv(target / "runs.csv", index=False, lineterminator="\n")
    _write_json(about, target / "about.json")
    (target / AGAIN).unlink(missing_ok=True)
    if others:
        _write_json(others, target / AGAIN)
    for figure in figures:
        (target / "tables" / f"{figure}.csv.xz").unlink()
        (target / "figures" / f"{figure}.png").unlink()


def _renumbered(packed: Packed, added: Packed) -> set[str]:
    """The added figures with a claim that came out differently, or is new."""
    then, now = (one.rows[["figure", "verdict", "ours"]].sort_index() for one in (packed, added))
    return {
        figure
        for figure in added.about["figures"]
        if not then[then["figure"] == figure].equals(now[now["figure"] == figure])
    }


def _of_others(
    packed: Packed, replaced: set[str], devices: list[str] | None = None
) -> list[dict[str, Any]]:
    """The records of making the result again, without the figures that are replaced.

    With `devices`, they are replaced only in the records from these. How many values of the other
    figures differed is not known: at most as many as of all.
    """
    left = []
    for told in packed.again:
        before = told.get("figures", list(packed.about["figures"]))
        gone = replaced if devices in (None, told["devices"]) else set()
        figures = [figure for figure in before if figure not in gone]
        of_gone = packed.claims["figure"].isin(gone.intersection(before))
        if figures == before:
            left.append(told)
        elif figures:  # claims that are newer than what was made again are not among these
            names, count = packed.claims.index[of_gone], told["claims"] - int(of_gone.sum())
            differ = {k: v for k, v in told["verdicts_that_differ"].items() if k not in names}
            kept = {**told, "figures": figures, "claims": count, "verdicts_that_differ": differ}
            left.append({**kept, "values_counted_with_others": True})
    return left


def _join_about(
    packed: dict[str, Any], added: dict[str, Any], runs: pd.DataFrame
) -> dict[str, Any]:
    figures = packed["figures"] | added["figures"]
    data = {one["name"]: one for one in (*added["datasets"], *packed["datasets"])}
    new = data.keys() - {one["name"] for one in packed["datasets"]}
    changed = [
        change
        for change in added["changes"]
        if _dataset_of(change) in new and change not in packed["changes"]
    ]
    again = {
        key: {f: at for f, at in packed.get(key, {}).items() if f not in added["figures"]}
        for key in ("pictures", "summaries")
    }
    return {
        **{key: value for key, value in packed.items() if key not in (*again, "judged")},
        "changes": packed["changes"] + changed,
        "figures": {figure: figures[figure] for figure in sorted(figures, key=figure_order)},
        **{key: at for key, at in again.items() if at},
        "datasets": [data[key] for key in sorted(data)],
        "commits": sorted({*packed["commits"], *added["commits"]}),
        **_cost(runs),
    }


def _check_fits(packed: Packed, added: Packed, runs: Path) -> None:
    versions = [one.about["versions"] for one in (packed, added)]
    both = versions[0].keys() & versions[1].keys()
    same = all(versions[0][name] == versions[1][name] for name in both)
    for key, equal in (
        ("preset", packed.about["preset"] == added.about["preset"]),
        ("versions", same),
    ):
        if not equal:
            raise UserError(
                f"{key}: the packed result's is {packed.about[key]}, here {added.about[key]}; pack "
                "all figures made at one, without --add."
            )
    known = {one["name"]: one for one in packed.about["datasets"]}
    for one in added.about["datasets"]:
        if known.get(one["name"], one) != one:
            raise UserError(
                f"{one['name']}: is other data than in {packed.folder / 'about.json'}; add what "
                "was made of the same."
            )
    changed, here = (
        [change for change in of.about["changes"] if _dataset_of(change) is None]
        for of in (packed, added)
    )
    if changed != here:
        raise UserError(
            f"changed settings: {here}, of the packed result {changed}; add what was made by the "
            "same."
        )
    keys = ["experiment", "point"]
    both = packed.runs.merge(added.runs, on=keys, suffixes=("", "_here"))
    other = both[both["metrics_sha256"] != both["metrics_sha256_here"]]
    replaced = set(zip(other["experiment"], other["point"], strict=True))
    for figure in packed.about["figures"].keys() - added.about["figures"].keys():
        shared = replaced.intersection(_runs_of(figure, packed.about["preset"]))
        file = packed.folder / "tables" / f"{figure}.csv.xz"
        if shared := {run for run in shared if not _agrees(file, runs.joinpath(*run))}:
            raise UserError(
                f"{'/'.join(min(shared))}: is another run than the packed one, which "
                f"{figure} shows, too; make that figure with it."
            )


def _agrees(table: Path, run: Path) -> bool:
    """Whether a run has the rows that a packed table shows of it, to the digits that are packed.

    As one that was made again with more metrics, or on a processor that rounds in another order.
    """
    shown, metrics = (pd.read_csv(file, low_memory=False) for file in (table, run / "metrics.csv"))
    shown = shown[(shown["point"] == run.name) & shown["metric"].isin(metrics["metric"])]
    keys = [column for column in metrics if column != "value" and column in shown]
    if shown.empty or shown.duplicated(keys).any():
        return False
    both = shown.merge(metrics, on=keys, suffixes=("", "_here"), how="left")
    return bool(np.isclose(both["value"], both["value_here"], rtol=1e-9, atol=0).all())


def _dataset_of(change: Sequence[str]) -> str | None:
    """The dataset whose setting was changed, if the change is of a dataset."""
    section, _, rest = change[0].partition(".")
    return rest.split(".")[0] if section == "datasets" else None


def _runs_of(figure: str, preset: str) -> list[tuple[str, str]]:
    return make_plan(resolve_config({}, ROOT / "workflow", preset)).runs_of(figure)


def _join_claims(packed: pd.DataFrame, added: pd.DataFrame, figures: list[str]) -> pd.DataFrame:
    """The packed claims, those of the figures replaced in place, new ones last."""
    joined = pd.concat([packed[~packed["figure"].isin(figures)], added])
    order = [claim for claim in packed.index if claim in joined.index]
    order += [claim for claim in added.index if claim not in packed.index]
    return joined.loc[order]


def _write_json(told: Any, file: Path) -> None:
    text = json.dumps(told, indent=1, ensure_ascii=False)
    file.write_text(f"{text}\n", encoding="utf-8")


def confirm(name: str, at: Path, target: Path) -> dict[str, list[str]]:
    """Record next to the packed result of that name that it was made again, and what came out.

    If the result has fewer figures, only these are compared. `at` may also be a folder that it was
    packed into elsewhere. Returns the verdicts that differ, by claim: as packed, and as made again.

    Raises:
        UserError: if there is no packed result, its preset, data or claims differ, what was made
            again could not be packed, or all of its runs are the packed ones.
    """
    packed = _packed(name, target)
    with tempfile.TemporaryDirectory() as folder:
        made = Packed(at if (at / "about.json").exists() else Path(folder) / name)
        if made.folder != at:
            pack(name, at, DATASETS, made.folder)
        about, now, runs = made.about, made.claims, made.runs
    _check_same_data(packed, name, [(at, data) for data in about["datasets"]])
    then = packed.claims[packed.claims["figure"].isin(about["figures"])]
    if about["preset"] != packed.about["preset"] or set(now.index) != set(then.index):
        raise UserError(
            f"{at}: is of another preset or of other claims than {target}; make again what was "
            f"packed: {packed.settings}."
        )
    rows, known_rows = (set(of.itertuples(index=False, name=None)) for of in (runs, packed.runs))
    if rows <= known_rows:  # with the seconds that they took
        raise UserError(f"{at}: is the packed result itself; make it again first.")
    now = now.loc[then.index]
    other = (then["ours"] != now["ours"]) & ~(then["ours"].isna() & now["ours"].isna())
    pairs = zip(then.index, then["verdict"], now["verdict"], strict=True)
    told = {
        **{key: about[key] for key in ("devices", "commits", "versions")},
        "claims": len(then),
        "values_that_differ": int(other.sum()),
        "verdicts_that_differ": {claim: [a, b] for claim, a, b in pairs if a != b},
    }
    if about["figures"].keys() != packed.about["figures"].keys():
        told["figures"] = sorted(about["figures"], key=figure_order)
    kept = _of_others(packed, set(about["figures"]), told["devices"])
    _write_json([*kept, told], target / AGAIN)
    return told["verdicts_that_differ"]


def pack_multiverse(name: str, at: Path, target: Path, join: bool = False) -> None:
    """Pack a finished multiverse next to the packed result of that name.

    With `join`, packed groups that this multiverse does not have are kept.

    Raises:
        UserError: if there is none, a file is not as its job wrote it, the code was that of a dirty
            checkout or of several versions, or data or preset are not those of the packed result.
    """
    packed, results = _packed(name, target), at.resolve() / "results" / name
    preset = packed.about["preset"]
    with contextlib.chdir(at):
        verify(name)
    if not (results / "multiverse.provenance.json").exists():
        raise UserError(f"{results}: has no multiverse; make the target `multiverse` first.")
    gathered = read_provenance(results / "multiverse.provenance.json")
    groups = sorted(pd.read_csv(results / ROBUSTNESS, usecols=["group"])["group"].unique())
    folders = [results / "data", *(results / "multiverse" / group for group in groups)]
    made = [path for folder in folders for path in sorted(folder.glob("*provenance.json"))]
    records = {path: read_provenance(path) for path in made}
    _check_code(records)
    data = {path: record["data"] for path, record in records.items() if "data" in record}
    _check_same_data(packed, name, [(path, _dataset(told)) for path, told in data.items()])
    if gathered["spec"]["preset"] != preset:
        raise UserError(
            f"preset: the multiverse's is {gathered['spec']['preset']}, the packed result's "
            f"{preset}; pack what was made at one."
        )
    blocks = [record for record in records.values() if "universes" in record["spec"]]
    told = {
        "groups": groups,
        "universes": sum(len(block["spec"]["universes"]) for block in blocks),
        "commits": sorted({record["git"]["commit"] for record in records.values()}),
        "versions": blocks[0]["versions"],
        "devices": sorted({_device(record) for record in blocks}),
        "run_hours": round(sum(map(working_seconds, blocks)) / 3600, 2),
    }
    parts, tables = [told], [_unchanged(results / file) for file in (ROBUSTNESS, "multiverse.csv")]
    if join and (target / "multiverse.json").exists():
        before = [target / ROBUSTNESS, target / "multiverse.csv.xz"]
        kept = [rows[~rows["group"].isin(groups)] for rows in map(_texts, before)]
        tables = [pd.concat(both) for both in zip(tables, kept, strict=True)]
        parts += _parts_left(target, kept[1])
    robustness, universes = (_csv(rows.sort_values("group", kind="stable")) for rows in tables)
    (target / ROBUSTNESS).write_bytes(robustness)
    _compress("multiverse.csv", universes, target)
    _write_json(parts, target / "multiverse.json")


def _parts_left(target: Path, kept: pd.DataFrame) -> list[dict[str, Any]]:
    """The records of a packed multiverse's parts, limited to groups whose universes are kept."""
    parts = json.loads((target / "multiverse.json").read_text(encoding="utf-8"))
    for part in parts:
        left = [group for group in part["groups"] if group in set(kept["group"])]
        part["replaced"] = part.get("replaced", 0) + len(part["groups"]) - len(left)
        part["groups"] = left
        own = kept[kept["group"].isin(left)]
        part["universes"] = len(own[["group", "universe"]].drop_duplicates())
    return [part for part in parts if part["groups"]]


def _packed(name: str, target: Path) -> Packed:
    if not (target / "about.json").exists():
        raise UserError(f"{target}: holds no packed result; pack {name} first.")
    return Packed(target)


def _check_same_data(
    packed: Packed, name: str, read: Iterable[tuple[Path, dict[str, Any]]]
) -> None:
    known = {told["name"]: told for told in packed.about["datasets"]}
    for place, told in read:
        if known.get(told["name"]) != told:
            raise UserError(
                f"{place}: is not the data of the packed result {name}; give what was made of the "
                "same."
            )


def _checked(name: str, at: Path) -> tuple[Path, dict[str, Any], Records]:
    """The verdicts of a finished result, their provenance, and that of all that they rest on."""
    with contextlib.chdir(at):
        verify(name)
        verdicts = verdicts_file(name).resolve()
        results, figures = (Path(part).resolve() / name for part in ("results", "figures"))
    made = read_provenance(verdicts.with_name("claims.provenance.json"))
    records = {path: read_provenance(path) for path in _records(results, figures)}
    records = _of_figures(records, made["spec"])
    _check_code({**records, verdicts: made})
    return verdicts, made, records


def _records(results: Path, figures: Path) -> Iterator[Path]:
    """The provenance files of runs, data and figures; not of reports and comparisons."""
    for folder, pattern in ((results, "runs/*/*/"), (results, "data/*"), (figures, "*")):
        yield from sorted(folder.glob(f"{pattern}provenance.json"))


def _of_figures(records: Records, made: dict[str, Any]) -> Records:
    """A result's records of the figures that were judged, of their runs and of their data."""
    specs = [record["spec"] for record in records.values()]
    drawn = [spec for spec in specs if spec.get("figure") in made["figures"]]
    runs = {(point["experiment"], point["name"]) for spec in drawn for point in spec["points"]}

    def counts(path: Path, record: dict[str, Any]) -> bool:
        if "data" in record:
            return _source(record) in _shown(made)
        if "experiment" in record["spec"]:
            return path.parts[-3:-1] in runs
        return record["spec"] in drawn

    return {path: record for path, record in records.items() if counts(path, record)}


def _check_code(records: Records) -> None:
    hashes: dict[tuple[str, ...], tuple[str, Path]] = {}
    known: dict[str, tuple[dict[str, str], Path]] = {}
    for path, record in records.items():
        git, own = record["git"], record["library_sha256"]
        found = git["commit"] and _code_of(git["commit"], *record["modules"])
        if git["dirty"] is False and found not in (None, own):
            raise UserError(
                f"{path}: was made by other code than is in the commit that it names; remove the "
                "result and make it again."
            )
        if git["dirty"] is not False and found != own:
            raise UserError(
                f"{path}: was made by a checkout with changes of its own, by none, or by one whose "
                "commit did not lead to this one; commit them, remove the result and make it again."
            )
        versions, one = known.setdefault("versions", (record["versions"], path))
        for name in versions.keys() & record["versions"].keys():
            if versions[name] != record["versions"][name]:
                raise UserError(
                    f"{path}: was made with {name} {record['versions'][name]}, {one} with "
                    f"{versions[name]}; remove what the older one made, and make it again."
                )
        first, other = hashes.setdefault(tuple(record["modules"]), (own, path))
        if first != own:
            raise UserError(
                f"{path}: was made by another version of the library than {other}; start Snakemake "
                "again at one commit, which makes again what that changes."
            )


@cache
def _code_of(commit: str, *modules: str) -> str | None:
    """The hash of the code of modules at a commit of this checkout; None if there is none."""
    ask = "import sys; from feature_alignment.pipeline.imports import closure_hash as code"
    # The record may be a stranger's, and its code is run: only what led to this checkout.
    known = ["git", "-C", ROOT, "merge-base", "--is-ancestor", commit, "HEAD"]
    whole = re.fullmatch("[0-9a-f]{40}", str(commit))
    if whole is None or subprocess.run(known, capture_output=True).returncode:
        return None
    archive = subprocess.run(["git", "-C", ROOT, "archive", commit, "src"], capture_output=True)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        done = subprocess.run(
            [sys.executable, "-c", f"{ask}; print(code(*sys.argv[1:]))", *modules],
            env=os.environ | {"PYTHONPATH": str(Path(folder, "src"))},
            cwd=folder,
            capture_output=True,
            text=True,
        )
    return None if done.returncode else done.stdout.strip()


def _shown(spec: dict[str, Any]) -> set[tuple[str, str]]:
    """The datasets that the figures show, and their sources."""
    return {
        (name, source) for made in spec["figures"].values() for name, source in made["datasets"]
    }


def _source(record: dict[str, Any]) -> tuple[str, str]:
    return record["data"]["name"], record["data"]["source"]


def _check_data(spec: dict[str, Any], named: set[str]) -> None:
    replaced = {
        key.split(".")[1]: own
        for key, own, here in spec["changes"]
        if key.startswith("datasets.") and key.endswith(".source") and here == "embedded"
    }
    for dataset, own in replaced.items():
        if dataset in {name for name, _ in _shown(spec)} - named:
            raise UserError(
                f"{dataset}: is a stand-in, where preset {spec['preset']} takes {own}; say "
                f"--stand-in {dataset} if that is meant."
            )


def _unchanged(file: Path) -> pd.DataFrame:
    """A table of the multiverse without the rows of changed settings."""
    rows = _texts(file)
    return rows[rows["changed"] == ""] if "changed" in rows else rows


def _texts(file: Path) -> pd.DataFrame:
    return pd.read_csv(file, dtype=str, keep_default_na=False)


def _csv(rows: pd.DataFrame) -> bytes:
    return rows.to_csv(index=False, lineterminator="\n").encode("utf-8")


def shortened(table: str) -> bytes:
    """A table, with as many digits of its values as are packed."""

    def rounded(text: str) -> str:
        value = float(text) if text else math.nan
        short = float(f"{value:.{DIGITS - 1}e}")
        return repr(short) if abs(short) < math.inf and short != value else text

    rows = pd.read_csv(io.StringIO(table), dtype=str, keep_default_na=False)
    rows["value"] = rows["value"].map(rounded)
    return rows.to_csv(index=False, lineterminator="\n").encode()


def _compress(name: str, content: bytes, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    # Without a date the same table gives the same bytes.
    (folder / f"{name}.xz").write_bytes(lzma.compress(content, preset=lzma.PRESET_EXTREME | 9))


def shrink(picture: Path, folder: Path) -> None:
    """Write a picture, with few colours if that is invisible: heat maps would show bands."""
    folder.mkdir(exist_ok=True)
    buffer = io.BytesIO()
    with Image.open(picture) as image:
        full = image.convert("RGB")
    fewer = full.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    fewer.save(buffer, "PNG", optimize=True)
    off = np.abs(np.subtract(full, fewer.convert("RGB"), dtype=int)).max(axis=2) > VISIBLE
    tiles = np.asarray(Image.fromarray(np.uint8(255 * off)).reduce(TILE)) / 255
    found = [picture.read_bytes()]
    if off.mean() <= VISIBLE_SHARE and tiles.max() <= TILE_SHARE:
        found.append(buffer.getvalue())
    (folder / picture.name).write_bytes(min(found, key=len))


def _runs(records: Records) -> Iterator[dict[str, Any]]:
    for path, record in records.items():
        if "experiment" in record["spec"]:
            yield {
                "experiment": path.parts[-3],
                "point": path.parts[-2],
                "spec_sha256": record["spec_sha256"],
                "library_sha256": record["library_sha256"],
                "commit": record["git"]["commit"],
                "metrics_sha256": record["outputs"]["metrics.csv"],
                "arrays_sha256": record["outputs"]["arrays.npz"],
                "wall_seconds": record["wall_seconds"],
                "working_seconds": round(working_seconds(record), 3),
                "peak_memory_mib": record["peak_memory_mib"],
                "device": _device(record),
                "threads": record["threads"],
            }


def _device(record: dict[str, Any]) -> str:
    machine = record["machine"]
    if machine["device"] != "cpu":
        return machine["device"]
    instructions = machine.get("instructions")  # hypervisors withhold the processor's full name
    own = re.sub(r"\((R|TM)\)| Processor$", "", machine["processor"])
    own += f" ({instructions})" if instructions else ""
    return " and ".join([*record.get("earlier_machines", ()), own])


def _about(spec: dict[str, Any], records: Records, runs: pd.DataFrame) -> dict[str, Any]:
    every, shown = list(records.values()), _shown(spec)
    data = [record["data"] for record in every if "data" in record and _source(record) in shown]
    return {
        "name": spec["name"],
        "preset": spec["preset"],
        "changes": [
            [key, own, WITHHELD if key.endswith(".path") else here]
            for key, own, here in spec["changes"]
        ],
        "figures": {figure: made["changed"] for figure, made in spec["figures"].items()},
        "datasets": [_dataset(told) for told in data],
        "commits": sorted({record["git"]["commit"] for record in every}),
        "versions": every[0]["versions"],
        **_cost(runs),
    }


def _cost(runs: pd.DataFrame) -> dict[str, Any]:
    return {
        "devices": sorted(set(runs["device"])),
        "run_hours": round(run_hours(runs), 2),
    }


def _dataset(told: dict[str, Any]) -> dict[str, Any]:
    hidden = {"folder", "file", "path"}
    origin = [
        {key: value for key, value in part.items() if key not in hidden}
        for part in told["origin"]
        if isinstance(part, dict)
    ]
    kept = {key: told[key] for key in ("name", "source", "stand_in", "counts", "notes")}
    return {**kept, "origin": origin}
