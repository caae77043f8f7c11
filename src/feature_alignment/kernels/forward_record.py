"""One forward pass with a view into chosen layers, and backward passes to their pre-activations.

For measures that only need sums over δ = ∂f_y/∂h_ℓ: the gradients come one output at a time, and
none is kept.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

_MODE_DEPENDENT = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)


@dataclass(frozen=True)
class ForwardRecord:
    """A forward pass on n samples, still in the autograd graph.

    Attributes:
        outputs: f, (n, c), every axis of the model's outputs but the first flattened.
        inputs: what each layer called once was given, detached: (n, …). Empty if not kept.
        preactivations: what it returned, in the graph: (n, …).
        calls: how often each layer was called.
        parameters: the values the model ran on, leaves of the graph.
    """

    outputs: torch.Tensor
    inputs: dict[str, torch.Tensor]
    preactivations: dict[str, torch.Tensor]
    calls: dict[str, int]
    parameters: dict[str, torch.Tensor]

    def gradients(self, cotangents: Iterator[torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
        """Gradients Σ_y v_iy ∂f_y(x_i)/∂h_ℓ by layer, for one v (n, c) after the other.

        The record holds the graph until it is itself released.
        """
        layers = list(self.preactivations.values())
        if not layers:
            return
        for cotangent in cotangents:
            found = torch.autograd.grad(
                self.outputs,
                layers,
                grad_outputs=cotangent,
                retain_graph=True,
                materialize_grads=True,
            )
            yield dict(zip(self.preactivations, found, strict=True))


def record_forward(
    model: nn.Module,
    x: torch.Tensor,
    layers: Mapping[str, nn.Module],
    keep_inputs: bool = True,
) -> ForwardRecord:
    """Run a model on its own parameters and record what chosen layers see and return.

    Args:
        model: in evaluation mode, see `require_independent_samples`; outputs (n, …).
        x: inputs (n, …), numbers or tokens.
        layers: modules of the model by name, each taking one tensor and returning one.
        keep_inputs: whether to hold the layers' inputs.

    Returns:
        The record. Layers called more than once, or never, appear in `calls` only.

    Raises:
        ValueError: if the model is in training mode, or its outputs do not have one row per
            sample or do not depend on its parameters.
    """
    require_independent_samples(model)
    # Every parameter counts, frozen or not, and the graph must reach the first layer.
    values = {name: p.detach().requires_grad_() for name, p in model.named_parameters()}
    inputs: dict[str, torch.Tensor] = {}
    outputs: dict[str, torch.Tensor] = {}
    calls = dict.fromkeys(layers, 0)
    handles = [
        layer.register_forward_hook(
            _recorder(name, inputs if keep_inputs else None, outputs, calls)
        )
        for name, layer in layers.items()
    ]
    try:
        with torch.enable_grad():
            f = torch.func.functional_call(model, values, (x.detach().clone(),))
    finally:
        for handle in handles:
            handle.remove()
    if f.ndim < 2 or len(f) != len(x):
        raise ValueError(
            f"the model's outputs have shape {tuple(f.shape)} for {len(x)} samples; "
            "they must be (n, c) or (n, …)."
        )
    if not f.requires_grad:
        raise ValueError("the model's outputs do not depend on its parameters.")
    once = [name for name in layers if calls[name] == 1]
    return ForwardRecord(
        outputs=f.flatten(1),
        inputs={name: inputs[name] for name in once if keep_inputs},
        preactivations={name: outputs[name] for name in once},
        calls=calls,
        parameters=values,
    )


def one_hot_cotangents(outputs: torch.Tensor) -> Iterator[torch.Tensor]:
    """The c cotangents (n, c) that pick one output each, for all samples at once."""
    for output in range(outputs.shape[1]):
        cotangent = torch.zeros_like(outputs)
        cotangent[:, output] = 1
        yield cotangent


def random_sign_cotangents(
    outputs: torch.Tensor, number: int, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """Cotangents (n, c) of independent ±1/√number: Σ v vᵀ is the identity in expectation."""
    for _ in range(number):
        # Drawn on the CPU, so that every device sees the same signs.
        signs = 2 * torch.randint(2, outputs.shape, generator=generator) - 1
        yield signs.to(outputs) / number**0.5


def require_independent_samples(model: nn.Module) -> None:
    """Refuse a model in which one sample's output depends on the others or on chance.

    Raises:
        ValueError: naming the dropout in training mode, or the batch norm that would use the
            batch's own statistics.
    """
    for name, module in model.named_modules():
        if not isinstance(module, _MODE_DEPENDENT):
            continue
        label = f"module {name or 'the model itself'!r} ({type(module).__name__})"
        if module.training:
            raise ValueError(
                f"{label} is in training mode, where samples are not independent or not "
                "repeatable; call model.eval() first."
            )
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
            raise ValueError(
                f"{label} has no running statistics, so samples are not independent; "
                "build it with track_running_stats=True."
            )


def _recorder(
    name: str,
    inputs: dict[str, torch.Tensor] | None,
    outputs: dict[str, torch.Tensor],
    calls: dict[str, int],
) -> Callable[..., torch.Tensor]:
    def hook(layer: nn.Module, arguments: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
        calls[name] += 1
        if inputs is not None:
            (a,) = arguments
            inputs[name] = a.detach()
        outputs[name] = output
        # A copy, since in-place activations must not overwrite what is recorded here.
        return output.clone()

    return hook
