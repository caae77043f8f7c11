"""lejeune2024, earlier version, Figure 4, and released code: test error by training-set size."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from feature_alignment.data.canonical import to_float
from feature_alignment.errors import UserError
from feature_alignment.models.mlp import sequential_mlp, small_cnn
from feature_alignment.models.tangent_models import TangentModel
from feature_alignment.papers.lejeune2024.parameters import SampleComplexity
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.training.evaluation import outputs_in_chunks
from feature_alignment.training.loop import train
from feature_alignment.training.losses import cross_entropy
from feature_alignment.training.progress import Progress

Samples = tuple[torch.Tensor, torch.Tensor]  # images and their labels
MODES = {"fixed": "linearised", "adaptive": "factorised", "full": None}
"""The tangent model of each kind of features; None is the network itself."""
CHUNK = 500


def run_seed(run: SeedRun[SampleComplexity]) -> SeedResult:
    """Train one kind of model on every training-set size; all share samples and initial weights.

    Raises:
        UserError: if the dataset has too few images.
    """
    p = run.parameters
    prefix = "cnn_" if p.network == "cnn" else ""
    sizes = p.cnn_train_sizes if prefix else p.train_sizes
    test_samples = p.cnn_test_samples if prefix else p.test_samples
    data = _tensors(run, *run.dataset.split("train"))
    key = f"experiments.{p.experiment}.{prefix}test_samples"
    test = _tensors(run, *run.dataset.draw("test", test_samples, run.stream("test"), key))
    available = len(data[0])
    if max(sizes) > available:
        raise UserError(
            f"experiments.{p.experiment}.{prefix}train_sizes: found {max(sizes)}, but "
            f"{run.dataset.info['description']} has only {available} training images; "
            "leave out larger sizes."
        )
    result = SeedResult()
    for n in sizes:
        _train_on(run, n, data, test, result)
    return result


def _tensors(run: SeedRun[SampleComplexity], images: np.ndarray, labels: np.ndarray) -> Samples:
    """Images (channels first; pixels / 255, or normalised) and their labels."""
    x = torch.as_tensor(to_float(images)).permute(0, 3, 1, 2).contiguous()
    if run.parameters.normalisation == "unit-variance":
        variance, mean = torch.var_mean(x, dim=(1, 2, 3), keepdim=True)
        x = (x - mean) / variance.sqrt().clamp(min=1e-6)
    return x.to(run.device), torch.as_tensor(labels.astype(np.int64)).to(run.device)


def _network(run: SeedRun[SampleComplexity], shape: torch.Size, classes: int) -> nn.Sequential:
    p, generator, init = run.parameters, run.torch_stream("init"), run.parameters.initialisation
    channels, side, _ = shape
    if p.network == "cnn":
        network = small_cnn(side, channels, p.cnn_width, classes, generator, init)
    else:
        widths = [p.mlp_width] * (p.mlp_depth - 1)
        network = sequential_mlp(shape.numel(), widths, classes, generator, init)
    return network.to(run.device)


def _optimizer(p: SampleComplexity, model: nn.Module) -> torch.optim.Optimizer:
    """The released code's choice: SGD with momentum for the MLP, Adam for the CNN."""
    trained = [w for w in model.parameters() if w.requires_grad]
    if p.network == "cnn":
        return torch.optim.Adam(trained, lr=p.adam_rate)
    return torch.optim.SGD(trained, lr=p.sgd_rate, momentum=p.momentum)


@dataclass
class _Course:
    """Progress of the training on one size, saved together with model and optimizer."""

    generators: Mapping[str, torch.Generator]  # the streams that epochs draw from
    seen: torch.Tensor  # whether each image was trained on, (n,)
    errors: list[float] = field(default_factory=list)  # test error after each epoch
    seconds: Counter[str] = field(default_factory=Counter)  # elapsed, by activity

    @property
    def best(self) -> int:
        """The first epoch with the smallest error, counted from 0."""
        return int(np.argmin(self.errors))

    def ended(self, p: SampleComplexity) -> bool:
        """Whether the epochs are used up, or the last `patience` of them brought no improvement."""
        epochs = len(self.errors)
        stale = epochs > 0 and epochs - 1 - self.best >= p.patience
        return stale or epochs >= p.max_epochs

    def state_dict(self) -> dict[str, Any]:
        """See `training.checkpoint.Stateful`."""
        states = {name: generator.get_state() for name, generator in self.generators.items()}
        seconds = dict(self.seconds)
        return {"generators": states, "seen": self.seen, "errors": self.errors, "seconds": seconds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `training.checkpoint.Stateful`."""
        for name, generator in self.generators.items():
            generator.set_state(state["generators"][name])
        self.seen, self.errors = state["seen"], list(state["errors"])
        self.seconds = Counter(state["seconds"])


def _test_outputs(model: nn.Module, images: torch.Tensor) -> Callable[[], torch.Tensor]:
    """A function that returns the outputs at the model's current weights.

    Most of the time goes into it. The signals that the images give in a tangent model's network are
    kept in memory: 1.8 GB for 10,000 images and the CNN of width 16.
    """
    if not isinstance(model, TangentModel):
        return partial(outputs_in_chunks, model, images, CHUNK)
    with torch.no_grad():
        kept = [model.signals(part) for part in images.split(CHUNK)]

    @torch.no_grad()
    def outputs() -> torch.Tensor:
        return torch.cat([model.from_signals(signals) for signals in kept])

    return outputs


def _train_on(
    run: SeedRun[SampleComplexity], n: int, data: Samples, test: Samples, result: SeedResult
) -> None:
    """Train until the test accuracy stalls; record the best epoch (the released code's) or last."""
    p, (x, y) = run.parameters, data
    network = _network(run, x.shape[1:], int(y.max()) + 1)
    mode = MODES[p.model]
    model = network if mode is None else TangentModel(network, mode)
    optimizer = _optimizer(p, model)
    # The samples of a smaller n are among those of a larger one.
    draws, batches = run.torch_stream("samples"), run.torch_stream(f"batches/{n}")
    chosen = torch.randperm(len(x), generator=draws)[:n]
    batch = min(p.batch_size, n // 5)
    course = _Course({"samples": draws, "batches": batches}, torch.zeros(len(x), dtype=torch.bool))
    progress = Progress(p.max_epochs, f"{run.label}, n = {n}")
    # Saved between epochs, since their number is not known in advance, and at the end, so that a
    # later attempt does not train a finished size again.
    checkpoint = run.checkpoint(f"n{n}")
    parts = {"model": model, "optimizer": optimizer, "course": course}
    if checkpoint is not None:
        progress.start_after(checkpoint.restore(parts))
    outputs = _test_outputs(model, test[0])
    while not course.ended(p):
        if p.sampling == "redrawn":
            chosen = torch.randperm(len(x), generator=draws)[:n]
        course.seen[chosen] = True
        place = chosen.to(x.device)
        recorder = train(
            model,
            x[place],
            y[place],
            loss=cross_entropy,
            optimizer=optimizer,
            steps=n // batch,
            batch_size=batch,
            batches=batches,
            drop_incomplete=True,
        )
        course.seconds.update(recorder.seconds)
        begin = time.monotonic()
        right = outputs().argmax(dim=1) == test[1]
        course.errors.append(1 - float(right.double().mean()))
        course.seconds.update(evaluating=time.monotonic() - begin)  # pyright: ignore[reportCallIssue, reportArgumentType]: counters count floats, too
        epochs = len(course.errors)
        progress.update(epochs, right.new_tensor(course.errors[-1], dtype=torch.float64))
        if checkpoint is not None:
            save = checkpoint.save if course.ended(p) else checkpoint.save_if_due
            save(epochs, parts)
    progress.close()
    step = len(course.errors) * (n // batch)
    told = course.best if p.reported_epoch == "best" else -1
    result.add("test_error", course.errors[told], step=step, split="test", n=n)
    result.add("best_epoch", course.best + 1, step=step, n=n)
    result.add("images_seen", int(course.seen.sum()), step=step, n=n)
    result.seconds.update(course.seconds)
