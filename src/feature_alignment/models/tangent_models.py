"""Networks that are linear in the tangent features of another network: f_θ₀(x) + ∇f_θ₀(x) δ.

One pass carries each layer's value a at θ₀ and its change ȧ along δ: a layer Wa + b has the change
Wȧ + (δ_W a + δ_b). The values need no gradient, so a step costs little more than the network's own.
"""

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from feature_alignment.errors import check_choice

MODES = ("linearised", "factorised")


class TangentModel(nn.Module):
    """f_θ₀(x) + ∇f_θ₀(x) δ, where δ is trained and θ₀ is not.

    `linearised`: δ itself is trained, starting at 0: fixed tangent features.
    `factorised`: each δ_W = M₂ W M₁ and δ_b = M₂ b, all trained, starting at M = I, W = 0, b = 0:
    adaptive tangent features. Convolutions have one factor each for the window's positions, the
    input channels and the output channels. `updates` has the trained modules by position.

    The network consists of Linear, Conv2d, ReLU, AvgPool2d and Flatten layers; it is copied.

    Source: LeJeune & Alemohammad 2024, earlier version, Figure 4 and released code.

    Raises:
        ValueError: if the network has an unsupported layer or one twice, or the mode is unknown.
    """

    def __init__(self, network: nn.Sequential, mode: str) -> None:
        super().__init__()
        check_choice("mode", mode, MODES)
        self.network = copy.deepcopy(network).requires_grad_(False)
        self.updates = nn.ModuleDict()
        if len(self.network) != len(dict(self.network.named_children())):
            raise ValueError("network: a layer is used twice; give each place a layer of its own.")
        for place, layer in self.network.named_children():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                self.updates[place] = _update(layer, mode)
            elif not isinstance(layer, nn.ReLU | nn.AvgPool2d | nn.Flatten):
                raise ValueError(
                    f"layer {place} is {type(layer).__name__}; linear layers, convolutions, ReLU, "
                    "average pools and flattening are supported."
                )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs (n, c)."""
        return self.from_signals(self.signals(x))

    def signals(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The network's own values at x, which training does not change, for `from_signals`.

        Returns:
            Inputs of layers with weights and derivatives of ReLUs in order, (n, …); then outputs.
        """
        a, kept = x.clone(), []  # a ReLU may work in place
        for layer in self.network:
            before, a = a, layer(a)
            if isinstance(layer, nn.Linear | nn.Conv2d):
                kept.append(before)
            elif isinstance(layer, nn.ReLU):
                kept.append(a.sign())  # as floats, four times as fast to multiply as a > 0
        return [*kept, a]

    def from_signals(self, signals: Sequence[torch.Tensor]) -> torch.Tensor:
        """Outputs (n, c) from the result of `signals`, at about half the cost of `forward`."""
        *kept, outputs = signals
        change, following = None, iter(kept)
        for place, layer in self.network.named_children():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                added = self.updates[place](next(following))
                change = added if change is None else _without_bias(layer, change) + added
            elif isinstance(layer, nn.ReLU):
                derivative = next(following)
                change = None if change is None else change * derivative
            elif change is not None:
                change = layer(change)
        return outputs if change is None else outputs + change

    def deviations(self) -> dict[str, torch.Tensor]:
        """δ_W of every layer by its position, detached, in the shapes of the weights."""
        return {place: _composed(update).detach().clone() for place, update in self.updates.items()}


class _Factorised(nn.Module):
    """The factors of a layer's update, at their start."""

    def __init__(self, layer: nn.Linear | nn.Conv2d) -> None:
        super().__init__()
        k, d, *window = layer.weight.shape
        if isinstance(layer, nn.Conv2d):
            self.window: Any = (layer.stride, layer.padding, layer.dilation)
            self.on_positions = nn.Parameter(torch.eye(math.prod(window)).to(layer.weight))
        self.on_inputs = nn.Parameter(torch.eye(d).to(layer.weight))
        self.weight = nn.Parameter(torch.zeros_like(layer.weight))
        self.bias = nn.Parameter(layer.weight.new_zeros(k))
        self.on_outputs = nn.Parameter(torch.eye(k).to(layer.weight))


class _FactorisedLinear(_Factorised):
    """a ↦ M₂ (W M₁ a + b)."""

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        if len(a) < len(self.weight):  # the cheaper order of the product
            change = F.linear(F.linear(a, self.on_inputs), self.weight, self.bias)
        else:
            change = F.linear(a, self.weight @ self.on_inputs, self.bias)
        return F.linear(change, self.on_outputs)

    def composed(self) -> torch.Tensor:
        """M₂ W M₁."""
        return self.on_outputs @ self.weight @ self.on_inputs


class _FactorisedConvolution(_Factorised):
    """Convolution whose weight and bias have factors for positions, inputs and outputs."""

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        return F.conv2d(a, self.composed(), self.on_outputs @ self.bias, *self.window)

    def composed(self) -> torch.Tensor:
        """The weight with its three factors multiplied in."""
        inner = torch.einsum(
            "kdp,pq,de->keq", self.weight.flatten(2), self.on_positions, self.on_inputs
        )
        return (self.on_outputs @ inner.flatten(1)).view(self.weight.shape)


def _update(layer: nn.Linear | nn.Conv2d, mode: str) -> nn.Module:
    if isinstance(layer, nn.Conv2d) and (layer.groups > 1 or layer.padding_mode != "zeros"):
        raise ValueError("convolutions with groups, or not padded by zeros, are not supported.")
    if layer.bias is None:
        raise ValueError("layers without biases are not supported.")
    if mode == "factorised":
        linear = isinstance(layer, nn.Linear)
        return _FactorisedLinear(layer) if linear else _FactorisedConvolution(layer)
    update = copy.deepcopy(layer).requires_grad_(True)
    for parameter in update.parameters():
        nn.init.zeros_(parameter)
    return update


def _composed(update: nn.Module) -> torch.Tensor:
    if isinstance(update, _FactorisedLinear | _FactorisedConvolution):
        return update.composed()
    return update.get_parameter("weight")


def _without_bias(layer: nn.Linear | nn.Conv2d, change: torch.Tensor) -> torch.Tensor:
    if isinstance(layer, nn.Linear):
        return F.linear(change, layer.weight)
    return F.conv2d(change, layer.weight, None, layer.stride, layer.padding, layer.dilation)
