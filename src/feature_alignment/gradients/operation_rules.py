"""Which parameter gradients follow from an operation's inputs and its output's gradient.

There is one rule per kind of operation, found by its name in the autograd graph. The operation
combines samples with an operand that is computed from parameters alone, often a parameter itself.
The rule sees what autograd saved of the samples, and each model output's gradient with respect to
the operation's result. It keeps a signal of each gradient; all give those of the operand.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import torch

from feature_alignment.gradients.blocks import large_empty
from feature_alignment.gradients.graph import Place
from feature_alignment.gradients.layer_inputs import Inputs, PatchInputs, TokenInputs, VectorInputs
from feature_alignment.gradients.parameter_gradients import (
    BiasGradients,
    Gradients,
    MatrixGradients,
    VectorGradients,
)


class UnknownUseError(Exception):
    """A rule does not apply to an operation as it is used here."""


class OperationCall(ABC):
    """One operation, with what its operands' gradients are made of.

    It is built from autograd's node, the shapes of the wanted operands by their position among the
    operation's inputs, and the place of the samples in its output.

    Raises:
        UnknownUseError: if the rule does not apply.
    """

    # In memory, the signals of all outputs are stacked along a new axis before this one.
    outputs_before = 1

    # Operands with matrices (d, k) instead of (k, d), each with its whole shape (…, d, k).
    transposed: Mapping[int, Sequence[int]] = {}

    inputs: Inputs | None = None  # a, if an operand's gradient is Σ_t δ_t a_tᵀ

    @abstractmethod
    def __init__(self, node: Any, operands: Mapping[int, torch.Size], place: Place) -> None: ...

    def new_signals(self, signal: torch.Tensor, n: int, outputs: int) -> torch.Tensor:
        """Space for signals like this one, for n samples and all outputs: (n, c, …)."""
        shape = [n, *signal.shape[1:]]
        axis = self.outputs_before % len(shape)
        return large_empty(signal, [*shape[:axis], outputs, *shape[axis:]]).movedim(axis, 1)

    @abstractmethod
    def signal(self, gradient: torch.Tensor) -> torch.Tensor:
        """What to keep of one output's gradient with respect to the operation's result: (n, …)."""

    @abstractmethod
    def gradients(self, signals: torch.Tensor) -> dict[int, Gradients]:
        """Gradients by operand, from all outputs' signals (n, c, …)."""

    def input_shape(self) -> torch.Size | None:
        """Shape of one sample's inputs."""
        return None if self.inputs is None else self.inputs.values.shape[1:]

    def input_numbers(self) -> int:
        """How many numbers the call holds in addition to the signals."""
        return 0 if self.inputs is None else self.inputs.values.numel()


class ProductCall(OperationCall):
    """Products of two matrices, one of which contains samples: `mm`, `addmm`, `bmm`.

    Rows of the other one's gradient are the columns of the product. A batch of parameter matrices
    counts as one matrix in as many groups.
    """

    outputs_before = -1  # so that products over positions read and write contiguously

    def __init__(self, node: Any, operands: Mapping[int, torch.Size], place: Place) -> None:
        name = node.name()
        first = 1 if name == "AddmmBackward0" else 0  # of the two matrices
        self._bias = set(operands) & {first - 1}
        self._matrices = sorted(set(operands) - self._bias)
        self._alpha = node._saved_alpha if first else 1
        if len(self._matrices) > 1 or (first and node._saved_beta != 1):
            raise UnknownUseError
        (matrix,) = self._matrices or [first + 1]
        self._left = matrix == first
        self.transposed = {} if self._left else {i: operands[i] for i in self._matrices}
        self._batched = name == "BmmBackward0"
        self._axis = place.axis - self._batched
        if self._axis != (1 if self._left else 0) or (self._left and self._bias):
            raise UnknownUseError
        if any(operands[i][-1:] != (operands[i].numel(),) for i in self._bias):
            raise UnknownUseError
        self._place = replace(place, axis=0)
        if self._matrices:
            right = "_saved_mat1" if first else "_saved_self"
            a = getattr(node, "_saved_mat2" if self._left else right)
            self.inputs = VectorInputs(
                self._rows(a.detach().mT if self._left else a.detach()),
                a.shape[0] if self._batched else 1,
            )

    def _rows(self, t: torch.Tensor) -> torch.Tensor:
        """Rows of samples and positions, (rows, k) or (groups, rows, k), as (n, P, groups·k)."""
        if self._batched:
            t = t[0] if len(t) == 1 else t.transpose(0, 1).flatten(1)
        return _single(self._place.samples_first(t))

    def signal(self, gradient: torch.Tensor) -> torch.Tensor:
        """See `OperationCall`: (n, P, k)."""
        return self._rows(gradient.mT if self._left else gradient)

    def gradients(self, signals: torch.Tensor) -> dict[int, Gradients]:
        """See `OperationCall`: signals (n, c, P, k)."""
        found: dict[int, Gradients] = {}
        deltas = signals
        if self.inputs is not None:
            scaled = signals if self._alpha == 1 else signals * self._alpha
            weight = MatrixGradients(self.inputs, scaled).without_silent_positions()
            found[self._matrices[0]] = weight
            deltas = weight.deltas if self._alpha == 1 else signals
        return found | {i: BiasGradients(deltas) for i in self._bias}


class ConvolutionCall(OperationCall):
    """Convolutions of inputs (n·images, channels, …)."""

    def __init__(self, node: Any, operands: Mapping[int, torch.Size], place: Place) -> None:
        if place.axis != 0 or not set(operands) <= {1, 2}:
            raise UnknownUseError
        self._operands = operands
        self._place = place
        if 1 in operands:
            kernel = tuple(operands[1][2:])

            def per_axis(sizes: Sequence[int]) -> tuple[int, ...]:
                return tuple(sizes) * (len(kernel) // len(sizes))  # one may apply to all

            self._window: dict[str, Any] = {
                "kernel": kernel,
                "stride": per_axis(node._saved_stride),
                "dilation": per_axis(node._saved_dilation),
                "padding": per_axis(node._saved_padding),
                "groups": node._saved_groups,
            }
            a = _single(place.samples_first(node._saved_input.detach()))
            self.inputs = self._inputs(a, operands[1])

    def _inputs(self, a: torch.Tensor, weight: torch.Size) -> Inputs:
        return PatchInputs(a, **self._window)

    def signal(self, gradient: torch.Tensor) -> torch.Tensor:
        """See `OperationCall`: (n, images, k, …)."""
        return _single(self._place.samples_first(gradient))

    def gradients(self, signals: torch.Tensor) -> dict[int, Gradients]:
        """See `OperationCall`: signals (n, c, images, k, …)."""
        deltas = signals.flatten(4).transpose(3, 4)  # a view: positions run fastest in memory
        deltas = deltas[:, :, 0] if deltas.shape[2] == 1 else deltas.flatten(2, 3)
        found: dict[int, Gradients] = {2: BiasGradients(deltas)}
        if self.inputs is not None:
            found[1] = MatrixGradients(self.inputs, deltas)
        return {i: found[i] for i in self._operands}


class TransposedConvolutionCall(ConvolutionCall):
    """Transposed convolutions, in which inputs and gradients swap roles.

    The weight (d, k/groups, …) has the gradient Σ_t a_t δ_tᵀ, where a_t are the input's channels
    at a position and δ_t is the patch of the output's gradient that this position contributes to.
    """

    def _inputs(self, a: torch.Tensor, weight: torch.Size) -> Inputs:
        groups = self._window["groups"]
        self.transposed = {1: (groups, weight[0] // groups, weight[1:].numel())}
        return VectorInputs(a.flatten(3).transpose(2, 3).flatten(1, 2), groups)

    def signal(self, gradient: torch.Tensor) -> torch.Tensor:
        """See `OperationCall`: patches at all positions and sums over the images, (n, p).

        Raises:
            UnknownUseError: if the number of patches is not that of the inputs' positions.
        """
        parts, images = [], super().signal(gradient)
        if self.inputs is not None:
            patches = PatchInputs(images, **self._window)
            if patches.positions != self.inputs.positions:
                raise UnknownUseError  # the output is padded by more than a stride
            loaded = patches.load_groups(slice(None), slice(None))
            parts.append(patches.weight_order(loaded).flatten(1))
        if 2 in self._operands:
            parts.append(images.flatten(3).sum((1, 3)))
        return torch.cat(parts, 1)

    def gradients(self, signals: torch.Tensor) -> dict[int, Gradients]:
        """See `OperationCall`: signals (n, c, p)."""
        found: dict[int, Gradients] = {}
        if self.inputs is not None:
            number = signals.shape[2] - (self._operands[2].numel() if 2 in self._operands else 0)
            deltas = signals[..., :number].unflatten(2, (self.inputs.positions, -1))
            found[1] = MatrixGradients(self.inputs, deltas)
            signals = signals[..., number:]
        return found | ({2: VectorGradients(signals)} if 2 in self._operands else {})


class LookupCall(OperationCall):
    """Lookups of rows of a table (V, k) by the samples' tokens: `embedding` and indexing."""

    outputs_before = -1

    def __init__(self, node: Any, operands: Mapping[int, torch.Size], place: Place) -> None:
        name, (vocabulary, *rest) = node.name(), operands[0]
        self._padding = None
        if name == "EmbeddingBackward0":
            tokens = node._saved_indices
            padding = node._saved_padding_idx
            if node._saved_scale_grad_by_freq:
                raise UnknownUseError
            self._padding = padding if 0 <= padding < vocabulary else None
        elif name == "IndexSelectBackward0":
            if node._saved_dim != 0:
                raise UnknownUseError
            tokens = node._saved_index
        else:
            tokens, *others = node._saved_indices
            if others or tokens is None or tokens.dtype == torch.bool:
                raise UnknownUseError
            tokens = tokens % vocabulary
        if place.axis >= tokens.ndim or not tokens.numel():
            raise UnknownUseError
        self._place = place
        self._width = torch.Size(rest).numel()
        self._tokens = place.samples_first(tokens).flatten(1)
        self.inputs = TokenInputs(self._tokens, vocabulary, self._width)

    def signal(self, gradient: torch.Tensor) -> torch.Tensor:
        """See `OperationCall`: (n, P, k)."""
        delta = _single(self._place.samples_first(gradient)).reshape(
            *self._tokens.shape, self._width
        )
        if self._padding is None:
            return delta
        return delta.masked_fill((self._tokens == self._padding)[..., None], 0)

    def gradients(self, signals: torch.Tensor) -> dict[int, Gradients]:
        """See `OperationCall`: signals (n, c, P, k)."""
        assert self.inputs is not None  # set on construction
        return {0: MatrixGradients(self.inputs, signals)}


class BroadcastCall(OperationCall):
    """Elementwise operations with an operand that is broadcast: sums over the broadcast axes."""

    def __init__(self, node: Any, operands: Mapping[int, torch.Size], place: Place) -> None:
        self._node, self._place, self._operands = node, place, operands
        shape = list(node._input_metadata[0].shape)
        self._ndim = len(shape)
        shape[place.axis] = place.after if place.before == 1 else 1  # which `repeat` may tile
        for operand in operands.values():
            fits = zip(self._wide(operand), shape, strict=True)
            if len(operand) > len(shape) or not all(size in (1, whole) for size, whole in fits):
                raise UnknownUseError

    def _wide(self, operand: Sequence[int]) -> list[int]:
        return [1] * (self._ndim - len(operand)) + list(operand)

    def _local(self, gradient: torch.Tensor) -> dict[int, torch.Tensor]:
        """Gradients of the operands before they are summed, in the output's shape."""
        found = self._node(gradient)
        found = found if isinstance(found, tuple) else (found,)
        return {i: found[i] for i in self._operands}

    def signal(self, gradient: torch.Tensor) -> torch.Tensor:
        """See `OperationCall`: all operands' sums, concatenated, (n, p).

        Raises:
            UnknownUseError: if the gradients are not in the output's shape.
        """
        sums = []
        for i, local in self._local(gradient).items():
            if local.shape != gradient.shape:
                raise UnknownUseError
            sums.append(self._place.sum_to(_single(local), self._wide(self._operands[i])))
        return sums[0] if len(sums) == 1 else torch.cat(sums, dim=1)

    def gradients(self, signals: torch.Tensor) -> dict[int, Gradients]:
        """See `OperationCall`: signals (n, c, p)."""
        parts = signals.split([operand.numel() for operand in self._operands.values()], dim=2)
        return {i: VectorGradients(part) for i, part in zip(self._operands, parts, strict=True)}


class CopyCall(BroadcastCall):
    """`expand`, and `repeat` once for each sample: the gradient itself."""

    def _local(self, gradient: torch.Tensor) -> dict[int, torch.Tensor]:
        return dict.fromkeys(self._operands, gradient)


class NormalisationCall(BroadcastCall):
    """h = γ ∘ â + β with normalised inputs â: gradients Σ_t δ_t∘â_t and Σ_t δ_t."""

    def __init__(self, node: Any, operands: Mapping[int, torch.Size], place: Place) -> None:
        name = node.name()
        x = node._saved_input.detach()
        if 0 in operands or getattr(node, "_saved_training", False):
            raise UnknownUseError
        if name in ("NativeGroupNormBackward0", "NativeBatchNormBackward0"):  # by channels
            tail = [1] * (x.ndim - 2)
            operands = {i: torch.Size([*shape, *tail]) for i, shape in operands.items()}
        super().__init__(node, operands, place)
        self._normalised = _normalised(name, node, x) if 1 in operands else None

    def _local(self, gradient: torch.Tensor) -> dict[int, torch.Tensor]:
        gain = {} if self._normalised is None else {1: gradient * self._normalised}
        return {i: (gain | {2: gradient})[i] for i in self._operands}

    def input_numbers(self) -> int:
        """See `OperationCall`."""
        return 0 if self._normalised is None else self._normalised.numel()


_KINDS: dict[type[OperationCall], str] = {
    ProductCall: "Mm Addmm Bmm",
    ConvolutionCall: "Convolution",
    LookupCall: "Embedding Index IndexSelect",
    NormalisationCall: "NativeLayerNorm NativeGroupNorm NativeBatchNorm FusedRmsNorm",
    CopyCall: "Expand Repeat",
    BroadcastCall: "Add Addcdiv Addcmul Atan2 Div Maximum Minimum Mul PreluKernel Sub Where",
}
_RULES = {f"{kind}Backward0": rule for rule, kinds in _KINDS.items() for kind in kinds.split()}
_RULES |= {"LerpBackward1": BroadcastCall, "PowBackward1": BroadcastCall}


def rule_of(node: Any) -> type[OperationCall] | None:
    """The rule for an operation, if there is one."""
    name = node.name()
    if name == "ConvolutionBackward0" and node._saved_transposed:
        return TransposedConvolutionCall
    return _RULES.get(name)


def first_samples(call: OperationCall, n: int) -> OperationCall:
    """The call with the inputs of the first n samples only."""
    if call.inputs is None or n == len(call.inputs.values):
        return call
    some = copy(call)
    some.inputs = replace(call.inputs, values=call.inputs.values[:n])
    return some


def merge_calls(calls: Sequence[OperationCall]) -> OperationCall:
    """One call with the inputs of several calls of the same operation."""
    merged = copy(calls[0])
    if merged.inputs is not None and len(calls) > 1:
        values = [call.inputs.values for call in calls if call.inputs is not None]
        merged.inputs = replace(merged.inputs, values=torch.cat(values))
    return merged


def _normalised(name: str, node: Any, x: torch.Tensor) -> torch.Tensor:
    """â, in the shape of the inputs."""
    if name == "NativeBatchNormBackward0":
        tail = [1] * (x.ndim - 2)
        mean, variance = node._saved_running_mean, node._saved_running_var
        rate = (variance + node._saved_eps).rsqrt()
        return (x - mean.view(-1, *tail)) * rate.view(-1, *tail)
    if name == "NativeLayerNormBackward0":
        return (x - node._saved_result1) * node._saved_result2
    if name == "FusedRmsNormBackward0":
        return x * node._saved_result1
    grouped = x.reshape(len(x), node._saved_group, -1)
    mean, rate = node._saved_result1[..., None], node._saved_result2[..., None]
    return ((grouped - mean) * rate).view(x.shape)


def _single(t: torch.Tensor) -> torch.Tensor:
    """Convert half precision to float32, since sums follow."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t
