"""Which parameter gradients follow from a module's input and its output's gradient.

One rule per module type. A rule sees one call of a module: its input when the forward pass gets
there, then the gradient of each model output with respect to the call's output. It keeps a signal
of each of these, and the signals of all outputs give the gradients by the parameters.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional as F

from feature_alignment.gradients.layer_inputs import Inputs, PatchInputs, TokenInputs, VectorInputs
from feature_alignment.gradients.parameter_gradients import (
    BiasGradients,
    Gradients,
    MatrixGradients,
    VectorGradients,
)

_PADDING_MODES = {
    "zeros": "constant",
    "reflect": "reflect",
    "replicate": "replicate",
    "circular": "circular",
}

_Normalisation = nn.LayerNorm | nn.RMSNorm | nn.GroupNorm | nn.modules.batchnorm._BatchNorm


class ModuleCall(ABC):
    """One call of a module: what its parameters' gradients are made of.

    Args:
        module: the module that is called.
        inputs: its input, samples along the first axis, detached.
    """

    # In memory, the signals of all outputs are stacked along a new axis before this one.
    outputs_before = 1

    @abstractmethod
    def __init__(self, module: nn.Module, inputs: torch.Tensor) -> None: ...

    def new_signals(self, signal: torch.Tensor, n: int, outputs: int) -> torch.Tensor:
        """Space for signals like this one of n samples and all outputs: (n, c, …)."""
        shape = [n, *signal.shape[1:]]
        axis = self.outputs_before % len(shape)
        return signal.new_empty([*shape[:axis], outputs, *shape[axis:]]).movedim(axis, 1)

    def signal(self, gradient: torch.Tensor) -> torch.Tensor:
        """What to keep of the gradient of one output by what the call returned: (n, …)."""
        return gradient

    @abstractmethod
    def gradients(self, signals: torch.Tensor) -> dict[str, Gradients]:
        """Gradients by the parameter's name in the module, from all outputs' signals (n, c, …)."""

    @abstractmethod
    def input_numbers(self) -> int:
        """How many numbers the call holds, apart from the signals."""


class FactorsCall(ModuleCall):
    """A call whose weight has gradients Σ_t δ_t a_tᵀ.

    Attributes:
        inputs: a.
    """

    inputs: Inputs

    def input_numbers(self) -> int:
        """See `ModuleCall`."""
        return self.inputs.values.numel()


def merge_calls(calls: Sequence[FactorsCall]) -> FactorsCall:
    """One call with the samples of several calls of the same module."""
    merged, values = copy(calls[0]), [call.inputs.values for call in calls]
    if len(values) > 1:
        merged.inputs = replace(merged.inputs, values=torch.cat(values))
    return merged


class LinearCall(FactorsCall):
    """`nn.Linear` on inputs (n, …, d): every axis between holds positions."""

    outputs_before = -1  # so that products over positions read and write without gaps

    def __init__(self, module: nn.Linear, inputs: torch.Tensor) -> None:
        self.inputs = VectorInputs(inputs.reshape(len(inputs), -1, inputs.shape[-1]))

    def gradients(self, signals: torch.Tensor) -> dict[str, Gradients]:
        """See `ModuleCall`: signals (n, c, …, k)."""
        deltas = _flat_positions(signals)
        weight = MatrixGradients(self.inputs, deltas).without_silent_positions()
        return {"weight": weight, "bias": BiasGradients(weight.deltas)}


class ConvolutionCall(FactorsCall):
    """`nn.Conv1d`, `nn.Conv2d` and `nn.Conv3d` on inputs (n, channels, …)."""

    def __init__(self, module: nn.Conv1d | nn.Conv2d | nn.Conv3d, inputs: torch.Tensor) -> None:
        self.inputs = PatchInputs(
            values=inputs,
            kernel=module.kernel_size,
            stride=module.stride,
            dilation=module.dilation,
            padding=_padding(module),
            padding_mode=_PADDING_MODES[module.padding_mode],
            groups=module.groups,
        )

    def gradients(self, signals: torch.Tensor) -> dict[str, Gradients]:
        """See `ModuleCall`: signals (n, c, k, …)."""
        deltas = signals.flatten(3).transpose(2, 3)  # a view: positions run fastest in memory
        return {"weight": MatrixGradients(self.inputs, deltas), "bias": BiasGradients(deltas)}


class EmbeddingCall(FactorsCall):
    """`nn.Embedding` on tokens (n, …)."""

    outputs_before = -1

    def __init__(self, module: nn.Embedding, inputs: torch.Tensor) -> None:
        tokens = inputs.reshape(len(inputs), -1)
        self.inputs = TokenInputs(tokens, module.num_embeddings, module.embedding_dim)
        self._fixed = None  # where the padding token is, which has no gradient
        if module.padding_idx is not None:
            self._fixed = (inputs == module.padding_idx)[..., None]

    def signal(self, gradient: torch.Tensor) -> torch.Tensor:
        """See `ModuleCall`."""
        return gradient if self._fixed is None else gradient.masked_fill(self._fixed, 0)

    def gradients(self, signals: torch.Tensor) -> dict[str, Gradients]:
        """See `ModuleCall`: signals (n, c, …, k)."""
        return {"weight": MatrixGradients(self.inputs, _flat_positions(signals))}


class _NormalisationCall(ModuleCall):
    """h = γ ∘ â + β with normalised inputs â: gradients Σ_t δ_t∘â_t and Σ_t δ_t."""

    def __init__(self, module: _Normalisation, inputs: torch.Tensor) -> None:
        self._normalised = _normalised(module, inputs)
        self._size = module.weight.numel()

    @abstractmethod
    def _sum_positions(self, values: torch.Tensor) -> torch.Tensor:
        """Values in the shape of the inputs, summed over positions: (n, p)."""

    def signal(self, gradient: torch.Tensor) -> torch.Tensor:
        """See `ModuleCall`: both gradients, (n, 2, p)."""
        gain = self._sum_positions(gradient * self._normalised)
        return torch.stack([gain, self._sum_positions(gradient)], dim=1)

    def gradients(self, signals: torch.Tensor) -> dict[str, Gradients]:
        """See `ModuleCall`: signals (n, c, 2, p)."""
        gain, shift = signals.unbind(2)
        return {"weight": VectorGradients(gain), "bias": VectorGradients(shift)}

    def input_numbers(self) -> int:
        """See `ModuleCall`."""
        return self._normalised.numel()


class LayerNormCall(_NormalisationCall):
    """`nn.LayerNorm` and `nn.RMSNorm`: â over the last axes, positions along the axes before."""

    def _sum_positions(self, values: torch.Tensor) -> torch.Tensor:
        return values.reshape(values.shape[0], -1, self._size).sum(1)


class ChannelNormCall(_NormalisationCall):
    """`nn.GroupNorm`, and `nn.BatchNorm1d`, 2d and 3d with running statistics: (n, channels, …)."""

    def _sum_positions(self, values: torch.Tensor) -> torch.Tensor:
        return values.reshape(*values.shape[:2], -1).sum(2)


# Exact types: a subclass may compute something else.
RULES: dict[type[nn.Module], type[ModuleCall]] = {
    nn.Linear: LinearCall,
    nn.Conv1d: ConvolutionCall,
    nn.Conv2d: ConvolutionCall,
    nn.Conv3d: ConvolutionCall,
    nn.Embedding: EmbeddingCall,
    nn.LayerNorm: LayerNormCall,
    nn.RMSNorm: LayerNormCall,
    nn.GroupNorm: ChannelNormCall,
    nn.BatchNorm1d: ChannelNormCall,
    nn.BatchNorm2d: ChannelNormCall,
    nn.BatchNorm3d: ChannelNormCall,
}


def _normalised(module: _Normalisation, inputs: torch.Tensor) -> torch.Tensor:
    """â, of the shape of the inputs."""
    if isinstance(module, nn.RMSNorm):
        return F.rms_norm(inputs, module.normalized_shape, eps=module.eps)
    if isinstance(module, nn.LayerNorm):
        return F.layer_norm(inputs, module.normalized_shape, eps=module.eps)
    if isinstance(module, nn.GroupNorm):
        return F.group_norm(inputs, module.num_groups, eps=module.eps)
    return F.batch_norm(inputs, module.running_mean, module.running_var, eps=module.eps)


def _flat_positions(signals: torch.Tensor) -> torch.Tensor:
    """Signals (n, c, …, k) as (n, c, P, k)."""
    return signals[:, :, None] if signals.ndim == 3 else signals.flatten(2, -2)


def _padding(module: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> tuple[tuple[int, int], ...]:
    if not isinstance(module.padding, str):
        return tuple((size, size) for size in module.padding)
    if module.padding == "valid":
        return tuple((0, 0) for _ in module.kernel_size)
    totals = [  # "same"
        dilation * (kernel - 1)
        for dilation, kernel in zip(module.dilation, module.kernel_size, strict=True)
    ]
    return tuple((total // 2, total - total // 2) for total in totals)
