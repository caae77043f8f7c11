"""Learning-rate schedules."""

import math
from collections.abc import Callable

from feature_alignment.errors import UserError

LearningRateSchedule = Callable[[int], float]
"""Factor on the learning rate for the update with 0-based index t."""


def constant_rate(t: int) -> float:
    """Factor 1 at every update."""
    return 1.0


def cosine_rate(steps: int, steps_per_epoch: int = 1) -> LearningRateSchedule:
    """Factor ½(1 + cos(π e/E)) with e = ⌊t / steps_per_epoch⌋ finished epochs of E.

    With `steps_per_epoch=1` it falls at every update and would reach 0 after the last. Otherwise it
    is constant in each epoch, like PyTorch's `CosineAnnealingLR(T_max=E)` stepped once per epoch.

    Source: LeJeune & Alemohammad 2024, Appendix B.1 ("a cosine annealing schedule").

    Raises:
        ValueError: if a number is not positive.
    """
    if steps < 1 or steps_per_epoch < 1:
        raise ValueError(
            f"cosine_rate: {steps} steps in epochs of {steps_per_epoch}; both must be positive."
        )
    epochs = math.ceil(steps / steps_per_epoch)

    def factor(t: int) -> float:
        return 0.5 * (1 + math.cos(math.pi * (t // steps_per_epoch) / epochs))

    return factor


def warmup_cosine_rate(steps: int, warmup: int, floor: float) -> LearningRateSchedule:
    """Factor that rises linearly for `warmup` updates, then falls from 1 to `floor` as a cosine.

    (t+1)/(warmup+1) at first, then floor + (1 − floor)·½(1 + cos π(t − warmup)/(steps − warmup)).

    Source: Beaglehole et al. 2024, Appendix J (nanoGPT's default settings).

    Raises:
        UserError: if the warm-up takes the whole run, or `warmup` is negative.
    """
    if not 0 <= warmup < steps:
        raise UserError(
            f"warmup_steps: {warmup} of {steps} steps; leave steps for the training proper."
        )

    def factor(t: int) -> float:
        if t < warmup:
            return (t + 1) / (warmup + 1)
        return floor + (1 - floor) * cosine_rate(steps - warmup)(t - warmup)

    return factor


def slow_start_rate(updates: int, start: float) -> LearningRateSchedule:
    """Factor `start` for the first updates and 1 afterwards.

    Source: Beaglehole et al. 2024, released code (a first epoch at learning rate 1e-4).
    """
    return lambda t: start if t < updates else 1.0
