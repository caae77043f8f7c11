"""Checks that a model's outputs are a function of its parameters and of each sample by itself."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from feature_alignment.gradients.blocks import spans
from feature_alignment.gradients.model_function import ModelFunction, Parameters
from feature_alignment.gradients.samples import Samples

# Largest difference that passes for rounding, relative to the largest entry: of gradients, and of
# outputs, which are less deep.
_ROUNDING = {torch.float64: 1e-8, torch.float32: 1e-3}
_COARSE = 1e-2
_OF_OUTPUTS = 0.1

_FEW = 4  # fewer samples than these are run one by one


def refuse_dependent_samples(model: nn.Module) -> None:
    """Refuse modules that make samples depend on each other or on chance, or cannot be run.

    Raises:
        ValueError: if there is one; the message names it and says what to do.
    """
    for name, module in model.named_modules():
        label = _label(name, module)
        if module.training and isinstance(module, _BatchNorm | _DropoutNd):
            raise ValueError(
                f"{label} is in training mode, where samples "
                "are not independent or not repeatable; call model.eval() first."
            )
        if isinstance(module, _BatchNorm) and module.running_mean is None:
            raise ValueError(
                f"{label} has no running statistics and normalises over the batch, where samples "
                "are not independent; give it track_running_stats=True."
            )
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.scale_grad_by_freq:
            raise ValueError(
                f"{label} divides its gradients by the tokens' numbers in the batch, where samples "
                "are not independent; set scale_grad_by_freq=False."
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{label} is compiled by TorchScript, which hides its parameters; give the module "
                "that it was made from."
            )
        if isinstance(module, nn.DataParallel) and module.device_ids:
            raise ValueError(f"{label} copies its module; give {name or 'model'}.module itself.")
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise ValueError(
            "autocast is on, which rounds in the middle of the network; leave its context, or "
            "disable it around this call by torch.autocast(device_type, enabled=False)."
        )


def checked_outputs(
    function: ModelFunction, values: Parameters, samples: Samples
) -> tuple[ModelFunction, torch.Tensor, float]:
    """The function as it must be run on these values, its outputs (n, c) and their rounding errors.

    It is run on copies, to see which parameters it changes in place: these it must be `spared`.

    Every sample is run in other company, too, and must give the same there: in parts of the batch
    such that each two samples are in different parts once.

    Raises:
        ValueError: if the results differ, the model draws random numbers, or the outputs are not
            finite or of another precision than float32 or float64.
    """
    # Some models differentiate in their forward pass.
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        copies = {name: value.clone() for name, value in values.items()}
        function = function.recomputing(copies, samples)
        f = stack.enter_context(function.installed(copies, False))
        before = _random_state(samples)
        batch = f(samples).detach()
        if _have_drawn(before, samples):
            module = _drawing_module(function.model, f, samples)
            raise ValueError(
                f"{module} draws random numbers, so the outputs are not a function of the "
                "parameters; call model.eval() first, or take the randomness out."
            )
        if batch.dtype not in _ROUNDING:
            raise ValueError(
                f"the model's outputs are {batch.dtype}; they must be in float32 or float64: "
                "convert the model by model.float()."
            )
        if not batch.isfinite().all():
            i = int((~batch.isfinite()).any(1).nonzero()[0])
            raise ValueError(f"the model's outputs of sample {i} are not finite.")
        changed = [name for name, value in values.items() if not torch.equal(copies[name], value)]
        relative = _OF_OUTPUTS * rounding(batch, *values.values())
        tolerance = relative * float(batch.abs().max())
        for some in _companies(len(samples)):
            found = f(samples[some]).detach()
            off = torch.full((1,), math.inf)
            if found.shape[1] == batch.shape[1]:
                off = (found - batch[torch.tensor(some)]).abs().amax(1)
            if tolerance < off.max() and changed:
                raise ValueError(
                    f"the forward pass changes parameter {changed[0]!r} in place, and so its own "
                    "outputs from call to call; take the change out of forward(), and apply it "
                    "after each step of the optimiser."
                )
            if tolerance < off.max() < math.inf:
                # Outputs that are differences of large numbers have larger rounding errors.
                tolerance = max(tolerance, _change(function, values, samples, batch, relative))
            wrong = off > tolerance
            if wrong.any():
                raise ValueError(
                    f"the model's outputs of sample {some[int(wrong.nonzero()[0])]} depend on the "
                    "other samples or on chance; the tangent kernel needs f(x_i) to depend on x_i "
                    "only: call model.eval(), and look for statistics, sorting or recurrence along "
                    "the batch axis (batch_first=False?)."
                )
    return replace(function, changed=function.changed.union(changed)), batch, tolerance


def rounding(*tensors: torch.Tensor) -> float:
    """Largest relative difference that passes for rounding where these are computed with."""
    floating = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    return max(_ROUNDING.get(dtype, _COARSE) for dtype in floating)


def _change(
    function: ModelFunction, values: Parameters, samples: Samples, f: torch.Tensor, relative: float
) -> float:
    """How much outputs change if parameters do by a hundredth of what passes for rounding.

    Each entry by a sign of its own: a factor of a whole matrix would leave outputs that are small,
    as differences are, as small.
    """
    generator, moved = torch.Generator().manual_seed(0), dict(values)
    for name, value in values.items():
        if value.is_floating_point():
            signs = 2 * torch.rand(value.shape, generator=generator).round() - 1
            moved[name] = value * (1 + relative / 100 * signs.to(value))
    with function.installed(moved, False) as run:
        return float((run(samples).detach() - f).abs().max())


def _companies(n: int) -> Iterator[list[int]]:
    """Parts of n samples: the rows and the columns of a square that holds them.

    Two samples are in different rows or columns. A part of one sample has it twice, since some
    models squeeze the outputs of one; of few samples each is by itself.
    """
    if n < _FEW:
        yield from ([i, i] for i in range(n))
        return
    side = math.isqrt(n - 1) + 1
    rows = [range(n)[row] for row in spans(n, side)]
    for part in (*rows, *(range(start, n, side) for start in range(side))):
        yield list(part) * (1 + (len(part) == 1))


def _random_state(samples: Samples) -> list[torch.Tensor]:
    tensors = [value for value in samples.entries.values() if isinstance(value, torch.Tensor)]
    devices = {tensor.device for tensor in tensors if tensor.is_cuda}
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]


def _have_drawn(before: Sequence[torch.Tensor], samples: Samples) -> bool:
    """Whether the generators are in another state than before."""
    return any((a != b).any() for a, b in zip(before, _random_state(samples), strict=True))


def _drawing_module(model: nn.Module, f: Callable[..., Any], samples: Samples) -> str:
    """The first module to end its call with another state of the generators than it began with."""
    labels = {module: _label(name, module) for name, module in model.named_modules()}
    begun: dict[nn.Module, list[torch.Tensor]] = {}
    found: list[str] = []

    def begin(module: nn.Module, arguments: Any) -> None:
        begun[module] = _random_state(samples)

    def end(module: nn.Module, arguments: Any, output: Any) -> None:
        if _have_drawn(begun[module], samples):
            found.append(labels[module])

    with ExitStack() as stack:
        for module in labels:
            stack.callback(module.register_forward_pre_hook(begin).remove)
            stack.callback(module.register_forward_hook(end).remove)
        f(samples)
    return found[0] if found else "the model"


def _label(name: str, module: nn.Module) -> str:
    return f"module {name or 'the model itself'!r} ({type(module).__name__})"
