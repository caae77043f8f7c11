"""Which parameters' gradients can be captured by rule, decided by checking them on a probe.

A rule may be bypassed: a parameter used outside its module, a hook that changes its output, samples
along another axis. So the gradients that the rules give on one sample are compared with automatic
differentiation's before they are trusted; the other parameters take the generic way.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from feature_alignment.determinism import torch_stream
from feature_alignment.kernels.capture import (
    CallKey,
    Recording,
    backpropagate,
    canonical_names,
    evaluation_point,
    gradients_by_parameter,
    one_hot_cotangents,
    record,
    refuse_dependent_samples,
    ruled_modules,
)
from feature_alignment.kernels.generic_jacobian import batched_gradients, looped_gradients
from feature_alignment.kernels.parameter_gradients import (
    BiasGradients,
    Gradients,
    MatrixGradients,
    VectorGradients,
    summed_features,
)

# Largest relative difference between a rule's gradient and automatic differentiation's.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-8}

# Rounding errors of a sum, in units of its terms' last place.
_ROUNDINGS = 1000

# What a backward pass holds at a time beside the graph, in gradients of all recorded outputs: the
# gradients themselves, those between them, and copies in the layouts that convolutions want.
_PASSING = 4


@dataclass(frozen=True)
class CapturePlan:
    """How to capture the gradients of one model at one point.

    Attributes:
        model: the model.
        values: all parameters by name, detached.
        canonical: first name of each parameter by any of its names.
        outputs: c.
        ruled: parameters captured by rule.
        generic: parameters without a rule that fits.
        batched: whether the generic ones are differentiated for several samples at a time.
        modules: modules to record.
        calls: calls expected in every forward pass.
        spread: see `record`.
        held_bytes: memory for the captured gradients of one sample.
        passing_bytes: memory for one sample's graph and backward pass.
    """

    model: nn.Module
    values: Mapping[str, torch.Tensor]
    canonical: Mapping[str, str]
    outputs: int
    ruled: frozenset[str]
    generic: tuple[str, ...]
    batched: bool
    modules: tuple[str, ...]
    calls: frozenset[CallKey]
    spread: bool
    held_bytes: int
    passing_bytes: int


def plan_capture(
    model: nn.Module, x: torch.Tensor, parameters: Mapping[str, torch.Tensor] | None = None
) -> CapturePlan:
    """Check the model on one sample or two and decide how to capture its gradients.

    Args:
        model: see `tangent_kernel`.
        x: inputs (n, …).
        parameters: values by parameter name to evaluate the model at; None for its own.

    Returns:
        The plan.

    Raises:
        ValueError: if there is no sample or no parameter, if samples depend on each other or on
            chance, if the outputs are not (n, c), or if names of parameters do not match.
    """
    refuse_dependent_samples(model)
    values = evaluation_point(model, parameters)
    if not values:
        raise ValueError("the model has no parameters, so it has no tangent features.")
    if len(x) == 0:
        raise ValueError("x: no samples; the tangent kernel needs at least one.")
    canonical = canonical_names(model)
    f, cotangent, expected = _reference(model, values, x[:1])
    pair = x[:2] if len(x) > 1 else x[[0, 0]]
    modules = ruled_modules(model)
    recording, saved, spread = _probe(model, values, pair, modules, f)
    modules = {name: module for name, module in modules.items() if name not in recording.skipped}
    calls = {key: call for key, call in recording.calls.items() if key[0] in modules}
    backpropagate(recording, iter([torch.cat([cotangent, torch.zeros_like(cotangent)])]))
    uses = gradients_by_parameter(calls, canonical)
    ruled = frozenset(
        name
        for name, found in uses.items()
        if _can_be_summed(found) and _agrees(found, expected[name])
    )
    used = {name for name, first in canonical.items() if first in ruled}
    needed = {key for key in calls if any(_owner(name) == key[0] for name in used)}
    generic = tuple(name for name in values if name not in ruled)
    c, size = f.shape[1], f.element_size()
    stored = [calls[key].stored_numbers() for key in needed]
    held = sum(shared + c * each for shared, each in stored) // 2
    held += c * sum(values[name].numel() for name in generic)
    passing = saved // 2 + size * _PASSING * sum(each for _, each in stored) // 2
    return CapturePlan(
        model=model,
        values=values,
        canonical=canonical,
        outputs=c,
        ruled=ruled,
        generic=generic,
        batched=_can_be_batched(model, values, pair, cotangent, expected, generic),
        modules=tuple(name for name in modules if any(name == key[0] for key in needed)),
        calls=frozenset(needed),
        spread=spread,
        held_bytes=size * held,
        passing_bytes=passing,
    )


def capture_gradients(
    plan: CapturePlan, x: torch.Tensor, workspace: int
) -> dict[str, list[Gradients]]:
    """Gradients of every parameter, over its uses, from one forward and c backward passes.

    Args:
        plan: from `plan_capture` for inputs of the same kind.
        x: inputs (n, …).
        workspace: bytes that the generic way may use beyond its result.

    Returns:
        Per-sample gradients by the parameter's first name.

    Raises:
        ValueError: if these samples take another path through the model than the probe did.
    """
    recording = record(
        plan.model,
        plan.values,
        x,
        plan.modules,
        plan.outputs,
        spread=plan.spread,
    )
    odd = (recording.calls.keys() ^ plan.calls) | {(name, 0) for name in recording.skipped}
    if odd:
        raise ValueError(
            f"module {min(odd)[0]!r} is called differently for different samples; "
            "the tangent kernel needs one path through the model for all."
        )
    backpropagate(recording, one_hot_cotangents(recording.f.detach()))
    uses = gradients_by_parameter(recording.calls, plan.canonical)
    del recording  # frees the graph
    generic: dict[str, torch.Tensor] = {}
    if plan.generic and plan.batched:
        chunk = workspace // max(1, plan.passing_bytes * plan.outputs)
        generic = batched_gradients(plan.model, plan.values, x, plan.generic, chunk)
    elif plan.generic:
        generic = looped_gradients(plan.model, plan.values, x, plan.generic)
    found: dict[str, list[Gradients]] = {
        name: [VectorGradients(values)] for name, values in generic.items()
    }
    return found | {name: uses[name] for name in plan.ruled}


def _reference(
    model: nn.Module, values: Mapping[str, torch.Tensor], sample: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Outputs of one sample, a random cotangent, and its gradient by each parameter.

    Raises:
        ValueError: if the outputs are not (n, c), not finite, or of another precision.
    """
    leaves = {name: value.detach().requires_grad_() for name, value in values.items()}
    with torch.enable_grad():
        f = torch.func.functional_call(model, leaves, (sample.detach().clone(),))
    if f.ndim != 2 or len(f) != 1:
        raise ValueError(
            f"the model's outputs have shape {tuple(f.shape)} for one input; they must be (n, c)."
        )
    if f.dtype not in _TOLERANCE or not f.isfinite().all():
        raise ValueError(
            f"the model's outputs are {f.dtype}, finite: {bool(f.isfinite().all())}; "
            "they must be finite, in float32 or float64."
        )
    cotangent = torch.randn(f.shape, generator=torch_stream(0, "tangent_kernel/probe"))
    cotangent = cotangent.to(f)
    found: Sequence[torch.Tensor | None] = [None] * len(leaves)
    if f.requires_grad:
        found = torch.autograd.grad(f, list(leaves.values()), cotangent, allow_unused=True)
    gradients = {
        name: torch.zeros_like(value) if gradient is None else gradient.to_dense()
        for (name, value), gradient in zip(values.items(), found, strict=True)
    }
    return f.detach(), cotangent, gradients


def _probe(
    model: nn.Module,
    values: Mapping[str, torch.Tensor],
    pair: torch.Tensor,
    modules: Mapping[str, nn.Module],
    f: torch.Tensor,
) -> tuple[Recording, int, bool]:
    """A recording of two samples, the bytes its graph saves, and whether lookups are spread.

    Raises:
        ValueError: if the first sample's outputs are not what they are without the second.
    """
    saved: dict[int, int] = {}
    known = {value.untyped_storage().data_ptr() for value in values.values()}

    def count(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    def attempt(spread: bool) -> Recording:
        saved.clear()
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            return record(model, values, pair, modules, 1, spread=spread)

    if any(isinstance(module, nn.Embedding) for module in modules.values()):
        # Spreading a lookup is a guess that the model broadcasts it; the outputs tell.
        with contextlib.suppress(IndexError, RuntimeError, ValueError):
            recording = attempt(spread=True)
            if _close(recording.f[:1], f):
                return recording, sum(saved.values()), True
    recording = attempt(spread=False)
    if not _close(recording.f[:1], f):
        raise ValueError(
            "the model's outputs of one sample depend on the other samples or on chance; "
            "the tangent kernel needs f(x_i) to depend on x_i only."
        )
    return recording, sum(saved.values()), False


def _can_be_batched(
    model: nn.Module,
    values: Mapping[str, torch.Tensor],
    pair: torch.Tensor,
    cotangent: torch.Tensor,
    expected: Mapping[str, torch.Tensor],
    names: Sequence[str],
) -> bool:
    """Whether `torch.func.vmap` runs the model, and rightly so for the first of two samples."""
    if not names:
        return False
    try:
        found = batched_gradients(model, values, pair, names, chunk=2)
    except RuntimeError:  # operations that vmap does not know, or runs with the wrong shapes
        return False
    return all(_close(cotangent[0] @ found[name][0], expected[name].flatten()) for name in names)


def _can_be_summed(uses: Sequence[Gradients]) -> bool:
    """Whether `add_gram` knows how to add these uses of one parameter."""
    if all(isinstance(use, MatrixGradients) for use in uses):
        return len({(use.inputs.groups, use.rows, use.inputs.columns) for use in uses}) == 1
    return all(isinstance(use, VectorGradients | BiasGradients) for use in uses)


def _agrees(uses: Sequence[Gradients], expected: torch.Tensor) -> bool:
    """Whether the gradients are the expected ones for the first sample and zero for the second."""
    found = summed_features(uses)[:, 0]  # (2, p)
    # The key's bias of attention has no gradient but rounding errors of large terms: they differ.
    biases = [use.deltas.abs().sum(2).max() for use in uses if isinstance(use, BiasGradients)]
    rounding = _ROUNDINGS * torch.finfo(expected.dtype).eps * float(sum(biases))
    return _close(found[0], expected.flatten(), rounding) and not found[1].any()


def _close(found: torch.Tensor, expected: torch.Tensor, rounding: float = 0.0) -> bool:
    if found.shape != expected.shape:
        return False
    tolerance = _TOLERANCE[expected.dtype] * expected.abs().max() + rounding
    return bool(((found - expected).abs() <= tolerance).all())


def _owner(parameter: str) -> str:
    return parameter.rpartition(".")[0]
