"""Mini-batches: epochs in random order, and random augmentation of their images."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn import functional

from feature_alignment.errors import check_whole

Augmentation = Callable[[torch.Tensor], torch.Tensor]
"""Changes a batch of inputs but not its shape; must be `Stateful` if it is random."""


def steps_per_epoch(n: int, batch_size: int) -> int:
    """Updates in one epoch of n examples.

    Raises:
        ValueError: if the batch size is not a positive whole number.
    """
    check_whole("batch_size", batch_size, 1)
    return math.ceil(n / batch_size)


def epoch_batches(
    n: int, batch_size: int, generator: torch.Generator, drop_incomplete: bool = False
) -> Iterator[torch.Tensor]:
    """Endless mini-batches, indices (b,): every epoch visits all n examples in a new random order.

    The CPU generator draws one permutation per epoch. `drop_incomplete` omits the last batch of an
    epoch if it has fewer examples.

    Raises:
        ValueError: if there are no examples, or no batch of this size is possible.
    """
    check_whole("n", n, 1)
    if batch_size < 1 or (drop_incomplete and batch_size > n):
        raise ValueError(
            f"batch_size: {batch_size} is not possible with {n} examples; "
            f"give a number from 1 to {n}."
        )
    used = n - n % batch_size if drop_incomplete else n
    while True:
        order = torch.randperm(n, generator=generator)
        yield from order[:used].split(batch_size)


class RandomCropAndFlip:
    """Shift images at random and mirror half of them, the usual augmentation of CIFAR-10.

    Each image is padded with zeros, the mean colour of standardised images, by `padding` pixels on
    each side, cropped to its size at a uniformly random place, and mirrored left to right with
    probability ½. The CPU generator draws both for each image.

    Source: Baratin et al. 2021, released code, which pads with black; not mentioned in the text.

    Raises:
        ValueError: if the padding is not a whole number of at least 0.
    """

    def __init__(self, generator: torch.Generator, padding: int = 4) -> None:
        check_whole("padding", padding, 0)
        self._generator, self._padding = generator, padding

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """New images (b, channels, height, width)."""
        b, _, height, width = x.shape
        generator = self._generator
        places = torch.randint(2 * self._padding + 1, (2, b, 1), generator=generator)
        top, left = places  # each (b, 1)
        mirrored = torch.randint(2, (b, 1), generator=generator).bool()
        rows = top + torch.arange(height)  # (b, height)
        columns = left + torch.arange(width)  # (b, width)
        columns = torch.where(mirrored, columns.flip(1), columns)
        padded = functional.pad(x, (self._padding,) * 4).permute(0, 2, 3, 1)
        index = [part.to(x.device) for part in (torch.arange(b), rows, columns)]
        cut = padded[index[0][:, None, None], index[1][:, :, None], index[2][:, None, :]]
        return cut.permute(0, 3, 1, 2).contiguous()  # from (b, height, width, channels)

    def state_dict(self) -> dict[str, Any]:
        """The generator's state, for a checkpoint."""
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` returned by `state_dict`."""
        self._generator.set_state(state["generator"])
