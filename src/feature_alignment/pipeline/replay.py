"""Replay: repeat finished runs, and report what differs with the likely reason."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feature_alignment.errors import UserError
from feature_alignment.pipeline.plan import Plan
from feature_alignment.pipeline.proof import faults, read_provenance
from feature_alignment.pipeline.spec import spec_hash

COLUMNS = ["run", "verdict", "quantity", "relative_difference", "reason"]


def sampled(plan: Plan, fraction: float) -> list[str]:
    """A sample of the finished runs of the selected figures, each as `<experiment>/<point>`.

    It is the same at every call, and a larger one contains a smaller one. `fraction`, in (0, 1], is
    rounded up to a whole run. Runs whose settings differ from the plan's count as not finished.

    Raises:
        UserError: if none is finished, or a provenance file is damaged.
    """
    folder, finished = Path("results") / plan.name / "runs", []
    for run in {run for figure in plan.figures for run in plan.runs_of(figure)}:
        record = folder.joinpath(*run, "provenance.json")
        if record.exists() and read_provenance(record)["spec_sha256"] == spec_hash(plan.specs[run]):
            finished.append("/".join(run))
    if not finished:
        raise UserError(f"replay: {folder} has no finished run with these settings; make it first.")
    finished.sort(key=lambda run: hashlib.sha256(run.encode()).digest())
    return finished[: math.ceil(fraction * len(finished))]


def compare_runs(runs: Iterable[str], recorded: Path, again: Path) -> pd.DataFrame:
    """Compare runs, named as by `sampled`, as `recorded` and as made `again`: by hash, by number.

    One row for a run that is the same, else one for each metric or array that differs, with its
    largest relative difference, infinite if rows or shapes differ.
    """
    rows = [row for run in runs for row in _compared(run, recorded / run, again / run)]
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS))


def summary(found: pd.DataFrame) -> str:
    """How many runs are the same, and a line for each that is not, with its largest difference."""
    bad = found[found["verdict"] != "same"].sort_values("relative_difference", ascending=False)
    number, differ = found["run"].nunique(), bad["run"].nunique()
    lines = [f"Runs made again: {number}; the same: {number - differ}; differ: {differ}."]
    for run, rows in bad.groupby("run"):
        worst, gap = rows["quantity"].iloc[0], rows["relative_difference"].iloc[0]
        worst += f" by {gap:.2g} of itself" if gap else ""
        others = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        lines.append(f"{run}: {worst}{others}; {rows['reason'].iloc[0]}.")
    return "\n".join(lines)


def _compared(run: str, *folders: Path) -> Iterator[tuple[str, str, str, float, str]]:
    old, new = (read_provenance(folder / "provenance.json") for folder in folders)
    files = ("metrics.csv", "arrays.npz")
    different = [file for file in files if old["outputs"].get(file) != new["outputs"][file]]
    damage = list(faults(folders[0] / "provenance.json"))
    if not (different or damage):
        yield run, "same", "", 0.0, ""
        return
    reason = "; ".join(damage or likely_reasons(old, new)).rstrip(".")
    gaps = {} if damage else {**_metric_gaps(*folders), **_array_gaps(*folders)}
    gaps = {name: gap for name, gap in gaps.items() if gap > 0}
    for quantity, gap in (gaps or dict.fromkeys(different or ["recorded files"], 0.0)).items():
        yield run, "differs", quantity, gap, reason


def likely_reasons(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Differences between two provenances of the same run that can change its numbers."""
    parts = ("processor", "instructions", "device")
    facts = [(name, old["versions"].get(name), now) for name, now in new["versions"].items()]
    facts += [(name, old["machine"].get(name), new["machine"][name]) for name in parts]
    facts.append(("threads", old["threads"], new["threads"]))
    told = [f"{name}: {was} then, {now} now" for name, was, now in facts if was not in (None, now)]
    if begun := old.get("earlier_machines"):
        told.append(f"begun on {', '.join(begun)}, and resumed")
    if old["library_sha256"] != new["library_sha256"]:
        told.append(f"library changed since (then at commit {old['git']['commit']})")
    if sorted(old["inputs"].values()) != sorted(new["inputs"].values()):
        told.append("data changed since")
    return told or ["nothing recorded differs: edited later with its hash, or it does not repeat"]


def _metric_gaps(*folders: Path) -> dict[str, float]:
    frames = [pd.read_csv(f / "metrics.csv", low_memory=False) for f in folders]
    gaps = {}
    for metric in sorted({name for frame in frames for name in frame["metric"]}):
        old, new = (f[f["metric"] == metric].reset_index(drop=True) for f in frames)
        a, b = old.pop("value"), new.pop("value")
        gap = (a - b).abs() / np.maximum(a.abs(), b.abs())
        gaps[metric] = float(gap.fillna(0).max()) if old.equals(new) else math.inf
    return gaps


def _array_gaps(*folders: Path) -> dict[str, float]:
    """For each array, the largest difference of two entries relative to the largest entry."""
    with np.load(folders[0] / "arrays.npz") as old, np.load(folders[1] / "arrays.npz") as new:
        names = sorted({*old.files, *new.files})
        return {n: _gap(*(f[n] if n in f else np.empty(0) for f in (old, new))) for n in names}


def _gap(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape or a.dtype.kind not in "biufc":
        return 0.0 if np.array_equal(a, b) else math.inf
    other = (a != b) & ~(np.isnan(a) & np.isnan(b))
    if not other.any():
        return 0.0
    with np.errstate(invalid="ignore"):
        largest = np.fmax.reduce(np.abs([a, b]), axis=None)
        gap = float(np.abs(a * 1.0 - b)[other].max() / largest)
    return math.inf if math.isnan(gap) else gap
