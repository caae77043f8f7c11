"""The state from which a monitor resumes, and hashes by which it recognises its own."""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn

from feature_alignment.errors import UserError
from feature_alignment.training.checkpoint import read_state

METRICS, STATE, ABOUT = "metrics.csv", "state.pt", "about.json"
"""The files that `Monitor.save` writes."""
_KEYS = {"measure", "samples", "step", "measured", "initial", "buffers", "values", "arrays"}
_KEYS |= {"seconds", "problems", "probes"}


def told(choice: Any) -> Any:
    """A choice in a form that is equal in all processes: a function's name, members sorted."""
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
    given = "what it is given"
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
        raise UserError(f"state: {given} is not what `Monitor.state_dict` returned.")
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
