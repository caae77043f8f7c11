"""Schedules: the steps at which a run is measured, 0 before the first update; learning rates."""

import math
from collections.abc import Callable

from feature_alignment.errors import UserError, check_whole

LearningRateSchedule = Callable[[int], float]
"""Factor on the learning rate for the update with 0-based index t."""


def every(k: int, steps: int) -> list[int]:
    """Steps 0, k, 2k, … up to `steps`, and `steps` itself.

    Raises:
        UserError: if k is not positive, or `steps` is negative.
    """
    check_whole("steps", steps, 0)
    if k < 1:
        raise UserError(f"measure_at: every {k} steps is not possible; give at least 1.")
    return sorted({*range(0, steps + 1, k), steps})


def geometric(steps: int, first: float = 5, ratio: float = 1.15) -> list[int]:
    """Step 0 and the distinct integer parts of first · ratioʲ, j = 0, 1, …, up to `steps`.

    Source: Baratin et al. 2021, released code, which measures nothing before the first update.

    Raises:
        UserError: if `first` is below 1, `ratio` is not above 1, or one is not finite.
    """
    if not (1 <= first < math.inf and 1 < ratio < math.inf):
        raise UserError(
            f"measure_at: first {first} and ratio {ratio} do not make a growing schedule; "
            "give first at least 1 and ratio above 1."
        )
    chosen = {0}
    position = float(first)
    while int(position) <= steps:
        chosen.add(int(position))
        position *= ratio
    return sorted(chosen)


def constant_rate(t: int) -> float:
    """Factor 1 at every update."""
    return 1.0


def cosine_rate(steps: int, steps_per_epoch: int = 1) -> LearningRateSchedule:
    """Factor ½(1 + cos(π e/E)) with e = ⌊t / steps_per_epoch⌋ finished epochs of E.

    With `steps_per_epoch=1` it falls at every update and would reach 0 after the last. Otherwise it
    is constant in each epoch, like PyTorch's `CosineAnnealingLR(T_max=E)` stepped once per epoch.
    In longer trainings it rises again after E epochs, and has period 2E.

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
        raise UserError(f"warmup_steps: {warmup} of {steps} steps; leave some to the training.")

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
