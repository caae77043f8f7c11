"""Spectrum and label alignment of the tangent kernel while an image classifier is trained.

Source: baratin2021, Figures 2, 3, 11, 12 and 14, Sections 3.1–3.3 and 3.5, Appendix C.2.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from feature_alignment.data.canonical import Dataset
from feature_alignment.determinism import torch_stream
from feature_alignment.models.mlp import MLP
from feature_alignment.models.resnet import ResNet18
from feature_alignment.models.vgg import VGG
from feature_alignment.papers.baratin2021.experiments.labelled_images import (
    CLASSES,
    check_kernel_samples,
    labelled_images,
)
from feature_alignment.pipeline.run import SeedResult, precision
from feature_alignment.probes.kernel_probe import Batch, TangentKernelProbe
from feature_alignment.training.batches import RandomCropAndFlip
from feature_alignment.training.loop import train
from feature_alignment.training.losses import accuracy, cross_entropy
from feature_alignment.training.optimizers import make_optimizer
from feature_alignment.training.progress import Progress
from feature_alignment.training.schedule import measurement_schedule

Parameters = dict[str, Any]


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: Dataset, label: str
) -> SeedResult:
    """Train one network and measure its tangent kernel on fixed training and test batches.

    The training batch has the labels that are trained on, random ones included; the test batch
    has the true ones. Networks are measured in evaluation mode.

    Args:
        seed: the seed.
        parameters: the section `baratin2021_classification` of the config, and from the figure
            `model` (vgg19, vgg11, resnet18 or mlp), `dataset`, `learning_rate` and
            `random_label_share`.
        device: where to train.
        dataset: images of ten classes.
        label: names the run in its progress lines.

    Returns:
        Losses, accuracies and what `TangentKernelProbe` measures, of the network and its layers,
        at each scheduled step; the share of training labels that are wrong.

    Raises:
        UserError: if the dataset has fewer images than are asked for, or the kernel is to be
            measured on more images than a split has.
    """
    share = parameters["random_label_share"]
    images = labelled_images(seed, parameters, device, dataset, share)
    splits = images.splits
    x, y = splits["train"]
    generator = torch_stream(seed, "init")
    model = build_network(parameters, tuple(x.shape[1:]), generator).to(device)
    number = parameters["kernel_samples"]
    check_kernel_samples(
        "baratin2021_classification.kernel_samples",
        number,
        {f"{split} images": len(x) for split, (x, _) in splits.items()},
    )
    batches = {
        name: Batch(x[:number], nn.functional.one_hot(y[:number], CLASSES).to(x.dtype))
        for name, (x, y) in splits.items()
    }
    settings = {
        "name": "momentum",
        "lr": parameters["learning_rate"],
        "momentum": parameters["momentum"],
        "weight_decay": parameters["weight_decay"],
    }
    augment = RandomCropAndFlip(torch_stream(seed, "augmentation"))
    schedule = parameters["measure_at"]
    schedule = {"geometric": schedule} if isinstance(schedule, dict) else schedule
    recorder = train(
        model,
        x,
        y,
        loss=cross_entropy,
        optimizer=make_optimizer(model.parameters(), settings),
        steps=parameters["steps"],
        batch_size=parameters["batch_size"],
        batches=torch_stream(seed, "batches"),
        augment=augment if parameters["augmentation"] else None,
        measure_at=measurement_schedule(schedule, parameters["steps"]),
        evaluate_on=splits,
        metrics={"accuracy": accuracy},
        probes=[TangentKernelProbe(batches, layers=True)],
        progress=Progress(parameters["steps"], label),
    )
    result = SeedResult()
    result.add("wrong_label_share", images.wrong, step=0)
    result.extend(recorder)
    return result


def build_network(
    parameters: Parameters, shape: tuple[int, int, int], generator: torch.Generator
) -> nn.Module:
    """The network that the parameters describe, with ten outputs.

    Args:
        parameters: `model`, `base_width` or `width` and `linear_layers`, `batch_norm`, `init`,
            `precision`.
        shape: (channels, height, width) of the images.
        generator: CPU generator of the initial weights.

    Returns:
        The network, on the CPU.
    """
    model = parameters["model"]
    options = {"init": parameters["init"], "dtype": precision(parameters)}
    if model == "mlp":
        widths = [parameters["width"]] * (parameters["linear_layers"] - 1)
        return MLP(int(np.prod(shape)), widths, CLASSES, "relu", True, generator, **options)
    options["in_channels"] = shape[0]
    base_width = parameters["base_width"]
    if model == "resnet18":
        norm = "resnet18" in parameters["batch_norm"]
        return ResNet18(base_width, CLASSES, generator, batch_norm=norm, **options)
    norm = "vgg" in parameters["batch_norm"]
    depth = int(model.removeprefix("vgg"))
    return VGG(depth, base_width, CLASSES, generator, batch_norm=norm, **options)
