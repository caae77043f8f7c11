"""Compare the results of two checkouts: metrics and arrays of every run, and the verdicts.

    python tools/compare_results.py OLD/results/quick NEW/results/quick

Lists what differs, and then exits with status 1. For refactorings, which must not change numbers;
on one machine, since the last bits differ between processors.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from feature_alignment.data.archives import DAMAGE
from feature_alignment.errors import reason


def differences(old: Path, new: Path) -> list[str]:
    """One line for each file or verdict that differs, cannot be read, or is on one side only."""
    found = []
    runs = [{path.parent.relative_to(side) for path in side.glob("runs/*/*/metrics.csv")}
            for side in (old, new)]  # fmt: skip
    found += [f"only in one: {run}" for run in sorted(runs[0] ^ runs[1])]
    compared = [(run / name, of) for run in sorted(runs[0] & runs[1])
                for name, of in (("metrics.csv", _metrics), ("arrays.npz", _arrays))]  # fmt: skip
    compared += [(Path(name), _verdicts) for name in ("claims.csv", "selected/claims.csv")]
    for file, of in compared:
        sides = [side / file for side in (old, new) if (side / file).exists()]
        if len(sides) == 1:
            found.append(f"only in one: {sides[0]}")
        elif sides:
            try:
                found += [f"{file}: {line}" for line in of(*sides)]
            except DAMAGE as error:
                found.append(f"{file}: one of them cannot be read ({reason(error)})")
    return found


def _arrays(old: Path, new: Path) -> list[str]:
    with np.load(old) as a, np.load(new) as b:
        different = set(a) ^ set(b)
        different |= {name for name in set(a) & set(b) if not _same(a[name], b[name])}
    return [", ".join(sorted(different))] if different else []


def _verdicts(*files: Path) -> list[str]:
    old, new = (pd.read_csv(file).set_index("id") for file in files)
    found = [f"claim only in one: {claim}" for claim in sorted(set(old.index) ^ set(new.index))]
    for claim in sorted(set(old.index) & set(new.index)):
        before, after = old.loc[claim], new.loc[claim]
        columns = [name for name in before.index if str(before[name]) != str(after.get(name))]
        found += [f"{claim}: {name}: {before[name]!r} -> {after.get(name)!r}" for name in columns]
    return found


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _metrics(old: Path, new: Path) -> list[str]:
    if old.read_bytes() == new.read_bytes():
        return []
    a, b = pd.read_csv(old), pd.read_csv(new)
    if list(a) != list(b) or len(a) != len(b):
        return [f"columns {list(a)} and {list(b)}, {len(a)} and {len(b)} rows"]
    changed = [column for column in a if not a[column].equals(b[column])]
    if changed == ["value"]:
        scale = np.maximum(np.abs(a["value"]), 1e-300)
        return [f"values differ by up to {(np.abs(a['value'] - b['value']) / scale).max():.2g}"]
    return [f"columns {', '.join(changed)} differ"]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    for folder in sys.argv[1:]:
        if not (Path(folder) / "runs").is_dir():
            sys.exit(f"{folder}: holds no runs; give folders such as results/quick.")
    lines = differences(*map(Path, sys.argv[1:]))
    print(*lines or ["everything is the same"], sep="\n")
    sys.exit(bool(lines))
