"""Signals of each layer: inputs a from below, pre-activation gradients δ from above.

Every kernel of this package is made of these two, since the gradient of output f_y with respect to
the weight of a linear layer is the outer product of δ_y and a.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from feature_alignment.kernels.capture import evaluation_point, refuse_dependent_samples


@dataclass(frozen=True)
class LayerSignals:
    """Both signals of one linear layer h = Wa + b, for n samples.

    Attributes:
        inputs: a, shape (n, d_ℓ).
        gradients: δ = ∂f/∂h, shape (n, c, k_ℓ).
        has_bias: whether the layer has b, whose gradient is δ itself.
    """

    inputs: torch.Tensor
    gradients: torch.Tensor
    has_bias: bool


def layer_signals(
    model: nn.Module, x: torch.Tensor, parameters: Mapping[str, torch.Tensor] | None = None
) -> dict[str, LayerSignals]:
    """Inputs and pre-activation gradients of every linear layer.

    a_ℓ(x_i) and δ_ℓ,y(x_i) = ∂f_y(x_i)/∂h_ℓ, from one forward and c backward passes. Every
    parameter of the model counts, whether or not it requires a gradient.

    Source: beaglehole2024, eq. 1 and Section 2.2.

    Args:
        model: made of `nn.Linear` layers and modules without parameters, each layer called once
            on inputs (n, d_ℓ); outputs (n, c), each sample's depending on that sample only.
        x: inputs (n, …).
        parameters: values by parameter name to evaluate the model at; None for its own.

    Returns:
        The signals by layer name, in the order of `model.named_modules()`. They are detached.

    Raises:
        ValueError: if the model is not of that kind; the message names the offending module.
    """
    layers = _linear_layers(model)
    values = evaluation_point(model, parameters)
    inputs: dict[str, torch.Tensor] = {}
    outputs: dict[str, torch.Tensor] = {}
    handles = [
        layer.register_forward_hook(_capture(name, inputs, outputs))
        for name, layer in layers.items()
    ]
    try:
        with torch.enable_grad():
            # With a gradient asked for x, the graph reaches every layer although the parameters
            # are detached. The clone lets a model change its input in place.
            leaf = x.detach().requires_grad_()
            f = torch.func.functional_call(model, values, (leaf.clone(),))  # (n, c)
    finally:
        for handle in handles:
            handle.remove()
    if f.ndim != 2:
        raise ValueError(f"the model's outputs have shape {tuple(f.shape)}; they must be (n, c).")
    for name in layers:
        if name not in outputs:
            raise ValueError(f"layer {name!r} was not used in the forward pass; remove it.")
    gradients: dict[str, list[torch.Tensor]] = {name: [] for name in layers}
    for output in range(f.shape[1]):
        weights = torch.zeros_like(f)
        weights[:, output] = 1
        found = torch.autograd.grad(
            f,
            list(outputs.values()),
            grad_outputs=weights,
            retain_graph=output + 1 < f.shape[1],
            materialize_grads=True,
        )
        for name, gradient in zip(outputs, found, strict=True):
            gradients[name].append(gradient)  # (n, k)
    return {
        name: LayerSignals(
            inputs=inputs[name],
            gradients=torch.stack(gradients[name], dim=1),  # c × (n, k) -> (n, c, k)
            has_bias=layer.bias is not None,
        )
        for name, layer in layers.items()
    }


def _capture(
    name: str, inputs: dict[str, torch.Tensor], outputs: dict[str, torch.Tensor]
) -> Callable[..., torch.Tensor]:
    def hook(layer: nn.Module, arguments: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
        (a,) = arguments
        if name in outputs:
            raise ValueError(
                f"layer {name!r} is called more than once; shared weights are not supported."
            )
        if a.ndim != 2:
            raise ValueError(
                f"layer {name!r} sees inputs of shape {tuple(a.shape)}; only (n, d) is supported."
            )
        # In-place activations must not overwrite what is recorded here.
        inputs[name] = a.detach().clone()
        outputs[name] = output
        return output.clone()

    return hook


def _linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    refuse_dependent_samples(model)
    layers: dict[str, nn.Linear] = {}
    owners: dict[nn.Parameter, str] = {}
    for name, module in model.named_modules():
        label = name or "the model itself"
        own = list(module.parameters(recurse=False))
        if own and type(module) is not nn.Linear:
            raise ValueError(
                f"module {label!r} ({type(module).__name__}) has parameters and is not "
                "torch.nn.Linear; only linear layers are supported."
            )
        for parameter in own:
            if parameter in owners:
                raise ValueError(
                    f"layers {owners[parameter]!r} and {label!r} share a parameter; "
                    "shared weights are not supported."
                )
            owners[parameter] = label
        if own:
            layers[name] = module
    if not layers:
        raise ValueError("the model has no linear layer, so it has no tangent features.")
    return layers
