"""Gradients of a network's outputs with respect to the pre-activations of its layers."""

from collections.abc import Sequence

import torch
from torch import nn

from feature_alignment.gradients.capture import (
    backpropagate,
    distinct_weights,
    in_other_order,
    one_hot_cotangents,
    recorded,
)
from feature_alignment.gradients.checks import checked_few, rounding
from feature_alignment.gradients.model_function import ModelFunction
from feature_alignment.gradients.parameter_values import Parameters, evaluation_point, input_like
from feature_alignment.gradients.refused_modules import refuse_dependent_samples
from feature_alignment.gradients.samples import ModelInput, as_samples
from feature_alignment.layer_features.covariance_sums import NOTHING
from feature_alignment.layer_features.layers import (
    chosen_layers,
    layers_of,
    owners_of_matrices,
    reasons,
)


def preactivation_gradients(
    model: nn.Module,
    x: ModelInput,
    layers: Sequence[str] | None = None,
    parameters: Parameters | None = None,
) -> dict[str, torch.Tensor]:
    """Gradients δ = ∂f_y(x_i)/∂h_ℓ of layers on inputs (n, d), each (n, c, k), by layer name.

    From c backward passes, detached. x (all of it samples) and layers are as for
    `layer_feature_matrices`; `parameters` are the values by name at which to evaluate the model,
    None for its own.

    Source: Beaglehole et al. 2024, eq. 1 and Section 2.2.

    Raises:
        ValueError: as in `layer_feature_matrices`, or if a layer has several positions.
    """
    refuse_dependent_samples(model)
    values, owners = evaluation_point(model, parameters), owners_of_matrices(model, layers)
    samples = as_samples(x, like=input_like(model))
    function = checked_few(ModelFunction(model), values, samples)
    with recorded(function, values, samples, owners) as recording:
        f, (uses, problems) = recording.f, layers_of(recording, owners)
        if not torch.isfinite(f).all():
            raise ValueError("the outputs of some samples are not finite; nor are their gradients.")
        deltas: dict[str, list[torch.Tensor]] = {name: [] for name in uses}
        numbers = [use.number for use in uses.values()]
        for found in backpropagate(recording, numbers, one_hot_cotangents(f)):
            for name, use in uses.items():
                deltas[name].append(use.rows(found[use.number]))
        weights = distinct_weights(recording)
        weighted = next(backpropagate(recording, numbers, iter([weights[0] * weights[1]])))
    for name, (delta, *_) in deltas.items():
        if len(delta) != recording.copies * len(f):
            problems[name] = "sees other inputs than (n, d)"
    if problems or not uses:
        raise ValueError(reasons(problems)[0] if problems else NOTHING)
    stacked = {
        name: torch.stack([delta[: len(f)] for delta in of_outputs], dim=1)
        for name, of_outputs in deltas.items()
    }
    relative = rounding(f, *values.values(), within=recording.graph.dtypes())
    rows = {name: use.rows(weighted[use.number])[: len(f)] for name, use in uses.items()}
    for name in in_other_order(rows, stacked, weights, relative, "layer {!r}".format)[:1]:
        raise ValueError(f"layer {name!r} does not see the samples in the order of the inputs.")
    return chosen_layers(stacked, layers)
