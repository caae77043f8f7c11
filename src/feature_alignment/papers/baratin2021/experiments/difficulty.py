"""Label alignment of the tangent kernel on easy and on difficult training examples.

Source: baratin2021, Figures 4 and 13, Sections 3.4 and 3.5.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from feature_alignment.data.canonical import Dataset
from feature_alignment.data.corruption import random_labels
from feature_alignment.data.standardise import standardise
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.baratin2021.experiments.labelled_images import (
    CLASSES,
    check_kernel_samples,
)
from feature_alignment.pipeline.run import SeedResult, precision
from feature_alignment.probes.kernel_probe import Batch, TangentKernelProbe
from feature_alignment.training.loop import train
from feature_alignment.training.losses import accuracy, cross_entropy
from feature_alignment.training.optimizers import make_optimizer
from feature_alignment.training.progress import Progress
from feature_alignment.training.schedule import measurement_schedule

Parameters = dict[str, Any]


def run_seed(
    seed: int,
    parameters: Parameters,
    device: torch.device,
    dataset: Dataset,
    label: str,
    difficult_dataset: Dataset | None = None,
) -> SeedResult:
    """Train one MLP on easy and difficult examples together, and measure its kernel on both.

    Args:
        seed: the seed, of initialisation, examples and mini-batches.
        parameters: the section `baratin2021_difficulty` of the config.
        device: where to train.
        dataset: the easy examples; ten classes.
        label: names the run in its progress lines.
        difficult_dataset: the difficult examples; None for further examples of `dataset` with
            random labels.

    Returns:
        At each scheduled step, on the splits `easy` and `difficult` of the training examples:
        loss and accuracy on all of them, and what `TangentKernelProbe` measures of the alignment
        with the labels that are trained on, on the first `kernel_samples` of each.

    Raises:
        UserError: if a dataset has fewer images than are asked for, or the kernel is to be
            measured on more examples than are trained on.
    """
    examples = _examples(seed, parameters, dataset, difficult_dataset)
    to = {"dtype": precision(parameters), "device": device}
    splits = {
        name: (torch.tensor(part.x, **to), torch.tensor(part.y, device=device))
        for name, part in examples.items()
    }
    number = parameters["kernel_samples"]
    batches = {
        name: Batch(x[:number], nn.functional.one_hot(y[:number], CLASSES).to(x.dtype))
        for name, (x, y) in splits.items()
    }
    x, y = (torch.cat(parts) for parts in zip(*splits.values(), strict=True))
    model = MLP(
        x[0].numel(),
        [parameters["width"]] * (parameters["linear_layers"] - 1),
        CLASSES,
        "relu",
        bias=True,
        generator=torch_stream(seed, "init"),
        init="kaiming_zero_bias",
        dtype=to["dtype"],
    ).to(device)
    settings = {
        "name": "momentum",
        "lr": parameters["learning_rate"],
        "momentum": parameters["momentum"],
    }
    steps = parameters["steps"]
    recorder = train(
        model,
        x,
        y,
        loss=cross_entropy,
        optimizer=make_optimizer(model.parameters(), settings),
        steps=steps,
        batch_size=parameters["batch_size"],
        batches=torch_stream(seed, "batches"),
        measure_at=measurement_schedule({"geometric": parameters["measure_at"]}, steps),
        evaluate_on=splits,
        metrics={"accuracy": accuracy},
        probes=[TangentKernelProbe(batches, spectrum=False)],
        progress=Progress(steps, label),
    )
    result = SeedResult()
    result.extend(recorder)
    return result


@dataclass(frozen=True)
class _Examples:
    """Images (n, channels, height, width), standardised, and labels (n,)."""

    x: np.ndarray
    y: np.ndarray


def _examples(
    seed: int, parameters: Parameters, dataset: Dataset, difficult_dataset: Dataset | None
) -> dict[str, _Examples]:
    easy, difficult = parameters["easy_samples"], parameters["difficult_samples"]
    check_kernel_samples(
        "baratin2021_difficulty.kernel_samples",
        parameters["kernel_samples"],
        {"easy examples": easy, "difficult examples": difficult},
    )
    if difficult_dataset is None:
        x, y = dataset.draw("train", easy + difficult, stream(seed, "data"))
        x_difficult, true = x[easy:], y[easy:]
        y_difficult, _ = random_labels(true, 1.0, CLASSES, stream(seed, "random_labels"))
        x, y = x[:easy], y[:easy]
    else:
        x, y = dataset.draw("train", easy, stream(seed, "data"))
        rng = stream(seed, "data/difficult")
        x_difficult, y_difficult = difficult_dataset.draw("train", difficult, rng)
    images = standardise(x, x_difficult)
    return {"easy": _Examples(images[0], y), "difficult": _Examples(images[1], y_difficult)}
