"""Planning how to capture the gradients of a model's parameters, and capturing them.

Gradients come from rules that a trial on few samples confirms, else from automatic differentiation.
Other paths through the model or orders of samples, which a trial cannot show, are detected later.
"""

import functools
import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import nn

from feature_alignment.errors import check_kind
from feature_alignment.gradients.blocks import spans
from feature_alignment.gradients.border import (
    CallPlan,
    by_entries,
    can_be_held,
    close,
    gradients_by_parameter,
)
from feature_alignment.gradients.capture import (
    Recording,
    ReorderedSamplesError,
    collect_signals,
    recorded,
    refuse_reordered_samples,
)
from feature_alignment.gradients.capture_probe import Trial, try_rules
from feature_alignment.gradients.checks import refuse_non_finite, rounding
from feature_alignment.gradients.generic_jacobian import batched_gradients, looped_gradients
from feature_alignment.gradients.layer_inputs import VectorInputs
from feature_alignment.gradients.model_function import ModelFunction, OutputChoice
from feature_alignment.gradients.module_state import keeping
from feature_alignment.gradients.operation_rules import (
    OperationCall,
    UnknownUseError,
    first_samples,
    merge_calls,
)
from feature_alignment.gradients.parameter_gradients import (
    BiasGradients,
    Gradients,
    MatrixGradients,
    Part,
    VectorGradients,
    merged_uses,
)
from feature_alignment.gradients.parameter_values import (
    Parameters,
    Selection,
    evaluation_point,
    select_parameters,
)
from feature_alignment.gradients.refused_modules import refuse_dependent_samples
from feature_alignment.gradients.samples import ModelInput, Samples, as_samples
from feature_alignment.training.errors import TrainingDivergedError

T = TypeVar("T")

log = logging.getLogger(__name__)

# Memory of a backward pass in addition to the graph, in units of the recorded outputs' gradients:
# these themselves, those in between, and copies in the layouts that convolutions need.
_PASSING = 4

_AT_ONCE = 9 * 2**25  # bytes of one round of passes: memory of this size is soon reused

# Gradients of grouped weights are held if they take at most this many times the memory of their
# factors, which are processed group by group.
_LARGER = 4


@dataclass(frozen=True)
class CapturePlan:
    """How to capture the gradients of one model at one point."""

    function: ModelFunction
    values: Parameters  # all parameters by name, detached
    names: Sequence[str]  # the parameters to differentiate with respect to
    only: Selection | None  # what chose them
    outputs: int  # c
    signature: object  # of the graph that the model leaves
    keeping: frozenset[tuple[int, str]]  # what modules keep from earlier calls, see `module_state`
    calls: Mapping[int, CallPlan]  # operations explained by rules, by their number in the graph
    held: frozenset[int]  # those whose inputs and signals are held
    formed: frozenset[str]  # captured by rules, with gradients held instead of factors
    generic: Sequence[str]  # parameters without fitting rules
    batched: bool  # whether generic gradients are computed for several samples at a time
    held_bytes: int  # memory for the captured gradients of one sample
    passing_bytes: int  # memory for one sample's graph and backward passes


class OtherPathError(Exception):
    """The model's graph for these samples differs from the trial's."""


def plan_capture(
    model: nn.Module,
    x: ModelInput,
    parameters: Parameters | None = None,
    *,
    inputs: str | Collection[str | int] | None = None,
    output: OutputChoice | None = None,
    only: Selection | None = None,
) -> CapturePlan:
    """Check the model, and plan how to capture its gradients, by a trial on a few samples.

    The outputs of all samples `x` are checked. Arguments are as for `tangent_kernel`; a plan for
    other values in `parameters` than the model's own cannot be passed to it, or to a trace.

    Raises:
        ValueError: if the model is not supported, or the given parameters are not the model's.

    Example:
        >>> from feature_alignment import tangent_trace
        >>> layer, x = nn.Linear(2, 1, bias=False), torch.tensor([[3.0, 4.0]])
        >>> plan = plan_capture(layer, x)
        >>> tangent_trace(layer, x, plan=plan)
        25.0
    """
    refuse_dependent_samples(model)
    values = evaluation_point(model, parameters)
    names = select_parameters(model, only)
    samples = as_samples(x, inputs, like=values[names[0]])
    trial = try_rules(ModelFunction(model, output), values, samples, names)
    trial.function.refuse_kept_tensors(trial.unused)
    return _plan(trial, values, samples, names, only)


def planned(
    plan: CapturePlan | None, model: nn.Module, x: ModelInput, **options: Any
) -> CapturePlan:
    """A plan to reuse after an optimiser changed the parameters in place; None makes a new one.

    Another path through the model, or another order of samples, is still detected. Outputs that
    have come to depend on other samples, or on chance, are detected only if a module's mode shows
    it. If modules keep tensors that they did not keep before, such as tables, or other parameters
    are trainable, the result is a new plan for the samples.

    Raises:
        ValueError: if the plan is for another model or for parameters since replaced, if options
            other than None are given, since a plan has its own; or as `plan_capture`.
    """
    if plan is None:
        return plan_capture(model, x, **options)
    refuse_dependent_samples(model)
    check_kind("plan", plan, CapturePlan, "the result of plan_capture")
    if not is_plan_of(plan, model):
        raise ValueError("plan: made for another model, or parameters have been replaced since.")
    if given := [name for name, value in options.items() if value is not None]:
        raise ValueError(f"{', '.join(given)}: the plan was made with its own; leave it out.")
    chosen = select_parameters(model, plan.only) == plan.names
    if not (chosen and keeping(model.modules()) <= plan.keeping):
        return plan_capture(model, x, output=plan.function.output, only=plan.only)
    # The forward pass may by now overwrite other parameters than when the plan was made.
    return replace(plan, function=replace(plan.function, changed=frozenset(plan.values)))


def is_plan_of(plan: CapturePlan, model: nn.Module) -> bool:
    """Whether a plan is for this model and the tensors that are its parameters now."""
    held = {name: value.data_ptr() for name, value in plan.values.items()}
    now = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    return plan.function.model is model and held == now


def by_rules_or_one_by_one(plan: CapturePlan, compute: Callable[[CapturePlan], T]) -> T:
    """Compute with the plan or, if other paths or orders of samples occur, without its rules."""
    with torch.no_grad():
        try:
            return compute(plan)
        except (OtherPathError, ReorderedSamplesError) as error:
            log.warning(
                "%s: gradients are computed one by one, which is slow.",
                str(error).partition(",")[0] or "the model takes another path for some samples",
            )
            return compute(_without_rules(plan))


def _without_rules(plan: CapturePlan) -> CapturePlan:
    """The plan with one backward pass per sample and output for every parameter."""
    numbers = sum(plan.values[name].numel() for name in plan.names)
    size = max(plan.values[name].element_size() for name in plan.names)
    return replace(
        plan,
        calls={},
        held=frozenset(),
        formed=frozenset(),
        generic=plan.names,
        batched=False,
        held_bytes=size * plan.outputs * numbers,
    )


def capture_gradients(plan: CapturePlan, samples: Samples, workspace: int) -> dict[str, list[Part]]:
    """Gradients of every parameter, over its uses, from one forward and c + 1 backward passes.

    The passes take a few samples at a time to save memory: `workspace` bytes are for them and for
    intermediate results, but at least two samples are taken. The last pass checks the order of the
    samples. A parameter's gradients are in parts that share no entry. There may be none for a
    parameter that the outputs do not depend on.

    Raises:
        OtherPathError: if these samples take another path through the model than the trial did.
        ReorderedSamplesError: if an operation takes the samples in another order.
        ValueError: if the model has another number of outputs for them than the plan, or outputs or
            gradients are not finite.
    """
    n, c = len(samples), plan.outputs
    spaces: dict[int, torch.Tensor] = {}
    found: dict[int, list[OperationCall]] = {i: [] for i in plan.calls if i in plan.held}
    formed: dict[str, torch.Tensor] = {}
    most = max(2, min(workspace, _AT_ONCE) // max(1, plan.passing_bytes))
    rounds = math.ceil(n / most)  # of equal size, since each runs all passes
    for span in spans(n, math.ceil(n / rounds)) if plan.calls else ():
        with _recorded_as_planned(plan, samples, span) as (recording, calls):
            kept = span.stop - span.start  # half of what is recorded for a single sample
            spaces = spaces or _spaces(recording, plan, calls, n)
            whole = kept == len(recording.f)
            own = {number: space[span] for number, space in spaces.items()} if whole else {}
            for number in plan.held:
                if found[number] and calls[number].input_shape() != found[number][0].input_shape():
                    raise OtherPathError
            signals = collect_signals(recording, calls, own)
            refuse_reordered_samples(recording, calls, signals)
            for number in plan.held:
                found[number].append(first_samples(calls[number], kept))
                if not whole:
                    spaces[number][span] = signals[number][:kept]
            uses = gradients_by_parameter(recording, plan.calls, calls, signals, plan.formed)
            block = workspace // (4 * recording.f.element_size())
            for name, parts in uses.items():
                value = plan.values[name]
                if name not in formed:
                    formed[name] = value.new_zeros(n, c, value.numel(), dtype=summed_in(value))
                for part in parts:
                    formed[name][span] += part.features(value.numel(), block)[:kept]
            del recording, calls, signals, uses  # frees the graph
    held = {number: merge_calls(calls) for number, calls in found.items()}
    for number, call in held.items():
        if call.inputs is not None:  # infinity times a gradient of zero is no number
            names = (name for o in plan.calls[number].operands.values() for name in o.names)
            weight = max(names, key=lambda name: plan.values[name].numel())
            refuse_non_finite(call.inputs.values, f"parameter {weight!r}")
    names = frozenset(plan.names) - plan.formed
    gradients = {
        name: [
            replace(part, uses=merged_uses(part.uses)).to(summed_in(plan.values[name]))
            for part in by_entries(parts)
        ]
        for name, parts in gradients_by_parameter(None, plan.calls, held, spaces, names).items()
    }
    if plan.generic and plan.batched:
        chunk = workspace // max(1, plan.passing_bytes * c)
        formed |= batched_gradients(plan.function, plan.values, samples, plan.generic, chunk)
    elif plan.generic:
        formed |= looped_gradients(plan.function, plan.values, samples, plan.generic)
    for name, values in formed.items():
        _refuse_other_outputs(plan, values.shape[1])
        refuse_non_finite(values, f"parameter {name!r}")
    return gradients | {name: [Part([VectorGradients(v)])] for name, v in formed.items()}


@contextmanager
def _recorded_as_planned(
    plan: CapturePlan, samples: Samples, span: slice
) -> Iterator[tuple[Recording, dict[int, OperationCall]]]:
    # A recording of the samples; a single one is doubled, as it may take another path alone.
    some = samples[list(range(span.start, span.stop)) * (1 + (span.stop - span.start == 1))]
    with recorded(plan.function, plan.values, some, plan.names) as r:
        _refuse_other_outputs(plan, r.f.shape[1])
        if not r.f.isfinite().all():
            raise TrainingDivergedError("the model's outputs of some samples are not finite.")
        if r.graph.signature != plan.signature:
            raise OtherPathError
        try:
            calls = {i: call.call(r.graph, i, len(r.f)) for i, call in plan.calls.items()}
        except (UnknownUseError, RuntimeError) as error:
            raise OtherPathError from error
        for number, call in plan.calls.items():
            for i, operand in call.operands.items():
                if not operand.holds(r, calls[number].transposed.get(i)):
                    raise OtherPathError
        yield r, calls


def _refuse_other_outputs(plan: CapturePlan, outputs: int) -> None:
    if outputs != plan.outputs:
        raise ValueError(
            f"x: the model has {outputs} outputs for it, the plan is for {plan.outputs}; leave "
            "`plan` out."
        )


def _spaces(
    recording: Recording, plan: CapturePlan, calls: Mapping[int, OperationCall], n: int
) -> dict[int, torch.Tensor]:
    """Space for n samples' signals of the operations that are held.

    Signals of a matrix's uses, such as a recurrent layer's steps, are adjacent in memory, position
    after position, so that their sum is one use of all positions without a copy.
    """
    signals: dict[int, torch.Tensor] = {}
    together: dict[object, list[int]] = {}
    for number in (number for number in plan.calls if number in plan.held):
        metadata, call = recording.graph.nodes[number]._input_metadata[0], calls[number]
        zero = recording.f.new_zeros((), dtype=metadata.dtype)
        signals[number] = call.signal(zero.expand(metadata.shape))
        matrix = (
            isinstance(call.inputs, VectorInputs)
            and signals[number].ndim == 3
            and (
                tuple((o.names, id(o.entries)) for o in plan.calls[number].operands.values()),
                signals[number].shape[2:],
                signals[number].dtype,
            )
        )
        together.setdefault(matrix or number, []).append(number)
    spaces: dict[int, torch.Tensor] = {}
    for numbers in together.values():
        signal, positions = signals[numbers[0]], [signals[number].shape[1] for number in numbers]
        if len(numbers) > 1:
            signal = signal[:, :1].expand(-1, sum(positions), -1)
        space = calls[numbers[0]].new_signals(signal, n, recording.f.shape[1])
        spaces |= zip(numbers, space.split(positions, 2), strict=True)
    return spaces


def _plan(
    trial: Trial, values: Parameters, samples: Samples, names: list[str], only: Selection | None
) -> CapturePlan:
    c = trial.cotangent.shape[1]
    operands = [(number, o) for number, plan in trial.plans.items() for o in plan.operands.values()]

    def can_be_held_as(kind: type[Gradients], name: str) -> bool:
        parts = trial.parts[name]
        alike = all(isinstance(use, kind) for part in parts for use in part.uses)
        return alike and can_be_held(parts)

    factors = {
        name
        for name, parts in trial.parts.items()
        if can_be_held_as(MatrixGradients, name)
        and _factor_numbers(parts, c) < c * values[name].numel()
    }
    held = {number for number, o in operands if not factors.isdisjoint(o.names)}
    # The bias of a weight that is held as factors shares them.
    elsewhere = {name for number, o in operands if number not in held for name in o.names}
    factors |= {
        name for name in trial.parts.keys() - elsewhere if can_be_held_as(BiasGradients, name)
    }
    formed = frozenset(trial.parts) - factors
    holding = c * sum(values[name].numel() for name in (*trial.unexplained, *formed))
    passing = 0
    for number, call in trial.plans.items():
        inputs, gradient, signal = call.numbers
        holding += (inputs + c * signal) * (number in held)
        passing += _PASSING * gradient + inputs + c * signal * (number not in held)
    size = max(values[name].element_size() for name in names)
    return CapturePlan(
        function=trial.function,
        values=values,
        names=names,
        only=only,
        outputs=c,
        signature=trial.signature,
        keeping=keeping(trial.function.model.modules()),
        calls=trial.plans,
        held=frozenset(held),
        formed=formed,
        generic=trial.unexplained,
        batched=_can_be_batched(trial, values, samples),
        held_bytes=size * holding,
        passing_bytes=size * passing + trial.saved,
    )


def _factor_numbers(parts: Sequence[Part], outputs: int) -> int:
    """Cost of holding one sample's factors, in numbers."""
    uses = [use for part in parts for use in part.uses if isinstance(use, MatrixGradients)]
    larger = _LARGER if any(use.inputs.groups > 1 for use in uses) else 1
    numbers = (use.inputs.values[0].numel() + outputs * use.deltas[0, 0].numel() for use in uses)
    return larger * sum(numbers)


def summed_in(*values: torch.Tensor) -> torch.dtype:
    """Precision of parameters' gradients: their own, but float32 for half precision."""
    return functools.reduce(torch.promote_types, (v.dtype for v in values), torch.float32)


def _can_be_batched(trial: Trial, values: Parameters, samples: Samples) -> bool:
    """Whether `torch.func.vmap` runs the model, correctly among two and among three samples."""
    if not trial.unexplained:
        return False
    if any("LinalgSolve" in name for name in trial.signature[0]):
        return False  # whose rule mistakes vectors for matrices if sizes happen to be equal
    other, relative = min(1, len(samples) - 1), rounding(trial.cotangent, *values.values())
    for some, first in (([0, other], 0), ([other, 0, other], 1)):
        try:
            found = batched_gradients(
                trial.function, values, samples[some], trial.unexplained, chunk=len(some)
            )
        except (RuntimeError, ValueError, UserWarning):
            return False  # what vmap does not support, or runs slowly or wrongly
        for name in trial.unexplained:
            of_first = trial.cotangent[0].to(found[name]) @ found[name][first]
            if not close(of_first, trial.expected[name].flatten(), relative):
                return False
    return True
