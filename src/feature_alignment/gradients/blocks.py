"""Work in blocks, so that intermediate results stay small."""

from collections.abc import Iterator

# Numbers in one block of intermediate results; more than this leaves the processor's cache.
BLOCK = 2**21


def spans(total: int, step: int) -> Iterator[slice]:
    """Slices of at most `step` that cover range(total): (5, 3) gives 0:3 and 3:5."""
    for start in range(0, total, step):
        yield slice(start, min(start + step, total))
