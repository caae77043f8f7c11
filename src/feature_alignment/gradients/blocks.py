"""Work in blocks, so that intermediate results stay small."""

import math
from collections.abc import Iterator
from numbers import Real

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
