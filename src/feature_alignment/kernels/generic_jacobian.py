"""Per-sample gradients of any parameter by `torch.func`: slower, for what has no rule."""

from collections.abc import Collection, Mapping

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from feature_alignment.kernels.position_gram import spans


def generic_gradients(
    model: nn.Module,
    values: Mapping[str, torch.Tensor],
    x: torch.Tensor,
    names: Collection[str],
    chunk: int,
) -> dict[str, torch.Tensor]:
    """Gradients ∇_w f_y(x_i) of the named parameters by vmap of jacrev, each sample on its own.

    Args:
        model: any model that `torch.func.vmap` can run.
        values: all parameters by name, detached.
        x: inputs (n, …).
        names: the parameters to differentiate by.
        chunk: samples at a time.

    Returns:
        Gradients (n, c, p) by parameter name.

    Raises:
        ValueError: if `torch.func` cannot run the model.
    """
    if not names:
        return {}
    fixed = {name: value for name, value in values.items() if name not in names}

    def f(moving: dict[str, torch.Tensor], sample: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, {**fixed, **moving}, (sample[None],))[0]  # (c,)

    moving = {name: values[name] for name in names}
    parts: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    jacobian = torch.func.vmap(torch.func.jacrev(f), in_dims=(None, 0))
    for samples in spans(len(x), max(1, chunk)):
        try:
            # The fused attention kernels have no batching rule.
            with sdpa_kernel(SDPBackend.MATH):
                found = jacobian(moving, x[samples])
        except RuntimeError as error:
            raise ValueError(
                f"parameters {', '.join(sorted(names))} have no rule of their own, and torch.func "
                f"cannot differentiate the model by them: {error}"
            ) from error
        for name in names:
            parts[name].append(found[name].detach().flatten(2))  # (b, c, p)
    return {name: torch.cat(blocks) for name, blocks in parts.items()}
