"""Weights of a model's outputs, for backward passes that take all samples at once."""

from collections.abc import Iterator

import torch


def one_hot_cotangents(f: torch.Tensor) -> Iterator[torch.Tensor]:
    """The c cotangents (n, c) that pick one output each, for all samples, in order."""
    for y in range(f.shape[1]):
        cotangent = torch.zeros_like(f)
        cotangent[:, y] = 1
        yield cotangent


def random_sign_cotangents(
    f: torch.Tensor, number: int, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """Cotangents (n, c) of independent ±1/√number: Σ v vᵀ is the identity in expectation."""
    for _ in range(number):
        # Drawn on the CPU, so that every device sees the same signs.
        signs = 2 * torch.randint(2, f.shape, generator=generator) - 1
        yield signs.to(f) / number**0.5
