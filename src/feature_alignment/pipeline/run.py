"""Run an experiment point: all its seeds, one after the other, in this process."""

import importlib
import logging
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
import pandas as pd
import torch

from feature_alignment.data.canonical import Dataset, load
from feature_alignment.determinism import (
    configure,
    resolve_device,
    seed_global_generators,
    stream,
    torch_stream,
)
from feature_alignment.errors import UserError
from feature_alignment.pipeline.contracts import must, owed_by
from feature_alignment.pipeline.papers import experiment_module, parameters_of
from feature_alignment.pipeline.parameters import Parameters
from feature_alignment.pipeline.spec import Spec, canonical_json, dataset_keys
from feature_alignment.training.checkpoint import Checkpoints, TrainingCheckpoint
from feature_alignment.training.probes import WHOLE_NETWORK, Recorder
from feature_alignment.training.progress import Progress

log = logging.getLogger(__name__)

# The tidy columns that every metrics table has; experiments may add others after them.
COLUMNS = ["seed", "step", "layer", "split", "metric", "value"]

P = TypeVar("P", bound=Parameters, covariant=True)


class NotFiniteError(UserError):
    """A run measured a value that is not finite."""


@dataclass(frozen=True)
class SeedRun(Generic[P]):
    """One seed of one experiment point: everything that an experiment's `run_seed` receives.

    Attributes:
        datasets: the point's datasets, by the parameters that name them.
        label: names the run in its progress lines.
        checkpoints: what a run that was killed can resume from; None for no checkpoints.
    """

    seed: int
    parameters: P
    device: torch.device
    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    label: str = ""
    checkpoints: Checkpoints | None = None

    @property
    def dataset(self) -> Dataset:
        """The dataset that the parameter `dataset` names."""
        return self.datasets["dataset"]

    @property
    def to(self) -> dict[str, Any]:
        """Device and `dtype`, the keywords of `torch.tensor` and of a module's `to`."""
        return {"dtype": self.dtype, "device": self.device}

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type that the parameter `precision` names, float64 without one."""
        return getattr(torch, getattr(self.parameters, "precision", "float64"))

    def stream(self, name: str) -> np.random.Generator:
        """NumPy's random stream of this seed for one purpose."""
        return stream(self.seed, name)

    def torch_stream(self, name: str) -> torch.Generator:
        """PyTorch's random stream of this seed for one purpose, on the CPU."""
        return torch_stream(self.seed, name)

    def progress(self, steps: int) -> Progress:
        """A report of the progress of a training."""
        return Progress(steps, self.label)

    def checkpoint(self, name: str = "training") -> TrainingCheckpoint | None:
        """Where the training of that name saves its state, and resumes from after being killed."""
        if self.checkpoints is None:
            return None
        return TrainingCheckpoint(self.checkpoints, f"seed{self.seed}-{name}")

    def training(self, steps: int, name: str = "training") -> dict[str, Any]:
        """Arguments of `training.loop.train`: steps, batches, progress and a named checkpoint."""
        told = {"progress": self.progress(steps), "checkpoint": self.checkpoint(name)}
        return {"steps": steps, "batches": self.torch_stream("batches"), **told}


@dataclass
class SeedResult:
    """What one seed of an experiment measured.

    Attributes:
        rows: tidy rows, dicts with the keys of `COLUMNS` except the seed.
        arrays: named arrays, for what is not a number: matrices, functions, images.
        seconds: elapsed time of the recorded trainings by what it was spent on, see `Recorder`.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: Counter[str] = field(default_factory=Counter)

    def add(
        self,
        metric: str,
        value: float | torch.Tensor,
        *,
        step: int,
        layer: str = WHOLE_NETWORK,
        split: str = "train",
        **further: Any,
    ) -> None:
        """Add one row; `further` are columns that only some experiments have."""
        row = {"step": step, "layer": layer, "split": split, **further}
        self.rows.append({**row, "metric": metric, "value": float(value)})

    def extend(self, recorder: Recorder, prefix: str = "", **further: Any) -> Self:
        """Add all that was recorded during a training; returns itself.

        If a seed trains several networks, `prefix` is prepended to the arrays' names, and `further`
        are columns that distinguish the networks, with their values.
        """
        for row in recorder.frame().to_dict("records"):
            self.rows.append({**{str(column): value for column, value in row.items()}, **further})
        self.arrays.update({prefix + name: array for name, array in recorder.arrays.items()})
        self.seconds.update(recorder.seconds)
        return self


@dataclass(frozen=True)
class Result:
    """What all seeds of an experiment point measured."""

    metrics: pd.DataFrame  # the tidy rows of all seeds, columns `COLUMNS` and further ones
    arrays: dict[str, np.ndarray]  # the arrays of all seeds, named `seed<seed>/<name>`
    # Elapsed time of all seeds' recorded trainings, by what it was spent on; for provenance only,
    # since no two runs take the same time.
    seconds: dict[str, float]


def run_experiment(
    spec: Spec, *data_files: str | Path, checkpoints: Checkpoints | None = None
) -> Result:
    """Run all seeds of an experiment point, deterministically.

    The files are the canonical ones of the datasets that the spec names, in the order of
    `feature_alignment.pipeline.spec.dataset_keys`; with checkpoints a killed run can be resumed.

    Raises:
        UserError: if a parameter is not possible, a training fails, or a metric is not finite; the
            message names the point.
        ValueError: if the spec names more or fewer datasets than there are files.
    """
    experiment, seeds = spec["experiment"], spec["parameters"]["seeds"]
    module, about = experiment_module(experiment), f"{experiment}/{spec['point']}"
    with owed_by("run_seed", module, about):
        run_seed = importlib.import_module(module).run_seed
    parameters = parameters_of(experiment).model_validate(spec["parameters"])
    configure(spec["threads"])  # after the import: it affects only loaded libraries
    device = resolve_device(spec["device"])
    datasets = {
        key: load(Path(file)) for key, file in zip(dataset_keys(spec), data_files, strict=True)
    }
    rows: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    seconds = Counter[str]()
    for seed in range(seeds):
        label = f"{about} seed {seed + 1}/{seeds}"
        log.info("%s on %s", label, device)
        saved = None if checkpoints is None else checkpoints.load(f"seed{seed}")
        result = None if saved is None else SeedResult(**saved)
        if result is None:
            seed_global_generators(seed)
            run = SeedRun(seed, parameters, device, datasets, label, checkpoints)
            with owed_by("run_seed", module, about):
                result = run_seed(run)
                must(isinstance(result, SeedResult), f"returned a {type(result).__name__}")
                must(bool(result.rows), "returned a SeedResult without rows")
                _refuse_not_finite(result.rows, seed)
                for name, array in result.arrays.items():
                    kind = np.asarray(array).dtype
                    must(kind.kind in "biufc", f"returned an array {name!r} of {kind}, not numbers")
            if checkpoints is not None:
                checkpoints.save(f"seed{seed}", vars(result))
                if seed + 1 < seeds:
                    checkpoints.end_if_told()
        rows.extend({"seed": seed, **row} for row in result.rows)
        arrays.update({f"seed{seed}/{name}": array for name, array in result.arrays.items()})
        seconds.update(result.seconds)
    metrics = pd.DataFrame(rows)
    metrics = metrics.reindex(columns=[*COLUMNS, *metrics.columns.difference(COLUMNS, sort=False)])
    return Result(metrics, arrays, dict(seconds))


def _refuse_not_finite(rows: list[dict[str, Any]], seed: int) -> None:
    for row in rows:
        if not math.isfinite(row["value"]):
            raise NotFiniteError(
                f"metric {row['metric']} is {row['value']} at seed {seed}, step {row['step']}, "
                f"layer {row['layer']}; a metric must be finite."
            )


def write_run(
    spec: Spec, result: Result, spec_file: Path, metrics_file: Path, arrays_file: Path
) -> None:
    """Write a run's spec and result as JSON, CSV and NPZ; the same result gives the same bytes."""
    spec_file.write_text(canonical_json(spec), encoding="utf-8")
    result.metrics.to_csv(metrics_file, index=False)
    arrays: dict[str, Any] = result.arrays
    np.savez_compressed(arrays_file, **arrays)
