"""One forward pass whose graph is kept, and backward passes to the operations on parameters."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch

from feature_alignment.determinism import torch_stream
from feature_alignment.errors import reason
from feature_alignment.gradients.checks import refuse_non_finite, rounding
from feature_alignment.gradients.graph import Graph
from feature_alignment.gradients.model_function import ModelFunction, outputs_of
from feature_alignment.gradients.operation_rules import OperationCall
from feature_alignment.gradients.parameter_values import Parameters, moved
from feature_alignment.gradients.samples import Samples
from feature_alignment.training.errors import GradientsNotFiniteError

T = TypeVar("T")

_CANCELLED = 1e-3  # share of the largest signals in tolerances, for terms that cancel


class ReorderedSamplesError(ValueError):
    """An operation of the model does not take the samples in the order of the inputs."""


@dataclass(frozen=True)
class Recording:
    """The result of one forward pass."""

    f: torch.Tensor  # the model's outputs (n, c) with their graph
    leaves: Parameters  # the parameters to differentiate with respect to: leaves of the graph
    values: Parameters  # all parameters as installed in the model, leaves included
    graph: Graph
    copies: int = 1  # how often each sample went through the model; f has the first outputs


@contextmanager
def told_of_overwriting() -> Iterator[None]:
    """Context for backward passes.

    Raises:
        ValueError: if the forward pass has overwritten what they need.
        RuntimeError: raised by them for other reasons.
    """
    try:
        yield
    except RuntimeError as error:
        if "inplace operation" not in str(error):
            raise
        raise ValueError(
            "the forward pass overwrites a tensor that its gradients need; write x = x + y there "
            f"in place of x += y ({reason(error)})."
        ) from error


@contextmanager
def recorded(
    function: ModelFunction, values: Parameters, samples: Samples, names: Collection[str]
) -> Iterator[Recording]:
    """Run the model at `values`, all parameters by name; run backward passes in this context.

    `names` are the parameters whose gradients are taken, whether or not they require a gradient.

    Raises:
        ValueError: if the model uses or differentiates parameters where the graph does not show it,
            or where there is no gradient.
        RuntimeError: raised by the model itself.
    """
    with torch.inference_mode(False), torch.no_grad():
        values = function.spared(values)
        every = [name for name, value in values.items() if value.is_floating_point()]
        for name in every if function.requiring else names:
            values[name] = values[name].detach().requires_grad_()
        leaves = {name: values[name] for name in names}
        with function.followed(values, names) as originals, function.installed(values) as run:
            try:
                with torch.enable_grad():
                    f, copies = outputs_of(run, samples)
            except RuntimeError as error:
                said, without, _ = str(error).partition(". This input cannot have requires_grad")
                if not without:
                    raise
                raise ValueError(
                    "the model uses a parameter, or what depends on one, where PyTorch takes no "
                    f"gradient ({said}); register it as a buffer, or leave it out (`only`)."
                ) from error
            graph = Graph(f, leaves)
            # PyTorch's batch normalisation in evaluation mode may give wrong gradients for a single
            # image: 2.15 does on CPUs, where the gradient comes back transposed.
            if len(samples) == copies == 1 and any("BatchNorm" in name for name in graph.names):
                with torch.enable_grad():
                    f, copies = run(samples[[0, 0]])[:1], 2
                graph = Graph(f, leaves)
            _refuse_hidden_references(graph, originals)
            if len(graph.unused(names)) == len(names):
                _refuse_constant_outputs(function, values, names, samples)
            with told_of_overwriting():
                yield Recording(f, leaves, values, graph, copies)
            for name, leaf in leaves.items():
                if leaf.grad is not None:
                    raise ValueError(
                        f"the model's backward pass adds to the gradient of {name!r} by a backward "
                        "pass of its own, where it cannot be followed; return gradients from the "
                        "Function, or use torch.utils.checkpoint with use_reentrant=False."
                    )


def _refuse_constant_outputs(
    function: ModelFunction, values: Parameters, names: Collection[str], samples: Samples
) -> None:
    # Refuse outputs whose graph does not reach the parameters, but which change with them, unless
    # it reaches others: then these are constants on purpose.
    spared = function.spared(values)
    every = {n: v.detach().requires_grad_(v.is_floating_point()) for n, v in spared.items()}
    with torch.enable_grad(), function.installed(every) as run:
        if len(Graph(outputs_of(run, samples)[0], every).unused(every)) < len(every):
            return
    chosen = {name: values[name].detach() for name in names}
    found = []
    for at in (values, {**values, **moved(chosen)}):
        with function.installed(function.spared(at), False) as run:
            found.append(outputs_of(run, samples)[0])
    if found[0].shape != found[1].shape or (found[0] != found[1]).any():
        raise ValueError(
            "no gradient of the outputs reaches the parameters, though they depend on them; take "
            "torch.no_grad(), inference_mode(), detach() and torch.func.stack_module_state() out "
            "of the forward pass."
        )


def _refuse_hidden_references(graph: Graph, originals: Mapping[int, str]) -> None:
    for node in graph.nodes:
        name = originals.get(id(getattr(node, "variable", None)))
        if name is not None:
            raise ValueError(
                f"the model reaches parameter {name!r} by a reference of its own, such as a "
                "closure or a cache, where it cannot be followed; read it in forward()."
            )


def leaf_gradients(
    f: torch.Tensor, leaves: Parameters, cotangent: torch.Tensor, create_graph: bool = False
) -> dict[str, torch.Tensor]:
    """Dense gradients of ⟨cotangent, f⟩ by leaf; zeros if f does not depend on it."""
    if not f.requires_grad:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    found = torch.autograd.grad(
        f,
        list(leaves.values()),
        cotangent,
        retain_graph=True,
        create_graph=create_graph,
        materialize_grads=True,
    )
    if not create_graph:
        found = [gradient.detach() for gradient in found]  # older PyTorch's zeros require gradients
    return {name: gradient.to_dense() for name, gradient in zip(leaves, found, strict=True)}


def one_hot_cotangents(f: torch.Tensor) -> Iterator[torch.Tensor]:
    """The c cotangents (n, c) that each select one output, for all samples, in order."""
    for y in range(f.shape[1]):
        cotangent = torch.zeros_like(f)
        cotangent[:, y] = 1
        yield cotangent


def random_sign_cotangents(
    f: torch.Tensor, number: int, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """Cotangents (n, c) of independent ±1/√number: Σ v vᵀ is the identity in expectation."""
    for _ in range(number):
        # Drawn on the CPU, so that every device sees the same signs.
        signs = 2 * torch.randint(2, f.shape, generator=generator) - 1
        yield signs.to(f) / number**0.5


def backpropagate(
    recording: Recording, numbers: Collection[int], cotangents: Iterator[torch.Tensor]
) -> Iterator[dict[int, torch.Tensor]]:
    """Gradients of ⟨cotangent, f⟩ at operations' outputs: a backward pass per cotangent (n, c)."""
    f, graph = recording.f, recording.graph
    edges = [graph.edge((number, 0)) for number in numbers]
    for cotangent in cotangents:
        found = ()
        if edges:
            found = torch.autograd.grad(f, edges, cotangent, retain_graph=True, allow_unused=True)
        gradients = {
            number: f.new_zeros(graph.shape((number, 0))) if gradient is None else gradient
            for number, gradient in zip(numbers, found, strict=True)
        }
        del found
        yield gradients
        del gradients  # before the next pass makes its own


def collect_signals(
    recording: Recording,
    calls: Mapping[int, OperationCall],
    spaces: Mapping[int, torch.Tensor] | None = None,
) -> dict[int, torch.Tensor]:
    """Signals of all outputs by call, each (n, c, …), from c backward passes.

    They are written to `spaces`, from `OperationCall.new_signals`, if given.
    """
    f = recording.f
    signals = dict(spaces or {})
    for y, gradients in enumerate(backpropagate(recording, list(calls), one_hot_cotangents(f))):
        for number in list(gradients):
            signal = calls[number].signal(gradients.pop(number))
            if number not in signals:
                signals[number] = calls[number].new_signals(signal, *f.shape)
            signals[number][:, y] = signal
    return signals


def distinct_weights(recording: Recording) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights of samples (n, 1), signed powers of two without rounding, and of outputs (c,).

    Outputs have random weights, so that none cancels another.
    """
    f, generator = recording.f, torch_stream(0, "capture")
    half = torch.float16 in {leaf.dtype for leaf in recording.leaves.values()}
    most = 9 if half else 40  # half precision has few powers of two
    places = torch.randperm(4 * most + 2, generator=generator)[:, None]
    places = places[torch.arange(len(f)) % len(places)]  # far apart if samples are few
    by_sample = (-1.0) ** places * torch.exp2(places // 2 - most)
    by_output = 1 + torch.rand(f.shape[1], generator=generator)
    by_output *= 2 * torch.randint(2, f.shape[1:], generator=generator) - 1
    return by_sample.to(f), by_output.to(f)


def in_other_order(
    weighted: Mapping[T, torch.Tensor],
    signals: Mapping[T, torch.Tensor],
    weights: tuple[torch.Tensor, torch.Tensor],
    relative: float,
    named: Callable[[T], str],
) -> list[T]:
    """Keys whose signals (n, c, …), weighted, differ from those of weighted outputs, (n, …).

    The weights are those of `distinct_weights`; `named` describes a key in messages. Signals that
    are only rounding errors, such as those of a bias that a softmax ignores, are not compared.

    Raises:
        GradientsNotFiniteError: if signals are not finite, or not once they are weighted.
    """
    by_sample, by_output = weights
    off, scale = dict[T, torch.Tensor](), dict[T, torch.Tensor]()
    for key, found in weighted.items():
        signal, found = _as_in_memory(signals[key], found)  # (n, a, c, b), (n, a, b)
        sums = by_output.to(signal).expand(found[..., 0].numel(), 1, -1) @ signal.flatten(0, 1)
        rest = found / by_sample.to(found)[:, None] - sums.view(found.shape)
        off[key] = rest.abs().amax((1, 2))
        # Much faster than the maximum norm along an axis.
        largest = torch.maximum(signal.amax(3), -signal.amin(3)).amax(1)
        scale[key] = largest.double() @ by_output.abs().double()
    for key, own in scale.items():
        refuse_non_finite(own, named(key))
        if not off[key].isfinite().all():
            raise GradientsNotFiniteError(
                f"the gradients by {named(key)} are so large that a check of them overflows; "
                "measure the model in float64, as model.double()."
            )
    most = torch.stack(list(scale.values())).amax(0)
    tolerance = {key: relative * (own + _CANCELLED * most) for key, own in scale.items()}
    return [key for key in weighted if (off[key] > tolerance[key]).any()]


def _as_in_memory(signal: torch.Tensor, found: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A signal (n, c, …) as (n, a, c, b), a view if it has no gaps, and `found` as (n, a, b)."""
    order = sorted(range(1, signal.dim()), key=signal.stride, reverse=True)
    place = order.index(1)
    ordered = signal.permute(0, *order)
    n, *shape = ordered.shape
    a, c, b = math.prod(shape[:place]), shape[place], math.prod(shape[place + 1 :])
    found = found.permute(0, *(axis - 1 for axis in order if axis != 1))
    return ordered.reshape(n, a, c, b), found.reshape(n, a, b)


def refuse_reordered_samples(
    recording: Recording, calls: Mapping[int, OperationCall], signals: Mapping[int, torch.Tensor]
) -> None:
    """Refuse operations on samples in another order than the inputs', by one more backward pass.

    It weights the outputs of each sample by a signed power of two, and each output by a random
    number. This must scale the sample's signals and no others. If a model sorts samples before an
    operation, one sample gets the weight of another.

    Raises:
        ReorderedSamplesError: if there is such an operation; the message names its parameters.
        ValueError: if signals are not finite.
    """
    leaves, within = recording.leaves.values(), recording.graph.dtypes()
    relative = rounding(recording.f, *leaves, within=within)
    weights = distinct_weights(recording)
    gradients = next(backpropagate(recording, list(calls), iter([weights[0] * weights[1]])))
    weighted = {number: calls[number].signal(gradients.pop(number)) for number in list(gradients)}

    def named(number: int) -> str:
        return f"parameter {recording.graph.leaves_below(number)[0][0]!r}"

    for number in in_other_order(weighted, signals, weights, relative, named)[:1]:
        raise ReorderedSamplesError(
            f"{named(number)} does not meet the samples in the order of the inputs, so "
            "their gradients cannot be told apart; the model must keep samples in their order."
        )
