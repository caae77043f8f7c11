"""Initial weights of linear layers, drawn from an explicit generator.

Numbers are drawn in float64 and then rounded, so that runs of any precision start from the same
weights up to rounding.
"""

import math

import torch
from torch import nn

from feature_alignment.errors import suggestion

SCHEMES = ("pytorch", "kaiming")


def new_linear(
    d: int, k: int, *, bias: bool, scheme: str, generator: torch.Generator, dtype: torch.dtype
) -> nn.Linear:
    """Linear layer x ↦ Wx + b with initial values drawn from `generator`.

    `pytorch`: W and b from U(±1/√d), the distribution of `nn.Linear` itself.
    `kaiming`: W from N(0, 2/d), b from U(±1/√d).

    Args:
        d: inputs of the layer (its fan-in).
        k: outputs of the layer.
        bias: whether the layer has b.
        scheme: one of `SCHEMES`.
        generator: CPU generator; the weight is drawn before the bias.
        dtype: precision of the parameters.

    Returns:
        The layer, on the CPU: weight (k, d), bias (k,) or None.

    Raises:
        ValueError: if the scheme is unknown.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"init: {scheme!r} is not a scheme; {suggestion(scheme, SCHEMES)}.")
    # On the meta device the constructor draws nothing from PyTorch's global generator.
    layer = nn.Linear(d, k, bias=bias, device="meta", dtype=dtype).to_empty(device="cpu")
    bound = 1 / math.sqrt(d)
    with torch.no_grad():
        if scheme == "pytorch":
            weight = _uniform((k, d), bound, generator)
        else:
            weight = math.sqrt(2 / d) * torch.randn(
                (k, d), generator=generator, dtype=torch.float64
            )
        layer.weight.copy_(weight)
        if bias:
            layer.bias.copy_(_uniform((k,), bound, generator))
    return layer


def _uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator) -> torch.Tensor:
    return bound * (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1)
