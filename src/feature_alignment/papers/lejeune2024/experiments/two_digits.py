"""The images of two digit classes, and the training shared by both experiments on them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from feature_alignment.errors import UserError
from feature_alignment.papers.lejeune2024.parameters import DigitRegression, LowRank, TwoDigits
from feature_alignment.pipeline.run import SeedRun
from feature_alignment.training.batches import steps_per_epoch
from feature_alignment.training.loop import train
from feature_alignment.training.losses import mse
from feature_alignment.training.schedule import cosine_rate


def two_digits(
    run: SeedRun[TwoDigits],
    split: str,
    wanted: int,
    *,
    needs: Sequence[str] = (),
    generator: np.random.Generator | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of the two classes, (n, d), each normalised, and labels ±1 (n, 1).

    With a generator they come in a random order. `needs` names the parameters that require `wanted`
    images; without it, fewer will do.

    Raises:
        UserError: if there are too few images, a class is missing, or an image has a single colour.
    """
    images, labels = run.dataset.split(split)
    negative, positive = run.parameters.classes
    chosen = np.flatnonzero((labels == negative) | (labels == positive))
    if needs and wanted > len(chosen):
        raise UserError(
            f"experiments.{run.parameters.experiment}.{needs[0]}: found {wanted}, but "
            f"{run.dataset.info['description']} has only {len(chosen)} {split}ing images of the "
            f"classes {negative} and {positive}; lower {' and '.join(needs)}."
        )
    if generator is not None:
        chosen = generator.permutation(chosen)
    there = set(labels[chosen if generator is not None else chosen[:wanted]].tolist())
    chosen, description = chosen[:wanted], run.dataset.info["description"]
    if there != {negative, positive}:
        first = f"of the first {len(chosen)} " if generator is None and there else "of the "
        of = f"all are of class {there.pop()}" if there else "none is"
        raise UserError(
            f"{description}: {first}{split}ing images of the classes {negative} and {positive} "
            f"{of}; give images of both, in turn."
        )
    x = images[chosen].reshape(len(chosen), -1).astype(np.float64)
    x -= x.mean(axis=1, keepdims=True)
    if (flat := chosen[~x.any(axis=1)]).size:
        raise UserError(
            f"{description}: {split}ing image {flat[0]} (counted from 0), of class "
            f"{labels[flat[0]]}, is of one colour, and cannot be normalised; leave it out."
        )
    by_norm = run.parameters.normalisation == "unit-norm"
    x /= np.linalg.norm(x, axis=1, keepdims=True) if by_norm else x.std(axis=1, keepdims=True)
    y = np.where(labels[chosen] == positive, 1.0, -1.0)[:, None]
    return torch.as_tensor(x), torch.as_tensor(y)


def fit(
    run: SeedRun[DigitRegression | LowRank],
    model: nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    epochs: int,
    stream: str = "batches",
    checkpoint: str = "training",
    momentum: float = 0.9,
    annealing: str = "epoch",
    annealing_epochs: int | None = None,
) -> int:
    """Train by SGD on the squared error with cosine annealing; return the number of steps.

    The step size has fallen to zero after `annealing_epochs`, by default all of them; it would rise
    again, see `cosine_rate`.
    """
    p = run.parameters
    per_epoch = steps_per_epoch(len(x), p.batch_size)
    steps = epochs * per_epoch
    trained = [w for w in model.parameters() if w.requires_grad]
    told: dict[str, Any] = {**run.training(steps, checkpoint), "batches": run.torch_stream(stream)}
    train(
        model,
        x,
        y,
        loss=mse,
        optimizer=torch.optim.SGD(trained, lr=p.learning_rate, momentum=momentum),
        **told,
        batch_size=p.batch_size,
        schedule=cosine_rate(
            (annealing_epochs or epochs) * per_epoch, per_epoch if annealing == "epoch" else 1
        ),
    )
    return steps
