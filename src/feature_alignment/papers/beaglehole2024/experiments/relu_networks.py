"""ReLU networks without biases, their layers, and samples to train them on."""

from collections.abc import Sequence

import torch
from torch import nn

from feature_alignment.errors import UserError
from feature_alignment.models.mlp import MLP
from feature_alignment.pipeline.parameters import Parameters
from feature_alignment.pipeline.run import SeedRun
from feature_alignment.training.speed_limited import SpeedLimited, groups_by_layer

Splits = dict[str, tuple[torch.Tensor, torch.Tensor]]
"""Inputs and targets, (n, …) both, of the splits "train" and "test"."""


def relu_network(
    run: SeedRun[Parameters],
    sizes: Sequence[int],
    layer_scales: Sequence[float] | None = None,
    init: str = "pytorch",
) -> MLP:
    """A new fully connected network.

    Source: beaglehole2024, eq. 1 and Appendix J.

    Sizes are those of inputs, hidden layers and outputs; `layer_scales` are factors on the
    initialisation, input to readout.
    """
    first, *hidden, last = sizes
    generator = run.torch_stream("init")
    model = MLP(first, hidden, last, "relu", False, generator, init, layer_scales, dtype=run.dtype)
    return model.to(run.device)


def hidden_layers(number: int) -> list[str]:
    """Names of a fully connected network's hidden layers.

    Example:
        >>> hidden_layers(2)
        ['layers.0', 'layers.1']
    """
    return [f"layers.{layer}" for layer in range(number)]


def speed_limited(
    model: nn.Module,
    learning_rate: float,
    speeds: Sequence[float],
    epsilon: float,
    relaxation: str = "additive",
) -> SpeedLimited:
    """Speed Limited Optimization of a network.

    Speeds C_ℓ go from input to readout; for ε and its relaxation see `SpeedLimited`.

    Raises:
        UserError: if the number of speeds is not that of the layers, or ε is out of range.
    """
    layers = groups_by_layer(model, 1.0)
    try:
        optimizer = SpeedLimited(layers, learning_rate, epsilon=epsilon, relaxation=relaxation)
        optimizer.set_speeds(speeds)
    except ValueError as error:
        raise UserError(str(error)) from error
    return optimizer


def speeds_against_whole(
    model: nn.Module, speeds: Sequence[float], epsilon: float, relaxation: str
) -> list[float]:
    """Speeds with which SLO's division by each layer's gradient norm becomes one by all's."""
    norms = torch.stack([weight.grad.norm() for weight in model.parameters()])  # pyright: ignore[reportOptionalMemberAccess]: after a backward pass
    added = epsilon if relaxation == "additive" else 0.0
    factors = ((norms + added) / (norms.norm() + added)).tolist()
    return [speed * factor for speed, factor in zip(speeds, factors, strict=True)]
