"""Work in blocks, so that intermediate results stay small."""

import math
from collections.abc import Iterator, Sequence
from numbers import Real

import numpy as np
import torch

# Numbers in one block of intermediate results; more than this leaves the processor's cache.
BLOCK = 2**21


def whole_bytes(memory_budget: float) -> int:
    """A number of bytes.

    Raises:
        ValueError: if it is none.
    """
    if not isinstance(memory_budget, Real) or not 1 <= memory_budget < math.inf:
        raise ValueError(f"memory_budget: {memory_budget!r}; give a number of bytes, such as 2e9.")
    return int(memory_budget)


def spans(total: int, step: int) -> Iterator[slice]:
    """Slices of at most `step` that cover range(total): (5, 3) gives 0:3 and 3:5."""
    for start in range(0, total, step):
        yield slice(start, min(start + step, total))


def large_empty(like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """An uninitialised tensor of this shape, with the type and device of another.

    On a CPU its memory is from NumPy, which asks the system for huge pages: they cost less when
    they are first written to.
    """
    if like.device.type != "cpu":
        return like.new_empty(shape)
    size, aligned = math.prod(shape) * like.element_size(), 64
    memory = torch.from_numpy(np.empty(size + aligned, dtype=np.uint8))
    start = -memory.data_ptr() % aligned  # as PyTorch's is, since sums depend on it
    return memory[start : start + size].view(like.dtype).view(*shape)
