"""Mini-batches: epochs of random permutations, drawn from an explicit generator."""

import math
from collections.abc import Iterator

import torch


def steps_per_epoch(n: int, batch_size: int, drop_incomplete: bool = False) -> int:
    """Updates in one epoch of n examples.

    Example:
        >>> steps_per_epoch(10, 4), steps_per_epoch(10, 4, drop_incomplete=True)
        (3, 2)
    """
    return n // batch_size if drop_incomplete else math.ceil(n / batch_size)


def epoch_batches(
    n: int, batch_size: int, generator: torch.Generator, drop_incomplete: bool = False
) -> Iterator[torch.Tensor]:
    """Endless mini-batches: every epoch visits all examples in a new random order.

    Args:
        n: number of examples.
        batch_size: examples per batch.
        generator: CPU generator of the permutations, one per epoch.
        drop_incomplete: leave out the last batch of an epoch when it has fewer examples;
            otherwise it is used as it is, so that every example is seen once per epoch.

    Yields:
        Indices (b,) of one batch.

    Raises:
        ValueError: if no batch of that size can be made.
    """
    if batch_size < 1 or (drop_incomplete and batch_size > n):
        raise ValueError(
            f"batch_size: {batch_size} is not possible with {n} examples; "
            f"give a number from 1 to {n}."
        )
    used = n - n % batch_size if drop_incomplete else n
    while True:
        order = torch.randperm(n, generator=generator)
        yield from order[:used].split(batch_size)
