"""Evaluate a model without disturbing its training."""

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from feature_alignment.training.losses import Loss

# Evaluation at other parameters or in another mode changes a model: one thread at a time.
RUNNING = threading.RLock()


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put every module into eval mode, and restore each module's own mode afterwards.

    Only the flags are set: a module's custom `train` may do more, for example merge weights.
    """
    with RUNNING:  # otherwise another thread would save and restore the modes set here
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
    """Eval mode with gradients cleared before and after; global random generators are restored.

    Dropout and the order of samples draw from the generators of PyTorch, Python and NumPy, so a
    measurement that draws from them, too, must not advance them.
    """
    devices = {p.device for _, p in model.named_parameters() if p.device.type == "cuda"}
    with RUNNING, torch.random.fork_rng(devices=sorted(devices, key=str)), evaluation_mode(model):
        _without_gradients(model)
        python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 (others use it)
        try:
            yield
        finally:
            _without_gradients(model)
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002


def _without_gradients(model: nn.Module) -> None:
    # Models may override `zero_grad` or `parameters`.
    for _, parameter in model.named_parameters():
        parameter.grad = None


def outputs_in_chunks(model: nn.Module, x: torch.Tensor, chunk: int = 1024) -> torch.Tensor:
    """Outputs f(x) without gradients, `chunk` samples at a time, in the model's mode: (n, c)."""
    with torch.no_grad():
        return torch.cat([model(part) for part in x.split(chunk)])


def evaluate(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, metrics: Mapping[str, Loss]
) -> dict[str, float]:
    """Values of metrics over all samples, from one pass, in the model's current mode."""
    outputs = outputs_in_chunks(model, x)
    return {name: float(metric(outputs, y)) for name, metric in metrics.items()}
