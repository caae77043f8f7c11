"""One forward pass that records chosen modules, and backward passes to their outputs.

Everything this package computes from gradients inside a network starts here.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients.cotangents import one_hot_cotangents
from feature_alignment.gradients.module_rules import RULES, ModuleCall

# A module's name and how often it has been called before in the same forward pass.
CallKey = tuple[str, int]

_MODE_DEPENDENT = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)

# Largest difference that passes for rounding, relative to the largest entry.
ROUNDING = {torch.float32: 1e-3, torch.float64: 1e-8}


@dataclass
class Recording:
    """What one forward pass leaves behind.

    Attributes:
        f: the model's outputs (n, c) with their graph, every axis but the first flattened.
        leaves: the parameters the model ran on, by name: leaves of the graph.
        calls: calls of the recorded modules.
        edges: where in the graph the gradient of each call's output is found, if anywhere.
        nothing: zeros in the shape of each call's output.
        skipped: modules called on inputs whose first axis does not hold the samples.
        changed_input: whether the model changed the values of its input in place.
    """

    f: torch.Tensor
    leaves: dict[str, torch.Tensor]
    calls: dict[CallKey, ModuleCall] = field(default_factory=dict)
    edges: dict[CallKey, GradientEdge] = field(default_factory=dict)
    nothing: dict[CallKey, torch.Tensor] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    changed_input: bool = False

    def parameter_uses(self) -> Counter[str]:
        """How many operations each parameter enters, by name, as far as the outputs depend on it.

        A parameter used outside its module's calls has more uses than they explain.
        """
        names = {leaf: name for name, leaf in self.leaves.items()}
        uses: Counter[str] = Counter()
        start = self.f.grad_fn
        seen, waiting = {start}, [start] if start is not None else []
        while waiting:
            for node, _ in waiting.pop().next_functions:
                if node is None:
                    continue
                leaf = getattr(node, "variable", None)
                if isinstance(leaf, torch.Tensor) and leaf in names:
                    uses[names[leaf]] += 1
                elif node not in seen:
                    seen.add(node)
                    waiting.append(node)
        return uses


def ruled_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Modules that have parameters and a rule, by name."""
    found = {}
    for name, module in model.named_modules():
        own = {key for key, value in module._parameters.items() if value is not None}
        # Old-style weight normalisation keeps a module's type and takes its weight away.
        usual = "weight" in own and own <= {"weight", "bias"}
        if type(module) in RULES and usual and getattr(module, "max_norm", None) is None:
            found[name] = module
    return found


def refuse_dependent_samples(model: nn.Module) -> None:
    """Refuse modules that make samples depend on each other or on chance.

    Raises:
        ValueError: if there is one; the message names it and says what to do.
    """
    for name, module in model.named_modules():
        label = f"module {name or 'the model itself'!r} ({type(module).__name__})"
        if module.training and isinstance(module, _MODE_DEPENDENT):
            raise ValueError(
                f"{label} is in training mode, where samples "
                "are not independent or not repeatable; call model.eval() first."
            )
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
            raise ValueError(
                f"{label} has no running statistics and normalises over the batch, where samples "
                "are not independent; give it track_running_stats=True."
            )


def evaluation_point(
    model: nn.Module, parameters: Mapping[str, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """Detached values of all parameters by name: the given ones, or the model's own.

    Raises:
        ValueError: if a name is given that the model does not have, or the other way round.
    """
    own = dict(model.named_parameters())
    values = own if parameters is None else parameters
    unmatched = sorted(set(values) ^ set(own))
    if unmatched:
        raise ValueError(
            f"parameters: {unmatched[0]!r} is in only one of the given values and the model; "
            "give a value for each of the model's parameters."
        )
    return {name: value.detach() for name, value in values.items()}


def record(
    model: nn.Module,
    values: Mapping[str, torch.Tensor],
    x: torch.Tensor,
    names: Collection[str],
    *,
    spread: bool = False,
    copy_input: bool = True,
) -> Recording:
    """Run the model forward and record the calls of the named modules.

    The outputs can be differentiated by every parameter, whether or not it requires a gradient.

    Args:
        model: see `tangent_kernel`.
        values: parameters by name, detached.
        x: inputs (n, …).
        names: modules to record, of those in `ruled_modules`.
        spread: whether an embedding that is looked up once for all samples (of positions, say)
            returns one copy for each sample, so that its gradients are those of single samples.
        copy_input: whether the model runs on a copy of x. Without, it must be one that was seen
            not to change its input.

    Raises:
        ValueError: if the outputs do not have one row for each sample, or the model changed x.
    """
    leaves = {name: value.detach().requires_grad_() for name, value in values.items()}
    recording = Recording(f=x, leaves=leaves)
    counts: Counter[str] = Counter()

    def hook(name: str) -> Callable[..., torch.Tensor | None]:
        def capture(
            module: nn.Module, arguments: tuple[Any, ...], output: torch.Tensor
        ) -> torch.Tensor | None:
            key = name, counts[name]
            counts[name] += 1
            a = arguments[0] if arguments else None
            if isinstance(a, torch.Tensor) and spread and isinstance(module, nn.Embedding):
                a, output = _one_per_sample(a, output, x)
            if not isinstance(a, torch.Tensor) or a.ndim == 0 or len(a) != len(x):
                recording.skipped.add(name)
                return None
            recording.calls[key] = RULES[type(module)](module, a.detach())
            recording.nothing[key] = output.new_zeros(()).expand(output.shape)
            if output.requires_grad:  # not where the model itself stops gradients
                recording.edges[key] = get_gradient_edge(output)
            return output

        return capture

    with _hooks(model, {name: hook(name) for name in names}), torch.enable_grad():
        given = x.detach().clone() if copy_input or x.is_inference() else x.detach()
        version = given._version
        f = torch.func.functional_call(model, leaves, (given,))
    recording.changed_input = given._version != version
    if recording.changed_input and not copy_input:
        raise ValueError(
            "the model changed its input in place for some samples, but not for the first ones; "
            "make it work on a copy, such as x.clone()."
        )
    if f.ndim < 2 or len(f) != len(x):
        raise ValueError(
            f"the model's outputs have shape {tuple(f.shape)} for {len(x)} samples; "
            "they must be (n, c) or (n, …)."
        )
    recording.f = f.flatten(1)
    return recording


def backpropagate(
    recording: Recording, cotangents: Iterator[torch.Tensor]
) -> Iterator[dict[CallKey, torch.Tensor]]:
    """Gradients of ⟨cotangent, f⟩ by each call's output, one backward pass for each cotangent.

    The graph stays until the recording's `f` is dropped.

    Args:
        recording: from `record`.
        cotangents: each (n, c).
    """
    edges = list(recording.edges.values()) if recording.f.requires_grad else []
    for cotangent in cotangents:
        gradients = dict(recording.nothing)
        if edges:
            found = torch.autograd.grad(
                recording.f, edges, cotangent, retain_graph=True, allow_unused=True
            )
            gradients |= {
                key: gradient
                for key, gradient in zip(recording.edges, found, strict=True)
                if gradient is not None  # else the outputs do not depend on this call
            }
            del found
        yield gradients
        del gradients  # before the next pass makes its own


def collect_signals(
    recording: Recording, spaces: Mapping[CallKey, torch.Tensor] | None = None
) -> dict[CallKey, torch.Tensor]:
    """Signals of all outputs by call, each (n, c, …), from c backward passes.

    Args:
        recording: from `record`.
        spaces: tensors to write the signals of some calls to, from `ModuleCall.new_signals`.

    Returns:
        The signals: the given tensors and new ones.
    """
    f = recording.f
    signals = dict(spaces or {})
    for y, gradients in enumerate(backpropagate(recording, one_hot_cotangents(f))):
        for key in list(gradients):
            call = recording.calls[key]
            signal = call.signal(gradients.pop(key))
            if key not in signals:
                signals[key] = call.new_signals(signal, *f.shape)
            signals[key][:, y] = signal
    return signals


def refuse_reordered_samples(recording: Recording, signals: Mapping[CallKey, torch.Tensor]) -> None:
    """Refuse calls that do not take the samples in their order, by one more backward pass.

    It weights one output of each sample, drawn at random, by a random power of two, which must
    scale that sample's signals and no others: where a model sorts samples before a module, one
    gets another's.

    Raises:
        ValueError: if there is such a call; the message names its module.
    """
    f = recording.f
    generator = torch_stream(0, "capture")
    exponents = torch.randint(-9, 10, (len(f), 1), generator=generator)
    weights = torch.exp2(exponents).to(f)
    samples, chosen = (
        torch.arange(len(f)),
        torch.randint(f.shape[1], (len(f),), generator=generator),
    )
    weighted = torch.zeros_like(f)
    weighted[samples, chosen] = weights[:, 0]
    for key, gradient in next(backpropagate(recording, iter([weighted]))).items():
        found = recording.calls[key].signal(gradient).flatten(1) / weights
        kept = signals[key][samples, chosen].flatten(1)
        rounding = ROUNDING[f.dtype] * kept.abs().amax(1, keepdim=True)
        if ((found - kept).abs() > rounding).any():
            raise ValueError(
                f"module {key[0]!r} does not get the samples in the order of the inputs, so their "
                "gradients cannot be told apart; the model must keep samples in their order."
            )


def _one_per_sample(
    tokens: torch.Tensor, output: torch.Tensor, x: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    n = len(x)
    if tokens.ndim == 1 and x.ndim > 1:
        return tokens.expand(n, -1), output.expand(n, -1, -1)
    if tokens.ndim > 1 and len(tokens) == 1:
        return tokens.expand(n, *tokens.shape[1:]), output.expand(n, *output.shape[1:])
    return tokens, output


@contextmanager
def _hooks(model: nn.Module, hooks: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    # Called first, so that they see what the module itself returned, before hooks of the user's.
    handles = [
        model.get_submodule(name).register_forward_hook(hook, prepend=True)
        for name, hook in hooks.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
