"""VGG networks for small images, with explicit initial randomness."""

import torch
from torch import nn

from feature_alignment.errors import check_choice
from feature_alignment.models.initialisation import check_sizes, new_conv2d, new_linear

# Channels of each convolution in units of the base width; 0 stands for a 2×2 max pool.
PLANS: dict[int, tuple[int, ...]] = {
    11: (1, 0, 2, 0, 4, 4, 0, 8, 8, 0, 8, 8, 0),
    19: (1, 1, 0, 2, 2, 0, 4, 4, 4, 4, 0, 8, 8, 8, 8, 0, 8, 8, 8, 8, 0),
}
HEADS = ("linear", "two_hidden")
SMALLEST_SIDE = 32


class SeededDropout(nn.Dropout):
    """Dropout with masks drawn from its own generator instead of PyTorch's global one.

    In training mode each entry is zeroed with probability p, in [0, 1), and the others are divided
    by 1 − p; in evaluation mode inputs pass unchanged. A copy of the module restarts from the first
    mask. The `seed` of the masks is drawn from the given CPU generator.

    Raises:
        ValueError: if p is not in [0, 1).
    """

    def __init__(self, p: float, generator: torch.Generator) -> None:
        if not 0 <= p < 1:
            raise ValueError(f"p: {p} is not a probability in [0, 1).")
        super().__init__(p)
        self.seed = int(torch.randint(2**62, (), generator=generator))
        self._masks = torch.Generator().manual_seed(self.seed)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Inputs of any shape → the same shape, with entries dropped in training mode."""
        if not self.training:
            return input
        # Drawn on the CPU, so that every device sees the same masks.
        kept = torch.rand(input.shape, generator=self._masks, dtype=torch.float64) >= self.p
        return input * kept.to(input) / (1 - self.p)

    def get_extra_state(self) -> torch.Tensor:
        """The state of the masks' generator, as part of `state_dict`."""
        return self._masks.get_state()

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Resume the masks from a saved state."""
        self._masks.set_state(state)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_masks"}

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)
        self._masks = torch.Generator().manual_seed(self.seed)


class VGG(nn.Module):
    """VGG11 or VGG19: 3×3 convolutions with ReLU and max pooling, then a head on the spatial mean.

    The head `linear` is one Linear(8·base_width, c), as for CIFAR-10 in the released code of
    Baratin et al. 2021 (512 units at full width). The head `two_hidden` has two ReLU layers of
    64·base_width units with dropout before the readout, torchvision's layout (4096 units at full
    width) on features pooled to 1×1, as in the released code of Beaglehole et al. 2024. Layers are
    named by position: "features.0", …, "head.0", …

    Source: Baratin et al. 2021, Section 3.1 (VGG19) and Figure 7 (VGG11); Beaglehole et al. 2024,
    Appendix J and Figure 2 (VGG11 without batch norm).

    Args:
        depth: 11 or 19.
        base_width: channels of the first convolution; 64 is the published size.
        output_dim: c.
        generator: CPU generator of the initial weights, in the order of the layers.
        bias: whether convolutions and linear layers have biases.
        batch_norm: whether a batch norm with scale and shift follows every convolution.
        head: one of `HEADS`.
        dropout: dropout probability in the head `two_hidden`, in [0, 1).
        init: see `models.initialisation.new_linear`.

    Raises:
        ValueError: if the depth or a name is unknown, a size is below 1, or dropout not in [0, 1).
    """

    def __init__(
        self,
        depth: int,
        base_width: int,
        output_dim: int,
        generator: torch.Generator,
        bias: bool = True,
        batch_norm: bool = False,
        head: str = "linear",
        dropout: float = 0.5,
        in_channels: int = 3,
        init: str = "pytorch",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        check_choice("depth", str(depth), map(str, PLANS))
        check_choice("head", head, HEADS)
        check_sizes(base_width=base_width, output_dim=output_dim, in_channels=in_channels)
        options = {"bias": bias, "scheme": init, "generator": generator, "dtype": dtype}
        features: list[nn.Module] = []
        d = in_channels
        for multiple in PLANS[depth]:
            if multiple == 0:
                features.append(nn.MaxPool2d(2))
                continue
            k = multiple * base_width
            norm = [nn.BatchNorm2d(k, dtype=dtype)] if batch_norm else []
            features += [new_conv2d(d, k, 3, **options), *norm, nn.ReLU()]
            d = k
        self.features = nn.Sequential(*features)
        hidden: list[nn.Module] = []
        for _ in range(2 if head == "two_hidden" else 0):
            hidden += [new_linear(d, 64 * base_width, **options), nn.ReLU()]
            hidden.append(SeededDropout(dropout, generator))
            d = 64 * base_width
        self.head = nn.Sequential(*hidden, new_linear(d, output_dim, **options))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs f(x): images (n, in_channels, height, width) → (n, c).

        Raises:
            ValueError: if a side of the images is shorter than 32 pixels.
        """
        if min(x.shape[-2:]) < SMALLEST_SIDE:
            raise ValueError(
                f"images of {x.shape[-2]}×{x.shape[-1]} pixels vanish in five 2×2 pools; "
                f"each side must have at least {SMALLEST_SIDE}: pad or resize them."
            )
        h = self.features(x)  # (n, 8·base_width, height/32, width/32)
        return self.head(h.mean(dim=(2, 3)))  # (n, c)
