"""The networks that the tangent-kernel benchmark runs on, by name and width."""

from collections.abc import Callable

import torch
from torch import nn

from feature_alignment.models.gpt import GPT
from feature_alignment.models.mlp import MLP
from feature_alignment.models.resnet import ResNet18
from feature_alignment.models.vgg import VGG


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _gpt(width: int) -> nn.Module:
    """Four blocks, 27 characters; the outputs are the next character's logits."""
    return GPT(27, 4, 4, width, 64, _seeded(), tie_weights=False, outputs="last_position")


# By name: the network of some width, n inputs for it, and its number of outputs.
MODELS: dict[str, tuple[Callable[[int], nn.Module], Callable[[int], torch.Tensor], int]] = {
    "MLP": (
        lambda width: MLP(784, [width] * 5, 10, "relu", True, _seeded()),
        lambda n: torch.randn(n, 784),
        10,
    ),
    "VGG19": (lambda width: VGG(19, width, 10, _seeded()), lambda n: torch.randn(n, 3, 32, 32), 10),
    "ResNet18": (
        lambda width: ResNet18(width, 10, _seeded()).eval(),
        lambda n: torch.randn(n, 3, 32, 32),
        10,
    ),
    "GPT": (_gpt, lambda n: torch.randint(27, (n, 64)), 27),
}
