"""Per-sample gradients by automatic differentiation: slow, for parameters without a rule."""

import warnings
from collections.abc import Collection, Mapping

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from feature_alignment.gradients.blocks import spans


def batched_gradients(
    model: nn.Module,
    values: Mapping[str, torch.Tensor],
    x: torch.Tensor,
    names: Collection[str],
    chunk: int,
) -> dict[str, torch.Tensor]:
    """Gradients ∇_w f_y(x_i) by vmap of jacrev over samples; not every module can be run so.

    Args:
        model: the model.
        values: all parameters by name, detached.
        x: inputs (n, …).
        names: the parameters to differentiate by, at least one.
        chunk: samples at a time.

    Returns:
        Gradients (n, c, p) by parameter name.
    """
    fixed = {name: value for name, value in values.items() if name not in names}

    def f(moving: dict[str, torch.Tensor], sample: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(
            model, {**fixed, **moving}, (sample[None],)
        ).flatten()  # (c,)

    moving = {name: values[name] for name in names}
    parts: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    jacobian = torch.func.vmap(torch.func.jacrev(f), in_dims=(None, 0))
    for samples in spans(len(x), max(1, chunk)):
        # The fused attention kernels have no batching rule. Other operations without one are run
        # one by one, with a warning about speed.
        with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop")
            found = jacobian(moving, x[samples])
        for name in names:
            parts[name].append(found[name].detach().flatten(2))  # (b, c, p)
    return {name: torch.cat(blocks) for name, blocks in parts.items()}


def looped_gradients(
    model: nn.Module,
    values: Mapping[str, torch.Tensor],
    x: torch.Tensor,
    names: Collection[str],
) -> dict[str, torch.Tensor]:
    """Gradients ∇_w f_y(x_i) by one backward pass for each sample and output: for any model.

    Arguments and result are as of `batched_gradients`.
    """
    leaves = {name: values[name].detach().requires_grad_() for name in names}
    rows: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    for i in range(len(x)):
        with torch.enable_grad():
            sample = x[i : i + 1].detach().clone()
            f = torch.func.functional_call(model, {**values, **leaves}, (sample,)).flatten()  # (c,)
        for y in range(len(f)):
            found = torch.autograd.grad(
                f[y],
                list(leaves.values()),
                retain_graph=y + 1 < len(f),
                allow_unused=True,
                materialize_grads=True,
            )
            for name, gradient in zip(names, found, strict=True):
                rows[name].append(gradient.to_dense().flatten())
    return {name: torch.stack(found).unflatten(0, (len(x), -1)) for name, found in rows.items()}
