"""The tangent kernel, in total and by layer, and the tangent features themselves.

All rows run over samples and outputs, sample-major: sample i and output y have index i·c + y. The
kernel comes from one forward and c + 1 backward passes, the last to verify that samples do not mix:
`position_gram` contracts the inputs and gradients of the operations on parameters. If the signals
of all samples do not fit in memory, the passes are repeated for every pair of blocks of samples.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from feature_alignment.gradients.blocks import DEFAULT_BUDGET, spans, whole_bytes
from feature_alignment.gradients.capture_plan import (
    CapturePlan,
    by_rules_or_one_by_one,
    capture_gradients,
    plan_capture,
    planned,
    summed_in,
)
from feature_alignment.gradients.checks import checked_outputs
from feature_alignment.gradients.model_function import OutputChoice
from feature_alignment.gradients.parameter_gradients import (
    BiasGradients,
    MatrixGradients,
    Part,
    all_factors,
    summed_features,
)
from feature_alignment.gradients.parameter_values import Parameters, Selection, input_like
from feature_alignment.gradients.position_gram import (
    add_feature_gram,
    add_gradient_gram,
    add_position_gram,
    mirror_lower_triangle,
)
from feature_alignment.gradients.refused_modules import refuse_dependent_samples
from feature_alignment.gradients.samples import ModelInput, Samples, as_samples
from feature_alignment.kernels.tangent_grams import TangentKernel

# Share of the budget for the passes and for intermediate results of the contractions.
_WORKSPACE = 1 / 8

_FEATURES = 2**25  # numbers of one parameter's features formed at a time


def tangent_kernel(
    model: nn.Module,
    x: ModelInput,
    x2: ModelInput | None = None,
    parameters: Parameters | None = None,
    *,
    inputs: str | Collection[str | int] | None = None,
    output: OutputChoice | None = None,
    only: Selection | None = None,
    memory_budget: float = DEFAULT_BUDGET,
    progress: Callable[[float], None] | None = None,
    plan: CapturePlan | None = None,
) -> TangentKernel:
    """Exact tangent kernel k_w(x_i, y; x_j, y') = ⟨∇_w f_y(x_i), ∇_w f_y'(x_j)⟩ of every layer.

    A layer is a module that directly owns parameters; a parameter shared by several belongs to the
    first. Every parameter counts, whether or not it requires a gradient; what the forward pass
    computes under `torch.no_grad()`, or detaches, is constant. Common operations on
    parameters (matrix products, convolutions, lookups, normalisations, elementwise operations) have
    fast rules, whatever module they are in. Gradients of parameters that are used in other ways are
    computed sample by sample.

    Source: Baratin et al. 2021, eq. 1 and Section 3.3 (sum over layers); Beaglehole et al. 2024,
    Proposition 12.

    Args:
        model: a model with outputs (n,), (n, c), or (n, …), where every entry is an output; each
            sample's outputs depend on that sample only.
        x: inputs (n, …): a tensor or array, or several in a sequence or mapping. Tensors are on the
            model's device; arrays are moved there, floating-point ones in its precision.
        x2: inputs (n₂, …) of the kernel's columns; None for x.
        parameters: values by parameter name to evaluate the model at; None for its own.
        inputs: for several inputs, those that contain samples, None for all tensors; for a single
            one, the keyword argument to pass it as.
        output: how to get the output tensor if the model returns anything else: a key, attribute
            or position of it, or a function of what the model returns.
        only: parameters to differentiate with respect to: "trainable" for those that require a
            gradient, or names of parameters and modules; None for all.
        memory_budget: bytes for gradients and intermediate results, in addition to the model, the
            inputs and the result. Checking the rules beforehand takes as much as the parameters.
        progress: called with the fraction of the work that is done, from 0 to 1.
        plan: as for `tangent_trace`.

    Raises:
        ValueError: if the model is not supported, the budget is too small for two samples, the
            outputs for x2 are not as many as for x, or the plan is for another model, for
            parameters since replaced, or given with options.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> tangent_kernel(model, torch.tensor([[3.0, 4.0]])).total
        tensor([[26.]])
    """
    refuse_dependent_samples(model)
    budget, like = whole_bytes(memory_budget), input_like(model)
    rows = as_samples(x, inputs, like)
    with _told_of_columns():
        columns = None if x2 is None else as_samples(x2, inputs, like)
    plan = planned(plan, model, rows, parameters=parameters, output=output, only=only)
    if columns is not None:
        with _told_of_columns():
            function, f, _ = checked_outputs(plan.function, plan.values, columns)
        plan = replace(plan, function=function)
        if f.shape[1] != plan.outputs:
            raise ValueError(
                f"x2: the model has {f.shape[1]} outputs for it, and {plan.outputs} for x."
            )
    return by_rules_or_one_by_one(plan, lambda plan: _kernel(plan, rows, columns, budget, progress))


@contextmanager
def _told_of_columns() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        told = str(error).removeprefix("x: ").rstrip(".")
        raise ValueError(
            f"x2, the inputs of the columns: {told}; if these are labels, give them to "
            "kernel.alignment."
        ) from error
    except (RuntimeError, TypeError) as error:
        error.add_note("This is of x2, the inputs of the kernel's columns.")
        raise


def tangent_features(
    model: nn.Module,
    x: ModelInput,
    parameters: Parameters | None = None,
    *,
    inputs: str | Collection[str | int] | None = None,
    **options: Any,
) -> torch.Tensor:
    """Explicit tangent features Φ_w(x) = ∇_w f_w(x): (n, c, p), in units of f per parameter.

    For small networks: n·c·p numbers, parameters in the order of `model.parameters()`. The kernel
    does not need them. Arguments and the options `output`, `only` are as for `tangent_kernel`.

    Source: Baratin et al. 2021, eq. 1.

    Raises:
        ValueError: if the model is not supported.

    Example:
        >>> tangent_features(nn.Linear(2, 1), torch.tensor([[3.0, 4.0]]))
        tensor([[[3., 4., 1.]]])
    """
    samples = as_samples(x, inputs, input_like(model))
    plan = plan_capture(model, samples, parameters, **options)
    found = by_rules_or_one_by_one(plan, lambda p: add_features(p, samples, {}))
    return torch.cat(list(found.values()), dim=2)


def add_features(
    plan: CapturePlan, samples: Samples, sums: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Add features to the sums in place, (n, c, entries) by parameter name; new sums if empty."""
    shape, values = (len(samples), plan.outputs), {name: plan.values[name] for name in plan.names}
    sums = sums or {
        name: value.new_zeros(*shape, value.numel(), dtype=summed_in(value))
        for name, value in values.items()
    }
    largest = max(value.numel() for value in values.values())
    for span in spans(len(samples), max(1, _FEATURES // (plan.outputs * largest))):
        found = capture_gradients(plan, samples[span], DEFAULT_BUDGET)
        for name, part in ((name, part) for name, parts in found.items() for part in parts):
            part.add_features(sums[name][span])
    return dict(sums)


def _kernel(
    plan: CapturePlan,
    x: Samples,
    x2: Samples | None,
    memory_budget: int,
    progress: Callable[[float], None] | None,
) -> TangentKernel:
    symmetric = x2 is None
    x2 = x if x2 is None else x2
    workspace = max(int(memory_budget * _WORKSPACE), 2 * plan.passing_bytes)
    memory = memory_budget - workspace
    alone = symmetric and len(x) == 1  # else a sample of each side is held
    least = plan.held_bytes * (1 if alone else 2)
    if memory < least:
        needed = max(least + 2 * plan.passing_bytes, math.ceil(least / (1 - _WORKSPACE)))
        held = "one sample" if alone else "two samples"
        raise ValueError(
            f"memory_budget: {memory_budget} bytes; the gradients of {held} need {needed}."
        )
    block = max(len(x), len(x2))  # samples whose gradients are held at a time, on each side
    if not symmetric or block * plan.held_bytes > memory:  # else a single block is both sides
        block = min(block, memory // max(1, 2 * plan.held_bytes))
    rows, columns = list(spans(len(x), block)), list(spans(len(x2), block))
    steps = len(rows) * (len(rows) + 1) // 2 if symmetric else len(rows) * len(columns)
    layers: dict[str, list[str]] = {}
    for name in plan.names:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    size, c = (len(x) * plan.outputs, len(x2) * plan.outputs), plan.outputs
    grams: dict[str, torch.Tensor] = {}
    for layer, names in layers.items():
        values = [plan.values[name] for name in names]
        grams[layer] = values[0].new_zeros(size, dtype=summed_in(*values))
    done = 0
    for i, row in enumerate(rows):
        first = capture_gradients(plan, x[row], workspace)
        for column in columns[: i + 1] if symmetric else columns:
            diagonal = symmetric and column == row
            second = first if diagonal else capture_gradients(plan, x2[column], workspace)
            for number, (layer, names) in enumerate(layers.items(), start=1):
                out = grams[layer][row.start * c : row.stop * c, column.start * c : column.stop * c]
                _add_layer(out, names, first, second, diagonal, workspace // out.element_size())
                if progress is not None:
                    progress((done + number / len(layers)) / steps)
            done += 1
            del second  # before the next block is captured
    if symmetric:
        for gram in grams.values():
            mirror_lower_triangle(gram)
    return TangentKernel(grams, c)


def _add_layer(
    out: torch.Tensor,
    names: Sequence[str],
    first: Mapping[str, list[Part]],
    second: Mapping[str, list[Part]],
    symmetric: bool,
    workspace: int,
) -> None:
    """Add the Gram matrices of a layer's parameters to `out`."""
    remaining = [name for name in names if name in first]
    while remaining:
        name = remaining.pop(0)
        for part, part2 in zip(first[name], second[name], strict=True):
            rows, columns = part.to(out.dtype).uses, part2.to(out.dtype).uses
            if not (all_factors(rows) and all_factors(columns)):
                found = summed_features(rows)
                other = found if symmetric else summed_features(columns)
                add_feature_gram(out, found, other, symmetric)
            elif len(rows) > 1:
                add_gradient_gram(out, rows, columns, symmetric=symmetric, workspace=workspace)
            else:
                (use,), (use2,) = rows, columns
                biases = [other for other in remaining if _is_bias_of(first[other], use)]
                for bias in biases[:1]:
                    remaining.remove(bias)
                add_position_gram(
                    out, use, use2, bias=bool(biases), symmetric=symmetric, workspace=workspace
                )


def _is_bias_of(parts: Sequence[Part], weight: MatrixGradients) -> bool:
    """Whether a parameter is the bias of exactly the calls in which the weight is used."""
    (use, *others) = (use for part in parts for use in part.uses)
    return not others and isinstance(use, BiasGradients) and use.deltas is weight.deltas
