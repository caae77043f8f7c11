"""Gradient flow dθ/dt = −∇L integrated over short times, forwards or backwards."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

Loss = Callable[[Callable[..., torch.Tensor]], torch.Tensor]
"""L as a function of the network, which takes inputs to outputs."""


def flow(model: nn.Module, loss: Loss, time: float) -> dict[str, torch.Tensor]:
    """The parameters after a short time of gradient flow, by one step of Runge-Kutta.

    The classic fourth-order method, with an error of O(time⁵).

    Source: beaglehole2024, eq. 5 (the flow).

    Args:
        model: at time 0; it is not changed.
        loss: L.
        time: may be negative.

    Returns:
        The parameters at that time, by name.

    Example:
        For L = θ²/2 the flow is θ(t) = θ(0) e^(−t).

        >>> model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
        >>> _ = model.weight.data.fill_(1.0)
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> weight = flow(model, lambda f: (f(one) ** 2).sum() / 2, 0.01)["weight"]
        >>> bool(abs(weight - 0.99004983) < 1e-8)
        True
    """
    start = {name: value.detach() for name, value in model.named_parameters()}

    def velocity(at: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        at = {name: value.detach().requires_grad_() for name, value in at.items()}
        value = loss(partial(torch.func.functional_call, model, at))
        gradients = torch.autograd.grad(value, list(at.values()))
        return {name: -g for name, g in zip(at, gradients, strict=True)}

    def moved(by: dict[str, torch.Tensor], step: float) -> dict[str, torch.Tensor]:
        return {name: value + step * by[name] for name, value in start.items()}

    first = velocity(start)
    second = velocity(moved(first, time / 2))
    third = velocity(moved(second, time / 2))
    fourth = velocity(moved(third, time))
    return {
        name: start[name]
        + time / 6 * (first[name] + 2 * (second[name] + third[name]) + fourth[name])
        for name in start
    }
