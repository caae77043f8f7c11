"""Trace of the tangent kernel without forming it or, except in small layers, the features."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from feature_alignment.gradients.blocks import BLOCK, DEFAULT_BUDGET, spans, whole_bytes
from feature_alignment.gradients.capture_plan import (
    CapturePlan,
    by_rules_or_one_by_one,
    capture_gradients,
    planned,
)
from feature_alignment.gradients.layer_inputs import TokenInputs
from feature_alignment.gradients.parameter_gradients import (
    Gradients,
    MatrixGradients,
    summed_features,
)
from feature_alignment.gradients.parameter_values import input_like
from feature_alignment.gradients.samples import ModelInput, Samples, as_samples

_CHUNK = 2**28  # bytes of gradients beyond which more samples at a time are not faster
_LEAST = 1e-30  # a sum of squares below this may have lost much to underflow in float32


def tangent_trace(
    model: nn.Module,
    x: ModelInput,
    memory_budget: float | None = None,
    plan: CapturePlan | None = None,
    *,
    inputs: str | Collection[str | int] | None = None,
    **options: Any,
) -> float:
    """Trace of the tangent kernel, Tr K = ‖Φ_w‖_F² = Σ_i Σ_y ‖∇_w f_y(x_i)‖².

    The complexity measure sums ‖δw_t‖ · √(Tr K_t). The trace takes one forward and c + 1
    backward passes. Sums are in float64, in units of f² per parameter²; for times in units of a
    training step see benchmarks/tangent_trace.csv. For a weight (k, d) with inputs a and gradients
    δ at P positions, the cheaper of Σ_{t,s} (a_t·a_s)(δ_t·δ_s) and ‖Σ_t δ_t a_tᵀ‖² is computed, all
    outputs in one product.

    Source: Baratin et al. 2021, eq. 18 (‖Φ_t‖_F).

    Args:
        model: see `tangent_kernel` for the supported models.
        x: inputs (n, …), numbers or tokens.
        memory_budget: bytes for the gradients of the samples that are processed at a time; it does
            not change the result. None for 256 MiB, or what one sample needs up to 2.5 GiB.
        plan: from `plan_capture(model, x)`, relatively slow for small models; it stays valid
            while an optimiser changes the parameters in place. None for a new one.
        inputs: as for `tangent_kernel`.
        options: for a new plan, `output` and `only` of `tangent_kernel`.

    Raises:
        ValueError: if the model is not supported, the budget is too small for one sample, or the
            plan is for another model, for parameters since replaced, or given with options.

    Example:
        >>> tangent_trace(nn.Linear(2, 3), torch.tensor([[3.0, 4.0]]))  # 3 · (3² + 4² + 1)
        78.0
    """
    budget = None if memory_budget is None else whole_bytes(memory_budget)
    samples = as_samples(x, inputs, input_like(model))
    plan = planned(plan, model, samples, **options)
    return by_rules_or_one_by_one(plan, lambda p: _trace(p, samples, budget))


def one_hidden_layer_trace(hidden: nn.Linear, readout: nn.Linear, x: torch.Tensor) -> float:
    """Trace Tr K of the tangent kernel of f(x) = V relu(Ux + b) + b', from a forward pass.

    With h = Ux + b and a = relu(h): ∂f_y/∂V_yj = a_j and ∂f_y/∂U_jk = V_yj 1[h_j > 0] x_k, so
    Tr K = Σ_i { c (‖a_i‖² + 1) + (‖x_i‖² + 1) Σ_j 1[h_ij > 0] ‖V_{·j}‖² }, where each + 1 is for a
    bias, if present. Inputs are (n, …) with d entries each. Summed in float64, in units of f² per
    parameter².

    Source: Baratin et al. 2021, footnote 11 (‖Φ_t‖_F² = Tr K_t); the closed form is ours.

    Raises:
        ValueError: if there are no samples, or an input is not finite.
    """
    as_samples(x)  # refuses none
    with torch.no_grad():
        biases = int(readout.bias is not None), int(hidden.bias is not None)
        columns = readout.weight.double().square().sum(0)  # (k,): ‖V_{·j}‖²

        def trace(x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
            by_readout = len(readout.weight) * (_squares(a) + biases[0])  # (n,)
            by_hidden = (_squares(x) + biases[1]) * ((a > 0).double() @ columns)  # (n,)
            return (by_readout + by_hidden).sum()

        x = x.flatten(1)  # (n, d)
        found = _in_range(trace, x, F.relu(hidden(x)))
        if not (math.isfinite(found) or x.isfinite().all()):  # NaN and infinity in x remain
            raise ValueError("x: some inputs are not finite, so they have no trace.")
        return found


def _trace(plan: CapturePlan, samples: Samples, memory_budget: int | None) -> float:
    per_sample, most = max(1, plan.held_bytes + plan.passing_bytes), memory_budget or DEFAULT_BUDGET
    if most < per_sample:
        raise ValueError(
            f"memory_budget: {most} bytes; the gradients of one sample need {per_sample}."
        )
    traces: dict[str, float] = {}
    chunk = max(1, (memory_budget or _CHUNK) // per_sample)
    for span in spans(len(samples), chunk):
        found = capture_gradients(plan, samples[span], chunk * plan.passing_bytes)
        for name in plan.names:
            owner = name.rpartition(".")[0]
            square = sum(_squared_norm(part.uses) for part in found.pop(name, ()))
            traces[owner] = traces.get(owner, 0.0) + square
    return math.fsum(traces.values())


def _squared_norm(uses: Sequence[Gradients]) -> float:
    """Σ_i Σ_y ‖Σ_uses ∂f_y(x_i)/∂w‖² of one parameter."""
    use = uses[0]
    if len(uses) > 1 or not isinstance(use, MatrixGradients):
        return _sum_of_squares(summed_features(uses))
    (n, c, t, _), k, d = use.deltas.shape, use.width, use.inputs.columns
    compared = 1 if isinstance(use.inputs, TokenInputs) else d
    if t * (compared + c * k) > c * use.rows * d:
        return _sum_of_squares(use.features())

    def over_pairs(inputs: torch.Tensor, deltas: torch.Tensor) -> torch.Tensor:
        products = deltas @ deltas.transpose(2, 3)  # (b, c, P, P)
        pairs = use.inputs.own_similarity(inputs).to(products.dtype)[:, None]
        return products.mul_(pairs).sum(dtype=torch.float64)

    total = 0.0
    for samples in spans(n, max(1, BLOCK // (t * max(d, c * t)))):
        for group in range(use.inputs.groups):
            factors = use.factors(group, samples)
            total += _in_range(over_pairs, factors.inputs, factors.deltas)
    return total


def _sum_of_squares(values: torch.Tensor) -> float:
    return _in_range(lambda values: values.square().sum(dtype=torch.float64), values)


def _in_range(squares: Callable[..., torch.Tensor], *values: torch.Tensor) -> float:
    """A sum of squares, in float64 throughout if some leave the range of the values' precision."""
    found = float(squares(*values))
    if _LEAST <= found < math.inf or not values[-1].any():  # of zeros, the sum is exact
        return found
    return float(squares(*(value.double() for value in values)))


def _squares(rows: torch.Tensor) -> torch.Tensor:
    return rows.square().sum(1, dtype=torch.float64)
