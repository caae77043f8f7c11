"""Monitor any training loop with the pipeline's probes."""

import hashlib
import json
import logging
import platform
import time
from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import nn

from feature_alignment.complexity.update_path import PathProbe
from feature_alignment.errors import UserError, check_kind, check_known, check_whole, shortened
from feature_alignment.files import write_whole
from feature_alignment.gradients.model_function import OutputChoice
from feature_alignment.gradients.parameter_values import Selection, input_like, select_parameters
from feature_alignment.gradients.samples import ModelInput, as_samples
from feature_alignment.instrument import ABOUT, MEASURES, METRICS, STATE, arguments
from feature_alignment.instrument.subject import Subject, loss_of
from feature_alignment.kernels.average_features import copy_parameters
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.probes.kernel_probe import AdaptedKernelProbe, Batch, TangentKernelProbe
from feature_alignment.training.checkpoint import Stateful, as_it_was, plain, write_state
from feature_alignment.training.errors import (
    GradientsNotFiniteError,
    MetricNotFiniteError,
    TrainingDivergedError,
)
from feature_alignment.training.loop import call_probe
from feature_alignment.training.losses import Loss
from feature_alignment.training.probes import WHOLE_NETWORK, Measurement, Probe, Recorder, Row
from feature_alignment.version import own_version

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNDEFINED = TrainingDivergedError, MetricNotFiniteError

log = logging.getLogger(__name__)


class Monitor:
    """The alignment record of a training: kernel, features and their alignment at chosen steps.

    Create it before the first update, which measures step 0, and call `step` after each update.

    The model is measured in evaluation mode and in full precision, always on the same samples.
    Measuring leaves the training unchanged: random states, gradients, buffers, modes and flags are
    restored. Hooks of your own also run while it measures, so that what they count or collect
    includes these passes. A model that cannot be measured raises an error at the first
    step; one in half precision needs `dtype`. Undefined quantities (for example of a network whose
    units are all dead) and later failures do not end the training; they are logged and kept in
    `problems`.

    The rows are those of the pipeline's probes: `TangentKernelProbe` ("kernel"), `FeatureProbe`
    ("features"), `AdaptedKernelProbe` ("adapted") and `PathProbe` ("path"). The last follows every
    update: a probe that has a method `after_update(step, model)` is told of those that `step` is.

    Attributes:
        model: the monitored network.
        at: step of the last reported update.
        initial: W₀ by parameter name.
        measured: steps that have been measured.
        problems: steps at which a measurement failed, with the reason.

    Args:
        model: the network; its current parameters are the start W₀.
        x: inputs (n, …) to measure on, as for `tangent_kernel`; moved to the model's device.
        y: class numbers (n,) or labels (n, c), tensor or array; for outputs (n, …, c) also labels
            of that shape, or class numbers (n, …); None for no alignment with them.
        measure: names among "kernel", "features", "adapted" (by 10 points of the path) and "path",
            and custom probes.
        every: a number of updates, the steps themselves, or "geometric": 0, 5, 6, 7, 8, 10, …
        loss: function of the outputs, in the model's own shape, and of `y` as a tensor, recorded
            as the metric "loss"; None to record no loss. Most of PyTorch's losses refuse a `y`
            of another shape; others, such as `poisson_nll_loss`, compare each output with each
            target.
        inputs: as for `tangent_kernel`; so are `output` and, for the kernels and the path, `only`,
            where "trainable" means those that are so at the start.
        dtype: precision to measure in, torch.float32 for a model in half precision or torch.float64
            against rounding; None for the model's own. Each time a copy of the model and its hooks
            is made, which probes then get.
        first: the step at which the record begins.
        split: what the record calls the samples, such as "test" if they are held out.
        state: a record to resume: the result of `state_dict`, or the folder written by `save`.

    Raises:
        UserError: if an argument is not as described, such as an unknown name or a class as a
            probe, `loss` is given without `y`, or the state is of another model, other samples or
            measurements.
        ValueError: if the model cannot be measured.

    Example:
        >>> model, x = nn.Linear(2, 1), torch.eye(2)  # linear: its kernel stays as it is
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> monitor = Monitor(model, x, measure="kernel")
        >>> for _ in range(2):
        ...     model(x).square().sum().backward()
        ...     optimizer.step()
        ...     measured = monitor.step()
        >>> monitor.frame().query("metric == 'kernel_change'")[["step", "value"]]
            step  value
        0      0    1.0
        5      1    1.0
        10     2    1.0
    """

    def __init__(
        self,
        model: nn.Module,
        x: ModelInput,
        y: torch.Tensor | ArrayLike | None = None,
        *,
        measure: str | Probe | Iterable[str | Probe] = ("kernel", "features"),
        every: int | str | Iterable[int] = 1,
        loss: Loss | None = None,
        inputs: str | Collection[str | int] | None = None,
        output: OutputChoice | None = None,
        only: Selection | None = None,
        dtype: torch.dtype | None = None,
        first: int = 0,
        split: str = "train",
        state: Mapping[str, Any] | str | Path | None = None,
    ) -> None:
        check_kind("model", model, nn.Module, "a torch.nn.Module")
        if isinstance(measure, str) or callable(measure) or not isinstance(measure, Iterable):
            measure = [measure]
        measure = list(measure)
        if loss is not None and y is None:
            raise UserError("loss: it needs `y`, the targets that it compares the outputs with.")
        if loss is not None and (isinstance(loss, type) or not callable(loss)):
            raise UserError(
                f"loss: found {shortened(loss)}; give a function of outputs and targets."
            )
        device = next((p.device for p in model.parameters()), None)
        y = None if y is None else arguments.label_tensor(y).clone().to(device)
        if y is not None and dtype is not None and y.is_floating_point():
            y = y.to(dtype)
        self.model, self._y, self._loss = model, y, loss
        self._subject, self._output = Subject(model, dtype), output
        subject = self._subject.network
        self._samples = as_samples(x, inputs, input_like(subject)).kept(device, dtype)
        for given in measure:
            if isinstance(given, type):
                raise UserError(f"measure: {given.__name__} is a class; give an instance of it.")
            if not isinstance(given, str) and not callable(given):
                raise UserError(f"measure: found {shortened(given)}; give names or probes.")
        self._measure = [m if isinstance(m, str) else type(m).__name__ for m in measure]
        if not isinstance(split, str) or not split:
            raise UserError(f"split: found {shortened(split)}; give a name, such as 'test'.")
        self._split, self._loss_name = split, repr(arguments.told(loss))
        chosen = [arguments.told(output), arguments.told(only), *[split] * (split != "train")]
        chosen += [] if dtype is None else [dtype]
        self._identity = arguments.identity([*self._samples.entries.values(), y, repr(chosen)])
        self._steps = arguments.measured_steps(every)
        check_whole("first", first, 0)
        self.at = self._first = first
        self.measured: set[int] = set()
        self.problems: list[tuple[int, str]] = []
        self._recorder, self._other_weights = Recorder(), False
        saved = arguments.saved_state(state)
        self.initial = copy_parameters(subject) if saved is None else dict(saved["initial"])
        # By name, so that parameters that are frozen or released later change nothing.
        names = None if only is None else select_parameters(model, only)
        self._only = names if saved is None else saved.get("only", names)  # old records lack it
        buffers = {name: buffer.detach().clone() for name, buffer in subject.named_buffers()}
        self._buffers = buffers if saved is None else dict(saved["buffers"])
        start = self.initial | self._buffers
        at = nullcontext() if saved is None else arguments.model_at(subject, start)
        with self._subject.looking(), at:
            labels = y
            if y is not None and (y.ndim > 1 or {"kernel", "adapted"} & set(self._measure)):
                shape = self._subject.outputs(self._samples, output).shape
                labels = arguments.labels_of_outputs(y, shape)
            batch = Batch(self._samples, labels)
            self._probes = [
                self._probe(m, batch, output) if isinstance(m, str) else m for m in measure
            ]
        told = [getattr(probe, "after_update", None) for probe in self._probes]
        self._followers = [follow for follow in told if callable(follow)]
        if saved is None:
            self.measure(first)
        else:
            self._go_on(saved)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays that probes gave, by "name/step{step}"."""
        return self._recorder.arrays

    @property
    def seconds(self) -> float:
        """Total time spent on measuring so far."""
        return self._recorder.seconds["measuring"]

    def step(self, step: int | None = None) -> bool:
        """Report update `step`, None for the next one; return whether it was measured.

        If several updates are reported at once, the last is measured instead of all those due.
        A number below the last one is recorded as a problem and not measured: count updates over
        all epochs, or give no number.

        Raises:
            UserError: if `step` is not an integer.
        """
        if self._other_weights and step in (None, self.at + 1):  # else it is of another step
            self.note(
                self.at,
                "the record resumes from a model with other weights than when it was saved: load "
                "those, or, if it is of another step, pass the step number to `step`",
            )
        self._other_weights = False
        before = self.at
        self.at = before + 1 if step is None else arguments.whole_number("step", step)
        if self.at < before:  # most likely a number within an epoch
            self.at = before
            problem = "a later call to `step` gave a smaller number; count updates over all epochs"
            if (before, problem) not in self.problems:
                self.note(before, problem)
            return False
        if self._followers and self.at > before:
            with self._told(self.at), self._subject.looking():
                for follow in self._followers:
                    with self._told(self.at):
                        follow(self.at, self._subject.network)
        due = bisect(self._steps, self.at) > bisect(self._steps, before)
        if due:
            self.measure(self.at)
        return due

    def measure(self, step: int) -> None:
        """Measure the model as it is now, as step `step`, unless that step has been measured.

        It may be below the last one, as of a checkpoint that is found later.

        Raises:
            UserError: if `step` is not a whole number from 0 on.
            ValueError: at the first step, if the model cannot be measured.
        """
        step = arguments.whole_number("step", step)
        if step in self.measured:
            return
        if step < 0:
            raise UserError(f"step: {step}; steps count from 0.")
        start, found = time.monotonic(), []
        with self._told(step), self._subject.looking():
            for part in [self._measured_loss, *self._probes]:
                with self._told(step, part):
                    found.append(call_probe(part, step, self._subject.network))
        for measurement in found:  # only once all are complete, in case of an interrupt
            with self._told(step):
                self._recorder.record(step, measurement)
            self.note(step, *measurement.problems)
        self.at = max(self.at, step)
        self.measured.add(step)
        self._recorder.seconds["measuring"] += time.monotonic() - start

    @contextmanager
    def _told(self, step: int, part: Probe | None = None) -> Iterator[None]:
        """Turn failures into problems, except at the start, where they are the user's mistakes."""  # noqa: DOC501
        try:
            yield
        except Exception as error:
            undefined = isinstance(error, UNDEFINED)
            mistaken = not undefined or isinstance(error, GradientsNotFiniteError)
            if step == self._first and mistaken:
                if isinstance(part, FeatureProbe) and str(error).startswith("no layer to measure"):
                    hint = "measure='kernel' needs none"
                    raise ValueError(f"{str(error).rstrip('.')}; {hint}.") from error
                raise
            told = str(error)
            if not told or not isinstance(error, (ValueError, TypeError, RuntimeError)):
                name = getattr(part, "__name__", type(part).__name__)
                told = f"{name} raised {type(error).__name__} {told}".rstrip()
            self.note(step, told)

    def note(self, step: int, *problems: str) -> None:
        """Record what cannot be measured at a step."""
        for problem in problems:
            log.warning("step %d: %s", step, problem)
            self.problems.append((step, problem))

    def frame(self) -> pd.DataFrame:
        """Tidy table like the pipeline's: step, layer, split, metric, value."""
        return self._recorder.frame()

    def plot(self) -> "Figure":
        """The record as a matplotlib figure, with one panel per quantity over the steps.

        Raises:
            ImportError: if matplotlib is not installed.
        """
        try:
            from feature_alignment.instrument.pictures import draw_record

            return draw_record(self.frame())
        except ModuleNotFoundError as error:
            raise ImportError(
                f"plot needs {error.name}: pip install 'feature-alignment[plots]'."
            ) from error

    def save(self, folder: str | Path) -> None:
        """Write the record to a folder: `metrics.csv`, `about.json`, and the state to resume from.

        Each file is written atomically. `feature-alignment report` makes a page of the record.

        Raises:
            UserError: if `folder` is no path, or it or one that it is in is a file.
        """
        check_kind("folder", folder, str | Path, "the path of a folder")
        arguments.check_no_file(folder := Path(folder))
        write_state(folder / STATE, self.state_dict())
        table = self.frame().to_csv(index=False)
        write_whole(folder / METRICS, table)
        about = {
            "table_sha256": hashlib.sha256(table.encode()).hexdigest(),
            "model": type(self.model).__name__,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "samples": len(self._samples),
            "measure": self._measure,
            "seconds": round(self.seconds, 3),
            "problems": [list(problem) for problem in self.problems],
            "versions": {
                "feature-alignment": own_version(),
                "python": platform.python_version(),
                "torch": torch.__version__,
            },
        }
        write_whole(folder / ABOUT, json.dumps(about, indent=2) + "\n")

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume, as tensors and plain containers."""
        record = self._recorder.state_dict()
        return {
            "measure": self._measure,
            "samples": self._identity,
            "loss": self._loss_name,
            "step": self.at,
            "measured": sorted(self.measured),
            "weights": arguments.identity(self.model.parameters()),
            "initial": self.initial,
            "only": self._only,
            "buffers": self._buffers,
            "values": [[*key, value] for key, value in record["values"].items()],
            "arrays": {name: torch.as_tensor(a) for name, a in record["arrays"].items()},
            "seconds": record["seconds"],
            "problems": [list(problem) for problem in self.problems],
            "probes": [
                plain(p.state_dict()) if isinstance(p, Stateful) else {} for p in self._probes
            ],
        }

    def _go_on(self, saved: Mapping[str, Any]) -> None:
        if list(saved["measure"]) != self._measure:
            raise UserError(
                f"state: it is a record of {', '.join(saved['measure'])}; give the same `measure`."
            )
        same = saved.get("loss", self._loss_name) == self._loss_name  # old records lack it
        if saved["samples"] != self._identity or not same:
            raise UserError(
                "state: it is a record on other samples or labels, or of another `output`, `only`, "
                "`dtype`, `split` or `loss`; give the same."
            )
        self._recorder.load_state_dict(
            {
                "values": {tuple(key): value for *key, value in saved["values"]},
                "arrays": {name: array.numpy() for name, array in saved["arrays"].items()},
                "seconds": saved["seconds"],
            }
        )
        for probe, state in zip(self._probes, saved["probes"], strict=True):
            if isinstance(probe, Stateful):
                probe.load_state_dict(as_it_was(state))
        weights = saved.get("weights")  # old records lack them
        self._other_weights = weights not in (None, arguments.identity(self.model.parameters()))
        self.at, self.measured = saved["step"], set(saved["measured"])
        self.problems = [(step, problem) for step, problem in saved["problems"]]

    def _probe(self, name: str, batch: Batch, output: OutputChoice | None) -> Probe:
        check_known(f"measure: {name!r} is unknown", name, MEASURES)
        network, samples, split = self._subject.network, self._samples, self._split
        options: dict[str, Any] = {"output": output, "only": self._only}
        if name == "kernel":
            kinds = {"layers": True, "change": True, "partial": True}
            return TangentKernelProbe({split: batch}, **kinds, **options)
        if name == "features":
            return FeatureProbe(network, samples, split=split, partial=True, output=output)
        if name == "adapted":
            return AdaptedKernelProbe(network, batch, split=split, partial=True, **options)
        return PathProbe(network, samples, split=split, **options)

    def _measured_loss(self, step: int, model: nn.Module) -> Measurement:
        if self._loss is None or self._y is None:
            return Measurement()
        outputs = self._subject.outputs(self._samples, self._output)
        value = loss_of(self._loss, outputs, self._y)
        return Measurement([Row(WHOLE_NETWORK, self._split, "loss", value)])
