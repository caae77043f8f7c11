"""Feature correlations of fully connected networks on image datasets, epoch by epoch.

Source: beaglehole2024, Figures 2A, 2B, 13 and 14, Appendix J.
"""

import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.determinism import torch_stream
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.beaglehole2024.experiments.image_task import (
    Parameters,
    image_task,
    train_on_images,
)
from feature_alignment.pipeline.run import SeedResult


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: Dataset, label: str
) -> SeedResult:
    """Train one network from PyTorch's default initialisation, without biases.

    Args:
        seed: the seed; it chooses images, initial weights and batches.
        parameters: the section `beaglehole2024_image_mlp` of the config.
        device: where to train.
        dataset: the images.
        label: names the run in its progress lines.

    Returns:
        What `train_on_images` measures, in the hidden layers.

    Raises:
        TrainingDivergedError: if training diverged or left every ReLU of a layer dead.
    """
    task = image_task(seed, parameters, device, dataset)
    hidden = parameters["hidden_layers"]
    model = MLP(
        task.x[0].numel(),
        [parameters["width"]] * hidden,
        task.y.shape[1],
        "relu",
        bias=False,
        generator=torch_stream(seed, "init"),
        dtype=task.x.dtype,
    ).to(device)
    layers = [f"layers.{number}" for number in range(hidden)]
    return train_on_images(model, task, parameters, layers, seed, label)
