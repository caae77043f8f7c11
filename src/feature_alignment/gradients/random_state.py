"""The global random number generators, and whether a model draws from them."""

import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from feature_alignment.gradients.refused_modules import label_of
from feature_alignment.gradients.samples import Samples

Generators = list[tuple[Callable[..., Any], Any]]
"""For each generator, the function that sets its state, and the state."""


@contextmanager
def generators_kept(samples: Samples) -> Iterator[Callable[[], bool]]:
    """Restore the global generators on exit; yields a test of whether any has been drawn from."""
    before = _states(samples)
    try:
        yield lambda: _have_drawn(before, samples)
    finally:
        if _have_drawn(before, samples):
            for put, state in before:
                put(state)


def _states(samples: Samples) -> Generators:
    """The states of the global generators of PyTorch, Python and NumPy."""
    tensors = [value for value in samples.entries.values() if isinstance(value, torch.Tensor)]
    devices = sorted({tensor.device for tensor in tensors if tensor.is_cuda}, key=str)
    set_on = torch.cuda.set_rng_state
    return [
        (torch.set_rng_state, torch.get_rng_state()),
        *((partial(set_on, device=one), torch.cuda.get_rng_state(one)) for one in devices),
        (random.setstate, random.getstate()),
        (np.random.set_state, np.random.get_state(legacy=False)),  # noqa: NPY002 (others may use it)
    ]


def _have_drawn(before: Generators, samples: Samples) -> bool:
    """Whether a generator's state has changed since `before`."""
    now = _states(samples)
    return any(_bytes(a) != _bytes(b) for (_, a), (_, b) in zip(before, now, strict=True))


def _bytes(state: Any) -> bytes:
    return state.numpy().tobytes() if isinstance(state, torch.Tensor) else pickle.dumps(state)


def drawing_module(model: nn.Module, f: Callable[..., Any], samples: Samples) -> str:
    """Label of the first module to finish a call that changed a generator's state."""
    labels = {module: label_of(name, module) for name, module in model.named_modules()}
    begun: dict[nn.Module, Generators] = {}
    found: list[str] = []

    def begin(module: nn.Module, arguments: Any) -> None:
        begun[module] = _states(samples)

    def end(module: nn.Module, arguments: Any, output: Any) -> None:
        if _have_drawn(begun[module], samples):
            found.append(labels[module])

    with ExitStack() as stack:
        for module in labels:
            stack.callback(module.register_forward_pre_hook(begin).remove)
            stack.callback(module.register_forward_hook(end).remove)
        f(samples)
    return found[0] if found else "the model"
