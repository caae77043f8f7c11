"""beaglehole2024, Figure 17, Appendices J and M: gradient descent and SLO on house numbers."""

from functools import partial

import numpy as np
import torch

from feature_alignment.layer_features.feature_matrices import cosine_similarity
from feature_alignment.papers.beaglehole2024.experiments import image_task, relu_networks
from feature_alignment.papers.beaglehole2024.parameters import SVHNSLO
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.batches import steps_per_epoch
from feature_alignment.training.loop import train
from feature_alignment.training.losses import accuracy, cross_entropy, mse
from feature_alignment.training.schedule import every


def run_seed(run: SeedRun[SVHNSLO]) -> SeedResult:
    """Train one network, and measure its layers' correlations; in the rows, steps count epochs."""
    p, dataset, rng = run.parameters, run.dataset, run.stream("data")
    keys = f"experiments.{p.experiment}."
    images, classes = dataset.draw("train", p.samples, rng, f"{keys}samples")
    test_images, test_classes = dataset.draw("test", p.test_samples, rng, f"{keys}test_samples")
    x, x_test = (torch.tensor(part, **run.to) for part in _standardised(images, test_images))
    outputs = len(dataset.info["class_names"])
    y, y_test = (torch.tensor(part, device=x.device) for part in (classes, test_classes))
    scales = [p.initial_scale] * (p.hidden_layers + 1)
    model = relu_networks.new_network(run, x.shape[1], outputs, scales, p.initialisation)
    if p.optimizer == "gd":
        optimizer = torch.optim.SGD(model.parameters(), lr=p.learning_rate)
    else:
        speeds = [p.first_speed, *[p.other_speed] * p.hidden_layers]
        optimizer = relu_networks.speed_limited(
            model, p.learning_rate, speeds, p.epsilon, gradient_norm=p.gradient_norm
        )
    epoch = 1 if p.batch_size is None else steps_per_epoch(len(x), p.batch_size)
    recorder = train(
        model,
        x,
        y,
        loss=partial(_loss, kind=p.loss),
        optimizer=optimizer,
        batch_size=p.batch_size,
        **run.training(p.epochs * epoch),
        measure_at=[number * epoch for number in every(p.measure_every, p.epochs)],
        evaluate_on={"train": (x, y), "test": (x_test, y_test)},
        metrics={"accuracy": accuracy},
        probes=[FeatureProbe(model, x, layers=relu_networks.hidden_layers(p.hidden_layers))],
    )
    result = SeedResult().extend(recorder)
    for row in result.rows:
        row["step"] //= epoch
    add = partial(result.add, step=p.epochs, layer=relu_networks.FIRST_LAYER)
    diagonals, *_ = relu_networks.first_diagonals(model, x)
    for name, diagonal in diagonals.items():
        add(f"{name}_diagonal_contrast", diagonal.std(correction=0) / diagonal.mean())
        result.arrays[f"{name}_diagonal"] = diagonal.cpu().numpy().reshape(images.shape[1:])
    add("diagonal_correlation", cosine_similarity(*diagonals.values(), subtract_mean=True))
    return result


def _loss(f: torch.Tensor, classes: torch.Tensor, kind: str) -> torch.Tensor:
    """One of the losses that `SVHNSLO.loss` describes, of outputs f (n, c) and classes (n,)."""
    if kind == "cross_entropy":
        return cross_entropy(f, classes)
    outputs = f.shape[1]
    y = image_task.centred_one_hot(classes, outputs).to(f)
    if kind == "mse_one_hot":
        y += 1 / outputs
    return mse(f, y) * (outputs if kind == "squared_error" else 1)


def _standardised(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (n, height · width · channels), each with training mean 0 and deviation 1."""
    pixels = train.reshape(len(train), -1).astype(np.float64)
    mean, deviation = pixels.mean(axis=0), pixels.std(axis=0)
    deviation[deviation == 0] = 1  # the same in all training images: only shifted
    return (pixels - mean) / deviation, (test.reshape(len(test), -1) - mean) / deviation
