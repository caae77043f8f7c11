"""The operations that combine parameters with samples, and their gradients for each parameter."""

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from feature_alignment.gradients.capture import Recording, backpropagate, leaf_gradients
from feature_alignment.gradients.checks import rounding
from feature_alignment.gradients.graph import (
    ODD,
    Graph,
    Place,
    Source,
    is_selection,
    sample_place,
    selected_entries,
)
from feature_alignment.gradients.operation_rules import (
    OperationCall,
    UnknownUseError,
    first_samples,
    rule_of,
)
from feature_alignment.gradients.parameter_gradients import (
    BiasGradients,
    Gradients,
    Part,
    VectorGradients,
    of_one_kind,
)

ROUNDINGS = 1000  # rounding errors of a sum, in units of its terms' last place
FEW, MORE = 2, 3  # samples in the two recordings of a trial


@dataclass(frozen=True)
class Operand:
    """A function of parameters only, with respect to which a rule gives gradients."""

    source: Source  # where in the graph it comes from
    names: tuple[str, ...]  # the parameters that it is computed from
    derived: bool = False  # whether it is anything but a selection of one parameter's entries
    entries: torch.Tensor | None = None  # those of the parameter; None for all in their order

    def holds(self, recording: Recording, transposed: Sequence[int] | None) -> bool:
        """Whether it has these entries in another recording, too."""
        graph, name = recording.graph, self.names[0]
        if self.derived or graph.is_parameter(self.source, name, transposed):
            return True
        return is_selection(graph, self.source, recording.leaves[name], transposed, self.entries)


@dataclass(frozen=True)
class CallPlan:
    """An operation explained by a rule."""

    place: Place  # where the samples are in its output
    operands: Mapping[int, Operand]  # by their position among the operation's inputs
    numbers: tuple[int, int, int] = (0, 0, 0)  # sizes of one sample's inputs, output, signal

    def call(self, graph: Graph, number: int, n: int) -> OperationCall:
        """The operation with this number in a recording of n samples.

        Raises:
            UnknownUseError: if the rule does not apply.
        """
        positions = self.place.before * self.place.after
        if graph.shape((number, 0))[self.place.axis] != n * positions:
            raise UnknownUseError
        shapes = {i: graph.shape(operand.source) for i, operand in self.operands.items()}
        rule = rule_of(graph.nodes[number])
        if rule is None:
            raise UnknownUseError
        return rule(graph.nodes[number], shapes, self.place)


def gradients_by_parameter(
    recording: Recording | None,
    plans: Mapping[int, CallPlan],
    calls: Mapping[int, OperationCall],
    signals: Mapping[int, torch.Tensor],
    names: Collection[str],
) -> dict[str, list[Part]]:
    """Every use of the named parameters in the calls, each as a separate part.

    `plans`, `calls` and `signals`, each (n, c, …), are keyed by operation. The calls come from
    `recording`, which is only needed for derived operands.
    """
    parts: dict[str, list[Part]] = {}
    for number, call in calls.items():
        for i, gradients in call.gradients(signals[number]).items():
            operand = plans[number].operands[i]
            if not set(names).intersection(operand.names):
                continue
            if not operand.derived:
                parts.setdefault(operand.names[0], []).append(Part([gradients], operand.entries))
            elif recording is not None:
                pulled = _pulled_back(recording, operand, call.transposed.get(i), gradients)
                for name in [name for name in operand.names if name in names]:
                    parts.setdefault(name, []).append(Part([VectorGradients(pulled[name])]))
    return parts


def by_entries(parts: Sequence[Part]) -> list[Part]:
    """The same gradients with one part for each selection of entries."""
    found: dict[int, list[Part]] = {}
    for part in parts:
        found.setdefault(id(part.entries), []).append(part)
    return [
        Part([use for part in same for use in part.uses], same[0].entries)
        for same in found.values()
    ]


def can_be_held(parts: Sequence[Part]) -> bool:
    """Whether the parts, one for each selection, are each of one kind and share no entry."""
    if not all(of_one_kind(part.uses) for part in parts):
        return False
    if len(parts) == 1:
        return True
    if any(part.entries is None for part in parts):
        return False
    together = torch.cat([part.entries for part in parts if part.entries is not None])
    return len(together.unique()) == len(together)


class Border:
    """The operations that combine parameters with samples, and the gradients from their rules.

    The recording has three samples, and each cotangent (3, c) is zero for all but one of them. Only
    the first sample's calls and signals are kept.
    """

    def __init__(self, recording: Recording, cotangents: Sequence[torch.Tensor]) -> None:
        self.recording, self.graph, self.cotangents = recording, recording.graph, cotangents
        self.plans: dict[int, CallPlan] = {}
        self.calls: dict[int, OperationCall] = {}
        self.signals: dict[int, torch.Tensor] = {}
        self.parts: dict[str, list[Part]] = {}
        self.lost: set[str] = set()
        self.expected = leaf_gradients(recording.f, recording.leaves, cotangents[0])

    def search(self, few: Sequence[Sequence[torch.Size]]) -> None:
        """Find the operations by comparing their outputs' shapes with those for two samples."""
        grown = list(map(_grown, few, self.graph.shapes()))
        border: dict[int, dict[int, Source]] = {}
        for number, sources in enumerate(self.graph.inputs):
            if grown[number] is None:
                continue
            for i, source in enumerate(sources):
                if source is None or grown[source[0]] is not None:
                    continue
                names, below = self.graph.leaves_below(source[0])
                if not names:
                    continue
                if any(grown[j] is not None for j in below):
                    self.lost.update(names)
                else:
                    border.setdefault(number, {})[i] = source
        passes = list(backpropagate(self.recording, list(border), iter(self.cotangents)))
        for number, sources in border.items():
            gradients = [found[number] for found in passes]
            try:
                self._explain(number, sources, _place(grown[number], gradients), gradients[0])
            except (UnknownUseError, NotImplementedError):  # the latter from sparse tensors
                for source in sources.values():
                    self.lost.update(self.graph.leaves_below(source[0])[0])

    def _explain(
        self, number: int, sources: Mapping[int, Source], place: Place, gradient: torch.Tensor
    ) -> None:
        if gradient.is_complex():
            raise UnknownUseError  # rules do not conjugate
        bare = CallPlan(place, {i: Operand(source, ()) for i, source in sources.items()})
        call = bare.call(self.graph, number, MORE)
        operands = {i: self._operand(s, call.transposed.get(i)) for i, s in sources.items()}
        signal = call.signal(gradient)
        held, passed = call.input_numbers() // MORE, gradient.numel() // MORE
        self.plans[number] = CallPlan(place, operands, (held, passed, signal[0].numel()))
        self.calls[number], self.signals[number] = first_samples(call, 1), signal[:1, None]

    def _operand(self, source: Source, transposed: Sequence[int] | None) -> Operand:
        names, _ = self.graph.leaves_below(source[0])
        operand, leaf = Operand(source, tuple(names)), self.recording.leaves[names[0]]
        if len(names) > 1:
            return replace(operand, derived=True)
        if self.graph.is_parameter(source, names[0], transposed):
            return operand
        entries = selected_entries(self.graph, source, leaf, transposed)
        if entries is None:
            return replace(operand, derived=True)
        if torch.equal(entries, torch.arange(leaf.numel(), device=entries.device)):
            return operand
        return replace(operand, entries=self._same(entries))

    def _same(self, entries: torch.Tensor) -> torch.Tensor:
        """One tensor for each selection, so that uses of the same entries share its identity."""
        for plan in self.plans.values():
            for operand in plan.operands.values():
                if operand.entries is not None and torch.equal(operand.entries, entries):
                    return operand.entries
        return entries

    def check(self, names: Sequence[str]) -> None:
        """Keep what agrees with automatic differentiation and covers all uses of a parameter."""
        found = gradients_by_parameter(self.recording, self.plans, self.calls, self.signals, names)
        tolerance = rounding(self.recording.f, *self.recording.leaves.values())
        for name in names:
            parts = found.get(name, [])
            if name in self.lost or not parts or not _agrees(parts, self.expected[name], tolerance):
                self.lost.add(name)
            else:
                self.parts[name] = by_entries(parts)
        for number, plan in list(self.plans.items()):
            wanted = {
                i: operand
                for i, operand in plan.operands.items()
                if not self.lost.issuperset(operand.names)
            }
            self.plans[number] = replace(plan, operands=wanted)
            if not wanted:
                del self.plans[number]


def _grown(few: Sequence[torch.Size], more: Sequence[torch.Size]) -> tuple[int, int] | None:
    """How the first output that grows with the samples grows; ODD if any grows in another way."""
    if len(few) != len(more):
        return ODD
    found = [sample_place(a, b, (FEW, MORE)) for a, b in zip(few, more, strict=True)]
    return ODD if ODD in found else next((place for place in found if place is not None), None)


def _place(grown: tuple[int, int] | None, gradients: Sequence[torch.Tensor]) -> Place:
    # The order of samples and positions in which each sample's gradient is zero at the others.
    axis, positions = grown or ODD
    for before in range(1, positions + 1):
        if positions % before:
            continue
        place = Place(axis, before, positions // before)
        others = [place.split(g).movedim(axis + 1, 0) for g in gradients]
        if not any(o[j].any() for i, o in enumerate(others) for j in range(MORE) if j != i):
            return place
    raise UnknownUseError


def _pulled_back(
    recording: Recording, operand: Operand, transposed: Sequence[int] | None, gradients: Gradients
) -> dict[str, torch.Tensor]:
    """Gradients of an operand's parameters, each (n, c, p), from the gradients of the operand."""
    found = gradients.features()
    if transposed:
        *others, d, k = transposed
        found = found.view(*found.shape[:2], *others, k, d).transpose(-1, -2)
    by_operand = found.reshape(-1, *recording.graph.shape(operand.source))
    edge = recording.graph.edge(operand.source)
    leaves = [recording.leaves[name] for name in operand.names]

    def pull(values: torch.Tensor, batched: bool) -> Sequence[torch.Tensor]:
        return torch.autograd.grad(
            [edge], leaves, [values], retain_graph=True, is_grads_batched=batched
        )

    try:
        pulled = pull(by_operand, True)
    except RuntimeError:  # operations that vmap does not support
        pulled = [torch.stack(g) for g in zip(*(pull(v, False) for v in by_operand), strict=True)]
    return {
        name: values.reshape(*found.shape[:2], -1)
        for name, values in zip(operand.names, pulled, strict=True)
    }


def _agrees(parts: Sequence[Part], expected: torch.Tensor, tolerance: float) -> bool:
    """Whether the gradients of one sample are as expected; `_place` checks the others'."""
    found = functools.reduce(torch.add, (part.features(expected.numel()) for part in parts))
    # The gradient of attention's key bias is only rounding errors of large terms, which differ.
    biases = [
        use.deltas.abs().sum(2).max()
        for part in parts
        for use in part.uses
        if isinstance(use, BiasGradients)
    ]
    cancelled = ROUNDINGS * torch.finfo(expected.dtype).eps * float(sum(biases))
    return close(found[0, 0], expected.flatten(), tolerance, cancelled)


def close(
    found: torch.Tensor, expected: torch.Tensor, relative: float, absolute: float = 0.0
) -> bool:
    """Whether the difference is within rounding."""
    if found.shape != expected.shape:
        return False
    tolerance = relative * expected.abs().max() + absolute
    return bool(((found - expected).abs() <= tolerance).all())
