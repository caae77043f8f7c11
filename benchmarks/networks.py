"""Networks that the benchmarks run on: plain PyTorch, so that every way of measuring takes them."""

import itertools
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F


def mlp(width: int) -> nn.Module:
    """Five hidden layers on flattened 28×28 images."""
    sizes = [784, *[width] * 5]
    layers = [layer for d, k in itertools.pairwise(sizes) for layer in (nn.Linear(d, k), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def vgg19(base: int) -> nn.Module:
    """VGG19 for CIFAR; base 64 is the full network of 20.0 M parameters."""
    layers: list[nn.Module] = []
    channels = 3
    for stage, (factor, depth) in enumerate(((1, 2), (2, 2), (4, 4), (8, 4), (8, 4))):
        layers += [nn.MaxPool2d(2)] if stage else []
        for _ in range(depth):
            layers += [nn.Conv2d(channels, factor * base, 3, padding=1), nn.ReLU()]
            channels = factor * base
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(channels, 10))


class Block(nn.Module):
    """Basic residual block."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1:
            convolution = nn.Conv2d(inside, outside, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(outside))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images to images."""
        h = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(h + self.shortcut(x))


def resnet18(base: int) -> nn.Module:
    """ResNet18 for CIFAR, batch norm in evaluation mode; base 64 is the full network."""
    blocks: list[nn.Module] = []
    channels = base
    for stage in range(4):
        for repeat in range(2):
            outside = base * 2**stage
            blocks.append(Block(channels, outside, 2 if stage and not repeat else 1))
            channels = outside
    stem = (nn.Conv2d(3, base, 3, padding=1, bias=False), nn.BatchNorm2d(base), nn.ReLU())
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    return nn.Sequential(*stem, *blocks, *head).eval()


class TransformerBlock(nn.Module):
    """Pre-norm attention and MLP with separate q, k, v."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sequences (n, T, width) to sequences."""
        h = self.norm1(x)
        q, k, v = (
            layer(h).unflatten(2, (4, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Four blocks, 27 characters; the outputs are the next character's logits."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(27, width), nn.Embedding(64, width)
        self.blocks = nn.Sequential(*(TransformerBlock(width) for _ in range(4)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 27, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (n, T) to logits (n, 27)."""
        h = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(h))[:, -1])


# By name: the network of some width, n inputs for it, and its number of outputs.
MODELS: dict[str, tuple[Callable[[int], nn.Module], Callable[[int], torch.Tensor], int]] = {
    "MLP": (mlp, lambda n: torch.randn(n, 784), 10),
    "VGG19": (vgg19, lambda n: torch.randn(n, 3, 32, 32), 10),
    "ResNet18": (resnet18, lambda n: torch.randn(n, 3, 32, 32), 10),
    "GPT": (GPT, lambda n: torch.randint(27, (n, 64)), 27),
}
