"""An operation that combines parameters with samples, and what its gradients are made of."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import torch

from feature_alignment.gradients.blocks import large_empty
from feature_alignment.gradients.graph import Place
from feature_alignment.gradients.layer_inputs import Inputs
from feature_alignment.gradients.parameter_gradients import Gradients


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
