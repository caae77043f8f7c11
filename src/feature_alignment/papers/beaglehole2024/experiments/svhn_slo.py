"""Gradient descent and Speed Limited Optimization on photographed house numbers.

Source: beaglehole2024, Figure 17 and Appendix J and M.
"""

from functools import partial

import numpy as np
import torch

from feature_alignment.layer_features.feature_covariance import layer_feature_matrices
from feature_alignment.layer_features.feature_matrices import (
    agop_diagonal,
    cosine_similarity,
    nfm_diagonal,
)
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.beaglehole2024.experiments.image_task import centred_one_hot
from feature_alignment.papers.beaglehole2024.experiments.relu_networks import (
    hidden_layers,
    relu_network,
    speed_limited,
)
from feature_alignment.papers.beaglehole2024.parameters import SVHNSLO
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.loop import train
from feature_alignment.training.losses import accuracy, mse
from feature_alignment.training.schedule import every

FIRST_LAYER = "layers.0"


def run_seed(run: SeedRun[SVHNSLO]) -> SeedResult:
    """Train one network on all images at once, and measure its layers' feature correlations.

    Returns:
        Losses, accuracies and the measures of `FeatureProbe` in the hidden layers; the diagonals
        of the first layer's NFM and AGOP after the last step, as images (height, width, channels).
    """
    p, dataset, rng = run.parameters, run.dataset, run.stream("data")
    images, classes = dataset.draw("train", p.samples, rng)
    test_images, test_classes = dataset.draw("test", p.test_samples, rng)
    x, x_test = (torch.tensor(part, **run.to) for part in _standardised(images, test_images))
    outputs = len(dataset.info["class_names"])
    y, y_test = (
        centred_one_hot(torch.tensor(part), outputs).to(x) for part in (classes, test_classes)
    )

    scales = [p.initial_scale] * (p.hidden_layers + 1)
    model = relu_network(run, [x.shape[1], *[p.width] * p.hidden_layers, outputs], scales)
    recorder = train(
        model,
        x,
        y,
        loss=mse,
        optimizer=_optimizer(model, p),
        steps=p.steps,
        measure_at=every(p.measure_every, p.steps),
        evaluate_on={"train": (x, y), "test": (x_test, y_test)},
        metrics={"accuracy": accuracy},
        probes=[FeatureProbe(model, x, layers=hidden_layers(p.hidden_layers))],
        progress=run.progress(p.steps),
        checkpoint=run.checkpoint(),
    )
    result = SeedResult()
    result.extend(recorder)
    _describe_diagonals(model, x, images.shape[1:], p.steps, result)
    return result


def _standardised(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (n, height · width · channels), each with mean 0 and deviation 1 over the training.

    A pixel that is the same in all training images is only shifted.
    """
    pixels = train.reshape(len(train), -1).astype(np.float64)
    mean, deviation = pixels.mean(axis=0), pixels.std(axis=0)
    deviation[deviation == 0] = 1
    return (pixels - mean) / deviation, (test.reshape(len(test), -1) - mean) / deviation


def _optimizer(model: MLP, p: SVHNSLO) -> torch.optim.Optimizer:
    if p.optimizer == "gd":
        return torch.optim.SGD(model.parameters(), lr=p.learning_rate)
    speeds = [p.first_speed, *[p.other_speed] * p.hidden_layers]
    return speed_limited(model, p.learning_rate, speeds, p.epsilon)


def _describe_diagonals(
    model: MLP, x: torch.Tensor, shape: tuple[int, ...], step: int, result: SeedResult
) -> None:
    """Diagonals (d,) of the first layer's F = WᵀW and G = WᵀKW, without the matrices.

    `<name>_diagonal_contrast` is a diagonal's deviation over its mean: 0 for a network that looks
    at every pixel alike. `diagonal_correlation` is Pearson's, as the paper takes it in Figure 16.
    """
    layer = layer_feature_matrices(model, x, [FIRST_LAYER])[FIRST_LAYER]
    weight, covariance = layer.weight_matrix.double(), layer.covariance.double()
    diagonals = {"nfm": nfm_diagonal(weight), "agop": agop_diagonal(weight, covariance)}
    add = partial(result.add, step=step, layer=FIRST_LAYER)
    for name, diagonal in diagonals.items():
        contrast = diagonal.std(correction=0) / diagonal.mean()
        add(f"{name}_diagonal_contrast", contrast)
        result.arrays[f"{name}_diagonal"] = diagonal.cpu().numpy().reshape(shape)
    correlation = cosine_similarity(*diagonals.values(), subtract_mean=True)
    add("diagonal_correlation", correlation)
