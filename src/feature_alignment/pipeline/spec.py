"""Specs: the canonical, hashed description of one experiment point.

A spec is a nested dict of plain values. Its canonical form is JSON with sorted keys, and its hash
is that text's SHA-256, so two specs are equal exactly when their hashes are.
"""

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from feature_alignment.errors import UserError

Spec = dict[str, Any]


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


def dataset_keys(keys: Iterable[str]) -> list[str]:
    """The keys of a spec or of an experiment's parameters that stand for a dataset.

    They are `dataset` and whatever ends in `_dataset`.

    Returns:
        `dataset` first, the others in alphabetical order; a run's data files come in this order.

    Example:
        >>> dataset_keys(["width", "difficult_dataset", "dataset"])
        ['dataset', 'difficult_dataset']
    """
    found = [key for key in keys if key == "dataset" or key.endswith("_dataset")]
    return sorted(found, key=lambda key: (key != "dataset", key))


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


@dataclass(frozen=True)
class Point:
    """One experiment point that a figure needs.

    Attributes:
        experiment: a name in `feature_alignment.experiments.EXPERIMENTS`.
        name: the point's name, unique within its experiment; the run folder's name.
        overrides: parameters that differ from the experiment's section in the config.
    """

    experiment: str
    name: str
    overrides: dict[str, Any] = field(default_factory=dict)
