"""How fast the tangent kernel could be at best, given its passes and the order of its sums.

The floor is a forward pass and c backward passes, which give gradients of activations only, and for
each parameter the form of `gradients.position_gram` with the fewest multiplications, at the rate of
a large matrix product. Moving numbers, planning, checking and adding up cost nothing.
"""

import time
from collections.abc import Sequence

import torch
from measuring import cpu_seconds
from torch import nn

from feature_alignment.gradients.capture import backpropagate, one_hot_cotangents, recorded
from feature_alignment.gradients.capture_plan import CapturePlan, plan_capture
from feature_alignment.gradients.capture_probe import try_rules
from feature_alignment.gradients.layer_inputs import TokenInputs
from feature_alignment.gradients.parameter_gradients import (
    BiasGradients,
    Gradients,
    MatrixGradients,
    all_factors,
    merged_uses,
)
from feature_alignment.gradients.samples import Samples, as_samples


def floor(model: nn.Module, x: torch.Tensor) -> dict[str, float]:
    """The floor of the kernel of x in CPU seconds, and what it consists of."""
    few = as_samples(x[:3])
    plan = plan_capture(model, few)
    passes: list[float] = []
    for _ in range(2):  # the first use of each shape is slower
        with cpu_seconds(passes):
            run_passes(plan, as_samples(x))
    number = kernel_multiplications(plan, few, len(x))
    rate = product_rate() * 1e9 / 2
    return {
        "passes_cpu_seconds": min(passes),
        "contraction_multiplications": number,
        "multiplications_per_second": rate,
        "floor_seconds": min(passes) + number / rate,
    }


def run_passes(plan: CapturePlan, samples: Samples) -> None:
    """Run a forward pass and c backward passes to all operations on parameters."""
    with recorded(plan.function, plan.values, samples, plan.names) as recording:
        cotangents = one_hot_cotangents(recording.f)
        for _ in backpropagate(recording, list(plan.calls), cotangents):
            pass


def kernel_multiplications(plan: CapturePlan, few: Samples, n: int) -> float:
    """The fewest multiplications that contract the gradients of n samples like the few given."""
    trial = try_rules(plan.function, plan.values, few, plan.names)
    c = plan.outputs
    ruled = sum(
        multiplications(merged_uses(part.uses), n, c)
        for parts in trial.parts.values()
        for part in parts
    )
    return ruled + sum(_gram(plan.values[name].numel(), n, c) for name in trial.unexplained)


def multiplications(uses: Sequence[Gradients], n: int, c: int) -> float:
    """The fewest multiplications for the kernel of a parameter by one of the three forms.

    Biases cost nothing next to their weights, and rows of embeddings nothing to compare or form.
    """
    if not all_factors(uses):
        (first, *_) = uses
        return 0 if isinstance(first, BiasGradients) else _gram(first.features().shape[2], n, c)
    inputs = uses[0].inputs
    tokens, d = isinstance(inputs, TokenInputs), inputs.columns
    formed = 0 if tokens else sum(n * c * use.inputs.positions * use.rows * d for use in uses)
    gradients = formed + _gram(uses[0].rows * d, n, c)
    if len(uses) > 1:
        return inputs.groups * gradients
    return inputs.groups * min(gradients, *_without_gradients(uses[0], n, c))


def _without_gradients(use: MatrixGradients, n: int, c: int) -> tuple[float, float]:
    """Multiplications of the forms "pairs" and "carrying", for one group."""
    t, d = use.inputs.positions, use.inputs.columns
    width, compared = (d, 0) if isinstance(use.inputs, TokenInputs) else (use.width, d)
    pairs = t * t * (compared + c * c * width)
    carrying = t * (t * compared + t * c * width + c * c * width)
    return n * n / 2 * pairs, n * n / 2 * carrying


def _gram(p: int, n: int, c: int) -> float:
    return n * n * c * c * p / 2


def product_rate(size: int = 2048, repeats: int = 5) -> float:
    """The best rate of a square product in this run, 10⁹ operations per CPU second."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    rates = []
    for _ in range(repeats):
        start = time.process_time()
        a @ b
        rates.append(2 * size**3 / (time.process_time() - start) / 1e9)
    return max(rates)
