"""Gradient flow dθ/dt = −∇L integrated over short times, forwards or backwards."""

from collections.abc import Callable

import torch
from torch import nn


def flow(
    model: nn.Module, loss: Callable[[nn.Module], torch.Tensor], time: float
) -> dict[str, torch.Tensor]:
    """The parameters after a short time of gradient flow, by one step of Runge-Kutta.

    The classic fourth-order method, with an error of O(time⁵).

    Source: beaglehole2024, eq. 5 (the flow).

    Args:
        model: at time 0; it is not changed.
        loss: L as a function of the model.
        time: may be negative.

    Returns:
        The parameters at that time, by name.

    Example:
        For L = θ²/2 the flow is θ(t) = θ(0) e^(−t).

        >>> model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
        >>> _ = model.weight.data.fill_(1.0)
        >>> weight = flow(model, lambda m: (m.weight**2).sum() / 2, 0.01)["weight"]
        >>> bool(abs(weight - 0.99004983) < 1e-8)
        True
    """
    start = {name: value.detach().clone() for name, value in model.named_parameters()}

    def velocity(at: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(at[name])
        gradients = torch.autograd.grad(loss(model), list(model.parameters()))
        return {name: -g for name, g in zip(at, gradients, strict=True)}

    def moved(by: dict[str, torch.Tensor], step: float) -> dict[str, torch.Tensor]:
        return {name: value + step * by[name] for name, value in start.items()}

    try:
        first = velocity(start)
        second = velocity(moved(first, time / 2))
        third = velocity(moved(second, time / 2))
        fourth = velocity(moved(third, time))
    finally:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(start[name])
    return {
        name: start[name]
        + time / 6 * (first[name] + 2 * (second[name] + third[name]) + fourth[name])
        for name in start
    }
