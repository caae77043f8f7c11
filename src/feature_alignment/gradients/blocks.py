"""Work in blocks, so that intermediate results stay small."""

import math
from collections.abc import Iterator, Sequence
from numbers import Real

import numpy as np
import torch

# Numbers in one block of intermediate results; larger ones exceed the processor's cache.
BLOCK = 2**21
DEFAULT_BUDGET = 5 * 2**29
"""Bytes that a kernel or a trace may take by default."""


def whole_bytes(memory_budget: float) -> int:
    """The budget as an integer.

    Raises:
        ValueError: if it is not a finite number of at least 1.
    """
    if not isinstance(memory_budget, Real) or not 1 <= memory_budget < math.inf:
        raise ValueError(f"memory_budget: {memory_budget!r}; give a number of bytes, such as 2e9.")
    return int(memory_budget)


def spans(total: int, step: int) -> Iterator[slice]:
    """Slices of at most `step` that cover range(total): (5, 3) gives 0:3 and 3:5."""
    for start in range(0, total, step):
        yield slice(start, min(start + step, total))


def large_empty(like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """An uninitialised tensor of this shape, with the dtype and device of another.

    On a CPU its memory comes from NumPy, which requests huge pages: these cost less when first
    written to.
    """
    if like.device.type != "cpu":
        return like.new_empty(shape)
    size, aligned = math.prod(shape) * like.element_size(), 64
    memory = torch.from_numpy(np.empty(size + aligned, dtype=np.uint8))
    start = -memory.data_ptr() % aligned  # as in PyTorch, since sums depend on it
    return memory[start : start + size].view(like.dtype).view(*shape)
