"""Run an experiment point: all its seeds, one after the other, in this process."""

import importlib
import logging
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from feature_alignment.data.canonical import load
from feature_alignment.determinism import configure, resolve_device
from feature_alignment.errors import UserError
from feature_alignment.pipeline.spec import Spec, dataset_keys
from feature_alignment.training.checkpoint import Checkpoints, checkpointing
from feature_alignment.training.probes import WHOLE_NETWORK, Recorder

log = logging.getLogger(__name__)

# The tidy columns that every metrics table has; experiments may add others behind them.
COLUMNS = ["seed", "step", "layer", "split", "metric", "value"]


@dataclass
class SeedResult:
    """What one seed of an experiment measured.

    Attributes:
        rows: tidy rows, dicts with the keys of `COLUMNS` but for the seed.
        arrays: named arrays, for what is not a number: matrices, functions, images.
        seconds: elapsed time of the recorded trainings by what it went into, see `Recorder`.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: Counter[str] = field(default_factory=Counter)

    def add(
        self,
        metric: str,
        value: float,
        *,
        step: int,
        layer: str = WHOLE_NETWORK,
        split: str = "train",
        **further: Any,
    ) -> None:
        """Add one row; `further` are columns that only some experiments have."""
        row = {"step": step, "layer": layer, "split": split, **further}
        self.rows.append({**row, "metric": metric, "value": float(value)})

    def extend(self, recorder: Recorder, prefix: str = "", **further: Any) -> None:
        """Add all that was recorded during a training.

        Args:
            recorder: the record.
            prefix: put before the arrays' names, for a seed that trains several networks.
            further: columns that tell those networks apart, with their values.
        """
        self.rows.extend({**row, **further} for row in recorder.frame().to_dict("records"))
        self.arrays.update({prefix + name: array for name, array in recorder.arrays.items()})
        self.seconds.update(recorder.seconds)


@dataclass(frozen=True)
class Result:
    """What all seeds of an experiment point measured.

    Attributes:
        metrics: the tidy rows of all seeds, columns `COLUMNS` and further ones.
        arrays: the arrays of all seeds, named `seed<seed>/<name>`.
        seconds: elapsed time of all seeds' recorded trainings, by what it went into; for the
            provenance only, since no two runs take the same time.
    """

    metrics: pd.DataFrame
    arrays: dict[str, np.ndarray]
    seconds: dict[str, float]


def run_experiment(
    spec: Spec, module: str, *data_files: str, checkpoints: Checkpoints | None = None
) -> Result:
    """Run all seeds of an experiment point, deterministically.

    The dataset of the spec's key `dataset`, or None, is an argument of every `run_seed`; a
    further one reaches it by the name of its key, such as `difficult_dataset`.

    Args:
        spec: the point's spec; `parameters.seeds` is the number of seeds.
        module: dotted name of the experiment's module.
        data_files: the canonical files of the datasets that the spec names, in the order of
            `feature_alignment.pipeline.spec.dataset_keys`.
        checkpoints: what a run that is killed can go on from, and goes on from here; None for no
            such thing.

    Returns:
        The metrics and arrays of all seeds.

    Raises:
        UserError: if a parameter is not possible or a training fails; it names the point.
        ValueError: if a metric is not finite, or the spec names more or fewer datasets than
            there are files.
    """
    run_seed = importlib.import_module(module).run_seed
    configure(spec["threads"])  # after the import: it reaches the libraries that are loaded
    device = resolve_device(spec["device"])
    further = {key: load(file) for key, file in zip(dataset_keys(spec), data_files, strict=True)}
    dataset = further.pop("dataset", None)
    parameters = spec["parameters"]
    rows: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    seconds = Counter[str]()
    for seed in range(parameters["seeds"]):
        label = f"{spec['experiment']}/{spec['point']} seed {seed + 1}/{parameters['seeds']}"
        log.info("%s on %s", label, device)
        try:
            result = None if checkpoints is None else checkpoints.load(f"seed{seed}")
            if result is None:
                with _checkpointing(checkpoints, seed):
                    result = run_seed(seed, parameters, device, dataset, label, **further)
                if checkpoints is not None:
                    checkpoints.save(f"seed{seed}", result)
        except UserError as error:
            if str(error).startswith("experiments."):  # it names the key by its whole path
                raise
            raise UserError(f"{spec['experiment']}/{spec['point']}: {error}") from error
        rows.extend({"seed": seed, **row} for row in result.rows)
        arrays.update({f"seed{seed}/{name}": array for name, array in result.arrays.items()})
        seconds.update(result.seconds)
    return Result(_tidy(rows), arrays, dict(seconds))


def _checkpointing(checkpoints: Checkpoints | None, seed: int) -> AbstractContextManager[None]:
    return nullcontext() if checkpoints is None else checkpointing(checkpoints, f"seed{seed}")


def _tidy(rows: list[dict[str, Any]]) -> pd.DataFrame:
    metrics = pd.DataFrame(rows)
    metrics = metrics.reindex(columns=[*COLUMNS, *metrics.columns.difference(COLUMNS, sort=False)])
    bad = metrics[~np.isfinite(metrics["value"])]
    if len(bad):
        first = bad.iloc[0]
        raise ValueError(
            f"metric {first['metric']} is {first['value']} "
            f"at seed {first['seed']}, step {first['step']}, layer {first['layer']}"
        )
    return metrics


def precision(parameters: dict[str, Any]) -> torch.dtype:
    """The floating-point type that the parameters ask for."""
    return {"float32": torch.float32, "float64": torch.float64}[parameters["precision"]]


def write_result(result: Result, metrics_file: Path, arrays_file: Path) -> None:
    """Write a result as CSV and NPZ; the same result gives the same bytes."""
    result.metrics.to_csv(metrics_file, index=False)
    np.savez_compressed(arrays_file, **result.arrays)
