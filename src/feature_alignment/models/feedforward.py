"""Plain feed-forward networks as `nn.Sequential`, whose layers can be taken one after the other."""

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from feature_alignment.models.initialisation import new_conv2d, new_linear


def sequential_mlp(
    input_dim: int, widths: Sequence[int], output_dim: int, generator: torch.Generator, init: str
) -> nn.Sequential:
    """ReLU network with biases on flattened inputs.

    Source: LeJeune & Alemohammad 2024, earlier version, Figure 4 (depth 5, width 128).

    Args:
        input_dim: d, the size of one flattened input.
        widths: k of every hidden layer.
        output_dim: c.
        generator: CPU generator of the initial weights, layer by layer from the input.
        init: see `models.initialisation.new_linear`.

    Example:
        >>> sequential_mlp(4, [3], 2, torch.Generator(), "lecun")(torch.ones(5, 2, 2)).shape
        torch.Size([5, 2])
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for d, k in itertools.pairwise([input_dim, *widths]):
        layers += [_linear(d, k, generator, init), nn.ReLU()]
    return nn.Sequential(*layers, _linear([input_dim, *widths][-1], output_dim, generator, init))


def small_cnn(
    side: int, in_channels: int, width: int, output_dim: int, generator: torch.Generator, init: str
) -> nn.Sequential:
    """Four 3×3 convolutions with ReLU and average pools, two hidden dense layers and a readout.

    Channels are 1, 2, 4 and 8 times the width, the dense layers 8 times the width.

    Source: LeJeune & Alemohammad 2024, earlier version, Figure 4 and released code (width 16).

    Args:
        side: height and width of the images, at least 16.
        in_channels: channels of the images.
        width: channels of the first convolution.
        output_dim: c.
        generator: CPU generator of the initial weights, layer by layer from the input.
        init: see `models.initialisation.new_conv2d`.

    Raises:
        ValueError: if the images are too small for four pools.

    Example:
        >>> model = small_cnn(16, 3, 2, 10, torch.Generator(), "lecun")
        >>> model(torch.ones(5, 3, 16, 16)).shape
        torch.Size([5, 10])
    """
    if side < 16:
        raise ValueError(f"side: {side}; four pools need images of at least 16 pixels.")
    layers: list[nn.Module] = []
    for d, k in itertools.pairwise([in_channels, *(width * 2**i for i in range(4))]):
        draw = {"bias": True, "scheme": init, "generator": generator, "dtype": torch.float32}
        layers += [new_conv2d(d, k, 3, **draw), nn.ReLU(), nn.AvgPool2d(2)]
    hidden = 8 * width
    for d in (hidden * (side // 16) ** 2, hidden):
        layers += [nn.Flatten(), _linear(d, hidden, generator, init), nn.ReLU()]
    return nn.Sequential(*layers, _linear(hidden, output_dim, generator, init))


def _linear(d: int, k: int, generator: torch.Generator, init: str) -> nn.Linear:
    return new_linear(d, k, bias=True, scheme=init, generator=generator, dtype=torch.float32)
