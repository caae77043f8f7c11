"""Where a network multiplies by a matrix that is a parameter, or a part of one."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from feature_alignment.gradients.capture import Recording
from feature_alignment.gradients.graph import Graph, Source, selected_entries

# Operations that only select and rearrange entries.
_VIEWS = frozenset(
    f"{kind}Backward"
    for kind in (
        *("Alias", "Clone", "Narrow", "Permute", "ReshapeAlias", "Select", "Slice", "Split"),
        *("SplitWithSizes", "Squeeze", "T", "ToCopy", "Transpose", "Unbind", "UnsafeSplit"),
        *("UnsafeView", "Unsqueeze", "View"),
    )
)


@dataclass(frozen=True)
class MatrixUse:
    """A product h = Wa, of inputs a at any number of positions, with a matrix of parameters."""

    number: int  # of the operation in the graph
    operand: int  # which of its inputs is W
    name: str  # the parameter that W is, or is a part of
    entries: torch.Tensor | None  # of the flat parameter, which W consists of; None for all
    shape: tuple[int, ...]  # of W: (k, d), or of a convolution (k, channels, …)
    groups: int  # groups of a convolution, or matrices that are multiplied side by side
    left: bool  # whether columns of the operation's result are positions, rows otherwise

    def matrix(self, parameter: torch.Tensor) -> torch.Tensor:
        """W (k, d) of a value of the parameter: a detached copy."""
        flat = parameter.detach().flatten()
        chosen = flat.clone() if self.entries is None else flat[self.entries]
        return chosen.view(self.shape).flatten(1)

    def rows(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient by the operation's result with one row for each position: (n·P, k)."""
        if len(self.shape) > 2:
            gradient = gradient.movedim(1, -1)
        elif self.left:
            gradient = gradient.mT
        return gradient.reshape(-1, gradient.shape[-1])


def matrix_uses(recording: Recording) -> Iterator[MatrixUse]:
    """The products with parameters in a recording, in the order in which they were made."""
    graph = recording.graph
    for number in reversed(range(len(graph.nodes))):
        for i in _MATRICES.get(graph.names[number], ()):
            source = graph.inputs[number][i]
            name = _selected_from(graph, source)
            if source is None or name is None:
                continue
            node, shape = graph.nodes[number], graph.shape(source)
            convolution = graph.names[number] == "ConvolutionBackward0"
            right = not convolution and i == _MATRICES[graph.names[number]][1]
            if convolution and node._saved_transposed:
                continue
            groups = node._saved_groups if convolution else shape[:-2].numel()
            entries = None
            transposed = shape if right else None
            if not graph.is_parameter(source, name, transposed):
                entries = selected_entries(graph, source, recording.leaves[name], transposed)
                if entries is None:
                    continue
            matrix = tuple(shape) if convolution else tuple(shape[-2:])
            matrix = (matrix[1], matrix[0]) if right else matrix
            left = not convolution and not right
            yield MatrixUse(number, i, name, entries, matrix, groups, left)


# Inputs of operations that may be matrices: of products the left one and the right one.
_MATRICES: dict[str, tuple[int, ...]] = {
    "MmBackward0": (0, 1),
    "AddmmBackward0": (1, 2),
    "BmmBackward0": (0, 1),
    "ConvolutionBackward0": (1,),
}


def _selected_from(graph: Graph, source: Source | None) -> str | None:
    """The parameter that a tensor is a selection of, or None."""
    while source is not None:
        name, below = graph.names[source[0]], graph.inputs[source[0]]
        if name.startswith(":"):
            return name[1:]
        is_view = name.rstrip("0123456789") in _VIEWS and len(below) == 1
        source = below[0] if is_view else None
    return None
