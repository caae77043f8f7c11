"""The tangent kernel, in total and by layer, and the tangent features themselves.

Rows of everything here run over samples and outputs with the sample first: the entry of sample i
and output y has index i·c + y.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from feature_alignment.kernels.layer_signals import LayerSignals, layer_signals


@dataclass(frozen=True)
class TangentKernel:
    """Gram matrix of tangent features between two sets of samples.

    Attributes:
        layers: the Gram matrix of each layer's features by layer name, each (n·c, n₂·c), in
            units of f² per parameter².
        outputs: c, the number of outputs.
    """

    layers: dict[str, torch.Tensor]
    outputs: int

    @property
    def total(self) -> torch.Tensor:
        """The kernel of all parameters, the sum over layers: (n·c, n₂·c)."""
        return torch.stack(list(self.layers.values())).sum(0)


def tangent_kernel(
    model: nn.Module,
    x: torch.Tensor,
    x2: torch.Tensor | None = None,
    parameters: Mapping[str, torch.Tensor] | None = None,
) -> TangentKernel:
    """Tangent kernel k_w(x_i, y; x_j, y') = ⟨∇_w f_y(x_i), ∇_w f_y'(x_j)⟩ of every layer.

    By layer it is Σ_k δ_ik δ_jk · (a_i·a_j + 1), the 1 for a bias only, so that no feature vector
    is ever formed.

    Source: baratin2021, eq. 1 and Section 3.3 (sum over layers); beaglehole2024, Proposition 12.

    Args:
        model: see `layer_signals` for the models that are supported.
        x: inputs (n, …).
        x2: inputs (n₂, …) of the kernel's columns; None for x.
        parameters: values by parameter name to evaluate the model at; None for its own.

    Returns:
        The Gram matrices (n·c, n₂·c).

    Raises:
        ValueError: if the model is not supported.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> tangent_kernel(model, torch.tensor([[3.0, 4.0]])).total
        tensor([[26.]])
    """
    first = layer_signals(model, x, parameters)
    second = first if x2 is None else layer_signals(model, x2, parameters)
    outputs = next(iter(first.values())).gradients.shape[1]
    return TangentKernel({name: _gram(first[name], second[name]) for name in first}, outputs)


def tangent_features(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Tangent features Φ_w(x) = ∇_w f_w(x), explicitly.

    n·c·p numbers: for small networks. The kernel does not need them.

    Source: baratin2021, eq. 1.

    Args:
        model: see `layer_signals` for the models that are supported.
        x: inputs (n, …).

    Returns:
        Features (n, c, p), parameters in the order of `model.parameters()`, units of f per
        parameter.

    Raises:
        ValueError: if the model is not supported.
    """
    signals = layer_signals(model, x)
    return torch.cat([layer_features(signal) for signal in signals.values()], dim=2)


def layer_features(signal: LayerSignals) -> torch.Tensor:
    """Tangent features of one layer, weight entries row by row, then the bias: (n, c, p_ℓ)."""
    n, c, k = signal.gradients.shape
    d = signal.inputs.shape[1]
    weight = signal.gradients[:, :, :, None] * signal.inputs[:, None, None, :]  # (n, c, k, d)
    weight = weight.reshape(n, c, k * d)
    return torch.cat([weight, signal.gradients], dim=2) if signal.has_bias else weight


def _gram(first: LayerSignals, second: LayerSignals) -> torch.Tensor:
    n, c, k = first.gradients.shape
    n2 = second.gradients.shape[0]
    gradients = first.gradients.reshape(n * c, k) @ second.gradients.reshape(n2 * c, k).T
    inputs = first.inputs @ second.inputs.T  # (n, n2)
    if first.has_bias:
        inputs = inputs + 1
    product = gradients.view(n, c, n2, c) * inputs[:, None, :, None]
    return product.reshape(n * c, n2 * c)
