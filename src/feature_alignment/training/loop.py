"""The training loop: updates, scheduled measurements, and checks for divergence."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import torch
from torch import nn

from feature_alignment.errors import UserError, check_whole
from feature_alignment.training.batches import Augmentation, epoch_batches
from feature_alignment.training.checkpoint import Stateful, TrainingCheckpoint
from feature_alignment.training.errors import TrainingDivergedError
from feature_alignment.training.evaluation import evaluate, undisturbed
from feature_alignment.training.losses import Loss
from feature_alignment.training.probes import WHOLE_NETWORK, Measurement, Probe, Recorder, Row
from feature_alignment.training.progress import Progress
from feature_alignment.training.schedule import LearningRateSchedule, constant_rate

CHECK_EVERY = 100
"""Number of updates between checks of the loss: reading it each time would stall a GPU."""


def train(
    model: nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    loss: Loss,
    optimizer: torch.optim.Optimizer,
    steps: int,
    batch_size: int | None = None,
    batches: torch.Generator | None = None,
    drop_incomplete: bool = False,
    augment: Augmentation | None = None,
    schedule: LearningRateSchedule = constant_rate,
    largest_gradient: float | None = None,
    measure_at: Iterable[int] = (),
    evaluate_on: Mapping[str, tuple[torch.Tensor, torch.Tensor]] | None = None,
    metrics: Mapping[str, Loss] | None = None,
    probes: Sequence[Probe] = (),
    stop_when: Callable[[int, Recorder], bool] | None = None,
    after_update: Callable[[int, nn.Module], None] | None = None,
    progress: Progress | None = None,
    checkpoint: TrainingCheckpoint | None = None,
    recorder: Recorder | None = None,
) -> Recorder:
    """Train a model in place, and return the record of what is measured at chosen steps.

    Step 0 is before the first update, step t after update t. At every measured step the loss is
    recorded over each split of `evaluate_on` (layer "all", metric "loss"), then each probe is
    called. Measurements happen in eval mode with cleared gradients and do not affect training.
    Seed PyTorch's global generator before the call if dropout draws from it.

    Args:
        model: the network; trained in place, in its current mode.
        x: inputs (n, …), on the model's device.
        y: targets, as `loss` expects them.
        loss: a function of outputs and targets, see `training.losses`.
        optimizer: an optimizer of the model's parameters.
        steps: number of updates.
        batch_size: examples per update; None for the full batch.
        batches: CPU generator of the epoch permutations, needed with mini-batches.
        drop_incomplete: whether to omit the last batch of an epoch if it is smaller.
        augment: random change of the inputs of each update; measurements use unchanged inputs.
        schedule: factor on the learning rate of update t = 0, 1, …
        largest_gradient: largest norm of the whole gradient; a larger one is scaled down to it.
        measure_at: measured steps, see `training.schedule`.
        evaluate_on: inputs and targets by split, over which the loss is recorded; None for the
            training samples as the split "train".
        metrics: further functions of outputs and targets, by name, recorded like the loss. One
            called "loss" is recorded in its place, such as the whole of a loss halved for training.
        probes: probes to call at every measured step.
        stop_when: called with the step and the record after each measurement; True ends the run.
        after_update: called with t and the model after every update t, before any measurement;
            for sums over updates. It must not change the model, and be `Stateful` if it has state.
        progress: notified of every update and measurement.
        checkpoint: where everything that training changes is saved at intervals, and from where
            an interrupted training resumes; a probe that changes must be `Stateful`.
        recorder: an empty record to fill; if training ends with an error, it still contains what
            was measured, or restored from a checkpoint.

    Raises:
        TrainingDivergedError: if the loss is no longer finite, every `CHECK_EVERY` updates, at
            measured steps and at the end; at the latter two also if a parameter is not finite.
        TypeError: if a probe does not return a `Measurement`.
        UserError: if a measured step is outside the run, or `steps` or `largest_gradient` is not
            possible.
        ValueError: if mini-batches have no generator, a probe changes a parameter, or, with a
            checkpoint, `augment` draws from `batches`.
    """
    if len(x) != len(y) or not len(x):
        raise ValueError(
            f"x, y: {len(x)} inputs and {len(y)} targets; give a target for each, at least one."
        )
    check_whole("steps", steps, 0)
    measured = set(measure_at)
    if outside := sorted(measured.difference(range(steps + 1))):
        raise UserError(
            f"measure_at: step {outside[0]} is outside the run's 0 to {steps}; "
            "remove it or train longer."
        )
    if batch_size is not None and batches is None:
        raise ValueError("batches: missing; give torch_stream(seed, 'batches') for mini-batches.")
    if largest_gradient is not None and not largest_gradient > 0:
        raise UserError(f"largest_gradient: {largest_gradient}; it must be positive, or None.")
    evaluated = {"train": (x, y)} if evaluate_on is None else evaluate_on
    metrics = {"loss": loss, **(metrics or {})}
    recorder, last_time = recorder or Recorder(), time.monotonic()

    def spent_on(part: str) -> None:
        nonlocal last_time
        if x.device.type == "cuda":
            torch.cuda.synchronize(x.device)  # otherwise the next part would include queued work
        now = time.monotonic()
        recorder.seconds[part] += now - last_time
        last_time = now

    def measure(step: int) -> bool:
        spent_on("training")
        begin = last_time
        with undisturbed(model):
            for split, samples in evaluated.items():
                found = evaluate(model, *samples, metrics)
                if step > 0 and not math.isfinite(found["loss"]):
                    what = f"the loss on {split!r} is {found['loss']}"
                    raise TrainingDivergedError(_divergence(what, f"by step {step}", optimizer))
                rows = [Row(WHOLE_NETWORK, split, *pair) for pair in found.items()]
                recorder.record(step, Measurement(rows=rows))
            spent_on("evaluating")
            for probe in probes:
                recorder.record(step, call_probe(probe, step, model))
        spent_on("measuring")
        if progress is not None:
            progress.measured(last_time - begin)
        return stop_when is not None and stop_when(step, recorder)

    rates = [group["lr"] for group in optimizer.param_groups]
    parts = {"model": model, "optimizer": optimizer, "recorder": recorder}
    further = {"augment": augment, "after_update": after_update}
    further |= {f"probe{place}": probe for place, probe in enumerate(probes)}
    parts |= {name: part for name, part in further.items() if isinstance(part, Stateful)}
    if _Unsaved(model).state_dict():
        parts["buffers"] = _Unsaved(model)
    drawing = [v for v in getattr(augment, "__dict__", {}).values() if v is not None]
    if checkpoint is not None and any(generator is batches for generator in drawing):
        raise ValueError(
            "augment: draws from the generator of `batches`, so that a checkpoint cannot go on; "
            "give each a generator of its own."
        )
    done = 0 if checkpoint is None else checkpoint.restore(parts)
    if progress is not None:
        progress.start_after(done, measured)
    try:
        if done == 0 and 0 in measured and measure(0):
            return recorder

        # As without an interruption, since the message of a divergence is kept.
        checked = {done - done % CHECK_EVERY, *(step for step in measured if step <= done)}
        last_check = max(checked)
        pairs = _training_pairs(x, y, batch_size, batches, drop_incomplete, done)
        for step in range(done + 1, steps + 1):
            factor = schedule(step - 1)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            inputs, targets = next(pairs)
            if augment is not None:
                inputs = augment(inputs)
            optimizer.zero_grad(set_to_none=True)
            value = loss(model(inputs), targets)
            value.backward()
            if largest_gradient is not None:
                nn.utils.clip_grad_norm_(model.parameters(), largest_gradient)
            optimizer.step()
            value = value.detach()
            if after_update is not None:
                after_update(step, model)

            thorough = step in measured or step == steps
            if thorough or step % CHECK_EVERY == 0:
                if what := _not_finite(value, model if thorough else None):
                    when = f"between steps {last_check} and {step}"
                    raise TrainingDivergedError(_divergence(what, when, optimizer))
                last_check = step
            if progress is not None:
                progress.update(step, value)
            if step in measured and measure(step):
                break
            if checkpoint is not None and step < steps and checkpoint.checkpoints.due():
                spent_on("training")  # else a resumed training forgets the time since a measurement
                checkpoint.save_if_due(step, parts)
    finally:  # also of a training that diverged or was interrupted
        optimizer.zero_grad(set_to_none=True)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        if progress is not None:
            progress.close()
    spent_on("training")
    if progress is not None:
        progress.summarise(recorder.seconds)
    return recorder


class _Unsaved:
    """The buffers missing from a model's `state_dict` (`persistent=False`), for a checkpoint."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        saved = self._model.state_dict().keys()
        return {name: b for name, b in self._model.named_buffers() if name not in saved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, buffer in self.state_dict().items():
            buffer.copy_(state[name])


def _training_pairs(
    x: torch.Tensor,
    y: torch.Tensor,
    batch_size: int | None,
    batches: torch.Generator | None,
    drop_incomplete: bool,
    done: int,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    # Endless batches, after those of the updates already done, which are drawn at once: another
    # training may go on with the generator.
    if batch_size is None or batches is None:
        return repeat((x, y))
    drawn = epoch_batches(len(x), batch_size, batches, drop_incomplete)
    for _ in range(done):
        next(drawn)
    indices = (index.to(x.device) for index in drawn)
    return ((x.index_select(0, index), y.index_select(0, index)) for index in indices)


def call_probe(probe: Probe, step: int, model: nn.Module) -> Measurement:
    """Call a probe and return its measurement.

    Raises:
        TypeError: if the probe returns something else.
        ValueError: if it changes a parameter.
    """
    before = [parameter.detach().clone() for _, parameter in model.named_parameters()]
    measurement = probe(step, model)
    if not isinstance(measurement, Measurement):
        raise TypeError(
            f"probe {probe!r} returned a {type(measurement).__name__}; return a Measurement of "
            "feature_alignment.training.probes, as Measurement([Row('all', 'train', 'mine', 0.5)])."
        )
    for (name, parameter), old in zip(model.named_parameters(), before, strict=True):
        if not torch.allclose(parameter, old, rtol=0, atol=0, equal_nan=True):
            raise ValueError(
                f"probe {probe!r} changed the parameter {name!r} at step {step}; "
                "evaluate other parameters with torch.func.functional_call instead."
            )
    return measurement


def _not_finite(loss: torch.Tensor, model: nn.Module | None) -> str | None:
    """Description of what is not finite, the loss or one of the model's parameters, or None."""
    if not torch.isfinite(loss):
        return f"the loss of a batch is {float(loss)}"
    for name, parameter in [] if model is None else model.named_parameters():
        if not torch.isfinite(parameter).all():
            return f"the parameter {name!r} is not finite"
    return None


def _divergence(what: str, when: str, optimizer: torch.optim.Optimizer) -> str:
    rates = ", ".join(f"{group['lr']:.4g}" for group in optimizer.param_groups)
    return (
        f"training diverged {when}: {what} with learning rate {rates}; use a smaller learning rate."
    )
