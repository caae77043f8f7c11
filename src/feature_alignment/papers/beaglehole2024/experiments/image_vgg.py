"""Feature correlations of a convolutional network on CIFAR-10, epoch by epoch.

Source: beaglehole2024, Figures 2C and 15A, Appendix J.
"""

import torch
from torch import nn

from feature_alignment.data.canonical import Dataset
from feature_alignment.determinism import torch_stream
from feature_alignment.models.vgg import VGG
from feature_alignment.papers.beaglehole2024.experiments.image_task import (
    Parameters,
    image_task,
    train_on_images,
)
from feature_alignment.pipeline.run import SeedResult


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: Dataset, label: str
) -> SeedResult:
    """Train one VGG-11 without batch norm and biases, from PyTorch's default initialisation.

    Args:
        seed: the seed; it chooses images, initial weights, dropout masks and batches.
        parameters: the section `beaglehole2024_image_vgg` of the config.
        device: where to train.
        dataset: the images.
        label: names the run in its progress lines.

    Returns:
        What `train_on_images` measures, in the convolutions ("features.…") and in the hidden
        linear layers ("head.…").

    Raises:
        TrainingDivergedError: if training diverged or left every ReLU of a layer dead.
    """
    task = image_task(seed, parameters, device, dataset)
    model = VGG(
        11,
        parameters["base_width"],
        task.y.shape[1],
        torch_stream(seed, "init"),
        bias=False,
        head="two_hidden",
        dropout=parameters["dropout"],
        in_channels=task.x.shape[1],
        dtype=task.x.dtype,
    ).to(device)
    layers = [
        name for name, module in model.named_modules() if isinstance(module, (nn.Conv2d, nn.Linear))
    ]
    return train_on_images(model, task, parameters, layers[:-1], seed, label)
