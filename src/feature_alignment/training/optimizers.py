"""Optimizers and learning-rate schedules from the plain settings of a spec."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from feature_alignment.errors import UserError, suggestion
from feature_alignment.training.speed_limited import SpeedLimited

LearningRateSchedule = Callable[[int], float]
"""Factor on the learning rate for the update with 0-based index t."""

# Settings of each optimizer: those that must be given, then those that may be.
_SETTINGS: dict[str, tuple[set[str], set[str]]] = {
    "gd": ({"lr"}, {"weight_decay"}),
    "sgd": ({"lr"}, {"weight_decay"}),
    "momentum": ({"lr", "momentum"}, {"weight_decay"}),
    "adam": ({"lr"}, {"betas", "eps", "weight_decay"}),
    "slo": ({"lr", "speeds"}, {"epsilon", "relaxation"}),
}


def make_optimizer(
    parameters: Iterable[nn.Parameter], settings: dict[str, Any]
) -> torch.optim.Optimizer:
    """The optimizer that a spec describes.

    `gd` and `sgd`: w ← w − lr·g, full batch or mini-batch as the loop is told.
    `momentum`: v ← momentum·v + g, w ← w − lr·v. `adam`: Adam with PyTorch's defaults for `betas`
    and `eps`. `weight_decay` λ (0 if left out) adds λw to g in each of them. `slo`: Speed Limited
    Optimization, see `SpeedLimited`; each parameter is a layer of its own, with one of `speeds`.

    Args:
        parameters: what is trained.
        settings: "name" and that optimizer's settings, for instance
            `{"name": "momentum", "lr": 0.02, "momentum": 0.9}`.

    Returns:
        A fresh PyTorch optimizer.

    Raises:
        UserError: if the name is unknown, or a setting is missing, unknown or out of range.
    """
    options = dict(settings)
    name = options.pop("name", None)
    if name not in _SETTINGS:
        raise UserError(
            f"optimizer.name: {name!r} is not an optimizer; {suggestion(name, _SETTINGS)}."
        )
    required, optional = _SETTINGS[name]
    missing = sorted(required - set(options))
    if missing:
        raise UserError(f"optimizer.{missing[0]}: {name} needs it; add it to the optimizer.")
    unknown = sorted(set(options) - required - optional)
    if unknown:
        raise UserError(
            f"optimizer.{unknown[0]}: not a setting of {name}; "
            f"{suggestion(unknown[0], required | optional)}."
        )
    _check_range("lr", options["lr"], options["lr"] > 0, "above 0")
    if name == "slo":
        return _speed_limited(list(parameters), options)
    decay, momentum = options.get("weight_decay", 0.0), options.get("momentum", 0.0)
    _check_range("weight_decay", decay, decay >= 0, "at least 0")
    _check_range("momentum", momentum, 0 <= momentum < 1, "at least 0 and below 1")
    if name == "adam":
        if "betas" in options:
            options["betas"] = tuple(options["betas"])
        return torch.optim.Adam(parameters, **options)
    return torch.optim.SGD(parameters, **options)


def constant_rate(t: int) -> float:
    """Factor 1 at every update."""
    return 1.0


def cosine_rate(steps: int, steps_per_epoch: int = 1) -> LearningRateSchedule:
    """Factor ½(1 + cos(π e/E)) with e = ⌊t / steps_per_epoch⌋ finished epochs of E.

    With `steps_per_epoch=1` it falls at every update and would reach 0 after the last one. With
    the number of updates in an epoch it is constant within each epoch, which is what PyTorch's
    `CosineAnnealingLR(T_max=E)` does when it is stepped once per epoch.

    Source: lejeune2024, Appendix B.1 ("a cosine annealing schedule").

    Args:
        steps: updates of the whole run.
        steps_per_epoch: updates during which the factor stays the same.

    Returns:
        The factor as a function of the 0-based update index t.

    Raises:
        ValueError: if a number is not positive.

    Example:
        >>> rate = cosine_rate(steps=4)
        >>> [round(rate(t), 3) for t in range(5)]
        [1.0, 0.854, 0.5, 0.146, 0.0]
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
    """Factor that rises linearly for `warmup` updates, then falls from 1 to `floor` by a cosine.

    (t+1)/(warmup+1) at first, then floor + (1 − floor)·½(1 + cos π(t − warmup)/(steps − warmup)).

    Source: beaglehole2024, Appendix J (nanoGPT's default settings).

    Args:
        steps: updates of the whole run.
        warmup: updates of the rise, fewer than `steps`.
        floor: the factor that would be reached after the last update.

    Returns:
        The factor as a function of the 0-based update index t.

    Raises:
        UserError: if the rise takes the whole run.

    Example:
        >>> rate = warmup_cosine_rate(steps=5, warmup=1, floor=0.0)
        >>> [round(rate(t), 3) for t in range(6)]
        [0.5, 1.0, 0.854, 0.5, 0.146, 0.0]
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

    Source: beaglehole2024, released code (a first epoch at learning rate 1e-4).

    Args:
        updates: number of slow updates.
        start: their factor.

    Example:
        >>> rate = slow_start_rate(updates=2, start=0.1)
        >>> [rate(t) for t in range(4)]
        [0.1, 0.1, 1.0, 1.0]
    """
    return lambda t: start if t < updates else 1.0


def _speed_limited(parameters: list[nn.Parameter], options: dict[str, Any]) -> SpeedLimited:
    speeds = options.pop("speeds")
    if len(speeds) != len(parameters):
        raise UserError(
            f"optimizer.speeds: {len(speeds)} speeds for {len(parameters)} layers; give one each."
        )
    groups = [
        {"params": [parameter], "speed": speed}
        for parameter, speed in zip(parameters, speeds, strict=True)
    ]
    try:
        return SpeedLimited(groups, **options)
    except ValueError as error:
        raise UserError(f"optimizer.{error}") from error


def _check_range(key: str, value: float, allowed: bool, text: str) -> None:
    if not allowed:
        raise UserError(f"optimizer.{key}: {value} is out of range; it must be {text}.")
