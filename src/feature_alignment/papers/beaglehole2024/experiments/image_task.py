"""Image classification by mean squared error, as in Figure 2 of beaglehole2024."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from feature_alignment.data.canonical import Dataset
from feature_alignment.data.registry import dataset_info
from feature_alignment.data.standardise import standardise
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.pipeline.run import SeedResult, precision
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.batches import steps_per_epoch
from feature_alignment.training.loop import train
from feature_alignment.training.losses import accuracy, mse
from feature_alignment.training.optimizers import constant_rate, make_optimizer, slow_start_rate
from feature_alignment.training.progress import Progress
from feature_alignment.training.schedule import measurement_schedule

Parameters = dict[str, Any]


@dataclass(frozen=True)
class ImageTask:
    """Images with mean 0 and deviation 1 in each channel, and centred one-hot targets.

    Attributes:
        x: training images (n, channels, height, width).
        y: their targets (n, c): 1 for the class and 0 for the others, minus 1/c.
        x_test: test images.
        y_test: their targets.
    """

    x: torch.Tensor
    y: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor


def image_task(
    seed: int, parameters: Parameters, device: torch.device, dataset: Dataset
) -> ImageTask:
    """Draw the images of a seed.

    Source: beaglehole2024, released code for Figure 2.

    Args:
        seed: the seed; it chooses the images.
        parameters: `samples` and `test_samples`, of which smaller datasets give all they have,
            and `precision`.
        device: where the tensors go.
        dataset: the images.
    """
    rng = stream(seed, "data")
    drawn = {}
    for split, wanted in (("train", "samples"), ("test", "test_samples")):
        number = min(parameters[wanted], len(dataset.split(split)[1]))
        drawn[split] = dataset.draw(split, number, rng)
    images = standardise(drawn["train"][0], drawn["test"][0])
    x, x_test = (torch.tensor(part, dtype=precision(parameters), device=device) for part in images)
    outputs = dataset_info(dataset.info["name"]).classes
    y, y_test = (centred_one_hot(torch.tensor(part), outputs).to(x) for _, part in drawn.values())
    return ImageTask(x, y, x_test, y_test)


def centred_one_hot(classes: torch.Tensor, number: int) -> torch.Tensor:
    """One-hot rows of classes (n,) minus their mean 1/c: float64 (n, c).

    Example:
        >>> centred_one_hot(torch.tensor([1]), 2)
        tensor([[-0.5000,  0.5000]], dtype=torch.float64)
    """
    return nn.functional.one_hot(classes, number).double() - 1 / number


def train_on_images(
    model: nn.Module,
    task: ImageTask,
    parameters: Parameters,
    layers: Sequence[str],
    seed: int,
    label: str,
) -> SeedResult:
    """Train by stochastic gradient descent and measure the layers after whole epochs.

    Measured are the start, the end of the first epoch, and then of every `measure_every`-th; in
    the rows, `step` counts epochs. If `first_epoch_rate` is given, an epoch at that learning rate
    comes before the `epochs` others, as in the released code.

    Source: beaglehole2024, Figures 2 and 13-15 and Appendix J.

    Args:
        model: the network; trained in place.
        task: the images.
        parameters: `learning_rate`, `first_epoch_rate`, `momentum`, `batch_size`, `epochs`,
            `measure_every` and `probe_samples`.
        layers: the layers that are measured, on the first `probe_samples` training images.
        seed: the seed; it orders the batches.
        label: names the run in its progress lines.

    Returns:
        Losses, test accuracies and the measures of `FeatureProbe`.

    Raises:
        TrainingDivergedError: if training diverged or left every ReLU of a layer dead.
    """
    rate, first_rate = parameters["learning_rate"], parameters["first_epoch_rate"]
    epoch = steps_per_epoch(len(task.x), parameters["batch_size"])
    epochs = parameters["epochs"] + (first_rate is not None)
    measured = {1, *measurement_schedule({"every": parameters["measure_every"]}, epochs)}
    settings = {"name": "momentum", "lr": rate, "momentum": parameters["momentum"]}
    recorder = train(
        model,
        task.x,
        task.y,
        loss=mse,
        optimizer=make_optimizer(model.parameters(), settings),
        steps=epochs * epoch,
        batch_size=parameters["batch_size"],
        batches=torch_stream(seed, "batches"),
        schedule=constant_rate if first_rate is None else slow_start_rate(epoch, first_rate / rate),
        measure_at=[number * epoch for number in measured],
        evaluate_on={"train": (task.x, task.y), "test": (task.x_test, task.y_test)},
        metrics={"accuracy": accuracy},
        probes=[
            FeatureProbe(model, task.x[: parameters["probe_samples"]], layers=layers),
        ],
        progress=Progress(epochs * epoch, label),
    )
    result = SeedResult()
    result.extend(recorder)
    for row in result.rows:
        row["step"] //= epoch  # whole, since only ends of epochs are measured
    return result
