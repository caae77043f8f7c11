"""ReLU networks without biases, their layers, and samples to train them on."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from feature_alignment.errors import UserError
from feature_alignment.layer_features.feature_covariance import layer_feature_matrices
from feature_alignment.layer_features.feature_matrices import agop_diagonal, nfm_diagonal
from feature_alignment.models.mlp import MLP
from feature_alignment.pipeline.run import SeedRun
from feature_alignment.training.speed_limited import SpeedLimited, groups_by_layer

FIRST_LAYER = "layers.0"
Splits = dict[str, tuple[torch.Tensor, torch.Tensor]]
"""Inputs and targets, (n, …) both, of the splits "train" and "test"."""


def new_network(
    run: SeedRun[Any],
    inputs: int,
    outputs: int,
    scales: Sequence[float] | None = None,
    init: str = "pytorch",
) -> MLP:
    """A new fully connected network with the run's hidden layers.

    `scales` are factors on the initialisation, input to readout.

    Source: beaglehole2024, eq. 1 and Appendix J.
    """
    hidden = [run.parameters.width] * run.parameters.hidden_layers
    generator = run.torch_stream("init")
    model = MLP(inputs, hidden, outputs, "relu", False, generator, init, scales, dtype=run.dtype)
    return model.to(run.device)


def hidden_layers(number: int) -> list[str]:
    """Names of a fully connected network's hidden layers, `layers.0` and so on."""
    return [f"layers.{layer}" for layer in range(number)]


def first_diagonals(
    model: nn.Module, x: torch.Tensor
) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    """Diagonals of the first layer's F = WᵀW, `nfm`, and G = WᵀKW, `agop`, each (d,); W; and K.

    All are float64. The matrices F and G are not formed.
    """
    layer = layer_feature_matrices(model, x, [FIRST_LAYER])[FIRST_LAYER]
    weight, covariance = layer.weight_matrix.double(), layer.covariance.double()
    found = {"nfm": nfm_diagonal(weight), "agop": agop_diagonal(weight, covariance)}
    return found, weight, covariance


def speed_limited(
    model: nn.Module,
    learning_rate: float,
    speeds: Sequence[float],
    epsilon: float,
    relaxation: str = "additive",
    gradient_norm: str = "layer",
) -> SpeedLimited:
    """SLO of a network with speeds C_ℓ from input to readout; for ε see `SpeedLimited`.

    Steps are divided by the norm of each layer's gradient, or of the whole one ("global").

    Raises:
        UserError: if the number of speeds differs from that of the layers, or ε is out of range.
    """
    layers = groups_by_layer(model, 1.0)
    try:
        optimizer = SpeedLimited(layers, learning_rate, 1.0, epsilon, relaxation)
        optimizer.set_speeds(speeds)
    except ValueError as error:
        raise UserError(str(error)) from error
    if gradient_norm == "global":
        optimizer.register_step_pre_hook(lambda *_: limit_whole(optimizer, speeds))
    return optimizer


def limit_whole(optimizer: SpeedLimited, speeds: Sequence[float]) -> None:
    """Let the next step divide by the norm of the whole gradient, not by each layer's."""
    norms = torch.stack([group["params"][0].grad.norm() for group in optimizer.param_groups])
    own = optimizer.defaults
    added = own["epsilon"] if own["relaxation"] == "additive" else 0.0
    factors = ((norms + added) / (norms.norm() + added)).tolist()
    optimizer.set_speeds([speed * factor for speed, factor in zip(speeds, factors, strict=True)])
