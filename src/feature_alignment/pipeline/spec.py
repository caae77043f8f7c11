"""Specs: the canonical, hashed description of one experiment point.

A spec is a nested dict of plain values. Its canonical form is JSON with sorted keys, and its hash
is that text's SHA-256, so two specs are equal exactly when their hashes are.
"""

import hashlib
import json
import math
from collections.abc import Iterable
from typing import Any, Literal, get_args

from feature_alignment.errors import UserError

Spec = dict[str, Any]
Preset = Literal["smoke", "quick", "laptop", "workstation", "paper"]
PRESETS: tuple[str, ...] = get_args(Preset)


def canonical_json(spec: Spec) -> str:
    """The spec as JSON text: sorted keys, two-space indent, one newline at the end.

    Raises:
        UserError: if a value is not a plain JSON value or is not finite.

    Example:
        >>> print(canonical_json({"width": 4, "lr": 0.1}), end="")
        {
          "lr": 0.1,
          "width": 4
        }
    """
    _check_plain(spec, "spec")
    return json.dumps(spec, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def spec_hash(spec: Spec) -> str:
    """SHA-256 of the canonical form, in hexadecimal."""
    return hashlib.sha256(canonical_json(spec).encode()).hexdigest()


def _check_plain(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise UserError(f"{where}: key {key!r} is not a string; quote it.")
            _check_plain(item, f"{where}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_plain(item, f"{where}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where}: {value} is not a finite number.")
    elif not (value is None or isinstance(value, (str, bool, int, float))):
        raise UserError(f"{where}: {type(value).__name__} is not a plain JSON value.")


def dataset_keys(spec: Spec) -> list[str]:
    """The keys of the datasets' specs in a run's spec, in the order of its data files.

    Example:
        >>> dataset_keys({"width": 2, "data": {"other_dataset": {}, "dataset": {}}})
        ['dataset', 'other_dataset']
    """
    return sorted(spec["data"], key=lambda key: (key != "dataset", key))


def datasets_used(runs: Iterable[Spec]) -> list[tuple[str, str]]:
    """The (dataset, source) pairs whose data the runs read, sorted, without repeats."""
    used = [data for run in runs for data in run["data"].values()]
    return sorted({(data["name"], data["source"]) for data in used})
