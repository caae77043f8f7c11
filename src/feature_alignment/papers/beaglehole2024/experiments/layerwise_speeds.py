"""Speed Limited Optimization with a speed for each weight matrix."""

from collections.abc import Sequence

from torch import nn

from feature_alignment.errors import UserError
from feature_alignment.training.speed_limited import SpeedLimited


def speed_limited(
    model: nn.Module,
    learning_rate: float,
    speeds: Sequence[float],
    epsilon: float,
    relaxation: str = "additive",
) -> SpeedLimited:
    """The optimizer of a network without biases, each of whose weight matrices is a layer.

    Args:
        model: the network.
        learning_rate: η.
        speeds: C_ℓ, input to readout.
        epsilon: see `SpeedLimited`.
        relaxation: see `SpeedLimited`.

    Raises:
        UserError: if the number of speeds is not that of the layers, or ε is out of range.
    """
    weights = list(model.parameters())
    if len(speeds) != len(weights):
        raise UserError(f"speeds: {len(speeds)} speeds for {len(weights)} layers; give one each.")
    groups = [{"params": [w], "speed": s} for w, s in zip(weights, speeds, strict=True)]
    try:
        return SpeedLimited(groups, learning_rate, epsilon=epsilon, relaxation=relaxation)
    except ValueError as error:
        raise UserError(str(error)) from error
