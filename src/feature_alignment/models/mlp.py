"""Plain feed-forward networks with explicit initial randomness."""

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from feature_alignment.errors import check_choice
from feature_alignment.models.initialisation import check_sizes, new_conv2d, new_linear

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "quadratic": torch.square,
    "erf": torch.erf,
}


class MLP(nn.Module):
    """Fully connected network f(x) = W_L φ(W_{L−1} … φ(W_0 x)), with optional biases.

    h_ℓ = W_ℓ x_ℓ + b_ℓ and x_{ℓ+1} = φ(h_ℓ), with no activation after the last layer; a scalar
    output keeps its axis. Layers are named "layers.0", "layers.1", … from the input.

    Source: Beaglehole et al. 2024, eq. 1, and LeJeune & Alemohammad 2024, Appendix B.1, without
    biases; with them, Baratin et al. 2021 and the released code of LeJeune & Alemohammad.

    Args:
        input_dim: d, the size of one flattened input.
        widths: k of every hidden layer; an empty sequence gives a linear model.
        output_dim: c.
        activation: φ: "relu", "quadratic" (h²) or "erf" (erf(h), unscaled).
        bias: whether every layer has a bias.
        generator: CPU generator of the initial weights, layer by layer from the input.
        init: see `models.initialisation.new_linear`.
        layer_scales: one factor per layer for its initial weight and bias; None for all ones.
        dtype: precision of the parameters.

    Raises:
        ValueError: if a size is below 1, a name is unknown, or there is not one finite scale per
            layer.
    """

    def __init__(
        self,
        input_dim: int,
        widths: Sequence[int],
        output_dim: int,
        activation: str,
        bias: bool,
        generator: torch.Generator,
        init: str = "pytorch",
        layer_scales: Sequence[float] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        check_choice("activation", activation, ACTIVATIONS)
        sizes = [input_dim, *widths, output_dim]
        _check_all(input_dim, widths, output_dim)
        scales = [1.0] * (len(sizes) - 1) if layer_scales is None else list(layer_scales)
        if len(scales) != len(sizes) - 1:
            raise ValueError(
                f"layer_scales: {len(scales)} factors for {len(sizes) - 1} layers; "
                "give one factor per linear layer, the readout included."
            )
        if not all(map(math.isfinite, scales)):
            raise ValueError(f"layer_scales: {scales}; each factor must be finite.")
        self.activation = activation
        self.layers = nn.ModuleList(
            new_linear(d, k, bias=bias, scheme=init, generator=generator, dtype=dtype)
            for d, k in itertools.pairwise(sizes)
        )
        with torch.no_grad():
            for layer, scale in zip(self.layers, scales, strict=True):
                for parameter in layer.parameters():
                    parameter.mul_(scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs f(x): inputs (n, …) with d entries per sample → (n, c)."""
        return self.preactivations(x)[-1]

    def preactivations(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Preactivations h_ℓ (n, k) from input to readout; the last are the outputs (n, c).

        Source: Beaglehole et al. 2024, eq. 1.
        """
        phi = ACTIVATIONS[self.activation]
        first, *others = self.layers
        found = [first(x.flatten(1))]
        for layer in others:
            found.append(layer(phi(found[-1])))
        return found


def _check_all(input_dim: int, widths: Sequence[int], output_dim: int) -> None:
    check_sizes(input_dim=input_dim, output_dim=output_dim)
    for width in widths:
        check_sizes(widths=width)


def sequential_mlp(
    input_dim: int, widths: Sequence[int], output_dim: int, generator: torch.Generator, init: str
) -> nn.Sequential:
    """ReLU network with biases on flattened inputs, with hidden layers of the given widths.

    The CPU generator draws the initial weights, layer by layer from the input; `init` is as for
    `models.initialisation.new_linear`.

    Source: LeJeune & Alemohammad 2024, earlier version, Figure 4 (depth 5, width 128).

    Raises:
        ValueError: if a size is below 1.
    """
    _check_all(input_dim, widths, output_dim)
    options = {"bias": True, "scheme": init, "generator": generator, "dtype": torch.float32}
    sizes, layers = [input_dim, *widths], [nn.Flatten()]
    for d, k in itertools.pairwise(sizes):
        layers += [new_linear(d, k, **options), nn.ReLU()]
    return nn.Sequential(*layers, new_linear(sizes[-1], output_dim, **options))


def small_cnn(
    side: int, in_channels: int, width: int, output_dim: int, generator: torch.Generator, init: str
) -> nn.Sequential:
    """Four 3×3 convolutions with ReLU and average pooling, two hidden dense layers and a readout.

    The convolutions have 1, 2, 4 and 8 times `width` channels, the dense layers 8 times `width`
    units; images are `side` × `side`. `generator` and `init` are as for `sequential_mlp`.

    Source: LeJeune & Alemohammad 2024, earlier version, Figure 4 and released code (width 16).

    Raises:
        ValueError: if the images are too small for four pooling layers, or a size is below 1.
    """
    check_sizes(in_channels=in_channels, width=width, output_dim=output_dim)
    if side < 16:
        raise ValueError(f"side: {side}; four pools need images of at least 16 pixels.")
    options = {"bias": True, "scheme": init, "generator": generator, "dtype": torch.float32}
    layers: list[nn.Module] = []
    for d, k in itertools.pairwise([in_channels, *(width * 2**i for i in range(4))]):
        layers += [new_conv2d(d, k, 3, **options), nn.ReLU(), nn.AvgPool2d(2)]
    hidden = 8 * width
    for d in (hidden * (side // 16) ** 2, hidden):
        layers += [nn.Flatten(), new_linear(d, hidden, **options), nn.ReLU()]
    return nn.Sequential(*layers, new_linear(hidden, output_dim, **options))
