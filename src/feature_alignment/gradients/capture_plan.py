"""Planning how to capture the gradients of a model's parameters, and capturing them.

Parameters whose module has a rule that a trial confirms are captured by that rule, the others by
automatic differentiation. What the trial on two samples cannot show is refused when it happens:
other calls of modules, other uses of parameters, or another order of the samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from feature_alignment.gradients.blocks import spans
from feature_alignment.gradients.capture import (
    CallKey,
    Recording,
    collect_signals,
    evaluation_point,
    record,
    refuse_dependent_samples,
    refuse_reordered_samples,
)
from feature_alignment.gradients.capture_probe import gradients_by_parameter, owner, try_rules
from feature_alignment.gradients.generic_jacobian import batched_gradients, looped_gradients
from feature_alignment.gradients.module_rules import FactorsCall, merge_calls
from feature_alignment.gradients.parameter_gradients import (
    Gradients,
    VectorGradients,
    all_factors,
    summed_features,
)

# What a backward pass holds at a time, apart from the graph, in gradients of all recorded outputs:
# the gradients themselves, those between them, and copies in the layouts that convolutions need.
_PASSING = 4

# Bytes of one round of passes: memory of this size is soon used again.
_AT_ONCE = 2**28

# Gradients are held if they take at most this many times the memory of their factors.
_LARGER = 2


@dataclass(frozen=True)
class CapturePlan:
    """How to capture the gradients of one model at one point.

    Attributes:
        values: all parameters by name, detached.
        canonical: first name of each parameter by any of its names.
        outputs: c.
        ruled: parameters captured by rule, and how many operations each enters.
        formed: ruled parameters whose gradients are held, not their factors.
        generic: parameters without a rule that fits.
        batched: whether the generic ones are differentiated for several samples at a time.
        calls: calls to record, expected in every forward pass.
        held: recorded calls whose inputs and signals are held.
        spread: see `record`.
        held_bytes: memory for the captured gradients of one sample.
        passing_bytes: memory for one sample's graph and backward passes.
    """

    model: nn.Module
    values: Mapping[str, torch.Tensor]
    canonical: Mapping[str, str]
    outputs: int
    ruled: Mapping[str, int]
    formed: frozenset[str]
    generic: tuple[str, ...]
    batched: bool
    calls: frozenset[CallKey]
    held: frozenset[CallKey]
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

    Raises:
        ValueError: if there is no sample or no parameter, if samples depend on each other or on
            chance, if the outputs are not (n, …), or if names of parameters do not match.
    """
    refuse_dependent_samples(model)
    values = evaluation_point(model, parameters)
    if not values:
        raise ValueError("the model has no parameters, so it has no tangent features.")
    if len(x) == 0:
        raise ValueError("x: no samples; the tangent kernel needs at least one.")
    canonical = _canonical_names(model)
    trial = try_rules(model, values, x, canonical)
    c, size = trial.f.shape[1], trial.f.element_size()
    generic = tuple(name for name in values if name not in trial.uses)
    factors = _factors(trial.uses, values, c)
    modules = {owner(name) for name, first in canonical.items() if first in factors}
    formed = trial.uses.keys() - factors
    # The bias of a weight that is held as factors shares them.
    formed -= {first for name, first in canonical.items() if owner(name) in modules}
    held = frozenset(key for key in trial.calls if key[0] in modules)
    holding, passing = c * sum(values[name].numel() for name in (*generic, *formed)), 0
    for key, call in trial.calls.items():
        gradient, signal = trial.numbers[key]
        inputs, signals = call.input_numbers() // 2, c * signal
        holding += (inputs + signals) * (key in held)
        passing += _PASSING * gradient + inputs + signals * (key not in held)
    return CapturePlan(
        model=model,
        values=values,
        canonical=canonical,
        outputs=c,
        ruled={name: trial.counts[name] for name in trial.uses},
        formed=frozenset(formed),
        generic=generic,
        batched=trial.batched,
        calls=frozenset(trial.calls),
        held=held,
        spread=trial.spread,
        held_bytes=size * holding,
        passing_bytes=size * passing + trial.saved,
    )


def capture_gradients(
    plan: CapturePlan, x: torch.Tensor, workspace: int, *, ordered: bool = True
) -> dict[str, list[Gradients]]:
    """Gradients of every parameter, over its uses, from one forward and c backward passes.

    The passes take a few samples at a time, so that what they leave behind is small.

    Args:
        plan: from `plan_capture` for inputs of the same kind.
        x: inputs (n, …).
        workspace: bytes for the passes and for intermediate results, beyond one sample's.
        ordered: whether it matters which sample a gradient belongs to, which is checked by one
            more pass.

    Returns:
        Per-sample gradients by the parameter's first name.

    Raises:
        ValueError: if these samples take another path through the model than the trial did.
    """
    like = next(iter(plan.values.values()))
    n, block = len(x), workspace // (4 * like.element_size())
    spaces: dict[CallKey, torch.Tensor] = {}
    parts: dict[CallKey, list[FactorsCall]] = {key: [] for key in plan.held}
    formed = {
        name: like.new_empty(n, plan.outputs, plan.values[name].numel()) for name in plan.formed
    }
    chunk = min(workspace, _AT_ONCE) // max(1, plan.passing_bytes)
    for samples in spans(n, max(1, chunk)):
        recording = _record_as_planned(plan, x[samples])
        for key in plan.held:
            call, signal = recording.calls[key], recording.nothing[key]
            if isinstance(call, FactorsCall):  # true of every call that is held
                parts[key].append(call)
            if key not in spaces:
                spaces[key] = call.new_signals(signal, n, plan.outputs)
        signals = collect_signals(recording, {key: spaces[key][samples] for key in plan.held})
        if ordered:
            refuse_reordered_samples(recording, signals)
        calls = {key: recording.calls[key] for key in plan.calls - plan.held}
        del recording  # frees the graph
        uses = gradients_by_parameter(calls, signals, plan.canonical)
        for name, values in formed.items():
            values[samples] = summed_features(uses.pop(name), block)
    calls = {key: merge_calls(found) for key, found in parts.items()}
    found = gradients_by_parameter(calls, spaces, plan.canonical)
    others = formed
    if plan.generic and plan.batched:
        chunk = workspace // max(1, plan.passing_bytes * plan.outputs)
        others = formed | batched_gradients(plan.model, plan.values, x, plan.generic, chunk)
    elif plan.generic:
        others = formed | looped_gradients(plan.model, plan.values, x, plan.generic)
    vectors: dict[str, list[Gradients]] = {
        name: [VectorGradients(values)] for name, values in others.items()
    }
    return found | vectors


def _record_as_planned(plan: CapturePlan, x: torch.Tensor) -> Recording:
    modules = dict.fromkeys(name for name, _ in plan.calls)
    recording = record(plan.model, plan.values, x, modules, spread=plan.spread)
    odd = (recording.calls.keys() ^ plan.calls) | {(name, 0) for name in recording.skipped}
    if odd:
        raise ValueError(
            f"module {min(odd)[0]!r} is called differently for different samples; "
            "the tangent kernel needs one path through the model for all."
        )
    counts = recording.parameter_uses()
    for name, count in plan.ruled.items():
        if counts[name] != count:
            raise ValueError(
                f"parameter {name!r} enters {counts[name]} operations for some samples and "
                f"{count} for the first two; the tangent kernel needs one path through the model "
                "for all."
            )
    return recording


def _factors(
    uses: Mapping[str, Sequence[Gradients]], values: Mapping[str, torch.Tensor], outputs: int
) -> set[str]:
    """Weights whose gradients take much more memory than the factors that they are made of."""
    return {
        name
        for name, found in uses.items()
        if all_factors(found)
        and _LARGER * sum(use.numbers(outputs) for use in found) < outputs * values[name].numel()
    }


def _canonical_names(model: nn.Module) -> dict[str, str]:
    """First name of each parameter by any of its names: shared parameters have several."""
    first: dict[nn.Parameter, str] = {}
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[name] = first.setdefault(parameter, name)
    return names
