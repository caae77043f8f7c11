"""beaglehole2024, Figure 16, Appendices J and M: what a network that looks for glasses sees."""

from functools import partial

import numpy as np
import torch

from feature_alignment.data.canonical import Dataset, to_float
from feature_alignment.errors import UserError
from feature_alignment.layer_features import feature_matrices as matrices
from feature_alignment.papers.beaglehole2024.experiments import relu_networks
from feature_alignment.papers.beaglehole2024.experiments.relu_networks import FIRST_LAYER
from feature_alignment.papers.beaglehole2024.parameters import CelebA
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.batches import steps_per_epoch
from feature_alignment.training.loop import train
from feature_alignment.training.losses import accuracy, mse


def run_seed(run: SeedRun[CelebA]) -> SeedResult:
    """Train one network with labels ±1 and compare the diagonals of its first layer's matrices."""
    p, rng = run.parameters, run.stream("data")
    keys = f"experiments.{p.experiment}."
    faces = _balanced(run.dataset, "train", p.samples, rng, f"{keys}samples")
    test_faces = _balanced(run.dataset, "test", p.test_samples, rng, f"{keys}test_samples")
    images, images_test = (shrunk(part, p.shrink) for part, _ in (faces, test_faces))
    x, x_test = (torch.tensor(part, **run.to).flatten(1) for part in (images, images_test))
    y, y_test = (torch.tensor(2 * part[:, None] - 1, **run.to) for _, part in (faces, test_faces))

    steps = p.epochs * (steps_per_epoch(len(x), p.batch_size) if p.batch_size else 1)
    scales = [p.first_layer_scale] + [1.0] * p.hidden_layers
    model = relu_networks.new_network(run, x.shape[1], 1, scales)
    recorder = train(
        model,
        x,
        y,
        loss=mse,
        optimizer=torch.optim.Adam(model.parameters(), lr=p.learning_rate),
        **run.training(steps),
        batch_size=p.batch_size,
        measure_at=[0, steps],
        evaluate_on={"train": (x, y), "test": (x_test, y_test)},
        metrics={"accuracy": accuracy},
        probes=[FeatureProbe(model, x, layers=[FIRST_LAYER])],
    )
    result = SeedResult().extend(recorder)
    add = partial(result.add, step=steps, layer=FIRST_LAYER)
    diagonals, weight, covariance = relu_networks.first_diagonals(model, x)
    correlation = partial(matrices.cosine_similarity, diagonals["nfm"], subtract_mean=True)
    add("diagonal_correlation", correlation(diagonals["agop"]))
    rng = run.stream("probe/random_conjugates")
    for draw in range(p.random_conjugates):
        rotated = matrices.spectrum_preserving_rotation(covariance, rng)
        other = matrices.agop_diagonal(weight, rotated)
        add("diagonal_correlation_random", correlation(other), draw=draw)
        diagonals.setdefault("random_conjugate", other)
    for name, diagonal in diagonals.items():
        result.arrays[f"{name}_diagonal"] = diagonal.cpu().numpy().reshape(images.shape[1:])
    return result


def shrunk(images: np.ndarray, factor: int) -> np.ndarray:
    """Average squares of factor × factor pixels into one, and scale pixels to [0, 1].

    From uint8 (n, height, width, channels) to float32 (n, height/factor, width/factor, channels).

    Raises:
        UserError: if the factor does not divide the sides.

    Example:
        >>> shrunk(np.full((1, 2, 2, 1), 255, dtype=np.uint8), 2).tolist()
        [[[[1.0]]]]
    """
    n, height, width, channels = images.shape
    if height % factor or width % factor:
        raise UserError(
            f"shrink: {factor} does not divide the images' {height}x{width} pixels; "
            "give a common divisor of both."
        )
    blocks = (n, height // factor, factor, width // factor, factor, channels)
    return to_float(images).reshape(blocks).mean(axis=(2, 4))


def _balanced(
    dataset: Dataset, split: str, number: int, rng: np.random.Generator, key: str
) -> tuple[np.ndarray, np.ndarray]:
    # `number` images, half of them of each class, and their classes.
    images, classes = dataset.split(split)
    chosen = []
    for value in (0, 1):
        places = np.flatnonzero(classes == value)
        if len(places) < number // 2:
            raise UserError(
                f"{key}: {number // 2} {split} images of each class are asked for, but "
                f"{dataset.info['description']} has {len(places)} of class {value}; ask for fewer."
            )
        chosen.append(rng.permutation(places)[: number // 2])
    order = np.concatenate(chosen)
    return images[order], classes[order]
