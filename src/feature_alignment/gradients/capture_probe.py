"""A trial of a model on a few samples: how it uses its parameters, and which uses rules explain.

The rules' gradients of one sample are compared with those from automatic differentiation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients.border import FEW, MORE, ROUNDINGS, Border, CallPlan, close
from feature_alignment.gradients.capture import leaf_gradients, recorded
from feature_alignment.gradients.checks import (
    FEW_ALONE,
    checked_outputs,
    refuse_non_finite,
    rounding,
)
from feature_alignment.gradients.graph import Signature
from feature_alignment.gradients.model_function import ModelFunction
from feature_alignment.gradients.parameter_gradients import Part
from feature_alignment.gradients.parameter_values import Parameters, moved
from feature_alignment.gradients.samples import Samples, spread

_OF_BATCHES = 1e-2  # relative difference allowed for a sample's gradient in another batch


@dataclass(frozen=True)
class Trial:
    """What a trial on a few samples shows."""

    function: ModelFunction  # in the form in which it must be run
    signature: Signature  # of the model's graph
    plans: Mapping[int, CallPlan]  # the operations explained by rules, by their number in the graph
    parts: Mapping[str, Sequence[Part]]  # one sample's gradients for one cotangent
    saved: int  # bytes that the graph saves for one sample
    unexplained: tuple[str, ...]  # parameters that have or may have other uses
    expected: Parameters  # the first sample's gradients by autograd, for one cotangent
    cotangent: torch.Tensor  # that cotangent, (1, c)
    unused: Sequence[str]  # parameters that the outputs do not depend on


def try_rules(
    function: ModelFunction, values: Parameters, samples: Samples, names: Sequence[str]
) -> Trial:
    """As `_tried`, but where gradients are zero at these values, by a trial at other values.

    Zeros, such as below a readout of zeros, do not show where the samples are in an operation.
    """
    trial = _tried(function, values, samples, names)
    silent = [n for n in names if n not in trial.unused and not trial.expected[n].any()]
    if not silent:
        return trial
    try:
        other = _tried(trial.function, moved(values), samples[[0, len(samples) - 1]], names)
    except (ValueError, RuntimeError):
        return trial  # no model to try at other values, such as one that overflows there
    if other.signature != trial.signature:
        return trial
    return replace(trial, plans=other.plans, parts=other.parts, unexplained=other.unexplained)


def _tried(
    function: ModelFunction, values: Parameters, samples: Samples, names: Sequence[str]
) -> Trial:
    """Record the model on two and on three samples, and check the rules' gradients of the first.

    `names` are the parameters whose gradients are taken. First, all samples' outputs are checked.

    Raises:
        ValueError: as `checked_outputs`, or if outputs or gradients differ from one run to another.
    """
    function, outputs, tolerance = checked_outputs(function, values, samples)
    few, more = ([i % len(samples) for i in range(number)] for number in (FEW, MORE))
    saved: dict[int, int] = {}
    known = {value.untyped_storage().data_ptr() for value in values.values()}

    def count(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    def of_few() -> tuple[Signature, list[list[torch.Size]], dict[str, torch.Tensor]]:
        with recorded(function, values, samples[few], names) as recording:
            f, graph = recording.f, recording.graph
            gradients = leaf_gradients(f, recording.leaves, _cotangent(f, 0))
            return graph.signature, graph.shapes(), gradients

    try:
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            signature, shapes, among_few = of_few()
    except RuntimeError:  # a model that uses torch.func, which forbids hooks on saved tensors
        signature, shapes, among_few = of_few()
        sizes = (shape.numel() for made in shapes for shape in made)
        saved = {0: sum(sizes) * outputs.element_size()}
    with recorded(function, values, samples[more], names) as recording:
        f, graph = recording.f, recording.graph
        if not close(
            f.detach(), outputs[torch.tensor(more)], rounding(f, *values.values()), tolerance
        ):
            raise ValueError(
                "the model's outputs differ between two runs on the same samples, so they are not "
                "a function of the parameters; call model.eval() first."
            )
        found = Border(recording, [_cotangent(f, i) for i in range(MORE)])
        _refuse_gradients_of_batches(among_few, found.expected)
        unused = graph.unused(names)
        apart = unused and _used_alone(function, values, samples, names, unused)
        if graph.signature == signature and not apart:
            found.search(shapes)
        found.check(names)
        # Without plans, later graphs are not checked, and other samples may use these parameters.
        idle = unused if found.plans else ()
        return Trial(
            function=function,
            signature=signature,
            plans=found.plans,
            parts=found.parts,
            saved=sum(saved.values()) // FEW,
            unexplained=tuple(n for n in names if n in found.lost and n not in idle),
            expected=found.expected,
            cotangent=found.cotangents[0][:1],
            unused=unused,
        )


def _used_alone(
    function: ModelFunction,
    values: Parameters,
    samples: Samples,
    names: Sequence[str],
    unused: Sequence[str],
) -> bool:
    """Whether one of a few samples, each alone, depends on parameters that are unused in a batch.

    So it may if a batch chooses between branches of equal values.
    """
    for i in spread(len(samples), FEW_ALONE):
        with recorded(function, values, samples[[i]], names) as recording:
            if recording.graph.unused(unused) != unused:
                return True
    return False


def _cotangent(f: torch.Tensor, i: int) -> torch.Tensor:
    """The trial's cotangent (n, c) for sample i alone: random, but the same for all samples."""
    cotangent = torch.zeros_like(f)
    cotangent[i] = torch.randn(f.shape[1], generator=torch_stream(0, "tangent_kernel/probe"))
    return cotangent


def _refuse_gradients_of_batches(few: Parameters, more: Parameters) -> None:
    # Refuse models in which a sample's gradients differ between batches of two and three.
    largest = max(float(gradient.abs().max()) for gradient in more.values())
    for name, gradient in more.items():
        refuse_non_finite(gradient, f"parameter {name!r}")
        noise = ROUNDINGS * torch.finfo(gradient.dtype).eps * largest
        if not close(few[name], gradient, _OF_BATCHES, noise):
            raise ValueError(
                f"gradients by parameter {name!r} of one sample depend on how many samples are in "
                "the batch; look for a hook or a Function that scales them by its size."
            )
