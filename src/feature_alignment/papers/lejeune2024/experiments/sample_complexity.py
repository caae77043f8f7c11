"""Test error over training-set sizes with fixed, adaptive and learned tangent features.

Source: lejeune2024, earlier version, Figure 4, and released code.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from feature_alignment.data.canonical import Dataset, to_float
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.errors import UserError
from feature_alignment.models.feedforward import sequential_mlp, small_cnn
from feature_alignment.models.tangent_models import TangentModel
from feature_alignment.pipeline.run import SeedResult
from feature_alignment.training.checkpoint import next_checkpoint, without_checkpoints
from feature_alignment.training.evaluation import outputs_in_chunks
from feature_alignment.training.loop import train
from feature_alignment.training.losses import cross_entropy
from feature_alignment.training.optimizers import make_optimizer
from feature_alignment.training.progress import Progress

Parameters = dict[str, Any]
MODES = {"fixed": "linearised", "adaptive": "factorised", "full": None}
"""The three curves of the figure, and the tangent model of each; None is the network itself."""
CHUNK = 500


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: Dataset, label: str
) -> SeedResult:
    """Train one kind of model on every training-set size.

    Args:
        seed: the seed; the kinds of model share initial weights and samples.
        parameters: the section `lejeune2024_sample_complexity` of the config, with `model`, one of
            `MODES`; `sampling`, kept or redrawn; and `network`, mlp or cnn.
        device: where to train.
        dataset: the images.
        label: names the run in its progress lines.

    Returns:
        For each size the test error at the best epoch, that epoch, and how many different images
        were seen; column `n`.

    Raises:
        UserError: if the dataset has too few images.
    """
    x, y = _tensors(*dataset.split("train"), device)
    draw = dataset.draw("test", parameters["test_samples"], stream(seed, "test"))
    test = _tensors(*draw, device)
    if max(parameters["train_sizes"]) > len(x):
        raise UserError(
            f"experiments.lejeune2024_sample_complexity.train_sizes: found "
            f"{max(parameters['train_sizes'])}, but {dataset.info['description']} has only "
            f"{len(x)} training images; leave out larger sizes."
        )
    result = SeedResult()
    for n in parameters["train_sizes"]:
        _train_on(n, seed, parameters, (x, y), test, result, f"{label}, n = {n}")
    return result


def _tensors(
    images: np.ndarray, labels: np.ndarray, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Images, channels first, pixels / 255, and their labels."""
    x = torch.as_tensor(to_float(images)).permute(0, 3, 1, 2).contiguous()
    return x.to(device), torch.as_tensor(labels.astype(np.int64)).to(device)


def _network(seed: int, parameters: Parameters, shape: torch.Size, classes: int) -> nn.Sequential:
    generator, init = torch_stream(seed, "init"), "lecun"
    channels, side, _ = shape
    if parameters["network"] == "cnn":
        return small_cnn(side, channels, parameters["cnn_width"], classes, generator, init)
    widths = [parameters["mlp_width"]] * (parameters["mlp_depth"] - 1)
    return sequential_mlp(shape.numel(), widths, classes, generator, init)


@dataclass
class _Course:
    """How training on one size has gone so far, to be saved beside model and optimizer.

    Attributes:
        generators: the streams that epochs draw from.
        seen: whether each image was trained on, (N,).
        errors: test error after each epoch.
        seconds: elapsed time by what it went into.
    """

    generators: Mapping[str, torch.Generator]
    seen: torch.Tensor
    errors: list[float] = field(default_factory=list)
    seconds: Counter[str] = field(default_factory=Counter)

    @property
    def best(self) -> int:
        """The epoch of the smallest error, from 0; the first of several."""
        return int(np.argmin(self.errors))

    def ended(self, parameters: Parameters) -> bool:
        """Whether the epochs are used up, or the error has not improved for `patience` of them."""
        epochs = len(self.errors)
        stale = epochs > 0 and epochs - 1 - self.best >= parameters["patience"]
        return stale or epochs >= parameters["max_epochs"]

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


def _train_on(
    n: int,
    seed: int,
    parameters: Parameters,
    data: tuple[torch.Tensor, torch.Tensor],
    test: tuple[torch.Tensor, torch.Tensor],
    result: SeedResult,
    label: str,
) -> None:
    """Train until the test accuracy has not improved for `patience` epochs, and record the best.

    Choosing the epoch on the test set is the released code's way.
    """
    x, y = data
    network = _network(seed, parameters, x.shape[1:], int(y.max()) + 1).to(x.device)
    mode = MODES[parameters["model"]]
    model = network if mode is None else TangentModel(network, mode)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = make_optimizer(trained, _optimizer_settings(parameters))
    # The samples of a smaller n are among those of a larger one.
    draws, batches = torch_stream(seed, "samples"), torch_stream(seed, f"batches/{n}")
    kept = torch.randperm(len(x), generator=draws)[:n]
    batch = min(parameters["batch_size"], n // 5)
    course = _Course(
        {"samples": draws, "batches": batches}, seen=torch.zeros(len(x), dtype=torch.bool)
    )
    progress = Progress(parameters["max_epochs"], label)
    # Saved after epochs, since their number is found out on the way; and at the end, so that a
    # later attempt trains no finished size again.
    checkpoint = next_checkpoint()
    parts = {"model": model, "optimizer": optimizer, "course": course}
    if checkpoint is not None:
        progress.start_after(checkpoint.restore(parts))
    while not course.ended(parameters):
        redrawn = parameters["sampling"] == "redrawn"
        chosen = torch.randperm(len(x), generator=draws)[:n] if redrawn else kept
        course.seen[chosen] = True
        chosen = chosen.to(x.device)
        with without_checkpoints():
            recorder = train(
                model,
                x[chosen],
                y[chosen],
                loss=cross_entropy,
                optimizer=optimizer,
                steps=n // batch,
                batch_size=batch,
                batches=batches,
                drop_incomplete=True,
            )
        course.seconds.update(recorder.seconds)
        begin = time.monotonic()
        right = outputs_in_chunks(model, test[0], CHUNK).argmax(dim=1) == test[1]
        course.errors.append(1 - float(right.double().mean()))
        course.seconds["evaluating"] += time.monotonic() - begin
        epochs = len(course.errors)
        progress.update(epochs, right.new_tensor(course.errors[-1], dtype=torch.float64))
        if checkpoint is not None:
            save = checkpoint.save if course.ended(parameters) else checkpoint.save_if_due
            save(epochs, parts)
    progress.close()
    step = len(course.errors) * (n // batch)
    result.add("test_error", course.errors[course.best], step=step, split="test", n=n)
    result.add("best_epoch", course.best + 1, step=step, n=n)
    result.add("images_seen", int(course.seen.sum()), step=step, n=n)
    result.seconds.update(course.seconds)


def _optimizer_settings(parameters: Parameters) -> dict[str, Any]:
    """The released code's: SGD with momentum for the MLP, Adam for the CNN."""
    if parameters["network"] == "cnn":
        return {"name": "adam", "lr": parameters["adam_rate"]}
    return {"name": "momentum", "lr": parameters["sgd_rate"], "momentum": parameters["momentum"]}
