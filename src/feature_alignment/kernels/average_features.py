"""Tangent features averaged along the straight path of training, and the adapted kernel."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from torch import nn

from feature_alignment.arrays import Matrix, real_tensor
from feature_alignment.errors import check_kind, check_whole
from feature_alignment.gradients.capture_plan import (
    CapturePlan,
    by_rules_or_one_by_one,
    plan_capture,
)
from feature_alignment.gradients.model_function import OutputChoice
from feature_alignment.gradients.parameter_values import Selection, evaluation_point, input_like
from feature_alignment.gradients.refused_modules import refuse_absent_values
from feature_alignment.gradients.samples import ModelInput, as_samples
from feature_alignment.kernels.tangent import add_features
from feature_alignment.kernels.tangent_grams import TangentKernel

Parameters = Mapping[str, torch.Tensor]


def copy_parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    """Detached copies of the model's parameters by name, such as one end of a path.

    Raises:
        ValueError: if it is not a module, or a parameter has no values here.

    Example:
        >>> list(copy_parameters(nn.Linear(2, 1)))
        ['weight', 'bias']
    """
    refuse_absent_values(model)
    return {name: value.detach().clone() for name, value in model.named_parameters()}


@torch.inference_mode(False)
def average_tangent_features(
    model: nn.Module,
    start: Parameters,
    end: Parameters,
    x: ModelInput,
    points: int = 50,
    output: OutputChoice | None = None,
    only: Selection | None = None,
    inputs: str | Collection[str | int] | None = None,
) -> dict[str, torch.Tensor]:
    """Average tangent features: the mean of ∇f at equally spaced points from θ₀ to θ.

    ∇̄f_θ(x) = ∫₀¹ ∇f_{θ(t)}(x) dt with θ(t) = (1−t)θ₀ + tθ, as the plain mean over the points,
    both ends included. f_θ − f_θ₀ = ∇̄f_θ·(θ − θ₀) holds for the integral; the mean differs from
    it by O(1/points). Takes n·c·p numbers: 240 MB in float32 for n = 500, c = 1, p = 1.2e5.

    `start` and `end` are θ₀ and θ by parameter name; the model's own parameters are not used. The
    other arguments are as for `tangent_kernel`. The result has each parameter's features by its
    name, (n·c, entries), with rows sample-major.

    Source: LeJeune & Alemohammad 2024, Section 2.1 and Appendix B.1 (50 points).

    Raises:
        ValueError: if there are fewer than two points, the end or an output on the path is not
            finite, the end has other integers than the start, or the model is not supported.

    Example:
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> start, end = {"weight": torch.zeros(1, 2)}, {"weight": torch.ones(1, 2)}
        >>> average_tangent_features(layer, start, end, torch.tensor([[3.0, 4.0]]), 2)["weight"]
        tensor([[3., 4.]])
    """
    check_whole("points", points, 2)  # the path's two ends
    for key, values in (("start", start), ("end", end)):
        check_kind(key, values, Mapping, "parameters by name, as from `copy_parameters`")
    samples = as_samples(x, inputs, input_like(model))
    plan = plan_capture(model, samples, start, output=output, only=only)
    first, last = (evaluation_point(model, values) for values in (start, end))
    for name, value in last.items():
        if not torch.isfinite(value).all():
            raise ValueError(f"end: {name!r} holds values that are not finite.")
    moving = {name for name, value in first.items() if value.is_floating_point()}
    for name in first.keys() - moving:
        if not torch.equal(first[name], last[name]):
            raise ValueError(f"end: {name!r} holds other integers than the start; keep them equal.")

    def add_up(plan: CapturePlan) -> dict[str, torch.Tensor]:
        sums: dict[str, torch.Tensor] = {}
        for point in range(points):
            t = point / (points - 1)
            between = {
                name: torch.lerp(value, last[name].to(value), t) if name in moving else value
                for name, value in first.items()
            }
            sums = add_features(replace(plan, values=between), samples, sums)
        return sums

    sums = by_rules_or_one_by_one(plan, add_up)
    return {name: features.flatten(0, 1).div_(points) for name, features in sums.items()}


@torch.inference_mode(False)
def adapted_kernel(
    model: nn.Module,
    start: Parameters,
    end: Parameters,
    x: ModelInput,
    points: int = 50,
    output: OutputChoice | None = None,
    only: Selection | None = None,
    inputs: str | Collection[str | int] | None = None,
) -> TangentKernel:
    """Adapted kernel K(x, x') = ∇̄f_θ(x) ∇̄f_θ(x')ᵀ of the average tangent features.

    Arguments and errors are those of `average_tangent_features`. The initial kernel K₀ is
    `tangent_kernel(model, x, parameters=start)`.

    Source: LeJeune & Alemohammad 2024, Section 3 (adapted kernel) and Appendix B.1.

    Example:
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> start, end = {"weight": torch.zeros(1, 2)}, {"weight": torch.ones(1, 2)}
        >>> adapted_kernel(layer, start, end, torch.tensor([[3.0, 4.0]]), 2).total
        tensor([[25.]])
    """
    samples = as_samples(x, inputs, input_like(model))
    features = average_tangent_features(model, start, end, samples, points, output, only)
    grams: dict[str, torch.Tensor] = {}
    for name, phi in features.items():
        layer = name.rpartition(".")[0]
        gram = grams.setdefault(layer, phi.new_zeros(len(phi), len(phi)))
        dtype = torch.promote_types(gram.dtype, phi.dtype)
        grams[layer] = gram.to(dtype).addmm_(phi.to(dtype), phi.to(dtype).T)
    rows = len(next(iter(features.values())))
    return TangentKernel(grams, outputs=rows // len(samples))


def label_kernel(change: Matrix) -> torch.Tensor:
    """Label kernel K_ŷ(x, x') = (f_θ(x) − f_θ₀(x)) (f_θ(x') − f_θ₀(x'))ᵀ.

    The kernel (n·c, n·c), sample-major, has rank one. `change` (n, c) is how training changed the
    outputs; the labels themselves are not used.

    Source: LeJeune & Alemohammad 2024, Theorem 1.

    Raises:
        ValueError: if `change` is not (n, c), or its squares are not finite.

    Example:
        >>> label_kernel(torch.tensor([[1.0], [-2.0]]))
        tensor([[ 1., -2.],
                [-2.,  4.]])
    """
    change = real_tensor("change", change)
    if change.ndim != 2:
        raise ValueError(f"change: shape {tuple(change.shape)}; it must be (n, c).")
    if not change.square().isfinite().all():
        raise ValueError(
            "change: it has entries that are not finite, or too large to be squared in "
            f"{change.dtype}."
        )
    return torch.outer(change.flatten(), change.flatten())
