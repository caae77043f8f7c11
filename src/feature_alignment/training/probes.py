"""Probes, which measure a model at a step, and the record of all measurements."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from torch import nn

from feature_alignment.errors import shortened
from feature_alignment.training.errors import MetricNotFiniteError

WHOLE_NETWORK = "all"
"""Value of the `layer` column for quantities that belong to no single layer."""
OWN = "(model)"
"""Value of the `layer` column for parameters of the model itself, outside of its modules."""


def refuse_reserved(layers: Iterable[str]) -> None:
    """Refuse layers that are called as the whole network is.

    Raises:
        ValueError: if one is.
    """
    if WHOLE_NETWORK in layers:
        raise ValueError(
            f"layer {WHOLE_NETWORK!r}: this name is reserved for the whole network; rename it."
        )


COLUMNS = ["step", "layer", "split", "metric", "value"]


class Row(NamedTuple):
    """One measured number of a layer, or of `WHOLE_NETWORK`, on a split: "train", "easy", ..."""

    layer: str
    split: str
    metric: str
    value: float


@dataclass(frozen=True)
class Measurement:
    """Results of one probe at one step: numbers, arrays by name, and what it could not measure."""

    rows: list[Row] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


Probe = Callable[[int, nn.Module], Measurement]
"""Measures a model, in eval mode, after the given number of updates; must not change parameters."""


_NOT_DEFINED = (
    "if it is not defined for this network, make that wider, or its step size smaller; a probe of "
    "your own may leave it out."
)


class Recorder:
    """All measurements of one run, in the order they were made.

    `arrays` maps "name/step{step}" to measured arrays; `seconds` is the elapsed time of updates
    ("training"), of losses and metrics over samples ("evaluating") and of probes ("measuring").
    """

    def __init__(self) -> None:
        self.seconds = {"training": 0.0, "evaluating": 0.0, "measuring": 0.0}
        self.arrays: dict[str, np.ndarray] = {}
        self._values: dict[tuple[int, str, str, str], float] = {}

    def record(self, step: int, measurement: Measurement) -> None:
        """Add one measurement.

        Raises:
            MetricNotFiniteError: if a value or an array contains NaN or infinity.
            TypeError: if a value is no number, or a name no text.
            ValueError: if the same quantity was already recorded for this step.
        """
        for layer, split, metric, value in measurement.rows:
            told = f"metric {metric!r} of layer {layer!r} on {split!r}"
            if not all(isinstance(name, str) for name in (layer, split, metric)):
                raise TypeError(f"{told} at step {step}; name each of the three by a text.")
            try:
                finite = math.isfinite(value)
            except (TypeError, ValueError, RuntimeError) as error:
                raise TypeError(
                    f"{told} is {shortened(value)} at step {step}; give one real number."
                ) from error
            if not finite:
                raise MetricNotFiniteError(f"{told} is {value} at step {step}; {_NOT_DEFINED}")
            key = (step, layer or OWN, split, metric)
            if key in self._values:
                raise ValueError(
                    f"{told} was recorded twice at step {step}; give the two probes different "
                    "metrics or splits."
                )
            self._values[key] = float(value)
        for name, array in measurement.arrays.items():
            if not np.isfinite(array).all():
                raise MetricNotFiniteError(
                    f"array {name!r} is not finite at step {step}; {_NOT_DEFINED}"
                )
            key_name = f"{name}/step{step}"
            if key_name in self.arrays:
                raise ValueError(f"array {name!r} was recorded twice at step {step}.")
            self.arrays[key_name] = np.array(array)

    def state_dict(self) -> dict[str, Any]:
        """The record as plain containers, for a checkpoint."""
        parts = {"values": self._values, "arrays": self.arrays, "seconds": self.seconds}
        return {name: dict(part) for name, part in parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a record from the `state` returned by `state_dict`."""
        values = state["values"].items()  # earlier records have no name for the model's own layer
        self._values.update({(step, layer or OWN, *key): v for (step, layer, *key), v in values})
        self.arrays.update(state["arrays"])
        self.seconds.update(state["seconds"])

    def value(
        self, step: int, metric: str, layer: str = WHOLE_NETWORK, split: str = "train"
    ) -> float:
        """One recorded number.

        Raises:
            KeyError: if it was not recorded.
        """
        return self._values[step, layer or OWN, split, metric]

    def frame(self) -> pd.DataFrame:
        """Tidy table sorted by step, one row per number: step, layer, split, metric, value."""
        values = sorted(self._values.items(), key=lambda item: item[0][0])  # by step
        rows = [(*key, value) for key, value in values]
        return pd.DataFrame(rows, columns=COLUMNS).astype({"step": "int64", "value": "float64"})
