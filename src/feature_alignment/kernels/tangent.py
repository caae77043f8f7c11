"""The tangent kernel, in total and by layer, and the tangent features themselves.

Rows of everything here run over samples and outputs with the sample first: the entry of sample i
and output y has index i·c + y.

The kernel comes from one forward and c backward passes. They give, for every module, its inputs a
and the gradients δ of the outputs by what it returns; `position_gram` contracts the two. Where
memory does not hold the signals of all samples, samples are taken in blocks, and the passes are
repeated for every pair of blocks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from feature_alignment.gradients.blocks import spans
from feature_alignment.gradients.capture_plan import CapturePlan, capture_gradients, plan_capture
from feature_alignment.gradients.parameter_gradients import (
    BiasGradients,
    Gradients,
    MatrixGradients,
    all_factors,
    summed_features,
)
from feature_alignment.gradients.position_gram import (
    add_feature_gram,
    add_gradient_gram,
    add_position_gram,
    mirror_lower_triangle,
)

# A VGG19 of 20 million parameters on 100 images and 10 outputs fits in one block.
DEFAULT_BUDGET = 5 * 2**29

# Share of the budget for the passes, and for intermediate results of the contractions.
_WORKSPACE = 1 / 8


@dataclass(frozen=True)
class TangentKernel:
    """Gram matrix of tangent features between two sets of samples.

    Attributes:
        layers: the Gram matrix of each layer's features by layer name, each (n·c, n₂·c), in
            units of f² per parameter².
        outputs: c, the number of outputs.
    """

    layers: dict[str, torch.Tensor]
    outputs: int

    @property
    def total(self) -> torch.Tensor:
        """The kernel of all parameters, the sum over layers: (n·c, n₂·c)."""
        grams = iter(self.layers.values())
        total = next(grams).clone()
        for gram in grams:
            total += gram
        return total


def tangent_kernel(
    model: nn.Module,
    x: torch.Tensor,
    x2: torch.Tensor | None = None,
    parameters: Mapping[str, torch.Tensor] | None = None,
    *,
    memory_budget: int = DEFAULT_BUDGET,
    progress: Callable[[float], None] | None = None,
) -> TangentKernel:
    """Tangent kernel k_w(x_i, y; x_j, y') = ⟨∇_w f_y(x_i), ∇_w f_y'(x_j)⟩ of every layer, exact.

    A layer is a module that directly owns parameters; a parameter shared by several belongs to the
    first. Every parameter counts, whether or not it requires a gradient. Linear, convolution,
    embedding and normalisation layers have fast rules; the gradients by any other parameter, and by
    one used in a way that its module's rule does not describe, are computed sample by sample.

    Source: Baratin et al. 2021, eq. 1 and Section 3.3 (sum over layers); Beaglehole et al. 2024,
    Proposition 12.

    Args:
        model: a model whose outputs are (n, c), or (n, …) with an output in every entry; each
            sample's depend on that sample only.
        x: inputs (n, …).
        x2: inputs (n₂, …) of the kernel's columns; None for x.
        parameters: values by parameter name to evaluate the model at; None for its own.
        memory_budget: bytes for gradients and intermediate results, beyond the model, the inputs
            and the result. Checking the rules beforehand takes as much as the model's parameters.
        progress: called with the share of the work that is done, from 0 to 1.

    Returns:
        The Gram matrices (n·c, n₂·c).

    Raises:
        ValueError: if the model is not of that kind; if for these samples its parameters are used
            in other ways than for the first two, or a module gets the samples in another order;
            or if the budget does not hold one sample.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> tangent_kernel(model, torch.tensor([[3.0, 4.0]])).total
        tensor([[26.]])
    """
    plan = plan_capture(model, x, parameters)
    symmetric = x2 is None
    x2 = x if x2 is None else x2
    workspace = max(int(memory_budget * _WORKSPACE), plan.passing_bytes)
    block = _block_size(plan, len(x), None if symmetric else len(x2), memory_budget - workspace)
    rows, columns = list(spans(len(x), block)), list(spans(len(x2), block))
    steps = len(rows) * (len(rows) + 1) // 2 if symmetric else len(rows) * len(columns)
    layers = _parameters_by_layer(plan)
    size, c = (len(x) * plan.outputs, len(x2) * plan.outputs), plan.outputs
    like = next(iter(plan.values.values()))
    grams = {layer: like.new_zeros(size) for layer in layers}
    done = 0
    for i, row in enumerate(rows):
        first = capture_gradients(plan, x[row], workspace)
        for column in columns[: i + 1] if symmetric else columns:
            diagonal = symmetric and column == row
            second = first if diagonal else capture_gradients(plan, x2[column], workspace)
            for number, (layer, names) in enumerate(layers.items(), start=1):
                out = grams[layer][row.start * c : row.stop * c, column.start * c : column.stop * c]
                _add_layer(out, names, first, second, diagonal, workspace // like.element_size())
                if progress is not None:
                    progress((done + number / len(layers)) / steps)
            done += 1
            del second  # before the next block is captured
    if symmetric:
        for gram in grams.values():
            mirror_lower_triangle(gram)
    return TangentKernel(grams, c)


def tangent_features(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Tangent features Φ_w(x) = ∇_w f_w(x), explicitly.

    n·c·p numbers: for small networks. The kernel does not need them.

    Source: Baratin et al. 2021, eq. 1.

    Args:
        model: see `tangent_kernel` for the models that are supported.
        x: inputs (n, …).

    Returns:
        Features (n, c, p), parameters in the order of `model.parameters()`, units of f per
        parameter.

    Raises:
        ValueError: if the model is not supported.
    """
    plan = plan_capture(model, x)
    found = capture_gradients(plan, x, DEFAULT_BUDGET)
    return torch.cat([summed_features(found[name]) for name in plan.values], dim=2)


def _parameters_by_layer(plan: CapturePlan) -> dict[str, list[str]]:
    layers: dict[str, list[str]] = {}
    for name in plan.values:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    order = {name: place for place, (name, _) in enumerate(plan.model.named_modules())}
    return {layer: layers[layer] for layer in sorted(layers, key=order.__getitem__)}


def _block_size(plan: CapturePlan, n: int, n2: int | None, memory: int) -> int:
    """Samples whose gradients to hold at a time, of each of the two sides.

    Raises:
        ValueError: if the memory does not hold one sample of each side.
    """
    if n2 is None and n * plan.held_bytes <= memory:
        return n
    block = memory // (2 * plan.held_bytes)
    if block < 1:
        raise ValueError(
            f"memory_budget: it leaves {max(0, memory)} bytes for the gradients of two samples, "
            f"which need {2 * plan.held_bytes}; raise the budget."
        )
    return min(block, max(n, n2 or 0))


def _add_layer(
    out: torch.Tensor,
    names: Sequence[str],
    first: Mapping[str, list[Gradients]],
    second: Mapping[str, list[Gradients]],
    symmetric: bool,
    workspace: int,
) -> None:
    """Add the Gram matrices of a layer's parameters to `out`."""
    remaining = list(names)
    while remaining:
        name = remaining.pop(0)
        rows, columns = first[name], second[name]
        if not (all_factors(rows) and all_factors(columns)):
            add_feature_gram(out, summed_features(rows), summed_features(columns), symmetric)
        elif len(rows) > 1:
            add_gradient_gram(out, rows, columns, symmetric=symmetric, workspace=workspace)
        else:
            bias = next((other for other in remaining if _is_bias_of(first[other], rows[0])), None)
            if bias is not None:
                remaining.remove(bias)
            add_position_gram(
                out,
                rows[0],
                columns[0],
                bias=bias is not None,
                symmetric=symmetric,
                workspace=workspace,
            )


def _is_bias_of(uses: Sequence[Gradients], weight: MatrixGradients) -> bool:
    """Whether a parameter is the bias of just those calls in which the weight is used."""
    (use, *others) = uses
    return not others and isinstance(use, BiasGradients) and use.deltas is weight.deltas
