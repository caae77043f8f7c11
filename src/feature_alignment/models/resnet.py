"""ResNet18 for small images, with explicit initial randomness."""

from typing import Any

import torch
from torch import nn

from feature_alignment.models.initialisation import check_sizes, new_conv2d, new_linear

# Channels in units of the base width, and stride, of the first block of each stage.
STAGES = ((1, 1), (2, 2), (4, 2), (8, 2))


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut: x ↦ ReLU(N(conv(ReLU(N(conv x)))) + S(x)).

    N is batch norm or the identity; S is the identity or, if the shape changes, N(1×1 conv x).
    """

    def __init__(
        self, d: int, k: int, stride: int, batch_norm: bool, options: dict[str, Any]
    ) -> None:
        super().__init__()
        dtype = options["dtype"]
        self.conv1 = new_conv2d(d, k, 3, stride=stride, **options)
        self.norm1 = _norm(k, batch_norm, dtype)
        self.conv2 = new_conv2d(k, k, 3, **options)
        self.norm2 = _norm(k, batch_norm, dtype)
        self.shortcut = nn.Sequential()
        if stride != 1 or d != k:
            self.shortcut = nn.Sequential(
                new_conv2d(d, k, 1, stride=stride, **options), _norm(k, batch_norm, dtype)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps (n, d, height, width) to (n, k, height/stride, width/stride)."""
        h = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(h)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet18 in its CIFAR form: a 3×3 stem without pooling, four stages of two residual blocks.

    With batch norm, convolutions have no biases: the norm's shift takes their place. Layers are
    named "stem", "stages.0.0.conv1", …, and "head", the readout from the mean over positions.

    Source: Baratin et al. 2021, Section 3.1 and Figure 11.

    Args:
        base_width: channels of the stem; 64 is the published size.
        output_dim: c.
        generator: CPU generator of the initial weights, in the order of the layers.
        bias: whether the readout has a bias and, without batch norm, the convolutions.
        batch_norm: whether a batch norm with scale and shift follows every convolution.
        init: see `models.initialisation.new_linear`.

    Raises:
        ValueError: if a size is not positive or the scheme is unknown.
    """

    def __init__(
        self,
        base_width: int,
        output_dim: int,
        generator: torch.Generator,
        bias: bool = True,
        batch_norm: bool = True,
        in_channels: int = 3,
        init: str = "pytorch",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        check_sizes(base_width=base_width, output_dim=output_dim, in_channels=in_channels)
        options: dict[str, Any] = {"scheme": init, "generator": generator, "dtype": dtype}
        convolution = {"bias": bias and not batch_norm, **options}
        self.stem = new_conv2d(in_channels, base_width, 3, **convolution)
        self.stem_norm = _norm(base_width, batch_norm, dtype)
        stages: list[nn.Module] = []
        d = base_width
        for multiple, stride in STAGES:
            k = multiple * base_width
            first = ResidualBlock(d, k, stride, batch_norm, convolution)
            stages.append(nn.Sequential(first, ResidualBlock(k, k, 1, batch_norm, convolution)))
            d = k
        self.stages = nn.Sequential(*stages)
        self.head = new_linear(d, output_dim, bias=bias, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs f(x): images (n, in_channels, height, width) → (n, c)."""
        h = torch.relu(self.stem_norm(self.stem(x)))
        h = self.stages(h)  # (n, 8·base_width, height/8, width/8)
        return self.head(h.mean(dim=(2, 3)))  # (n, c)


def _norm(k: int, batch_norm: bool, dtype: torch.dtype) -> nn.Module:
    return nn.BatchNorm2d(k, dtype=dtype) if batch_norm else nn.Identity()
