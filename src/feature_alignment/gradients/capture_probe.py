"""A trial of a model on few samples: how its parameters are used, and which uses rules explain.

The rules' gradients of one sample are compared with automatic differentiation's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients.border import FEW, MORE, ROUNDINGS, Border, CallPlan, close
from feature_alignment.gradients.capture import leaf_gradients, recorded
from feature_alignment.gradients.checks import checked_outputs, refuse_non_finite, rounding
from feature_alignment.gradients.graph import Signature
from feature_alignment.gradients.model_function import ModelFunction
from feature_alignment.gradients.parameter_gradients import Part
from feature_alignment.gradients.parameter_values import Parameters
from feature_alignment.gradients.samples import Samples

_OF_BATCHES = 1e-2  # how far, relatively, a sample's gradient may be off in another batch


@dataclass(frozen=True)
class Trial:
    """What a trial on few samples shows."""

    function: ModelFunction  # as it must be run
    signature: Signature  # of the graph that the model leaves
    plans: Mapping[int, CallPlan]  # the operations that rules explain, by their number in the graph
    parts: Mapping[str, Sequence[Part]]  # gradients of one sample and cotangent
    saved: int  # bytes that the graph saves for one sample
    unexplained: tuple[str, ...]  # parameters with other uses, or maybe with some
    expected: Parameters  # the first sample's, for one cotangent
    cotangent: torch.Tensor  # that cotangent, (1, c)
    unused: Sequence[str]  # parameters that the outputs do not depend on


def try_rules(
    function: ModelFunction, values: Parameters, samples: Samples, names: Sequence[str]
) -> Trial:
    """Record the model on two and on three samples, and check what the rules say about the first.

    `names` are the parameters to differentiate by. Before, the outputs of all samples are checked.

    Raises:
        ValueError: as `checked_outputs`, or if the model gives other outputs when it is recorded.
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
    except RuntimeError:  # a model with torch.func inside, which forbids to look at what is saved
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
        if graph.signature == signature:
            found.search(shapes)
        else:
            found.lost.update(names)
        found.check(names)
        unused = graph.unused(names)
        # Where no operation is looked for again, none is missed: other samples may use them.
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


def _cotangent(f: torch.Tensor, i: int) -> torch.Tensor:
    """The cotangent (n, c) of the trial for sample i alone: random, but alike for all samples."""
    cotangent = torch.zeros_like(f)
    cotangent[i] = torch.randn(f.shape[1], generator=torch_stream(0, "tangent_kernel/probe"))
    return cotangent


def _refuse_gradients_of_batches(few: Parameters, more: Parameters) -> None:
    # Refuse gradients of a sample that are others among two samples than among three.
    largest = max(float(gradient.abs().max()) for gradient in more.values())
    for name, gradient in more.items():
        refuse_non_finite(gradient, f"parameter {name!r}")
        noise = ROUNDINGS * torch.finfo(gradient.dtype).eps * largest
        if not close(few[name], gradient, _OF_BATCHES, noise):
            raise ValueError(
                f"gradients by parameter {name!r} of one sample depend on how many samples are in "
                "the batch; look for a hook or a Function that scales them by its size."
            )
