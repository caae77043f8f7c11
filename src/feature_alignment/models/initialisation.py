"""Initial weights of layers, drawn from an explicit generator.

They are drawn in float64 and then rounded, so that runs in any precision start nearly equal.
"""

import math

import torch
from torch import nn

from feature_alignment.errors import check_choice, check_whole

SCHEMES = ("pytorch", "kaiming", "kaiming_zero_bias", "lecun")

_TRUNCATED_STD = 0.8796256610342398
"""Standard deviation of a standard normal distribution truncated at ±2."""


def new_linear(
    d: int, k: int, *, bias: bool, scheme: str, generator: torch.Generator, dtype: torch.dtype
) -> nn.Linear:
    """Linear layer x ↦ Wx + b of d inputs and k outputs on the CPU; `generator` draws W, then b.

    `pytorch`: W and b from U(±1/√d), the distribution of `nn.Linear` itself.
    `kaiming`: W from N(0, 2/d), b from U(±1/√d).
    `kaiming_zero_bias`: W from N(0, 2/d), b = 0, as in the released code of Baratin et al. 2021.
    `lecun`: W from a normal distribution truncated at two standard deviations, rescaled to variance
    1/d, b = 0: JAX's default, as in the released code of LeJeune & Alemohammad 2024.

    Raises:
        ValueError: if the scheme is unknown.
    """
    # On the meta device the constructor draws nothing from PyTorch's global generator.
    layer = nn.Linear(d, k, bias=bias, device="meta", dtype=dtype)
    _draw_parameters(layer, d, scheme, generator)
    return layer


def new_conv2d(
    d: int,
    k: int,
    size: int,
    *,
    stride: int = 1,
    bias: bool,
    scheme: str,
    generator: torch.Generator,
    dtype: torch.dtype,
) -> nn.Conv2d:
    """Convolution with a square filter of odd size, zero-padded so that stride 1 keeps the size.

    Arguments and schemes are those of `new_linear`, with d and k channels and the fan-in d·size²:
    the number of inputs of one unit at one position, as in PyTorch's own initialisation.

    Raises:
        ValueError: if the scheme is unknown, or the size is even or not positive.
    """
    if size % 2 == 0:
        raise ValueError(f"size: {size} is even; the padding needs a filter of odd size.")
    check_sizes(size=size)
    layer = nn.Conv2d(d, k, size, stride, padding=size // 2, bias=bias, device="meta", dtype=dtype)
    _draw_parameters(layer, d * size**2, scheme, generator)
    return layer


def check_sizes(**sizes: int) -> None:
    """Refuse numbers of units, channels or layers, by name, that are not whole numbers from 1 on.

    Raises:
        ValueError: if one is.
    """
    for name, size in sizes.items():
        check_whole(name, size, 1)


def draw_normal(parameter: torch.Tensor, std: float, generator: torch.Generator) -> None:
    """Overwrite a parameter's entries with draws from N(0, std²)."""
    with torch.no_grad():
        parameter.copy_(_normal(parameter.shape, std, generator))


def _draw_parameters(
    layer: nn.Linear | nn.Conv2d, fan_in: int, scheme: str, generator: torch.Generator
) -> None:
    check_choice("init", scheme, SCHEMES)
    bound = 1 / math.sqrt(fan_in)
    if scheme == "pytorch":
        weight = _uniform(layer.weight.shape, bound, generator)
    elif scheme == "lecun":
        # Truncated at ±2 and rescaled, since truncation makes the deviation smaller.
        limit = math.erf(2 / math.sqrt(2))
        draws = math.sqrt(2) * torch.erfinv(_uniform(layer.weight.shape, limit, generator))
        weight = bound / _TRUNCATED_STD * draws
    else:
        weight = _normal(layer.weight.shape, math.sqrt(2 / fan_in), generator)
    dtype = layer.weight.dtype
    # New parameters, since `to_empty` would import a compiler: seconds at every process's start.
    layer.weight = nn.Parameter(weight.to(dtype))
    if layer.bias is not None:
        zero = scheme in ("kaiming_zero_bias", "lecun")
        bias = _uniform(layer.bias.shape, 0 if zero else bound, generator)
        layer.bias = nn.Parameter(bias.to(dtype))


def _uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator) -> torch.Tensor:
    return bound * (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1)


def _normal(shape: tuple[int, ...], std: float, generator: torch.Generator) -> torch.Tensor:
    return std * torch.randn(shape, generator=generator, dtype=torch.float64)
