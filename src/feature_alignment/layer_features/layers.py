"""The layers of a model: its products with matrices of parameters, by name."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from feature_alignment.errors import check_known, shortened, suggestion
from feature_alignment.gradients.capture import Recording
from feature_alignment.gradients.graph import Graph, Source, selected_entries

T = TypeVar("T")

# Operations that only select and rearrange entries.
_VIEW_KINDS = (
    "Alias Clone Narrow Permute ReshapeAlias Select Slice Split SplitWithSizes Squeeze T ToCopy "
    "Transpose Unbind UnsafeSplit UnsafeView Unsqueeze View"
)
_VIEWS = frozenset(f"{kind}Backward" for kind in _VIEW_KINDS.split())

# Positions of the inputs that may be matrices; for products those of the left and the right one.
_MATRICES: dict[str, tuple[int, ...]] = {
    "MmBackward0": (0, 1),
    "AddmmBackward0": (1, 2),
    "BmmBackward0": (0, 1),
    "ConvolutionBackward0": (1,),
}


@dataclass(frozen=True)
class MatrixUse:
    """A product h = Wa of a matrix of parameters with inputs a at any number of positions."""

    number: int  # of the operation in the graph
    name: str  # the parameter that W is, or is a part of
    entries: torch.Tensor | None  # indices into the flat parameter that make up W; None for all
    shape: tuple[int, ...]  # of W: (k, d), or for a convolution (k, channels, …)
    groups: int  # groups of a convolution, or number of matrices in a batched product
    left: bool  # whether the columns of the product are positions; otherwise the rows are

    def like(self, other: "MatrixUse") -> bool:
        """Whether it uses the same entries of the same parameter."""
        mine, others = self.entries, other.entries
        if mine is None or others is None:
            return mine is others and self.name == other.name
        return self.name == other.name and torch.equal(mine, others)

    def matrix(self, parameter: torch.Tensor) -> torch.Tensor:
        """W (k, d) from a value of the parameter, as a detached copy."""
        flat = parameter.detach().flatten()
        chosen = flat.clone() if self.entries is None else flat[self.entries]
        return chosen.view(self.shape).flatten(1)

    def transposes(self, parameter: torch.Tensor) -> bool:
        """Whether W is the transpose of a matrix that is a parameter."""
        if self.entries is None or self.shape != parameter.shape[::-1]:
            return False
        places = torch.arange(parameter.numel(), device=self.entries.device)
        return torch.equal(self.entries, places.view(parameter.shape).T.flatten())

    def rows(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient with respect to the operation's result, one row per position: (n·P, k)."""
        if len(self.shape) > 2:
            gradient = gradient.movedim(1, -1)
        elif self.left:
            gradient = gradient.mT
        return gradient.reshape(-1, gradient.shape[-1])


def owners_of_matrices(model: nn.Module, layers: Sequence[str] | None) -> dict[str, str]:
    """Layer names by first names of the parameters that may be the layers' matrices.

    Raises:
        ValueError: if `layers` is not a list, or one of them is not in the model or has no matrix.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    first = {id(p): name for name, p in model.named_parameters()}
    owners: dict[str, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owner, _, key = name.rpartition(".")
        if parameter.ndim >= 2 and not isinstance(modules[owner], nn.Embedding):
            owners.setdefault(first[id(parameter)], owner if key == "weight" else name)
    if layers is None:
        return owners
    if isinstance(layers, str) or not isinstance(layers, Sequence):
        raise ValueError(f"layers: found {shortened(layers)}; give a list of names.")
    if not layers:
        raise ValueError("layers: an empty list; give names, or None for all layers.")
    wanted = {str(name).partition("[")[0] for name in layers}
    for name in layers:
        if not isinstance(name, str) or name.partition("[")[0] not in owners.values():
            kind = f"a {type(modules[name]).__name__}" if name in modules else "not in the model"
            raise ValueError(
                f"layers: {shortened(name)} is {kind}; only products with matrices of parameters "
                f"and convolutions are measured; {suggestion(name, list(owners.values()))}."
            )
    return {parameter: name for parameter, name in owners.items() if name in wanted}


def chosen_layers(found: Mapping[str, T], layers: Sequence[str] | None) -> dict[str, T]:
    """What was found for the layers asked for, in their order; None for all.

    Raises:
        ValueError: if one has another name: several matrices of one parameter are numbered.
    """
    for name in layers or ():
        check_known(f"layers: {shortened(name)} is no layer", name, found)
    return dict(found) if layers is None else {name: found[name] for name in layers}


def matrix_uses(recording: Recording) -> Iterator[MatrixUse]:
    """The products with parameters in a recording, in order of execution."""
    graph = recording.graph
    for number in reversed(range(len(graph.nodes))):
        node, operands = graph.nodes[number], _MATRICES.get(graph.names[number], ())
        for i in operands:
            source = graph.inputs[number][i]
            name = _selected_from(graph, source)
            if source is None or name is None:
                continue
            convolution, shape = graph.names[number] == "ConvolutionBackward0", graph.shape(source)
            if convolution and node._saved_transposed:
                continue
            right = not convolution and i == operands[1]
            matrix = tuple(shape) if convolution else tuple(shape[-2:])
            groups = node._saved_groups if convolution else shape[:-2].numel()
            entries, transposed = None, shape if right else None
            if not graph.is_parameter(source, name, transposed):
                entries = selected_entries(graph, source, recording.leaves[name], transposed)
                if entries is None:
                    continue
            matrix = matrix[::-1] if right else matrix
            yield MatrixUse(number, name, entries, matrix, groups, left=not right)


def _selected_from(graph: Graph, source: Source | None) -> str | None:
    """The parameter from which a tensor selects its entries, or None."""
    while source is not None:
        name, below = graph.names[source[0]], graph.inputs[source[0]]
        if name.startswith(":"):
            return name[1:]
        is_view = name.rstrip("0123456789") in _VIEWS and len(below) == 1
        source = below[0] if is_view else None
    return None


def layers_of(
    recording: Recording, owners: Mapping[str, str]
) -> tuple[dict[str, MatrixUse], dict[str, str]]:
    """Where each layer is used, in the model's order, and why the others cannot be measured."""
    found: dict[str, list[MatrixUse]] = {name: [] for name in owners.values()}
    for use in matrix_uses(recording):
        found[owners[use.name]].append(use)
    graph = recording.graph
    transposed = {
        owners.get(_selected_from(graph, inputs[1]) or "")
        for name, node, inputs in zip(graph.names, graph.nodes, graph.inputs, strict=True)
        if name == "ConvolutionBackward0" and node._saved_transposed
    }
    layers: dict[str, MatrixUse] = {}
    problems: dict[str, str] = {}
    for name, uses in found.items():
        named = _by_part(name, uses, recording.leaves)
        if len(named) != len(uses) or not uses:
            if uses:
                problems[name] = f"was used {len(uses)} times in the forward pass, not once"
            elif name in transposed:
                problems[name] = "is a transposed convolution, which acts on no patches"
            else:
                problems[name] = (
                    "does not multiply a layer's inputs (as if weights are computed from it, by "
                    "weight normalisation), its part in the outputs is hidden, or no sample "
                    "reaches it"
                )
        elif uses[0].groups != 1:
            problems[name] = f"has {uses[0].groups} groups, and so no single matrix"
        else:
            layers |= named
    return layers, problems


def _by_part(
    name: str, uses: Sequence[MatrixUse], leaves: Mapping[str, torch.Tensor]
) -> dict[str, MatrixUse]:
    """The uses by layer; different parts of one parameter are numbered.

    In a stack of matrices of one size these are their places, whichever are used; others are
    counted.
    """
    starts = [0 if use.entries is None else int(use.entries.min()) for use in uses]
    order: Sequence[int] = sorted(set(starts))
    sizes = {math.prod(use.shape) for use in uses}
    if len(sizes) == 1 and (size := max(sizes)):
        whole = leaves[uses[0].name].numel()
        if not any(place % size for place in (*starts, whole)):
            order = range(0, whole, size)
    label = f"{name}[{{}}]" if len(order) > 1 else name
    return {label.format(order.index(a)): use for a, use in zip(starts, uses, strict=True)}


def reasons(problems: Mapping[str, str]) -> list[str]:
    """One message for each layer that cannot be measured."""
    return [f"layer {name!r} {problem}" for name, problem in sorted(problems.items())]
