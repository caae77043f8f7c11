"""Finished results packed small into `evidence/`, and the pages that are generated from them.

    python tools/evidence.py pack NAME [--at FOLDER] [--stand-in DATASET ...] [--add]
        packs FOLDER/results/NAME and FOLDER/figures/NAME (default: this checkout) into
        evidence/NAME; a folder is replaced whole, but for a multiverse of the same data, with
        --add only the figures that were made
    python tools/evidence.py multiverse NAME [--at FOLDER]
        packs the multiverse of the same data beside it, with the commits that it was made at
    python tools/evidence.py again NAME [--at FOLDER]
        records beside it that the result, or some of its figures, were made again, as on another
        processor, and which verdicts differ; fails if any does; FOLDER may also be what was packed
        elsewhere
    python tools/evidence.py pages [--check]
        writes docs/verdicts.md, docs/gallery.md, the table of the README and evidence's RO-Crate
        metadata from evidence/, or fails if they are not what would be written

What is packed was made by a checkout without changes of its own, with one version of each module;
a stand-in in the place of data that the preset takes real has to be named.
"""

import argparse
import contextlib
import gzip
import io
import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sizes
import yaml
from PIL import Image

from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError
from feature_alignment.files import sha256_of
from feature_alignment.pipeline.claims.rules import Outcome
from feature_alignment.pipeline.config import PRESETS, resolve_config
from feature_alignment.pipeline.figures.figure import figure_label
from feature_alignment.pipeline.papers import figure_named, figure_order, paper_of, papers
from feature_alignment.pipeline.plan import make_plan
from feature_alignment.pipeline.proof import read_provenance, verdicts_file, verify
from feature_alignment.pipeline.report.wording import count_text, measured_text, number_text

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "evidence"
COLOURS = 256
VISIBLE, VISIBLE_SHARE = 16, 0.005
"""What a pixel may be off by, of 255, and the share of pixels that may be by more."""
WITHHELD = "(a local copy)"
"""In the place of a user's path, which tells nobody else anything."""
ROBUSTNESS = "robustness.csv"
MULTIVERSE = (ROBUSTNESS, "multiverse.csv.gz", "multiverse.json")
AGAIN = "again.json"
MARKS = "<!-- verdicts: begin -->\n", "<!-- verdicts: end -->"
KINDS = {"number": "numbers", "comparison": "comparisons", "mathematics": "mathematics"}
_OTHER_DATA = "is not the data of the packed result {name}; give what was made of the same."
NO_REASONS: Mapping[str, str] = {}
SIZES_DIFFER = """\
Where all networks agree at both sizes, one verdict may want more of them. Where some dissent, or
means are judged, it may be chance if neither the votes (Fisher's exact test, 5 %) nor the means
(two standard errors) are shown to differ, which few networks seldom can. The rest goes with the
size, and the reason given is what the tables of both sizes show; `quick` has stand-ins in the place
of the data, besides.
"""
FORMATS = {
    ".csv": "text/csv",
    ".gz": "application/gzip",
    ".json": "application/json",
    ".png": "image/png",
}
GOOD = (Outcome.REPRODUCED, Outcome.HOLDS, Outcome.HOLDS_AS_CORRECTED)
BAD = (Outcome.NOT_REPRODUCED, Outcome.FAILS)


def pack(name: str, at: Path, stand_ins: Iterable[str], target: Path) -> None:
    """Pack a finished result.

    Args:
        name: the result's name.
        at: the folder that its `results` and `figures` stand in.
        stand_ins: datasets that may be a stand-in although the preset takes the real one.
        target: the folder to write or to replace.

    Raises:
        UserError: if a file is not as its job wrote it, the code was that of a dirty checkout or of
            several versions, the verdicts are those of other tables, or a dataset is a stand-in
            that has not been named.
    """
    verdicts, made, records = _checked(name, at)
    results, figures = (at.resolve() / part / name for part in ("results", "figures"))
    records = _of_figures(records, made["spec"])
    _check_data(made["spec"], set(stand_ins))
    partial = target.with_name(f".{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    shutil.copyfile(verdicts, partial / "claims.csv")
    for figure in made["spec"]["figures"]:
        table = results / "tables" / f"{figure}.csv"
        _compress(table.name, table.read_bytes(), partial / "tables")
        _shrink(figures / f"{figure}.png", partial / "figures")
    runs = pd.DataFrame(_runs(records)).sort_values(["experiment", "point"])
    runs.to_csv(partial / "runs.csv", index=False, lineterminator="\n")
    told = _about(made["spec"], records, runs)
    told["commits"] = sorted({*told["commits"], made["git"]["commit"]})
    told |= {"selected": True} if verdicts.parent.name == "selected" else {}
    _write_json(told, partial / "about.json")
    if (target / "about.json").exists():  # the multiverse of the same data stays beside it
        before = Packed(target).about
        same = all(before[key] == told[key] for key in ("preset", "datasets"))
        for file in MULTIVERSE if same else ():
            if (target / file).exists():
                shutil.copyfile(target / file, partial / file)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def add(name: str, at: Path, stand_ins: Iterable[str], target: Path) -> None:
    """Pack a result's figures into the packed result of that name, in the place of the same ones.

    What was recorded of making the packed result again stays of the figures that stay.

    Args:
        name: the result's name.
        at: the folder that its `results` and `figures` stand in.
        stand_ins: see `pack`.
        target: the folder with the packed result.

    Raises:
        UserError: if there is none; the result could not be packed by itself; its preset, versions,
            data or changed settings are others; or a run of it is another than the packed one of a
            figure that it does not have.
    """
    packed = _packed(name, target)
    with tempfile.TemporaryDirectory() as folder:
        added = Packed(Path(folder) / name)
        pack(name, at, stand_ins, added.folder)
        _check_fits(packed, added)
        partial = target.with_name(f".{target.name}")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(target, partial)
        _write_json(_of_others(packed, set(added.about["figures"])), partial / AGAIN)
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


def _of_others(packed: "Packed", replaced: set[str]) -> list[dict[str, Any]]:
    """What was recorded of making the result again, of figures that are not replaced.

    How many values of these differed is not known: at most as many as of all.
    """
    left = []
    for told in packed.again:
        before = told.get("figures", list(packed.about["figures"]))
        figures = [figure for figure in before if figure not in replaced]
        rows = packed.claims[packed.claims["figure"].isin(figures)]
        if figures == before:
            left.append(told)
        elif figures:
            differ = {k: v for k, v in told["verdicts_that_differ"].items() if k in rows.index}
            kept = {**told, "figures": figures, "claims": len(rows), "verdicts_that_differ": differ}
            left.append({**kept, "values_counted_with_others": True})
    return left


def _join_about(
    packed: dict[str, Any], added: dict[str, Any], runs: pd.DataFrame
) -> dict[str, Any]:
    figures = packed["figures"] | added["figures"]
    data = {one["name"]: one for one in (*added["datasets"], *packed["datasets"])}
    new = data.keys() - {one["name"] for one in packed["datasets"]}
    changed = [change for change in added["changes"] if _dataset_of(change) in new]
    return {
        **packed,
        "changes": packed["changes"] + changed,
        "figures": {figure: figures[figure] for figure in sorted(figures, key=figure_order)},
        "datasets": [data[key] for key in sorted(data)],
        "commits": sorted({*packed["commits"], *added["commits"]}),
        **_cost(runs),
    }


def _check_fits(packed: "Packed", added: "Packed") -> None:
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
        if shared:
            raise UserError(
                f"{'/'.join(min(shared))}: is another run than the packed one, which "
                f"{figure} shows, too; make that figure with it."
            )


def _dataset_of(change: Sequence[str]) -> str | None:
    """The dataset whose setting a change is of, if it is of any's."""
    section, _, rest = change[0].partition(".")
    return rest.split(".")[0] if section == "datasets" else None


def _runs_of(figure: str, preset: str) -> list[tuple[str, str]]:
    return make_plan(resolve_config({}, ROOT / "workflow", preset)).runs_of(figure)


def _join_claims(packed: pd.DataFrame, added: pd.DataFrame, figures: list[str]) -> pd.DataFrame:
    """The packed claims, those of the figures replaced where they stand, new ones last."""
    joined = pd.concat([packed[~packed["figure"].isin(figures)], added])
    order = [claim for claim in packed.index if claim in joined.index]
    order += [claim for claim in added.index if claim not in packed.index]
    return joined.loc[order]


def _write_json(told: Any, file: Path) -> None:
    text = json.dumps(told, indent=1, ensure_ascii=False)
    file.write_text(f"{text}\n", encoding="utf-8")


def confirm(name: str, at: Path, target: Path) -> dict[str, list[str]]:
    """Record beside the packed result of that name that it was made again, and what came out.

    Of a result with fewer figures these are compared.

    Args:
        name: the result's name.
        at: the folder that its `results` and `figures` stand in, or a folder that it was packed to
            elsewhere.
        target: the folder with the packed result.

    Returns:
        the verdicts that differ, by claim: as packed, and as made again.

    Raises:
        UserError: if there is no packed result, its preset, data or claims are others, or what was
            made again could not be packed.
    """
    packed = _packed(name, target)
    with tempfile.TemporaryDirectory() as folder:
        made = Packed(at if (at / "about.json").exists() else Path(folder) / name)
        if made.folder != at:
            pack(name, at, DATASETS, made.folder)
        about, now = made.about, made.claims
    known = {told["name"]: told for told in packed.about["datasets"]}
    for data in about["datasets"]:
        if known.get(data["name"]) != data:
            raise UserError(f"{at}: {_OTHER_DATA.format(name=name)}")
    then = packed.claims[packed.claims["figure"].isin(about["figures"])]
    if about["preset"] != packed.about["preset"] or set(now.index) != set(then.index):
        raise UserError(
            f"{at}: is of another preset or of other claims than {target}; make again what was "
            f"packed: {_selection(packed.about)}."
        )
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
    whole = list(packed.about["figures"])
    kept = [
        one
        for one in packed.again
        if one["devices"] != told["devices"]
        or not set(one.get("figures", whole)) <= set(told.get("figures", whole))
    ]
    _write_json([*kept, told], target / AGAIN)
    return told["verdicts_that_differ"]


def pack_multiverse(name: str, at: Path, target: Path) -> None:
    """Pack a finished multiverse beside the packed result of that name.

    Args:
        name: the result's name.
        at: the folder that its `results` stand in.
        target: the folder with the packed result.

    Raises:
        UserError: if there is none, a file is not as its job wrote it, the code was that of a dirty
            checkout or of several versions, or data or preset are not those of the packed result.
    """
    about, results = _packed(name, target).about, at.resolve() / "results" / name
    with contextlib.chdir(at):
        verify(name)
    gathered = read_provenance(results / "multiverse.provenance.json")
    groups = sorted(pd.read_csv(results / ROBUSTNESS, usecols=["group"])["group"].unique())
    folders = [results / "data", *(results / "multiverse" / group for group in groups)]
    made = [path for folder in folders for path in sorted(folder.glob("*provenance.json"))]
    records = {path: read_provenance(path) for path in made}
    _check_code(records)
    known = {told["name"]: told for told in about["datasets"]}
    for path, record in records.items():
        data = _dataset(record["data"]) if "data" in record else None
        if data is not None and known.get(data["name"]) != data:
            raise UserError(f"{path}: {_OTHER_DATA.format(name=name)}")
    if gathered["spec"]["preset"] != about["preset"]:
        raise UserError(
            f"preset: the multiverse's is {gathered['spec']['preset']}, the packed result's "
            f"{about['preset']}; pack what was made at one."
        )
    (target / ROBUSTNESS).write_bytes(_unchanged(results / ROBUSTNESS))
    _compress("multiverse.csv", _unchanged(results / "multiverse.csv"), target)
    blocks = [record for record in records.values() if "universes" in record["spec"]]
    told = {
        "groups": groups,
        "universes": sum(len(block["spec"]["universes"]) for block in blocks),
        "commits": sorted({record["git"]["commit"] for record in records.values()}),
        "versions": blocks[0]["versions"],
        "devices": sorted({_device(record) for record in blocks}),
        "run_hours": round(sum(record["wall_seconds"] for record in blocks) / 3600, 2),
    }
    _write_json(told, target / "multiverse.json")


def _packed(name: str, target: Path) -> "Packed":
    if not (target / "about.json").exists():
        raise UserError(f"{target}: holds no packed result; pack {name} first.")
    return Packed(target)


def _checked(name: str, at: Path) -> tuple[Path, dict[str, Any], dict[Path, dict[str, Any]]]:
    """The verdicts of a finished result, what made them, and what made all that they rest on."""
    with contextlib.chdir(at):
        verify(name)
        verdicts = verdicts_file(name).resolve()
        results, figures = (Path(part).resolve() / name for part in ("results", "figures"))
    made = read_provenance(verdicts.with_name("claims.provenance.json"))
    records = {path: read_provenance(path) for path in _records(results, figures)}
    _check_code({**records, verdicts: made})
    _check_verdicts(made["inputs"], results)
    return verdicts, made, records


def _records(results: Path, figures: Path) -> Iterator[Path]:
    """What speaks for the runs, the data and the figures; not for reports and comparisons."""
    for folder, pattern in ((results, "runs/*/*/"), (results, "data/*"), (figures, "*")):
        yield from sorted(folder.glob(f"{pattern}provenance.json"))


def _of_figures(
    records: dict[Path, dict[str, Any]], made: dict[str, Any]
) -> dict[Path, dict[str, Any]]:
    """Of a result's records those of the figures that were judged, of their runs and their data."""
    specs = [record["spec"] for record in records.values()]
    drawn = [spec for spec in specs if spec.get("figure") in made["figures"]]
    runs = {(point["experiment"], point["name"]) for spec in drawn for point in spec["points"]}

    def counts(path: Path, record: dict[str, Any]) -> bool:
        if "data" in record:
            return record["data"]["name"] in _shown(made)
        if "experiment" in record["spec"]:
            return path.parts[-3:-1] in runs
        return record["spec"] in drawn

    return {path: record for path, record in records.items() if counts(path, record)}


def _check_code(records: dict[Path, dict[str, Any]]) -> None:
    hashes: dict[tuple[str, ...], tuple[str, Path]] = {}
    for path, record in records.items():
        if record["git"]["dirty"] is not False:
            raise UserError(
                f"{path}: was made by a checkout with changes of its own, or by none; commit them, "
                "remove the result and make it again."
            )
        first, other = hashes.setdefault(tuple(record["modules"]), (record["library_sha256"], path))
        if first != record["library_sha256"]:
            raise UserError(
                f"{path}: was made by another version of the library than {other}; start Snakemake "
                "again at one commit, which makes again what that changes."
            )


def _check_verdicts(inputs: dict[str, str], results: Path) -> None:
    for name, judged in inputs.items():
        file = results / name
        if name.startswith("tables/") and not (file.exists() and sha256_of(file) == judged):
            raise UserError(
                f"{file}: is not what the verdicts were judged on; start Snakemake again with the "
                "result's own settings."
            )


def _shown(spec: dict[str, Any]) -> set[str]:
    """The datasets that the figures show."""
    return {dataset for made in spec["figures"].values() for dataset, _ in made["datasets"]}


def _check_data(spec: dict[str, Any], named: set[str]) -> None:
    replaced = {
        key.split(".")[1]: own
        for key, own, here in spec["changes"]
        if key.startswith("datasets.") and key.endswith(".source") and here == "embedded"
    }
    for dataset, own in replaced.items():
        if dataset in _shown(spec) - named:
            raise UserError(
                f"{dataset}: is a stand-in, where preset {spec['preset']} takes {own}; say "
                f"--stand-in {dataset} if that is meant."
            )


def _unchanged(file: Path) -> bytes:
    """A table of the multiverse without the rows of changed settings."""
    rows = pd.read_csv(file, dtype=str, keep_default_na=False)
    if "changed" in rows:
        rows = rows[rows["changed"] == ""]
    return rows.to_csv(index=False, lineterminator="\n").encode("utf-8")


def _compress(name: str, content: bytes, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    # Without a date the same table gives the same bytes.
    (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))


def _shrink(picture: Path, folder: Path) -> None:
    """A picture with few colours where that is not seen: heat maps would show bands."""
    folder.mkdir(exist_ok=True)
    buffer = io.BytesIO()
    with Image.open(picture) as image:
        full = image.convert("RGB")
    fewer = full.quantize(COLOURS, dither=Image.Dither.NONE)
    fewer.save(buffer, "PNG", optimize=True)
    gap = np.abs(np.subtract(full, fewer.convert("RGB"), dtype=int)).max(axis=2)
    found = [picture.read_bytes()]
    if (gap > VISIBLE).mean() <= VISIBLE_SHARE:
        found.append(buffer.getvalue())
    (folder / picture.name).write_bytes(min(found, key=len))


def _runs(records: dict[Path, dict[str, Any]]) -> Iterator[dict[str, Any]]:
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
                "peak_memory_mib": record["peak_memory_mib"],
                "device": _device(record),
                "threads": record["threads"],
            }


def _device(record: dict[str, Any]) -> str:
    machine = record["machine"]
    if machine["device"] != "cpu":
        return machine["device"]
    instructions = machine.get("instructions")  # hypervisors withhold the processor's full name
    return machine["processor"] + (f" ({instructions})" if instructions else "")


def _about(
    spec: dict[str, Any], records: dict[Path, dict[str, Any]], runs: pd.DataFrame
) -> dict[str, Any]:
    every, shown = list(records.values()), _shown(spec)
    data = [record["data"] for record in every if "data" in record]
    return {
        "name": spec["name"],
        "preset": spec["preset"],
        "changes": [
            [key, own, WITHHELD if key.endswith(".path") else here]
            for key, own, here in spec["changes"]
        ],
        "figures": {figure: made["changed"] for figure, made in spec["figures"].items()},
        "datasets": [_dataset(told) for told in data if told["name"] in shown],
        "commits": sorted({record["git"]["commit"] for record in every}),
        "versions": every[0]["versions"],
        **_cost(runs),
    }


def _cost(runs: pd.DataFrame) -> dict[str, Any]:
    return {
        "devices": sorted(set(runs["device"])),
        "run_hours": round(float(runs["wall_seconds"].sum()) / 3600, 2),
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


@dataclass(frozen=True)
class Packed:
    """One folder of `evidence`."""

    folder: Path

    @cached_property
    def about(self) -> dict[str, Any]:
        """What `about.json` says."""
        return json.loads((self.folder / "about.json").read_text(encoding="utf-8"))

    @property
    def rows(self) -> pd.DataFrame:
        """All of `claims.csv` as it is written, by claim."""
        file = self.folder / "claims.csv"
        return pd.read_csv(file, dtype=str, keep_default_na=False).set_index("id")

    @property
    def runs(self) -> pd.DataFrame:
        """The runs as `runs.csv` has them."""
        return pd.read_csv(self.folder / "runs.csv")

    @cached_property
    def claims(self) -> pd.DataFrame:
        """The verdicts by claim; of settings that are not the preset's own there are none."""
        found = pd.read_csv(self.folder / "claims.csv", keep_default_na=True).set_index("id")
        return found[found["changed"].isna()]

    @cached_property
    def robustness(self) -> pd.DataFrame | None:
        """What the multiverse found of each claim, where one was packed."""
        file = self.folder / ROBUSTNESS
        return pd.read_csv(file).assign(at=self.folder.name) if file.exists() else None

    @property
    def again(self) -> list[dict[str, Any]]:
        """What came out where the result was made again: see `confirm`."""
        file = self.folder / AGAIN
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else []

    @property
    def size(self) -> int:
        """The preset's place from the smallest to the largest."""
        return list(PRESETS).index(self.about["preset"])


def all_packed(folder: Path) -> list[Packed]:
    """What is in `evidence`, the largest preset first."""
    found = [Packed(path.parent) for path in folder.glob("*/about.json")]
    return sorted(found, key=lambda packed: (-packed.size, packed.folder.name))


def best_verdicts(packed: list[Packed]) -> pd.DataFrame:
    """Each claim's verdict at the largest size at which it was judged, or else untested.

    A column `at` names the evidence.
    """
    rows: dict[str, dict[str, Any]] = {}
    for one in packed:
        for claim, *values in one.claims.itertuples():
            row: dict[str, Any] = dict(zip(one.claims.columns, values, strict=True))
            known = rows.get(claim)
            if known is None or known["verdict"] == Outcome.NOT_TESTABLE:
                rows[claim] = row | {"at": one.folder.name}
    return pd.DataFrame.from_dict(rows, orient="index")


def best_robustness(packed: list[Packed]) -> pd.DataFrame:
    """What the multiverse found of each claim, at the largest size at which some universe counted.

    A column `at` names the evidence.
    """
    found = [one.robustness for one in packed if one.robustness is not None]
    rows = pd.concat(found) if found else pd.DataFrame({"claim": [], "universes": [], "at": []})
    return rows[rows["universes"] > 0].drop_duplicates("claim").set_index("claim")


def summary(verdicts: pd.DataFrame) -> str:
    """The README's table: of each paper and kind, how many claims came out how."""
    lines = [
        "| paper | claims | reproduced or holds | partly | not | undecided | not testable yet |",
        "|---|---|---|---|---|---|---|",
    ]
    for key in papers():
        for kind, words in KINDS.items():
            own = verdicts[(verdicts["paper"] == key) & (verdicts["kind"] == kind)]
            if len(own):
                numbers = " | ".join(map(str, counted(own)))
                lines.append(f"| `{key}` | {len(own)} {words} | {numbers} |")
    return "\n".join(lines) + "\n"


def counted(claims: pd.DataFrame) -> tuple[int, ...]:
    """How many claims came out well, partly, badly, undecided, and not at all."""
    count = Counter(claims["verdict"])
    return (
        sum(count[outcome] for outcome in GOOD),
        count[Outcome.PARTLY],
        sum(count[outcome] for outcome in BAD),
        count[Outcome.UNDECIDED],
        count[Outcome.NOT_TESTABLE],
    )


def verdicts_page(
    packed: list[Packed], verdicts: pd.DataFrame, reasons: Mapping[str, str] = NO_REASONS
) -> str:
    """`docs/verdicts.md`; `reasons` are those of `size_reasons`."""
    robustness = best_robustness(packed)
    parts = [
        "# Verdicts\n\nEach claim at the largest size at which it was judged, from `evidence/`; "
        "written by `python tools/evidence.py pages`. What the words mean, and why a claim came "
        "out as it did, is in [deviations](deviations.md). *Readings*: in how many readings of "
        "the settings that a text leaves open the claim holds, of those that learn their task.\n",
        "## Where the numbers are from\n",
        *map(_source, packed),
        "\n## Where sizes disagree\n",
        SIZES_DIFFER,
        sizes.table({one.folder.name: one.claims for one in packed}, reasons),
        "\n## What hangs on settings that the texts leave open\n",
        _readings(packed, robustness),
    ]
    for key, paper in papers().items():
        own = verdicts[verdicts["paper"] == key]
        if len(own):
            parts.append(f"\n## {paper.title}\n")
        for figure in sorted(own["figure"].unique(), key=figure_order):
            rows = _rows(own[own["figure"] == figure], robustness)
            parts.append(f"\n### {figure_label(figure)}\n\n{rows}")
    return "\n".join(parts)


def _source(packed: Packed) -> str:
    about = packed.about
    stand_ins = [data["name"] for data in about["datasets"] if data["stand_in"]]
    data = f"stand-ins of {', '.join(stand_ins)}" if stand_ins else "no stand-in"
    commits = ", ".join(commit[:7] for commit in about["commits"])
    devices = ", ".join(about["devices"])
    figures = count_text(len(about["figures"]), "figure")
    return (
        f"- `{about['name']}` (preset `{about['preset']}`): {figures}, {data}; "
        f"commit {commits}; {about['run_hours']:.1f} hours of runs on {devices}."
        + "".join(map(_again, packed.again))
    )


def _again(told: dict[str, Any]) -> str:
    differ = told["verdicts_that_differ"]
    words = [f"`{claim}`, {now} in place of {then}" for claim, (then, now) in differ.items()]
    some = ", ".join(f"`{figure}`" for figure in told.get("figures", ()))
    most = "up to " if told.get("values_counted_with_others") else ""
    return (
        f" Made again{' (' * bool(some)}{some}{')' * bool(some)} on "
        f"{', '.join(told['devices'])} at commit "
        f"{', '.join(commit[:7] for commit in told['commits'])}: {told['claims'] - len(differ)} of "
        f"{told['claims']} verdicts are the same, though {most}{told['values_that_differ']} values "
        f"differ"
        f"{' (' * bool(words)}{'; '.join(words)}{')' * bool(words)}."
    )


def _selection(about: dict[str, Any]) -> str:
    """The settings that make a result, but for where its data are."""
    selected = about.get("selected")
    figures = f" figures={','.join(sorted(about['figures']))}" if selected else ""
    return f"preset={about['preset']}{figures}"


def size_reasons(folder: Path) -> dict[str, str]:
    """What goes with another verdict at another size, by claim: see `sizes.of_size`."""
    return yaml.safe_load((folder / "sizes.yaml").read_text(encoding="utf-8"))


def _readings(packed: list[Packed], robustness: pd.DataFrame) -> str:
    """How many claims are robust, and the ten that depend most on one open setting."""
    if robustness.empty:
        return "No multiverse has been packed.\n"
    parts = []
    for one in packed:
        if one.robustness is not None:
            told = json.loads((one.folder / "multiverse.json").read_text(encoding="utf-8"))
            commits = ", ".join(commit[:7] for commit in told["commits"])
            parts.append(
                f"- `{one.folder.name}`: {told['universes']} universes of {len(one.robustness)} "
                f"claims, in groups {', '.join(told['groups'])}; commit {commits}; "
                f"{told['run_hours']:.1f} hours of runs on {', '.join(told['devices'])}."
            )
    depends = robustness["word"].str.startswith("depends on ")
    words = robustness["word"].mask(depends, "depends on one setting").value_counts()
    parts += ["", "| word | claims |", "|---|---|"]
    parts += [f"| {word} | {number} |" for word, number in words.items()]
    most = robustness[depends].sort_values(["difference", "p_value"], ascending=[False, True])
    parts += ["", "The ten that depend most on one setting:", ""]
    parts += ["| claim | holds in | on | differs by | at |", "|" + "---|" * 5]
    parts += [
        f"| `{claim}` | {_share(row)} | `{row['setting']}` | {row['difference']:.2f} "
        f"| {row['at']} |"
        for claim, row in most.head(10).iterrows()
    ]
    everywhere = robustness[robustness["holding"] == robustness["universes"]]
    parts += ["", f"Those that hold in all readings, {len(everywhere)}:", ""]
    names = everywhere.index.to_series()
    for figure, own in names.groupby(names.str.rsplit(".", n=1).str[0], sort=False):
        short = ", ".join(f"`{claim.rpartition('.')[2]}`" for claim in own)
        parts.append(f"- {figure}: {short}")
    return "\n".join(parts) + "\n"


def _share(row: pd.Series) -> str:
    return f"{row['holding']:.0f} of {row['universes']:.0f}"


def _rows(claims: pd.DataFrame, robustness: pd.DataFrame) -> str:
    columns = ("claim", "statement", "paper", "ours", "seeds", "verdict", "at", "readings")
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for claim, row in claims.iterrows():
        tested = row["verdict"] != Outcome.NOT_TESTABLE
        ours = measured_text(row["ours"], row["sd"]) if tested else "–"
        cells = (
            f"`{str(claim).partition('.')[2]}`",
            " ".join(row["statement"].split()).replace("|", "\\|"),
            number_text(row["paper_value"]),
            ours,
            str(row["seeds"]) if tested else "–",
            f"{row['verdict']}{' (ours)' if row['kind'] == 'ours' else ''}",
            row["at"] if tested else "–",
            _share(robustness.loc[claim]) if claim in robustness.index else "–",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def gallery_page(packed: list[Packed]) -> str:
    """`docs/gallery.md`: every figure at the largest size at which it was made."""
    largest = {figure: one for one in reversed(packed) for figure in one.about["figures"]}
    parts = [
        "# Gallery\n\nEvery figure at the largest size at which it was made; written by "
        "`python tools/evidence.py pages`.\n"
    ]
    for key, paper in papers().items():
        own = sorted((figure for figure in largest if paper_of(figure) == key), key=figure_order)
        if own:
            parts.append(f"## {paper.title}\n")
        for figure in own:
            one = largest[figure]
            about, folder = figure_named(figure), f"../evidence/{one.folder.name}"
            parts.append(
                f"### {figure_label(figure)}: {about.title}\n\n"
                f"![{about.title}]({folder}/figures/{figure}.png)\n\n"
                f"*Preset `{one.about['preset']}`; [table]({folder}/tables/{figure}.csv.gz).* "
                f"{about.caption}\n"
            )
    return "\n".join(parts)


def crate(packed: list[Packed], folder: Path) -> str:
    """`ro-crate-metadata.json`: each file, and each preset's run with code, data and command."""
    from rocrate.model.contextentity import ContextEntity
    from rocrate.rocrate import ROCrate

    made = ROCrate(version="1.1")
    made.name = "Evidence: the figures, tables and verdicts of three papers' replication"
    made.description = "Packed by tools/evidence.py from finished runs of the workflow."
    made.license = "https://spdx.org/licenses/MIT"
    log = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    made.datePublished = max(re.findall(r"^## \S+, (\d{4}-\d\d-\d\d)$", log, re.MULTILINE))
    for one in packed:
        about, name = one.about, one.folder.name
        figures = count_text(len(about["figures"]), "figure")
        data = [
            f"{told['name']} ({told['source']}{', a stand-in' if told['stand_in'] else ''})"
            for told in about["datasets"]
        ]
        whole = made.add_dataset(
            one.folder,
            f"{name}/",
            properties={
                "name": f"{name}: {figures} at preset {about['preset']}",
                "description": f"Data: {', '.join(data)}.",
            },
        )
        files = [path for path in sorted(one.folder.rglob("*")) if path.is_file()]
        whole["hasPart"] = [
            made.add_file(
                path,
                path.relative_to(folder).as_posix(),
                properties={"name": path.stem, "encodingFormat": FORMATS[path.suffix]},
            )
            for path in files
        ]
        code = ContextEntity(
            made,
            f"#workflow-{name}",
            properties={
                "@type": ["SoftwareSourceCode", "ComputationalWorkflow"],
                "name": "Snakefile",
                "programmingLanguage": "Snakemake",
                "version": ", ".join(about["commits"]),
                "softwareRequirements": [f"{k} {v}" for k, v in about["versions"].items()],
            },
        )
        run = ContextEntity(
            made,
            f"#run-{name}",
            properties={
                "@type": "CreateAction",
                "name": f"snakemake --cores all --config {_selection(about)}",
                "description": f"{about['run_hours']} hours of runs on "
                f"{', '.join(about['devices'])}.",
            },
        )
        run["instrument"], run["result"] = made.add(code), whole
        made.root_dataset.append_to("mentions", made.add(run))
    return json.dumps(made.metadata.generate(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def pages(folder: Path) -> dict[Path, str]:
    """What the generated pages should hold, by file."""
    packed = all_packed(folder)
    verdicts = best_verdicts(packed)
    readme = ROOT / "README.md"
    before, rest = readme.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    return {
        readme: f"{before}{MARKS[0]}\n{summary(verdicts)}\n{MARKS[1]}{after}",
        ROOT / "docs" / "verdicts.md": verdicts_page(packed, verdicts, size_reasons(folder)),
        ROOT / "docs" / "gallery.md": gallery_page(packed),
        folder / "ro-crate-metadata.json": crate(packed, folder),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True, dest="command")
    packing = commands.add_parser("pack", help="pack a finished result into evidence/")
    packing.add_argument("--stand-in", action="append", default=[], choices=sorted(DATASETS))
    packing.add_argument("--add", action="store_true", help="keep the figures that it has not")
    beside = commands.add_parser("multiverse", help="pack its multiverse beside it")
    confirming = commands.add_parser("again", help="record that it was made again, and differences")
    for command in (packing, beside, confirming):
        command.add_argument("name")
        command.add_argument("--at", type=_folder, default=ROOT)
    paging = commands.add_parser("pages", help="write the pages, or --check that they are current")
    paging.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    try:
        if given.command == "pack":
            packer = add if given.add else pack
            packer(given.name, given.at, given.stand_in, EVIDENCE / given.name)
            return 0
        if given.command == "multiverse":
            pack_multiverse(given.name, given.at, EVIDENCE / given.name)
            return 0
        if given.command == "again":
            differ = confirm(given.name, given.at, EVIDENCE / given.name)
            for claim, (then, now) in differ.items():
                print(f"{claim}: {now}, where evidence/{given.name} has {then}.")
            return int(bool(differ))
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    stale = {path: text for path, text in pages(EVIDENCE).items() if _read(path) != text}
    for path, text in stale.items():
        if given.check:
            print(f"{path.relative_to(ROOT)}: is not current; run python tools/evidence.py pages.")
        else:
            path.write_text(text, encoding="utf-8")
    return int(given.check and bool(stale))


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder.")
    return Path(text)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
