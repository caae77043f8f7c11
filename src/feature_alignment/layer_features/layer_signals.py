"""Signals of each layer: inputs a from below, pre-activation gradients δ from above."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from feature_alignment.gradients.capture import (
    Recording,
    collect_signals,
    recorded,
    refuse_reordered_samples,
)
from feature_alignment.gradients.graph import Place
from feature_alignment.gradients.matrix_uses import MatrixUse, matrix_uses
from feature_alignment.gradients.model_function import (
    ModelFunction,
    evaluation_point,
    refuse_dependent_samples,
)
from feature_alignment.gradients.operation_rules import ProductCall
from feature_alignment.gradients.samples import as_samples


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
    """Inputs a_ℓ(x_i) and pre-activation gradients δ_ℓ,y(x_i) = ∂f_y(x_i)/∂h_ℓ of linear layers.

    From one forward and c + 1 backward passes, by layer name in the order of
    `model.named_modules()`, detached, whether or not parameters require a gradient.

    Source: Beaglehole et al. 2024, eq. 1 and Section 2.2.

    Args:
        model: made of `nn.Linear` layers and modules without parameters, each layer called once
            on inputs (n, d_ℓ); outputs (n, c), each sample's depending on that sample only.
        x: inputs (n, …).
        parameters: values by parameter name to evaluate the model at; None for its own.

    Raises:
        ValueError: if the model is not of that kind; the message names the offending module.
    """
    layers = _linear_layers(model)
    values, samples = evaluation_point(model, parameters), as_samples(x)
    with recorded(ModelFunction(model), values, samples, list(values)) as recording:
        calls = _single_calls(recording, layers)
        signals = collect_signals(recording, calls)
        refuse_reordered_samples(recording, calls, signals)
    found = {}
    for (name, layer), (number, call) in zip(layers.items(), calls.items(), strict=True):
        inputs, gradients = call.inputs.values[:, 0], signals[number][:, :, 0]  # one position
        found[name] = LayerSignals(inputs, gradients, has_bias=layer.bias is not None)
    return found


def _single_calls(recording: Recording, layers: Mapping[str, nn.Linear]) -> dict[int, ProductCall]:
    graph, n = recording.graph, len(recording.f)
    uses: dict[str, list[MatrixUse]] = {name: [] for name in layers}
    for use in matrix_uses(recording):
        uses[use.name.rpartition(".")[0]].append(use)
    calls = {}
    for name in layers:
        if not uses[name]:
            raise ValueError(
                f"layer {name!r} was not used in the forward pass, which is not supported."
            )
        use, *more = uses[name]
        if more:
            raise ValueError(
                f"layer {name!r} is called more than once; shared weights are not supported."
            )
        shape, weight = graph.shape((use.number, 0)), graph.inputs[use.number][use.operand]
        if weight is None or len(shape) != 2 or shape[0] != n:
            raise ValueError(
                f"layer {name!r} sees other inputs than (n, d), which is not supported."
            )
        calls[use.number] = ProductCall(
            graph.nodes[use.number], {use.operand: graph.shape(weight)}, Place(0)
        )
    return calls


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
        if own and isinstance(module, nn.Linear):
            layers[name] = module
    if not layers:
        raise ValueError("the model has no linear layer, so it has no tangent features.")
    return layers
