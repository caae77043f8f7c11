"""Per-sample gradients by automatic differentiation: slow, for parameters without a rule."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from feature_alignment.gradients.blocks import spans
from feature_alignment.gradients.capture import leaf_gradients, one_hot_cotangents, recorded
from feature_alignment.gradients.model_function import ModelFunction, outputs_of
from feature_alignment.gradients.parameter_values import Parameters
from feature_alignment.gradients.samples import Samples

# Attention in plain operations, whose gradients can be differentiated and batched.
differentiable_attention = partial(sdpa_kernel, SDPBackend.MATH)


@torch.no_grad()  # on trial, too: some operations have another backward pass without it
def batched_gradients(
    function: ModelFunction, values: Parameters, samples: Samples, names: Sequence[str], chunk: int
) -> dict[str, torch.Tensor]:
    """Gradients ∇_w f_y(x_i), (n, c, p) by name, by vmap of jacrev over `chunk` samples at a time.

    `values` are all parameters, `names` those whose gradients are taken. Not every model allows it.
    """
    values = function.spared(values)
    moving = {name: values[name] for name in names}
    sampled = {key: samples.entries[key] for key in samples.sampled}

    def f(moving: dict[str, torch.Tensor], sample: dict[int | str, torch.Tensor]) -> torch.Tensor:
        own = {key: value[None] for key, value in sample.items()}
        with function.installed({**values, **moving}) as run:
            one = replace(samples, entries={**samples.entries, **own}, n=1)
            return outputs_of(run, one)[0][0]  # (c,)

    parts: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    jacobian = torch.func.vmap(torch.func.jacrev(f), in_dims=(None, 0))
    for block in spans(len(samples), max(1, chunk)):
        with differentiable_attention(), warnings.catch_warnings():
            # Operations without a batching rule would run one by one; looping is faster.
            warnings.filterwarnings("error", "There is a performance drop")
            found = jacobian(moving, {key: value[block] for key, value in sampled.items()})
        for name in names:
            gradients = found[name].detach()
            parts[name].append(gradients.reshape(*gradients.shape[:2], -1))  # (b, c, p)
    return {name: torch.cat(blocks) for name, blocks in parts.items()}


def looped_gradients(
    function: ModelFunction, values: Parameters, samples: Samples, names: Sequence[str]
) -> dict[str, torch.Tensor]:
    """As `batched_gradients`, but by one backward pass per sample and output, for any model."""
    rows: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    for i in range(len(samples)):
        with recorded(function, values, samples[i : i + 1], names) as recording:
            for cotangent in one_hot_cotangents(recording.f):
                found = leaf_gradients(recording.f, recording.leaves, cotangent)
                for name, gradient in found.items():
                    rows[name].append(gradient.flatten())
    return {name: torch.stack(r).unflatten(0, (len(samples), -1)) for name, r in rows.items()}
