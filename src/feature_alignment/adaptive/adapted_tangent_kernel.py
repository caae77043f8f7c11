"""The kernel of transformed tangent features, JM²Jᵀ, as the tangent kernel of another network.

Where M multiplies each layer's matrix from both sides, JM is the Jacobian of the network in which
layer ℓ computes W₀a + M⁽²⁾ U M⁽¹⁾ a, by U at U = 0. Its tangent kernel comes from the same engine
as any other, and holds no features.
"""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from feature_alignment.adaptive.feature_structures import (
    DiagonalTransformation,
    LayerTransformation,
    RankOneTransformation,
    Transformation,
)
from feature_alignment.adaptive.parameter_matrices import matrix_layout
from feature_alignment.kernels.jacobian import jacobian_vector_product
from feature_alignment.kernels.tangent import tangent_features, tangent_kernel


def adapted_tangent_kernel(
    model: nn.Module, x: torch.Tensor, x2: torch.Tensor | None, transformation: Transformation
) -> torch.Tensor:
    """Adapted kernel ∇f(x) M² ∇f(x₂)ᵀ, (n·c, n₂·c), at the model's own parameters.

    Source: LeJeune & Alemohammad 2024, Section 3; Theorem 1 and, with the double sum, Theorem 2.

    Args:
        model: outputs (n, c), each sample's depending on that sample only.
        x: inputs (n, …) of the rows.
        x2: inputs (n₂, …) of the columns; None for x.
        transformation: M. A diagonal one needs the features of all samples in memory.

    Raises:
        ValueError: if M acts on layers and one with parameters is neither linear nor a plain
            convolution over images, or if M is of an unknown kind.
    """
    if isinstance(transformation, LayerTransformation):
        return tangent_kernel(_transformed_network(model, transformation), x, x2).total
    if isinstance(transformation, RankOneTransformation):
        kernel = tangent_kernel(model, x, x2).total
        direction = matrix_layout(model).split(transformation.direction)
        along = [
            jacobian_vector_product(model, inputs, direction).flatten()
            for inputs in (x, x if x2 is None else x2)
        ]
        return kernel + (transformation.scale**2 - 1) * torch.outer(*along)
    if isinstance(transformation, DiagonalTransformation):
        scales = matrix_layout(model).split(transformation.scales)
        flat = torch.cat([scales[name].flatten() for name, _ in model.named_parameters()])
        rows = tangent_features(model, x).flatten(0, 1) * flat  # (n·c, p)
        columns = rows if x2 is None else tangent_features(model, x2).flatten(0, 1) * flat
        return rows @ columns.T
    raise ValueError(f"transformation: {type(transformation).__name__} has no kernel here.")


def _transformed_network(model: nn.Module, transformation: LayerTransformation) -> nn.Module:
    owners = {
        name: module
        for name, module in model.named_modules()
        if any(True for _ in module.parameters(recurse=False))
    }
    for name, module in owners.items():
        plain = isinstance(module, nn.Linear) or (
            isinstance(module, nn.Conv2d) and module.groups == 1 and module.padding_mode == "zeros"
        )
        if not plain:
            raise ValueError(
                f"layer {name!r} ({type(module).__name__}): the kernel adapted by layers needs "
                "layers of nn.Linear, or of nn.Conv2d without groups and padded by zeros."
            )
    if "" in owners:  # the model is a layer itself
        return _transformed_layer(model, *transformation.dense(""))
    changed = copy.deepcopy(model)
    for name, module in owners.items():
        parent, _, child = name.rpartition(".")
        setattr(
            changed.get_submodule(parent),
            child,
            _transformed_layer(module, *transformation.dense(name)),
        )
    return changed


def _transformed_layer(
    layer: nn.Module, on_inputs: torch.Tensor, on_outputs: torch.Tensor
) -> nn.Module:
    if isinstance(layer, nn.Linear):
        return _TransformedLinear(layer, on_inputs, on_outputs)
    assert isinstance(layer, nn.Conv2d)
    return _TransformedConvolution(layer, on_inputs, on_outputs)


class _TransformedLayer(nn.Module):
    """The constants of both kinds; the only parameter is the weight of U."""

    weight_0: torch.Tensor
    bias_0: torch.Tensor | None
    on_inputs: torch.Tensor
    on_constant: torch.Tensor | None
    on_outputs: torch.Tensor

    def __init__(
        self, layer: nn.Linear | nn.Conv2d, on_inputs: torch.Tensor, on_outputs: torch.Tensor
    ):
        super().__init__()
        self.register_buffer("weight_0", layer.weight.detach())
        self.register_buffer("bias_0", None if layer.bias is None else layer.bias.detach())
        # The matrix is [W b]: the last column meets the constant input.
        constant = None if layer.bias is None else on_inputs[:, -1]
        self.register_buffer("on_inputs", on_inputs[:, : layer.weight[0].numel()])
        self.register_buffer("on_constant", constant)
        self.register_buffer("on_outputs", on_outputs)


class _TransformedLinear(_TransformedLayer):
    def __init__(self, layer: nn.Linear, on_inputs: torch.Tensor, on_outputs: torch.Tensor) -> None:
        super().__init__(layer, on_inputs, on_outputs)
        self.update = nn.Linear(len(on_inputs), len(on_outputs), bias=False).to(on_inputs)
        nn.init.zeros_(self.update.weight)

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        change = self.update(F.linear(a, self.on_inputs, self.on_constant))
        return F.linear(a, self.weight_0, self.bias_0) + F.linear(change, self.on_outputs)


class _TransformedConvolution(_TransformedLayer):
    def __init__(self, layer: nn.Conv2d, on_inputs: torch.Tensor, on_outputs: torch.Tensor) -> None:
        super().__init__(layer, on_inputs, on_outputs)
        self.stride, self.padding, self.dilation = layer.stride, layer.padding, layer.dilation
        self.patch = layer.weight.shape[1:]  # (channels, height, width)
        assert math.prod(self.patch) == self.on_inputs.shape[1]
        self.update = nn.Conv2d(len(on_inputs), len(on_outputs), 1, bias=False).to(on_inputs)
        nn.init.zeros_(self.update.weight)

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        filters = self.on_inputs.view(-1, *self.patch)  # M⁽¹⁾ applied to every patch
        patches = F.conv2d(a, filters, self.on_constant, self.stride, self.padding, self.dilation)
        change = F.conv2d(self.update(patches), self.on_outputs[:, :, None, None])
        unchanged = F.conv2d(
            a, self.weight_0, self.bias_0, self.stride, self.padding, self.dilation
        )
        return unchanged + change
