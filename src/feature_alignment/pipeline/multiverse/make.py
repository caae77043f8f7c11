"""Make the multiverse's files (verdicts, summaries, pictures) from the archives of its runs."""

import itertools
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from feature_alignment.data.archives import refuse_size
from feature_alignment.errors import UserError
from feature_alignment.pipeline.claims.evaluate import EMBEDDED, write_verdicts
from feature_alignment.pipeline.claims.ledger import load_ledger
from feature_alignment.pipeline.figures.make import describe_data, describe_settings, table_of
from feature_alignment.pipeline.figures.style import save, stamp
from feature_alignment.pipeline.multiverse.design import load_multiverses
from feature_alignment.pipeline.multiverse.draw import draw_curves, draw_matrix
from feature_alignment.pipeline.multiverse.judge import (
    Finished,
    effects,
    judge_universes,
    summarise,
)
from feature_alignment.pipeline.report.rendering import render
from feature_alignment.pipeline.spec import Spec


def judge_group(
    spec: Spec, archives: Sequence[Path], ledgers: Sequence[Path], files: Mapping[str, Path]
) -> None:
    """Judge a group's claims in all of its universes, and draw them.

    Args:
        spec: `group`, `name`, `preset`, and `figures` as in `Plan.selection_spec`.
        archives: the archives of the group's blocks, in order.
        ledgers: the papers' `claims.yaml`.
        files: what to write: `universes`, `claims` and `effects` (CSV), `matrix`, `curves` (PNG).
    """
    group = load_multiverses()[spec["group"]]
    ledger = [claim for claim in load_ledger(ledgers) if claim.figure in group.figures]
    sources = {name: about["datasets"] for name, about in spec["figures"].items()}
    real = {name: all(source != EMBEDDED for _, source in pairs) for name, pairs in sources.items()}
    judged = judge_universes(read_blocks(archives), ledger, group.learnt, spec["preset"], real)
    settings = list(group.settings)
    tables: dict[str, pd.DataFrame] = {
        "universes": judged,
        "claims": summarise(judged, settings, ledger),
        "effects": effects(judged, settings),
    }
    changed = {claim.id: spec["figures"][claim.figure]["changed"] for claim in ledger}
    for name in ("universes", "claims"):
        told = ["; ".join(changed[claim]) for claim in tables[name]["claim"]]
        tables[name] = tables[name].assign(changed=told)
    for name, table in tables.items():
        write_verdicts(table, files[name])
    about: dict[str, Any] = {"points": [None], **spec}
    about["changed"] = list(dict.fromkeys(itertools.chain(*changed.values())))
    about["datasets"] = sorted({tuple(pair) for pairs in sources.values() for pair in pairs})
    pictures = {
        "matrix": draw_matrix(tables["claims"], tables["effects"], settings),
        "curves": draw_curves(judged, settings, ledger),
    }
    for name, picture in pictures.items():
        stamp(picture, describe_settings(about), describe_data(about))
        save(picture, files[name])


def read_blocks(archives: Sequence[Path]) -> Iterator[Finished]:
    """The universes of some archives, in order, with their figures' tables recomputed.

    Raises:
        UserError: if an archive unpacks to too much.
    """
    for file in archives:
        with TemporaryDirectory() as folder, zipfile.ZipFile(file) as archive:
            try:
                refuse_size(sum(member.file_size for member in archive.infolist()))
            except ValueError as error:
                raise UserError(f"{file}: {error}; remove it.") from error
            archive.extractall(folder)
            found = Path(folder).glob("*/universe.json")
            yield from map(_read, sorted(found, key=lambda told: int(told.parts[-2])))


def _read(told: Path) -> Finished:
    about = json.loads(told.read_text(encoding="utf-8"))
    tables = {}
    for figure, points in about["figures"].items():
        folders = {p["name"]: told.parent / p["experiment"] / p["name"] for p in points}
        if all((folder / "metrics.csv").exists() for folder in folders.values()):
            tables[figure] = table_of(figure, points, folders).frame
    return Finished(about["number"], about["levels"], tables, about["failed"])


def gather(
    spec: Spec, folders: Sequence[Path], pictures: Mapping[str, Path], files: Mapping[str, Path]
) -> None:
    """Combine the groups' verdicts, and write the page that shows them.

    Args:
        spec: `name`, `preset`, and `left_out`, the groups that this preset does not run.
        folders: the groups' folders, in order, with `universes.csv` and `claims.csv`.
        pictures: the pictures by `<group>_matrix` and `<group>_curves`, relative to the page.
        files: what to write: `universes` and `claims` (CSV), `page` (HTML).
    """
    groups = load_multiverses()
    universes, claims = [], []
    for folder in folders:
        # As texts: read as values, `true` and `0` would come out as `True` and `0.0`.
        told = pd.read_csv(folder / "universes.csv", dtype=str, keep_default_na=False)
        settings = [column for column in told if "." in str(column)]  # `<experiment>.<key>`
        levels = [json.dumps(row) for row in told[settings].to_dict("records")]
        kept = told.drop(columns=settings)
        kept.insert(2, "settings", levels)
        universes.append(kept.assign(group=folder.name))
        summary = pd.read_csv(folder / "claims.csv", dtype={"word": str, "changed": str})
        claims.append(summary.assign(group=folder.name))
    judged = [table for table in claims if len(table)] or claims  # empty columns have no type
    every = pd.concat(judged, ignore_index=True).fillna({"changed": ""})
    counted = every[every["changed"] == ""]
    write_verdicts(pd.concat(universes, ignore_index=True), files["universes"])
    write_verdicts(every, files["claims"])
    page = render(
        Path(__file__).with_name("multiverse.html.jinja"),
        spec=spec,
        groups=[
            (name, groups[name], every[every["group"] == name].to_dict("records"))
            for name in (folder.name for folder in folders)
        ],
        words=counted["word"].str.replace(" on .*", "", regex=True).value_counts().to_dict(),
        not_counted=len(every) - len(counted),
        dependent=counted[counted["word"].str.startswith("depends", na=False)]
        .sort_values("difference", ascending=False)
        .head(10)
        .to_dict("records"),
        left_out={name: groups[name].why for name in spec["left_out"]},
        pictures=pictures,
    )
    files["page"].write_text(page, encoding="utf-8")
