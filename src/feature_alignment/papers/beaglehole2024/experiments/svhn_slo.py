"""Gradient descent and Speed Limited Optimization on photographed house numbers.

Source: beaglehole2024, Figure 17 and Appendix J and M.
"""

from typing import Any

import numpy as np
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.features.feature_covariance import layer_feature_matrices
from feature_alignment.features.feature_matrices import (
    agop_diagonal,
    cosine_similarity,
    nfm_diagonal,
)
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.beaglehole2024.experiments.image_task import centred_one_hot
from feature_alignment.pipeline.run import SeedResult, precision
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.loop import train
from feature_alignment.training.losses import accuracy, mse
from feature_alignment.training.optimizers import make_optimizer
from feature_alignment.training.progress import Progress
from feature_alignment.training.schedule import measurement_schedule

Parameters = dict[str, Any]
FIRST_LAYER = "layers.0"


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: Dataset, label: str
) -> SeedResult:
    """Train one network on all images at once, and measure its layers' feature correlations.

    Args:
        seed: the seed; it chooses the images and the initial weights.
        parameters: the section `beaglehole2024_svhn_slo` of the config.
        device: where to train.
        dataset: the house numbers.
        label: names the run in its progress lines.

    Returns:
        Losses, accuracies and the measures of `FeatureProbe` in the hidden layers; the diagonals
        of the first layer's NFM and AGOP after the last step, as images (height, width, channels).

    Raises:
        UserError: if the dataset has too few images.
        TrainingDivergedError: if training diverged or left every ReLU dead.
    """
    rng = stream(seed, "data")
    images, classes = dataset.draw("train", parameters["samples"], rng)
    test_images, test_classes = dataset.draw("test", parameters["test_samples"], rng)
    to = {"dtype": precision(parameters), "device": device}
    x, x_test = (torch.tensor(part, **to) for part in _standardised(images, test_images))
    outputs = len(dataset.info["class_names"])
    y, y_test = (
        centred_one_hot(torch.tensor(part), outputs).to(x) for part in (classes, test_classes)
    )

    hidden, steps = parameters["hidden_layers"], parameters["steps"]
    model = MLP(
        x.shape[1],
        [parameters["width"]] * hidden,
        outputs,
        "relu",
        bias=False,
        generator=torch_stream(seed, "init"),
        layer_scales=[parameters["initial_scale"]] * (hidden + 1),
        dtype=x.dtype,
    ).to(device)
    recorder = train(
        model,
        x,
        y,
        loss=mse,
        optimizer=_optimizer(model, parameters),
        steps=steps,
        measure_at=measurement_schedule({"every": parameters["measure_every"]}, steps),
        evaluate_on={"train": (x, y), "test": (x_test, y_test)},
        metrics={"accuracy": accuracy},
        probes=[
            FeatureProbe(model, x, layers=[f"layers.{number}" for number in range(hidden)]),
        ],
        progress=Progress(steps, label),
    )
    result = SeedResult()
    result.extend(recorder)
    _describe_diagonals(model, x, images.shape[1:], result, steps)
    return result


def _standardised(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (n, height · width · channels), each with mean 0 and deviation 1 over the training.

    A pixel that is the same in all training images is only shifted.
    """
    pixels = train.reshape(len(train), -1).astype(np.float64)
    mean, deviation = pixels.mean(axis=0), pixels.std(axis=0)
    deviation[deviation == 0] = 1
    return (pixels - mean) / deviation, (test.reshape(len(test), -1) - mean) / deviation


def _optimizer(model: MLP, parameters: Parameters) -> torch.optim.Optimizer:
    rate = parameters["learning_rate"]
    if parameters["optimizer"] == "gd":
        return make_optimizer(model.parameters(), {"name": "gd", "lr": rate})
    others = len(model.layers) - 1
    speeds = [parameters["first_speed"], *[parameters["other_speed"]] * others]
    settings = {"name": "slo", "lr": rate, "speeds": speeds, "epsilon": parameters["epsilon"]}
    return make_optimizer(model.parameters(), settings)


def _describe_diagonals(
    model: MLP, x: torch.Tensor, shape: tuple[int, ...], result: SeedResult, step: int
) -> None:
    """Diagonals (d,) of the first layer's F = WᵀW and G = WᵀKW, without the matrices.

    `<name>_diagonal_contrast` is a diagonal's deviation over its mean: 0 for a network that looks
    at every pixel alike. `diagonal_correlation` is Pearson's, as the paper takes it in Figure 16.
    """
    layer = layer_feature_matrices(model, x, [FIRST_LAYER])[FIRST_LAYER]
    weight, covariance = layer.weight_matrix.double(), layer.covariance.double()
    diagonals = {"nfm": nfm_diagonal(weight), "agop": agop_diagonal(weight, covariance)}
    where = {"step": step, "layer": FIRST_LAYER}
    for name, diagonal in diagonals.items():
        contrast = diagonal.std(correction=0) / diagonal.mean()
        result.add(f"{name}_diagonal_contrast", float(contrast), **where)
        result.arrays[f"{name}_diagonal"] = diagonal.cpu().numpy().reshape(shape)
    correlation = cosine_similarity(*diagonals.values(), subtract_mean=True)
    result.add("diagonal_correlation", correlation, **where)
