"""Image classification by mean squared error, as in Figure 2 of beaglehole2024."""

import logging
from collections.abc import Sequence

import torch
from torch import nn

from feature_alignment.data.canonical import to_float
from feature_alignment.data.registry import dataset_info
from feature_alignment.data.transforms import standardise
from feature_alignment.papers.beaglehole2024.experiments.relu_networks import Splits
from feature_alignment.papers.beaglehole2024.parameters import ImageParameters
from feature_alignment.pipeline.marks import DIVERGED
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.batches import steps_per_epoch
from feature_alignment.training.errors import TrainingDivergedError
from feature_alignment.training.loop import train
from feature_alignment.training.losses import accuracy, mse
from feature_alignment.training.probes import Recorder
from feature_alignment.training.schedule import constant_rate, every, slow_start_rate

log = logging.getLogger(__name__)


def draw_samples(run: SeedRun[ImageParameters]) -> Splits:
    """Draw the images of a seed; a dataset with fewer than requested gives all it has.

    Images (n, channels, height, width) have mean 0 and deviation 1 in each channel, or pixels in
    [0, 1]; targets (n, c) are 1 for the class and 0 for the others, minus 1/c.

    Source: beaglehole2024, released code for Figure 2.
    """
    rng, dataset = run.stream("data"), run.dataset
    wanted = {"train": run.parameters.samples, "test": run.parameters.test_samples}
    drawn = []
    for split, number in wanted.items():
        there = len(dataset.split(split)[1])
        if there < number:
            told = (run.label, dataset.info["description"], there, split, number)
            log.warning("%s: %s has %d %s images where %d are asked for; all are used", *told)
        drawn.append(dataset.draw(split, min(number, there), rng))
    images = [images for images, _ in drawn]
    if run.parameters.pixels == "standardised":
        images = standardise(*images)
    else:
        images = [to_float(part).transpose(0, 3, 1, 2) for part in images]
    outputs = dataset_info(run.dataset.info["name"]).classes
    task = {}
    for split, x, (_, classes) in zip(wanted, images, drawn, strict=True):
        targets = centred_one_hot(torch.tensor(classes), outputs)
        task[split] = (torch.tensor(x, **run.to), targets.to(**run.to))
    return task


def centred_one_hot(classes: torch.Tensor, number: int) -> torch.Tensor:
    """One-hot rows of classes (n,) minus their mean 1/c: float64 (n, c).

    Example:
        >>> centred_one_hot(torch.tensor([1]), 2)
        tensor([[-0.5000,  0.5000]], dtype=torch.float64)
    """
    return nn.functional.one_hot(classes, number).double() - 1 / number


def train_network(
    run: SeedRun[ImageParameters], model: nn.Module, task: Splits, layers: Sequence[str]
) -> SeedResult:
    """Train by stochastic gradient descent and measure the layers; `step` counts epochs.

    A network that diverges after its first epoch is kept up to its last measurement and marked by
    the metric `diverged_after`: at the paper's learning rates one seed may diverge while others do
    not.

    Source: beaglehole2024, Figures 2 and 13-15 and Appendix J.

    Raises:
        TrainingDivergedError: if training diverged, or left every ReLU of a layer dead, in the
            first epoch.
    """
    p = run.parameters
    x, _ = task["train"]
    epoch = steps_per_epoch(len(x), p.batch_size)
    epochs, schedule = p.epochs, constant_rate
    if p.first_epoch_rate is not None:
        epochs += 1
        schedule = slow_start_rate(epoch, p.first_epoch_rate / p.learning_rate)
    recorder, last = Recorder(), epochs * epoch
    try:
        train(
            model,
            *task["train"],
            loss=mse,
            optimizer=torch.optim.SGD(model.parameters(), lr=p.learning_rate, momentum=p.momentum),
            batch_size=p.batch_size,
            **run.training(epochs * epoch),
            schedule=schedule,
            measure_at=[number * epoch for number in {1, *every(p.measure_every, epochs)}],
            evaluate_on=task,
            metrics={"accuracy": accuracy},
            probes=[FeatureProbe(model, x[: p.probe_samples], layers=layers)],
            recorder=recorder,
        )
    except TrainingDivergedError as error:
        rows = recorder.frame()
        # The last step that the probe measured: losses may have been recorded for a later one.
        last = max(rows.loc[rows["metric"] == "nfc", "step"], default=0)
        if last == 0:
            raise
        log.warning("%s: %s The network is kept up to epoch %d.", run.label, error, last // epoch)
    result = SeedResult().extend(recorder)
    result.rows = [row for row in result.rows if row["step"] <= last]
    for row in result.rows:
        row["step"] //= epoch  # whole, since only ends of epochs are measured
    if last < epochs * epoch:
        result.add(DIVERGED, last // epoch, step=last // epoch)
    return result
