"""Parameters of a network as one matrix per layer, the form that Model A transforms.

The matrix of a layer with weight and bias is [W b]: a bias is the weight of a constant input. The
weight of a convolution is unfolded to (output channels, input channels · window). Matrices are
(outputs, inputs) as in PyTorch, the transposes of the paper's W_ℓ.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from feature_alignment.gradients.parameter_values import select_parameters

Matrices = dict[str, torch.Tensor]


@dataclass(frozen=True)
class MatrixLayout:
    """Which parameters form which matrix: a weight with or without bias, or any single one."""

    shapes: Mapping[str, torch.Size]  # the shape of each parameter by its name
    layers: Mapping[str, tuple[str, ...]]  # parameters of each matrix by layer, input to output

    def join(self, parameters: Mapping[str, torch.Tensor]) -> Matrices:
        """Matrices (k, d) by layer, from values by parameter name."""
        return {
            layer: torch.cat(
                [parameters[name].reshape(self.shapes[name][0], -1) for name in own], 1
            )
            for layer, own in self.layers.items()
        }

    def split(self, matrices: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Values by parameter name, from matrices by layer."""
        found = {}
        for layer, own in self.layers.items():
            columns = [self.shapes[name].numel() // self.shapes[name][0] for name in own]
            for name, part in zip(own, matrices[layer].split(columns, dim=1), strict=True):
                found[name] = part.reshape(self.shapes[name])
        return found


def matrix_layout(model: nn.Module) -> MatrixLayout:
    """The layout of a model: [W b] for `nn.Linear` and `nn.Conv`, else each parameter alone.

    Matrices of linear layers and convolutions have the module's name, others the parameter's.

    Raises:
        ValueError: if a parameter has no axis, or the model has no parameters.
    """
    parameters = dict(model.named_parameters())
    shapes = {name: parameters[name].shape for name in select_parameters(model, None)}
    layers: dict[str, tuple[str, ...]] = {}
    for module_name, module in model.named_modules():
        own = module.named_parameters(module_name, recurse=False)
        names = tuple(name for name, _ in own if name in shapes)
        kinds = [name.rpartition(".")[2] for name in names]
        matrix = kinds in (["weight"], ["weight", "bias"])
        if matrix and isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            layers[module_name] = names
        else:
            layers |= {name: (name,) for name in names}
    for name, shape in shapes.items():
        if not shape:
            raise ValueError(f"parameter {name!r} is a scalar; give it an axis of length 1.")
    return MatrixLayout(shapes, layers)


def inner(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> float:
    """Frobenius inner product Σ_ℓ ⟨A_ℓ, B_ℓ⟩."""
    return float(sum((first[layer] * second[layer]).sum() for layer in first))


def combine(
    first: Mapping[str, torch.Tensor], factor: float, second: Mapping[str, torch.Tensor]
) -> Matrices:
    """A_ℓ + factor · B_ℓ for every layer."""
    return {layer: torch.add(first[layer], second[layer], alpha=factor) for layer in first}
