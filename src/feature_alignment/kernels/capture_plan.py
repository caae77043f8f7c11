"""How to capture the gradients of a model's parameters, and doing so.

Parameters whose module has a rule that a trial confirms are captured by it, the others take the
generic way. What the trial on two samples cannot see is refused when it happens: other calls of
modules, other uses of parameters, or another order of the samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from feature_alignment.kernels.capture import (
    CallKey,
    collect_signals,
    evaluation_point,
    record,
    refuse_dependent_samples,
)
from feature_alignment.kernels.capture_probe import gradients_by_parameter, owner, try_rules
from feature_alignment.kernels.generic_jacobian import batched_gradients, looped_gradients
from feature_alignment.kernels.parameter_gradients import (
    Gradients,
    MatrixGradients,
    VectorGradients,
    summed_features,
)

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
        ruled: parameters captured by rule, and how many operations each enters.
        formed: those of them whose gradients take no more memory than their factors.
        generic: parameters without a rule that fits.
        batched: whether the generic ones are differentiated for several samples at a time.
        calls: calls to record, expected in every forward pass.
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
    # The bias of a weight held as factors shares them.
    formed -= {first for name, first in canonical.items() if owner(name) in modules}
    held, passing = c * sum(values[name].numel() for name in (*generic, *formed)), 0
    for key, call in trial.calls.items():
        gradient, signal = trial.numbers[key]
        kept = key[0] in modules
        held += call.input_numbers() // 2 + c * signal * kept
        passing += _PASSING * gradient + c * signal * (not kept)
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
        spread=trial.spread,
        held_bytes=size * held,
        passing_bytes=size * passing + trial.saved,
    )


def capture_gradients(
    plan: CapturePlan, x: torch.Tensor, workspace: int
) -> dict[str, list[Gradients]]:
    """Gradients of every parameter, over its uses, from one forward and c + 1 backward passes.

    Args:
        plan: from `plan_capture` for inputs of the same kind.
        x: inputs (n, …).
        workspace: bytes for intermediate results.

    Returns:
        Per-sample gradients by the parameter's first name.

    Raises:
        ValueError: if these samples take another path through the model than the probe did.
    """
    modules = dict.fromkeys(name for name, _ in sorted(plan.calls))
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
                f"parameter {name!r} enters {counts[name]} operations for these samples and "
                f"{count} for the first two; the tangent kernel needs one path through the model "
                "for all."
            )
    signals = collect_signals(recording)
    uses = gradients_by_parameter(recording.calls, signals, plan.canonical)
    del recording, signals  # frees the graph, and below what is not held
    block = workspace // (4 * next(iter(plan.values.values())).element_size())
    found: dict[str, list[Gradients]] = {}
    for name in plan.ruled:
        found[name] = uses.pop(name)
        if name in plan.formed:
            found[name] = [VectorGradients(summed_features(found[name], block))]
    generic: dict[str, torch.Tensor] = {}
    if plan.generic and plan.batched:
        chunk = workspace // max(1, plan.passing_bytes * plan.outputs)
        generic = batched_gradients(plan.model, plan.values, x, plan.generic, chunk)
    elif plan.generic:
        generic = looped_gradients(plan.model, plan.values, x, plan.generic)
    return found | {name: [VectorGradients(values)] for name, values in generic.items()}


def _factors(
    uses: Mapping[str, Sequence[Gradients]], values: Mapping[str, torch.Tensor], outputs: int
) -> set[str]:
    """Weights whose gradients take more memory than the factors that they are made of."""
    return {
        name
        for name, found in uses.items()
        if all(isinstance(use, MatrixGradients) for use in found)
        and sum(use.numbers(outputs) for use in found) < outputs * values[name].numel()
    }


def _canonical_names(model: nn.Module) -> dict[str, str]:
    """First name of each parameter by any of its names: shared parameters have several."""
    first: dict[nn.Parameter, str] = {}
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[name] = first.setdefault(parameter, name)
    return names
