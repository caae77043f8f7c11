"""Look at a model without disturbing its training."""

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from feature_alignment.training.losses import Loss

# Models are changed while they run on other values or in another mode: one thread at a time.
RUNNING = threading.RLock()


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put every module into eval mode, and each back into its own mode afterwards.

    By its flag alone: a `train` of its own may do more, as merge weights into others.
    """
    with RUNNING:  # else another thread would find, and leave, the modes of this one
        modes = [(module, module.training) for module in model.modules()]
        try:
            for module, _ in modes:
                module.training = False
            yield
        finally:
            for module, training in modes:
                module.training = training


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Eval mode, no gradients before and after, and the global generators put back.

    The generators, of PyTorch, Python and NumPy, are what dropout and the order of samples draw
    from: a measurement that draws as well must not shift them.
    """
    devices = {p.device for _, p in model.named_parameters() if p.device.type == "cuda"}
    with (
        RUNNING,
        torch.random.fork_rng(devices=sorted(devices, key=str)),
        evaluation_mode(model),
    ):
        _without_gradients(model)
        python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 (others use it)
        try:
            yield
        finally:
            _without_gradients(model)
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002


def _without_gradients(model: nn.Module) -> None:
    # Models may have a `zero_grad` or `parameters` of their own.
    for _, parameter in model.named_parameters():
        parameter.grad = None


def outputs_in_chunks(model: nn.Module, x: torch.Tensor, chunk: int = 1024) -> torch.Tensor:
    """Outputs f(x) without gradients, `chunk` samples at a time, in the model's mode: (n, c)."""
    with torch.no_grad():
        return torch.cat([model(part) for part in x.split(chunk)])


def evaluate(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, metrics: Mapping[str, Loss]
) -> dict[str, float]:
    """Values of metrics over all samples, from one pass, in the mode the model is in."""
    outputs = outputs_in_chunks(model, x)
    return {name: float(metric(outputs, y)) for name, metric in metrics.items()}
