"""One forward and c backward passes that capture the gradients of every module with a rule."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from feature_alignment.kernels.module_rules import RULES, ModuleCall
from feature_alignment.kernels.parameter_gradients import Gradients

# A module's name and how often it has been called before in the same forward pass.
CallKey = tuple[str, int]

_MODE_DEPENDENT = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)


@dataclass
class Recording:
    """What one forward pass leaves behind.

    Attributes:
        f: the model's outputs (n, c), with their graph.
        calls: calls of the modules with rules.
        edges: where in the graph the gradient of each call's output is found.
        skipped: modules called on inputs whose first axis does not hold the samples.
    """

    f: torch.Tensor
    calls: dict[CallKey, ModuleCall] = field(default_factory=dict)
    edges: dict[CallKey, GradientEdge] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)


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
        ValueError: if there is one; the message names it and the cure.
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
    model: nn.Module, parameters: Mapping[str, torch.Tensor] | None
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
    outputs: int,
    *,
    spread: bool = False,
) -> Recording:
    """Run the model forward and record the calls of the named modules.

    The graph begins at the first recorded modules, so that it reaches all of them and no further.

    Args:
        model: see `tangent_kernel`.
        values: parameters by name, detached.
        x: inputs (n, …).
        names: modules to record, of those in `ruled_modules`.
        outputs: c, how many backward passes will follow.
        spread: whether an embedding that is looked up once for all samples (of positions, say)
            returns one copy for each sample, so that its gradients are those of single samples.

    Returns:
        The calls, ready for `backpropagate`.

    Raises:
        ValueError: if the outputs are not (n, c).
    """
    recording = Recording(f=x)
    counts: dict[str, int] = {}

    def hook(name: str) -> Callable[..., torch.Tensor | None]:
        def capture(
            module: nn.Module, arguments: tuple[Any, ...], output: torch.Tensor
        ) -> torch.Tensor | None:
            key = name, counts.get(name, 0)
            counts[name] = key[1] + 1
            a = arguments[0] if arguments else None
            if isinstance(a, torch.Tensor) and spread and isinstance(module, nn.Embedding):
                a, output = _one_per_sample(a, output, x)
            if not isinstance(a, torch.Tensor) or a.ndim == 0 or len(a) != len(x):
                recording.skipped.add(name)
                return None
            if not output.requires_grad:
                # A copy of the leaf, since a leaf may not be changed in place.
                output = output.detach().requires_grad_().clone()
            recording.calls[key] = RULES[type(module)](module, a.detach(), output.detach(), outputs)
            recording.edges[key] = get_gradient_edge(output)
            return output

        return capture

    with _hooks(model, {name: hook(name) for name in names}), torch.enable_grad():
        # The clone lets a model change its input in place.
        recording.f = torch.func.functional_call(model, dict(values), (x.detach().clone(),))
    if recording.f.ndim != 2 or len(recording.f) != len(x):
        raise ValueError(
            f"the model's outputs have shape {tuple(recording.f.shape)} for {len(x)} inputs; "
            "they must be (n, c)."
        )
    return recording


def backpropagate(recording: Recording, cotangents: Iterator[torch.Tensor]) -> None:
    """Give each call the gradients of ⟨cotangent, f⟩ by its output, one backward pass for each.

    The graph stays until the recording's `f` is dropped.

    Args:
        recording: from `record`, for as many outputs as there are cotangents.
        cotangents: each (n, c).
    """
    keys = list(recording.calls)
    if not keys or not recording.f.requires_grad:
        return
    edges = [recording.edges[key] for key in keys]
    for y, cotangent in enumerate(cotangents):
        found = torch.autograd.grad(
            recording.f, edges, cotangent, retain_graph=True, allow_unused=True
        )
        for key, gradient in zip(keys, found, strict=True):
            if gradient is not None:  # the outputs do not depend on this call: zeros
                recording.calls[key].store(y, gradient)
        del found, gradient  # before the next pass makes its own


def one_hot_cotangents(f: torch.Tensor) -> Iterator[torch.Tensor]:
    """The cotangents that pick one output of every sample, in order."""
    for y in range(f.shape[1]):
        cotangent = torch.zeros_like(f)
        cotangent[:, y] = 1
        yield cotangent


def gradients_by_parameter(
    calls: Mapping[CallKey, ModuleCall], canonical: Mapping[str, str]
) -> dict[str, list[Gradients]]:
    """Every use of every parameter in the calls, by the parameter's first name in the model.

    Args:
        calls: recorded calls after `backpropagate`.
        canonical: first name of each parameter by any of its names.
    """
    uses: dict[str, list[Gradients]] = {}
    for (module, _), call in calls.items():
        for local, gradients in call.gradients().items():
            name = f"{module}.{local}" if module else local
            if name in canonical:
                uses.setdefault(canonical[name], []).append(gradients)
    return uses


def canonical_names(model: nn.Module) -> dict[str, str]:
    """First name of each parameter by any of its names: shared parameters have several."""
    first: dict[nn.Parameter, str] = {}
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[name] = first.setdefault(parameter, name)
    return names


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
    # First in line, so that hooks of the user's act on what the module itself returned.
    handles = [
        model.get_submodule(name).register_forward_hook(hook, prepend=True)
        for name, hook in hooks.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
