"""The arguments of a monitor, checked and brought into one form."""

import sys
from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from feature_alignment.errors import UserError
from feature_alignment.training.schedule import geometric

LAST_STEP = 10**9


def whole_number(name: str, number: Any) -> int:
    """A number given as any integer type.

    Raises:
        UserError: if it is not an integer, with the argument's name.
    """
    try:
        return index(number)
    except TypeError as error:
        raise UserError(f"{name}: {number!r}; give a whole number.") from error


def label_tensor(y: torch.Tensor | ArrayLike) -> torch.Tensor:
    """Labels (n,) or (n, c) as a tensor.

    Raises:
        UserError: if they are not numbers, or a single number.
    """
    try:
        if not isinstance(y, torch.Tensor):
            array = np.asarray(y)
            y = torch.tensor(array.astype(array.dtype.newbyteorder("=")))
    except (TypeError, ValueError) as error:  # strings, objects, rows of different lengths
        raise UserError(
            f"y: a {type(y).__name__} that is no array of numbers; give class numbers or targets."
        ) from error
    if y.ndim == 0:
        raise UserError("y: a single number; give one, or a row, for each sample.")
    return y


def measured_steps(every: Any) -> Sequence[int]:
    """The steps at which to measure, in order, for `every` of `Monitor`.

    Raises:
        UserError: if it is neither a positive integer, nor steps from 0 on, nor "geometric".
    """
    every = every.tolist() if isinstance(every, np.ndarray | torch.Tensor) else every
    try:
        if isinstance(every, Iterable):
            steps = geometric(LAST_STEP) if every == "geometric" else sorted(map(index, every))
            if min(steps, default=0) < 0:
                raise UserError(f"every: step {steps[0]}; steps count from 0.")
            return steps
        number = index(every)
    except TypeError as error:  # not an integer
        raise UserError(f"every: {every!r}; give a whole number, steps, or 'geometric'.") from error
    if number < 1:
        raise UserError(f"every: {number} updates; it must be at least 1.")
    return range(0, sys.maxsize, number)
