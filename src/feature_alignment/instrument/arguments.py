"""The arguments of a monitor, checked and brought into one form; also hashes, to compare them."""

import hashlib
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from feature_alignment.errors import UserError, check_kind, shortened
from feature_alignment.instrument import STATE
from feature_alignment.training.checkpoint import read_state
from feature_alignment.training.schedule import geometric

LAST_STEP = 10**9
_KEYS = {"measure", "samples", "step", "measured", "initial", "buffers", "values", "arrays"}
_KEYS |= {"seconds", "problems", "probes"}


def whole_number(name: str, number: Any) -> int:
    """A number given as any integer type.

    Raises:
        UserError: if it is not an integer, with the argument's name.
    """
    try:
        return index(number)
    except TypeError as error:
        raise UserError(f"{name}: {shortened(number)}; give a whole number.") from error


def label_tensor(y: torch.Tensor | ArrayLike) -> torch.Tensor:
    """Labels (n,) or (n, c) as a tensor.

    Raises:
        UserError: if they are not numbers, a single number, or none.
    """
    try:
        if not isinstance(y, torch.Tensor):
            array = np.asarray(y)
            y = torch.tensor(array.astype(array.dtype.newbyteorder("=")))
    except (TypeError, ValueError) as error:  # strings, objects, rows of different lengths
        raise UserError(
            f"y: a {type(y).__name__} that is not an array of numbers; give class numbers or "
            "targets."
        ) from error
    if y.ndim == 0 or not y.numel():
        found = "no numbers" if y.ndim else "a single number"
        raise UserError(f"y: {found}; give one, or a row, for each sample.")
    return y


def labels_of_outputs(y: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Labels (n, entries) for outputs of a `shape` (n, …, c): of the same shape, or class numbers.

    Class numbers (n, …), as of tokens, are those of the last axis. Others are returned as they are.

    Raises:
        UserError: if a class number is not that of an output, or there is one number per sample for
            outputs with several axes.
    """
    if y.ndim == 1 and sum(size > 1 for size in shape[1:]) > 1:
        raise UserError(
            f"y: one number for each sample, for outputs of shape {tuple(shape)}; give class "
            f"numbers of shape {tuple(shape[:-1])}, of the last axis, or targets like the outputs."
        )
    if y.shape == shape:
        return y.reshape(len(y), -1)
    if y.ndim < 2 or y.shape != shape[:-1] or y.is_floating_point() or shape[-1] == 1:
        return y
    y = y.long()
    if y.min() < 0 or y.max() >= shape[-1]:
        raise UserError(
            f"y: class numbers from {y.min()} to {y.max()}; give those of the {shape[-1]} outputs, "
            f"from 0 to {shape[-1] - 1}, without padding."
        )
    return nn.functional.one_hot(y, shape[-1]).flatten(1)


def measured_steps(every: Any) -> Sequence[int]:
    """The steps at which to measure, in order, for `every` of `Monitor`.

    Raises:
        UserError: if it is neither a positive integer, nor steps from 0 on, nor "geometric".
    """
    every = every.tolist() if isinstance(every, np.ndarray | torch.Tensor) else every
    wrong = f"every: {every!r}; give a whole number, steps, or 'geometric'."
    if isinstance(every, str | bytes) and every != "geometric":
        raise UserError(wrong)
    try:
        if isinstance(every, Iterable):
            steps = geometric(LAST_STEP) if every == "geometric" else sorted(map(index, every))
            if min(steps, default=0) < 0:
                raise UserError(f"every: step {steps[0]}; steps count from 0.")
            return steps
        number = 0 if isinstance(every, bool) else index(every)
    except TypeError as error:  # not an integer
        raise UserError(wrong) from error
    if number < 1:
        raise UserError(f"every: {every!r} updates; it must be at least 1.")
    return range(0, sys.maxsize, number)


def told(choice: Any) -> Any:
    """A choice in a form that is equal in all processes: a function's name, members sorted.

    A module, such as a loss, and a function with arguments filled in have a hash of their settings.
    """
    if isinstance(choice, nn.Module):
        own = {key: value for key, value in vars(choice).items() if key[0] != "_"}
        own.pop("training", None)
        settings = chain.from_iterable(sorted(own.items()))
        return type(choice).__qualname__, identity([*settings, *choice.state_dict().values()])
    if isinstance(choice, partial):
        filled = chain(choice.args, *sorted(choice.keywords.items()))
        return told(choice.func), identity(filled)
    if callable(choice):
        return getattr(choice, "__qualname__", type(choice))
    several = isinstance(choice, Collection) and not isinstance(choice, str)
    return sorted(choice) if several else choice


def identity(values: Iterable[Any]) -> str:
    """A hash of all values: tensors and arrays by their content, others by their `repr`."""
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, str):
            digest.update(value.encode())
        elif value is not None:
            try:
                value = torch.as_tensor(value)
            except (TypeError, ValueError, RuntimeError):  # an argument passed on unchanged
                digest.update(re.sub(r" at 0x[0-9a-f]+", "", repr(value)).encode())
                continue
            digest.update(f"{value.dtype} {tuple(value.shape)} ".encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def saved_state(state: Mapping[str, Any] | str | Path | None) -> Mapping[str, Any] | None:
    """The result of `Monitor.state_dict`, or what `Monitor.save` wrote to this folder.

    Raises:
        UserError: if `state` is neither, or damaged.
    """
    if state is None:
        return None
    check_kind("state", state, Mapping | str | Path, "a folder, or what `Monitor.state_dict` gave")
    if not isinstance(state, Mapping):
        given = Path(state) / STATE
        if not given.is_file():
            raise UserError(f"state: there is no {given}; give a folder that `Monitor.save` wrote.")
        try:
            state = read_state(given)
        except Exception as error:  # a file made by hand can contain anything
            raise UserError(
                f"state: {given} is damaged, or no record; remove it to begin anew."
            ) from error
    if not isinstance(state, Mapping) or not state.keys() >= _KEYS:
        raise UserError("state: not a result of `Monitor.state_dict`.")
    return state


@contextmanager
def model_at(model: nn.Module, values: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Give the model other parameters and buffers within the context.

    Raises:
        UserError: if their names or shapes are not the model's.
    """
    own = dict(chain(model.named_parameters(), model.named_buffers()))
    if {n: v.shape for n, v in own.items()} != {n: v.shape for n, v in values.items()}:
        raise UserError("state: it is the record of a model with other parameters.")
    before = {name: tensor.data for name, tensor in own.items()}
    try:
        for name, tensor in own.items():
            tensor.data = values[name].to(tensor.device, tensor.dtype)
        yield
    finally:
        for name, tensor in own.items():
            tensor.data = before[name]


def check_no_file(folder: Path) -> None:
    """Check that a record can be written to a folder.

    Raises:
        UserError: if it, or one that it is in, is a file.
    """
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise UserError(f"folder: {place} is a file; give another.")
