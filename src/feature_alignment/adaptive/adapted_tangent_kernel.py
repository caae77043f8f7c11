"""The kernel of transformed tangent features, JM²Jᵀ, as the tangent kernel of another network.

If M multiplies each layer's matrix from both sides, JM is the Jacobian with respect to U, at U = 0,
of the network whose layer ℓ computes W₀a + M⁽²⁾ U M⁽¹⁾ a. Its tangent kernel is computed like any
other, without storing features.
"""

import copy
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import skip_init

from feature_alignment.adaptive.feature_structures import (
    LayerTransformation,
    RankOneTransformation,
    Transformation,
)
from feature_alignment.adaptive.parameter_matrices import matrix_layout
from feature_alignment.kernels.jacobian import Jacobian
from feature_alignment.kernels.tangent import tangent_features, tangent_kernel


def adapted_tangent_kernel(
    model: nn.Module, x: torch.Tensor, x2: torch.Tensor | None, transformation: Transformation
) -> torch.Tensor:
    """Adapted kernel ∇f(x) M² ∇f(x₂)ᵀ, (n·c, n₂·c), at the model's own parameters; x₂ None for x.

    For a diagonal M the features of all samples are held in memory.

    Source: LeJeune & Alemohammad 2024, Section 3; Theorem 1 and, with the double sum, Theorem 2.

    Raises:
        ValueError: if M acts on layers and one of them is neither linear nor a plain 2D
            convolution, or shares a parameter with another layer.
    """
    if isinstance(transformation, LayerTransformation):
        return tangent_kernel(_transformed_network(model, transformation), x, x2).total
    if isinstance(transformation, RankOneTransformation):
        kernel = tangent_kernel(model, x, x2).total
        direction = matrix_layout(model).split(transformation.direction)
        along = [
            Jacobian(model, inputs).times(direction).flatten()
            for inputs in (x, x if x2 is None else x2)
        ]
        return kernel + (transformation.scale**2 - 1) * torch.outer(*along)
    scales = matrix_layout(model).split(transformation.scales)
    own = [name for name, _ in model.named_parameters() if name in scales]  # with entries
    flat = torch.cat([scales[name].flatten() for name in own])
    rows = tangent_features(model, x).flatten(0, 1) * flat  # (n·c, p)
    columns = rows if x2 is None else tangent_features(model, x2).flatten(0, 1) * flat
    return rows @ columns.T


def _transformed_network(model: nn.Module, transformation: LayerTransformation) -> nn.Module:
    changed = copy.deepcopy(model)
    layers, made = matrix_layout(model).layers, {}
    for name, module in model.named_modules(remove_duplicate=False):
        if not any(True for _ in module.parameters(recurse=False)):
            continue
        if not _is_plain(module):
            raise ValueError(
                f"layer {name!r} ({type(module).__name__}): the kernel adapted by layers needs "
                "layers of nn.Linear, or of nn.Conv2d without groups and padded by zeros, that do "
                "nothing else: without parameters, hooks or a forward() of their own."
            )
        if module not in made:
            if layers.get(name) != tuple(
                n for n, _ in module.named_parameters(name, recurse=False)
            ):
                raise ValueError(f"layer {name!r}: it shares a parameter with another layer.")
            made[module] = _TransformedLayer(module, *transformation.dense(name))
        layer = made[module]
        if not name:  # the model is a layer itself
            return layer
        changed.set_submodule(name, layer)
    return changed


def _is_plain(module: nn.Module) -> TypeGuard[nn.Linear | nn.Conv2d]:
    """Whether a module computes Wa + b, once or at each position of an image, and nothing else."""
    if isinstance(module, nn.Conv2d) and type(module).forward is nn.Conv2d.forward:
        plain = module.groups == 1 and module.padding_mode == "zeros"
    else:
        plain = type(module).forward is nn.Linear.forward
    own = [name for name, _ in module.named_parameters()]
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks
    as_defined = not any(hooks) and "forward" not in vars(module)
    return plain and own in (["weight"], ["weight", "bias"]) and as_defined


class _TransformedLayer(nn.Module):
    """W₀a + b₀ + M⁽²⁾ U M⁽¹⁾ [a 1], for convolutions at each position; U is the only parameter."""

    def __init__(
        self, layer: nn.Linear | nn.Conv2d, on_inputs: torch.Tensor, on_outputs: torch.Tensor
    ) -> None:
        super().__init__()
        sizes = len(on_inputs), len(on_outputs)
        self._of_inputs: Any = F.linear
        self._of_units: Any = F.linear
        # Draws nothing from PyTorch's global generator, so that later draws are unaffected.
        self.update: nn.Module = skip_init(nn.Linear, *sizes, bias=False)
        if isinstance(layer, nn.Conv2d):
            window = {key: getattr(layer, key) for key in ("stride", "padding", "dilation")}
            self._of_inputs, self._of_units = partial(F.conv2d, **window), F.conv2d
            self.update = skip_init(nn.Conv2d, *sizes, 1, bias=False)
            on_outputs = on_outputs[:, :, None, None]
        self.update.to(on_inputs)
        for weight in self.update.parameters():
            nn.init.zeros_(weight)
        # The matrix is [W b]: the last column meets the constant input.
        filters = on_inputs[:, : layer.weight[0].numel()].reshape(-1, *layer.weight.shape[1:])
        bias = layer.bias
        self._transformed = filters, None if bias is None else on_inputs[:, -1]
        self._unchanged = layer.weight.detach(), None if bias is None else bias.detach()
        self._on_outputs = on_outputs

    @property
    def weight(self) -> torch.Tensor:
        raise ValueError(
            "the model reads the weight of a layer by itself; the kernel adapted by layers needs "
            "layers that are called."
        )

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        change = self.update(self._of_inputs(a, *self._transformed))
        return self._of_inputs(a, *self._unchanged) + self._of_units(change, self._on_outputs)
