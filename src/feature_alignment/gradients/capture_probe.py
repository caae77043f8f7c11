"""A trial of a model on two samples: which of its gradients its modules' rules explain.

A rule may be bypassed: a parameter used outside its module, a hook that changes its output, samples
along another axis. So the gradients that the rules give on one sample are compared with automatic
differentiation's before they are trusted.
"""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients.capture import (
    ROUNDING,
    CallKey,
    Recording,
    backpropagate,
    record,
    ruled_modules,
)
from feature_alignment.gradients.generic_jacobian import batched_gradients
from feature_alignment.gradients.module_rules import ModuleCall
from feature_alignment.gradients.parameter_gradients import (
    BiasGradients,
    Gradients,
    VectorGradients,
    all_factors,
    summed_features,
)

# Rounding errors of a sum, in units of its terms' last place.
_ROUNDINGS = 1000


@dataclass(frozen=True)
class Trial:
    """What a trial on two samples shows.

    Attributes:
        f: outputs of the first sample, (1, c).
        calls: calls of the modules that parameters in `uses` are used in.
        numbers: of each call, numbers per sample: its output's, and its signal's of one output.
        uses: the gradients of two samples, of one cotangent, over the uses of each parameter
            that the rules explain.
        counts: how many operations each parameter enters.
        saved: bytes that the graph saves for one sample.
        spread: see `record`.
        batched: whether `torch.func.vmap` differentiates correctly by the other parameters.
    """

    f: torch.Tensor
    calls: Mapping[CallKey, ModuleCall]
    numbers: Mapping[CallKey, tuple[int, int]]
    uses: Mapping[str, Sequence[Gradients]]
    counts: Counter[str]
    saved: int
    spread: bool
    batched: bool


def try_rules(
    model: nn.Module,
    values: Mapping[str, torch.Tensor],
    x: torch.Tensor,
    canonical: Mapping[str, str],
) -> Trial:
    """Run the model on its first two samples and check what the rules say about the first.

    Args:
        model: see `tangent_kernel`.
        values: parameters by name, detached.
        x: inputs (n, …), at least one.
        canonical: first name of each parameter by any of its names.

    Raises:
        ValueError: if samples depend on each other or on chance, or the outputs are not (n, …),
            finite, and in float32 or float64.
    """
    f, cotangent, expected = _reference(model, values, x[:1])
    pair = x[:2] if len(x) > 1 else x[[0, 0]]
    recording, saved, spread = _record_pair(model, values, pair, f)
    only_first = torch.cat([cotangent, torch.zeros_like(cotangent)])
    gradients = next(backpropagate(recording, iter([only_first])))
    calls = {key: c for key, c in recording.calls.items() if key[0] not in recording.skipped}
    signals = {key: call.signal(gradients[key])[:, None] for key, call in calls.items()}
    uses = {
        name: found
        for name, found in gradients_by_parameter(calls, signals, canonical).items()
        if _can_be_summed(found) and _agrees(found, expected[name])
    }
    modules = {owner(name) for name, first in canonical.items() if first in uses}
    calls = {key: call for key, call in calls.items() if key[0] in modules}
    others = [name for name in values if name not in uses]
    return Trial(
        f=f,
        calls=calls,
        numbers={key: (gradients[key][0].numel(), signals[key][0].numel()) for key in calls},
        uses=uses,
        counts=recording.parameter_uses(),
        saved=saved // 2,
        spread=spread,
        batched=_can_be_batched(model, values, pair, cotangent, expected, others),
    )


def gradients_by_parameter(
    calls: Mapping[CallKey, ModuleCall],
    signals: Mapping[CallKey, torch.Tensor],
    canonical: Mapping[str, str],
) -> dict[str, list[Gradients]]:
    """Every use of every parameter in the calls, by the parameter's first name in the model.

    Args:
        calls: recorded calls.
        signals: of each call, (n, c, …).
        canonical: first name of each parameter by any of its names.
    """
    uses: dict[str, list[Gradients]] = {}
    for key, call in calls.items():
        for local, gradients in call.gradients(signals[key]).items():
            name = f"{key[0]}.{local}" if key[0] else local
            if name in canonical:
                uses.setdefault(canonical[name], []).append(gradients)
    return uses


def owner(parameter: str) -> str:
    """Name of the module that has the parameter of this name."""
    return parameter.rpartition(".")[0]


def _reference(
    model: nn.Module, values: Mapping[str, torch.Tensor], sample: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Outputs of one sample, a random cotangent, and its gradient by each parameter.

    Raises:
        ValueError: if the outputs are not (n, …), not finite, or of another precision.
    """
    recording = record(model, values, sample, ())
    f = recording.f
    if f.dtype not in ROUNDING or not f.isfinite().all():
        raise ValueError(
            f"the model's outputs are {f.dtype}, finite: {bool(f.isfinite().all())}; "
            "they must be finite, in float32 or float64."
        )
    cotangent = torch.randn(f.shape, generator=torch_stream(0, "tangent_kernel/probe")).to(f)
    found: Sequence[torch.Tensor | None] = [None] * len(values)
    if f.requires_grad:
        leaves = list(recording.leaves.values())
        found = torch.autograd.grad(f, leaves, cotangent, allow_unused=True)
    gradients = {
        name: torch.zeros_like(value) if gradient is None else gradient.to_dense()
        for (name, value), gradient in zip(values.items(), found, strict=True)
    }
    return f.detach(), cotangent, gradients


def _record_pair(
    model: nn.Module,
    values: Mapping[str, torch.Tensor],
    pair: torch.Tensor,
    f: torch.Tensor,
) -> tuple[Recording, int, bool]:
    """A recording of two samples, the bytes its graph saves, and whether lookups are spread.

    Raises:
        ValueError: if the first sample's outputs are not what they are without the second.
    """
    modules = ruled_modules(model)
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
            return record(model, values, pair, modules, spread=spread)

    if any(isinstance(module, nn.Embedding) for module in modules.values()):
        # Spreading a lookup is a guess that the model broadcasts it; the outputs confirm it.
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
    """Whether `torch.func.vmap` runs the model, and correctly for the first of two samples."""
    if not names:
        return False
    try:
        found = batched_gradients(model, values, pair, names, chunk=2)
    except RuntimeError:  # operations that vmap does not know, or runs with the wrong shapes
        return False
    return all(_close(cotangent[0] @ found[name][0], expected[name].flatten()) for name in names)


def _can_be_summed(uses: Sequence[Gradients]) -> bool:
    """Whether `add_gradient_gram` or `summed_features` can add these uses of one parameter."""
    if all_factors(uses):
        return len({(use.inputs.groups, use.rows, use.inputs.columns) for use in uses}) == 1
    return all(isinstance(use, VectorGradients | BiasGradients) for use in uses)


def _agrees(uses: Sequence[Gradients], expected: torch.Tensor) -> bool:
    """Whether the gradients are the expected ones for the first sample and zero for the second."""
    found = summed_features(uses)[:, 0]  # (2, p)
    # The bias of attention's keys has no gradient but rounding errors of large terms, which differ.
    biases = [use.deltas.abs().sum(2).max() for use in uses if isinstance(use, BiasGradients)]
    rounding = _ROUNDINGS * torch.finfo(expected.dtype).eps * float(sum(biases))
    return _close(found[0], expected.flatten(), rounding) and not found[1].any()


def _close(found: torch.Tensor, expected: torch.Tensor, rounding: float = 0.0) -> bool:
    if found.shape != expected.shape:
        return False
    tolerance = ROUNDING[expected.dtype] * expected.abs().max() + rounding
    return bool(((found - expected).abs() <= tolerance).all())
