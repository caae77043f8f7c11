"""Which parameter gradients follow from a module's input and its output's gradient.

One rule per module type. A rule sees one call of a module: its input when the forward pass gets
there, then the gradient of each model output with respect to the call's output.
"""

from abc import ABC, abstractmethod

import torch
from torch import nn
from torch.nn import functional as F

from feature_alignment.kernels.parameter_gradients import (
    BiasGradients,
    Gradients,
    MatrixGradients,
    PatchInputs,
    TokenInputs,
    VectorGradients,
    VectorInputs,
)

_PADDING_MODES = {
    "zeros": "constant",
    "reflect": "reflect",
    "replicate": "replicate",
    "circular": "circular",
}


class ModuleCall(ABC):
    """One call of a module: what its parameters' gradients are made of.

    Args:
        module: the module that is called.
        inputs: its input, samples along the first axis.
        output: its output, of which shape, precision and device are used.
        outputs: c, the number of gradients to come.
    """

    @abstractmethod
    def __init__(
        self, module: nn.Module, inputs: torch.Tensor, output: torch.Tensor, outputs: int
    ) -> None: ...

    @abstractmethod
    def store(self, y: int, gradient: torch.Tensor) -> None:
        """Take the gradient of the model's output y, summed over samples, by the call's output."""

    @abstractmethod
    def gradients(self) -> dict[str, Gradients]:
        """Gradients by the parameter's name in the module, those this call contributes."""

    @abstractmethod
    def stored_numbers(self) -> tuple[int, int]:
        """How many numbers the call holds once, and how many for each output."""


class LinearCall(ModuleCall):
    """`nn.Linear` on inputs (n, …, d): every axis between holds positions."""

    def __init__(
        self, module: nn.Linear, inputs: torch.Tensor, output: torch.Tensor, outputs: int
    ) -> None:
        n = inputs.shape[0]
        self._inputs = VectorInputs(inputs.reshape(n, -1, inputs.shape[-1]))
        self._deltas = output.new_zeros(n, outputs, self._inputs.positions, output.shape[-1])

    def store(self, y: int, gradient: torch.Tensor) -> None:
        """See `ModuleCall`."""
        self._deltas[:, y] = gradient.reshape(self._deltas[:, y].shape)

    def gradients(self) -> dict[str, Gradients]:
        """See `ModuleCall`."""
        return {
            "weight": MatrixGradients(self._inputs, self._deltas),
            "bias": BiasGradients(self._deltas),
        }

    def stored_numbers(self) -> tuple[int, int]:
        """See `ModuleCall`."""
        return self._inputs.values.numel(), self._deltas[:, 0].numel()


class ConvolutionCall(ModuleCall):
    """`nn.Conv1d`, `nn.Conv2d` and `nn.Conv3d` on inputs (n, channels, …)."""

    def __init__(
        self,
        module: nn.Conv1d | nn.Conv2d | nn.Conv3d,
        inputs: torch.Tensor,
        output: torch.Tensor,
        outputs: int,
    ) -> None:
        self._inputs = PatchInputs(
            values=inputs,
            kernel=module.kernel_size,
            stride=module.stride,
            dilation=module.dilation,
            padding=_padding(module),
            padding_mode=_PADDING_MODES[module.padding_mode],
            groups=module.groups,
        )
        n, k = output.shape[:2]
        self._deltas = output.new_zeros(n, outputs, self._inputs.positions, k)

    def store(self, y: int, gradient: torch.Tensor) -> None:
        """See `ModuleCall`."""
        self._deltas[:, y] = gradient.flatten(2).transpose(1, 2)  # (n, k, P) -> (n, P, k)

    def gradients(self) -> dict[str, Gradients]:
        """See `ModuleCall`."""
        return {
            "weight": MatrixGradients(self._inputs, self._deltas),
            "bias": BiasGradients(self._deltas),
        }

    def stored_numbers(self) -> tuple[int, int]:
        """See `ModuleCall`."""
        return self._inputs.values.numel(), self._deltas[:, 0].numel()


class EmbeddingCall(ModuleCall):
    """`nn.Embedding` on tokens (n, …)."""

    def __init__(
        self, module: nn.Embedding, inputs: torch.Tensor, output: torch.Tensor, outputs: int
    ) -> None:
        n = inputs.shape[0]
        self._inputs = TokenInputs(
            inputs.reshape(n, -1), module.num_embeddings, module.embedding_dim
        )
        self._fixed = None  # positions of the padding token, which has no gradient: (n, P)
        if module.padding_idx is not None:
            self._fixed = self._inputs.values == module.padding_idx
        shape = (n, outputs, self._inputs.positions, module.embedding_dim)
        self._deltas = output.new_zeros(shape)

    def store(self, y: int, gradient: torch.Tensor) -> None:
        """See `ModuleCall`."""
        self._deltas[:, y] = gradient.reshape(self._deltas[:, y].shape)
        if self._fixed is not None:
            self._deltas[:, y][self._fixed] = 0

    def gradients(self) -> dict[str, Gradients]:
        """See `ModuleCall`."""
        return {"weight": MatrixGradients(self._inputs, self._deltas)}

    def stored_numbers(self) -> tuple[int, int]:
        """See `ModuleCall`."""
        return self._inputs.values.numel(), self._deltas[:, 0].numel()


class _NormalisationCall(ModuleCall):
    """h = γ ∘ â + β with normalised inputs â: gradients Σ_t δ_t∘â_t and Σ_t δ_t."""

    def __init__(
        self, module: nn.Module, inputs: torch.Tensor, output: torch.Tensor, outputs: int
    ) -> None:
        self._normalised = self._normalise(module, inputs)
        self._shape = module.weight.shape
        size = (inputs.shape[0], outputs, self._shape.numel())
        self._gain, self._shift = output.new_zeros(size), output.new_zeros(size)

    @abstractmethod
    def _normalise(self, module: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        """â, of the shape of the inputs."""

    @abstractmethod
    def _sum_positions(self, values: torch.Tensor) -> torch.Tensor:
        """Values in the shape of the inputs, summed over positions: (n, p)."""

    def store(self, y: int, gradient: torch.Tensor) -> None:
        """See `ModuleCall`."""
        self._gain[:, y] = self._sum_positions(gradient * self._normalised)
        self._shift[:, y] = self._sum_positions(gradient)

    def gradients(self) -> dict[str, Gradients]:
        """See `ModuleCall`."""
        return {"weight": VectorGradients(self._gain), "bias": VectorGradients(self._shift)}

    def stored_numbers(self) -> tuple[int, int]:
        """See `ModuleCall`."""
        return self._normalised.numel(), 2 * self._gain[:, 0].numel()


class LayerNormCall(_NormalisationCall):
    """`nn.LayerNorm` and `nn.RMSNorm`: â over the last axes, positions along the axes before."""

    def _normalise(self, module: nn.LayerNorm | nn.RMSNorm, inputs: torch.Tensor) -> torch.Tensor:
        if isinstance(module, nn.RMSNorm):
            return F.rms_norm(inputs, module.normalized_shape, eps=module.eps)
        return F.layer_norm(inputs, module.normalized_shape, eps=module.eps)

    def _sum_positions(self, values: torch.Tensor) -> torch.Tensor:
        return values.reshape(values.shape[0], -1, self._shape.numel()).sum(1)


class GroupNormCall(_NormalisationCall):
    """`nn.GroupNorm` on (n, channels, …)."""

    def _normalise(self, module: nn.GroupNorm, inputs: torch.Tensor) -> torch.Tensor:
        return F.group_norm(inputs, module.num_groups, eps=module.eps)

    def _sum_positions(self, values: torch.Tensor) -> torch.Tensor:
        return values.reshape(*values.shape[:2], -1).sum(2)


class BatchNormCall(GroupNormCall):
    """`nn.BatchNorm1d`, 2d and 3d with running statistics on (n, channels, …)."""

    def _normalise(
        self, module: nn.modules.batchnorm._BatchNorm, inputs: torch.Tensor
    ) -> torch.Tensor:
        return F.batch_norm(inputs, module.running_mean, module.running_var, eps=module.eps)


# Exact types: a subclass may compute something else.
RULES: dict[type[nn.Module], type[ModuleCall]] = {
    nn.Linear: LinearCall,
    nn.Conv1d: ConvolutionCall,
    nn.Conv2d: ConvolutionCall,
    nn.Conv3d: ConvolutionCall,
    nn.Embedding: EmbeddingCall,
    nn.LayerNorm: LayerNormCall,
    nn.RMSNorm: LayerNormCall,
    nn.GroupNorm: GroupNormCall,
    nn.BatchNorm1d: BatchNormCall,
    nn.BatchNorm2d: BatchNormCall,
    nn.BatchNorm3d: BatchNormCall,
}


def _padding(module: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> tuple[tuple[int, int], ...]:
    if module.padding == "valid":
        return tuple((0, 0) for _ in module.kernel_size)
    if module.padding == "same":
        totals = [
            dilation * (kernel - 1)
            for dilation, kernel in zip(module.dilation, module.kernel_size, strict=True)
        ]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((size, size) for size in module.padding)
