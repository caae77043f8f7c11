"""How long runs take, by earlier ones, and which small ones share a submission on a cluster."""

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feature_alignment.errors import UserError, reason
from feature_alignment.pipeline.spec import spec_hash

FILLED = 10 * 60
"""Measured seconds that fill a submission; a run of more than half of them has its own."""
START = 30
"""Seconds to start a run of a submission: Snakemake and PyTorch, from a shared disk."""
MARGIN, LEAST = 3, 5
"""How many times its measured seconds a small run may take, and its least limit in minutes."""

COLUMNS = ("experiment", "parameters", "point", "seconds")
"""The columns of a table of measured runs."""

Key = tuple[str, str]
"""What identifies a measured run: its experiment, and the hash of its parameters."""


def key_of(spec: Mapping[str, Any]) -> Key:
    """What identifies a run among those measured."""
    return spec["experiment"], spec_hash(spec["parameters"])[:12]


def read_measured(file: Path) -> dict[Key, float]:
    """Seconds that runs have taken, from a table such as workflow/measured.csv.

    Raises:
        UserError: if the table is damaged.
    """
    try:
        with file.open(encoding="utf-8") as lines:
            rows = csv.DictReader(lines, restkey="seconds")  # a cell too many makes no number
            if tuple(rows.fieldnames or ()) == COLUMNS:
                return {
                    (row["experiment"], row["parameters"]): float(row["seconds"]) for row in rows
                }
        why = f"its first line is not {','.join(COLUMNS)}"
    except (TypeError, ValueError, csv.Error) as error:
        why = reason(error)
    raise UserError(f"{file}: is damaged ({why}); take it from the checkout.")


def small_seconds(spec: Mapping[str, Any], measured: Mapping[Key, float]) -> float | None:
    """The measured seconds of a small run, including its start; None for any other."""
    seconds = measured.get(key_of(spec))
    return START + seconds if seconds is not None and seconds <= FILLED / 2 else None


def shared_submissions(
    name: str, specs: Mapping[tuple[str, str], Mapping[str, Any]], measured: Mapping[Key, float]
) -> dict[tuple[str, str], str]:
    """The submission `<name>-<experiment>-<number>` of each small run, by experiment and point.

    The small runs of an experiment fill one after the other, in the order of their points.
    """
    found: dict[tuple[str, str], str] = {}
    number, filled = dict[str, int](), dict[str, float]()
    for (experiment, point), spec in sorted(specs.items()):
        seconds = small_seconds(spec, measured)
        if seconds is not None:
            filled[experiment] = filled.get(experiment, 0) + seconds
            if filled[experiment] > FILLED:
                number[experiment] = number.get(experiment, 0) + 1
                filled[experiment] = seconds
            found[experiment, point] = f"{name}-{experiment}-{number.get(experiment, 0)}"
    return found


def limit_minutes(spec: Mapping[str, Any], measured: Mapping[Key, float], most: int) -> int:
    """The time limit of a run in minutes: `most` unless it is small, and never more."""
    seconds = small_seconds(spec, measured)
    return most if seconds is None else min(max(LEAST, math.ceil(MARGIN * seconds / 60)), most)
