"""Plain feed-forward networks as `nn.Sequential`, whose layers can be taken one after the other."""

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from feature_alignment.models.initialisation import new_conv2d, new_linear


def sequential_mlp(
    input_dim: int, widths: Sequence[int], output_dim: int, generator: torch.Generator, init: str
) -> nn.Sequential:
    """ReLU network with biases on flattened inputs, with hidden layers of the given widths.

    The CPU generator draws the initial weights, layer by layer from the input; `init` is as for
    `models.initialisation.new_linear`.

    Source: LeJeune & Alemohammad 2024, earlier version, Figure 4 (depth 5, width 128).
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for d, k in itertools.pairwise([input_dim, *widths]):
        layers += [_linear(d, k, generator, init), nn.ReLU()]
    return nn.Sequential(*layers, _linear([input_dim, *widths][-1], output_dim, generator, init))


def small_cnn(
    side: int, in_channels: int, width: int, output_dim: int, generator: torch.Generator, init: str
) -> nn.Sequential:
    """Four 3×3 convolutions with ReLU and average pools, two hidden dense layers and a readout.

    Channels are 1, 2, 4 and 8 times the width, the dense layers 8 times the width; the images have
    `side` pixels in height and width. `generator` and `init` are as for `sequential_mlp`.

    Source: LeJeune & Alemohammad 2024, earlier version, Figure 4 and released code (width 16).

    Raises:
        ValueError: if the images are too small for four pools.
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
