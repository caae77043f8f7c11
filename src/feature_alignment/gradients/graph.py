"""The autograd graph of a forward pass: where parameters meet samples, and how they get there.

A tensor depends on the samples if its shape grows with their number from one recording to another.
Along the border of that part of the graph, operations combine samples with parameters, or with
functions of parameters alone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

Source = tuple[int, int]  # an operation's output: the operation's number and the output's
Signature = tuple[Sequence[str], Sequence[tuple[Source | None, ...]]]  # see `Graph.signature`


@dataclass(frozen=True)
class Place:
    """Where the samples are in a tensor: along an axis that runs over (before, n, after)."""

    axis: int
    before: int = 1  # positions that vary slower than the samples
    after: int = 1  # positions that vary faster

    def split(self, t: torch.Tensor) -> torch.Tensor:
        """The tensor with the axis split in three: (…, before, n, after, …)."""
        n = t.shape[self.axis] // (self.before * self.after)
        return t.unflatten(self.axis, (self.before, n, self.after))

    def samples_first(self, t: torch.Tensor) -> torch.Tensor:
        """The tensor as (n, positions, …), the other axes in their order: a view if possible."""
        if self.axis == 0 and self.before == 1:
            return t.unflatten(0, (-1, self.after)) if self.after > 1 else t[:, None]
        moved = self.split(t).movedim(self.axis + 1, 0)  # (n, …, before, after, …)
        return moved.flatten(self.axis + 1, self.axis + 2).movedim(self.axis + 1, 1)

    def sum_to(self, t: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        """Sums over each sample's positions, to a shape that broadcasts to t's: (n, numbers).

        The shape has t's axes; its samples' axis has length 1 or all of the `after` positions.
        """
        axes = [i for i in range(t.ndim) if i != self.axis and shape[i] == 1 != t.shape[i]]
        t = t.sum(axes, keepdim=True) if axes else t
        if self.before == self.after == 1:
            t = t.movedim(self.axis, 0)
        elif shape[self.axis] == 1:
            t = self.split(t).sum((self.axis, self.axis + 2)).movedim(self.axis, 0)
        else:
            t = self.split(t).movedim(self.axis + 1, 0)
        return t.reshape(len(t), -1)


class Graph:
    """The operations that computed an output, in an order that depends only on the model.

    Attributes:
        nodes: autograd's nodes; the output's is the first.
        names: their names; a parameter's node is named by a colon and the parameter's name.
        inputs: for each node, where its operation's inputs come from; None for constants.

    Raises:
        ValueError: if the graph hides operations in re-entrant checkpoints.
    """

    def __init__(self, f: torch.Tensor, leaves: Mapping[str, torch.Tensor]) -> None:
        owners = {id(leaf): f":{name}" for name, leaf in leaves.items()}
        start = f.grad_fn
        self.nodes: list[Any] = [] if start is None else [start]
        self.names: list[str] = []
        self.inputs: list[tuple[Source | None, ...]] = []
        numbers = {start: 0}
        for node in self.nodes:  # which grows meanwhile
            found: list[Source | None] = []
            for below, output in node.next_functions:
                if below is not None and below not in numbers:
                    numbers[below] = len(self.nodes)
                    self.nodes.append(below)
                found.append(None if below is None else (numbers[below], output))
            self.inputs.append(tuple(found))
            self.names.append(owners.get(id(getattr(node, "variable", None))) or str(node.name()))
        if "CheckpointFunctionBackward" in self.names:
            raise ValueError(
                "the model uses re-entrant checkpointing, whose gradients cannot be taken apart; "
                "call torch.utils.checkpoint.checkpoint with use_reentrant=False."
            )

    def shape(self, source: Source) -> torch.Size:
        """Shape of an output of an operation."""
        return torch.Size(self.nodes[source[0]]._input_metadata[source[1]].shape)

    def shapes(self) -> list[list[torch.Size]]:
        """Shapes of all outputs of all operations.

        Raises:
            ValueError: if one is a nested tensor.
        """
        if any(made.is_nested_tensor for node in self.nodes for made in node._input_metadata):
            raise ValueError(
                "the model makes nested tensors, in which no sample's part is found; have it pad "
                "them, and mask what is not to count."
            )
        return [[torch.Size(i.shape) for i in node._input_metadata] for node in self.nodes]

    def dtypes(self) -> set[torch.dtype]:
        """Precisions of the outputs of all operations."""
        return {made.dtype for node in self.nodes for made in node._input_metadata}

    def edge(self, source: Source) -> GradientEdge:
        """Where in the graph to find the gradient with respect to an operation's output."""
        return GradientEdge(self.nodes[source[0]], source[1])

    @property
    def signature(self) -> Signature:
        """What two recordings of one path through a model have in common."""
        return self.names, self.inputs

    def same_path(self, other: "Graph") -> bool:
        """Whether another recording has the same operations on the same entries."""
        if self is other:
            return True
        alike = self.signature == other.signature and self.shapes() == other.shapes()
        return alike and all(map(torch.equal, self._chosen(), other._chosen()))

    def _chosen(self) -> list[torch.Tensor]:
        """Indices and masks with which operations select entries or write values with a graph."""
        found: list[Any] = []
        for name, node, inputs in zip(self.names, self.nodes, self.inputs, strict=True):
            taken = name.startswith(("Gather", "IndexB", "IndexS", "MaskedSelect"))
            if taken or (name.startswith(("Index", "Scatter")) and any(inputs[1:])):
                for key in ("index", "indices", "mask"):
                    saved = getattr(node, f"_saved_{key}", None)
                    found.extend(saved if isinstance(saved, tuple) else [saved])
        return [t for t in found if isinstance(t, torch.Tensor)]

    def unused(self, names: Iterable[str]) -> list[str]:
        """The parameters that the output does not depend on."""
        used = set(self.names)
        return [name for name in names if f":{name}" not in used]

    def leaves_below(self, number: int) -> tuple[list[str], set[int]]:
        """Parameters that a node is computed from, and all nodes on the way."""
        seen, waiting = {number}, [number]
        while waiting:
            for source in self.inputs[waiting.pop()]:
                if source is not None and source[0] not in seen:
                    seen.add(source[0])
                    waiting.append(source[0])
        return sorted(self.names[i][1:] for i in seen if self.names[i].startswith(":")), seen

    def is_parameter(self, source: Source, name: str, transposed: Sequence[int] | None) -> bool:
        """Whether an output is the parameter itself, or its transpose if it is `transposed`."""
        if transposed is not None:
            below = self.inputs[source[0]]
            if self.names[source[0]] != "TBackward0" or below[0] is None:
                return False
            source = below[0]
        return self.names[source[0]] == f":{name}"


ODD = (-1, -1)


def sample_place(few: torch.Size, more: torch.Size, n: tuple[int, int]) -> tuple[int, int] | None:
    """The axis that grows with the samples, and its positions per sample; None if the shapes agree.

    ODD if they do not grow in proportion along one axis.
    """
    if few == more:
        return None
    axes = [i for i, pair in enumerate(zip(few, more, strict=False)) if pair[0] != pair[1]]
    if len(few) == len(more) and len(axes) == 1:
        (axis,) = axes
        positions, rest = divmod(few[axis], n[0])
        if not rest and more[axis] == positions * n[1]:
            return axis, positions
    return ODD


def selected_entries(
    graph: Graph, source: Source, leaf: torch.Tensor, transposed: Sequence[int] | None
) -> torch.Tensor | None:
    """Which entry of a parameter each entry of a tensor is, if the tensor only selects entries.

    Views, transposes, slices and lookups of a parameter take each of their entries from one of the
    parameter's, none twice. A tensor with a shape `transposed` is traversed in this shape with the
    last two axes swapped. The result is indices into the flat parameter (p,), or None for any other
    function.
    """
    shape = graph.shape(source)
    size = math.prod(shape)
    if leaf.dtype not in (torch.float32, torch.float64) or size > leaf.numel():
        return None
    pulled_back = partial(_pulled_back, graph, source, leaf)
    rank = _ranks(shape, transposed)
    try:
        low, high = pulled_back(rank % 4096), pulled_back(rank // 4096)  # exact in float32
        ones, tried = pulled_back(torch.ones(size)), pulled_back(_signature(rank))
    except RuntimeError:  # a function that cannot be differentiated again
        return None
    places = ones.nonzero()[:, 0]
    order = (high * 4096 + low)[places].long()
    if len(places) != size or not torch.equal(order.sort().values.cpu(), torch.arange(size)):
        return None
    entries = torch.empty_like(places)
    entries[order] = places
    expected = torch.zeros_like(tried)
    expected[entries] = _signature(torch.arange(size)).to(tried)
    return entries if torch.equal(tried, expected) else None


def is_selection(
    graph: Graph,
    source: Source,
    leaf: torch.Tensor,
    transposed: Sequence[int] | None,
    entries: torch.Tensor | None,
) -> bool:
    """Whether a tensor has just these entries of a parameter; None for all in their order."""
    ranks = _ranks(graph.shape(source), transposed)
    if len(ranks) != (leaf.numel() if entries is None else len(entries)):
        return False
    order = torch.arange(len(ranks))
    for value in (lambda rank: rank % 4096 + 1, lambda rank: rank // 4096):  # exact in float32
        found, expected = _pulled_back(graph, source, leaf, value(ranks)), value(order).to(leaf)
        if entries is not None:
            expected = torch.zeros_like(found).index_put((entries,), expected)
        if not torch.equal(found, expected):
            return False
    return True


def _pulled_back(
    graph: Graph, source: Source, leaf: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    values = values.to(leaf).view(graph.shape(source))
    (found,) = torch.autograd.grad([graph.edge(source)], [leaf], [values], retain_graph=True)
    return found.to_dense().flatten()


def _ranks(shape: Sequence[int], transposed: Sequence[int] | None) -> torch.Tensor:
    ranks = torch.arange(math.prod(shape))
    if transposed:
        *others, d, k = transposed
        ranks = ranks.view(*others, k, d).transpose(-1, -2).flatten()
    return ranks


def _signature(rank: torch.Tensor) -> torch.Tensor:
    return rank * 37 % 101 + 1
