"""An operation in which parameters meet samples, and what its gradients are made of."""

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
    """A rule does not hold for an operation as it is used here."""


class OperationCall(ABC):
    """One operation: what the gradients by its operands are made of.

    It is made from autograd's node, the shapes of the wanted operands by their number among the
    operation's inputs, and the place of the samples in its output.

    Raises:
        UnknownUseError: if the rule does not hold.
    """

    # In memory, the signals of all outputs are stacked along a new axis before this one.
    outputs_before = 1

    # Operands whose matrices are (d, k) in place of (k, d), and the shape (…, d, k) of all of one.
    transposed: Mapping[int, Sequence[int]] = {}

    inputs: Inputs | None = None  # a, where an operand's gradient is Σ_t δ_t a_tᵀ

    @abstractmethod
    def __init__(self, node: Any, operands: Mapping[int, torch.Size], place: Place) -> None: ...

    def new_signals(self, signal: torch.Tensor, n: int, outputs: int) -> torch.Tensor:
        """Space for signals like this one of n samples and all outputs: (n, c, …)."""
        shape = [n, *signal.shape[1:]]
        axis = self.outputs_before % len(shape)
        return large_empty(signal, [*shape[:axis], outputs, *shape[axis:]]).movedim(axis, 1)

    @abstractmethod
    def signal(self, gradient: torch.Tensor) -> torch.Tensor:
        """What to keep of the gradient of one output by what the operation returned: (n, …)."""

    @abstractmethod
    def gradients(self, signals: torch.Tensor) -> dict[int, Gradients]:
        """Gradients by operand, from all outputs' signals (n, c, …)."""

    def input_shape(self) -> torch.Size | None:
        """Of one sample's inputs."""
        return None if self.inputs is None else self.inputs.values.shape[1:]

    def input_numbers(self) -> int:
        """How many numbers the call holds, apart from the signals."""
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
