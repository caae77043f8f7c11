"""Tangent features averaged along the straight path of training, and the kernel adapted by it."""

from collections.abc import Mapping

import torch
from torch import nn

from feature_alignment.kernels.tangent import TangentKernel
from feature_alignment.layer_features.layer_signals import LayerSignals, layer_signals

Parameters = Mapping[str, torch.Tensor]


def copy_parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    """The model's parameters by name, detached copies: an end of a path."""
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def average_tangent_features(
    model: nn.Module, start: Parameters, end: Parameters, x: torch.Tensor, points: int = 50
) -> dict[str, torch.Tensor]:
    """Average tangent features: the mean of ∇f at equally spaced points from θ₀ to θ.

    ∇̄f_θ(x) = ∫₀¹ ∇f_{θ(t)}(x) dt with θ(t) = (1−t)θ₀ + tθ, as the plain mean over the points,
    both ends included. f_θ − f_θ₀ = ∇̄f_θ·(θ − θ₀) holds for the integral; the mean differs from
    it by O(1/points).

    Holds n·c·p numbers: 240 MB in float32 for n = 500, c = 1, p = 1.2e5.

    Source: LeJeune & Alemohammad 2024, Section 2.1 and Appendix B.1 (50 points).

    Args:
        model: the architecture, see `layer_signals`; its own parameters are not used.
        start: θ₀ by parameter name.
        end: θ by parameter name.
        x: inputs (n, …).
        points: number of points, at least 2.

    Returns:
        For each layer the features (n·c, p_ℓ), rows sample-major, the weight's entries row by
        row and then the bias.

    Raises:
        ValueError: if there are fewer than two points, or the model is not supported.
    """
    if points < 2:
        raise ValueError(f"points: {points}; the path's two ends need at least 2.")
    sums: dict[str, torch.Tensor] = {}
    for point in range(points):
        t = point / (points - 1)
        between = {name: torch.lerp(start[name], end[name], t) for name in start}
        for name, signal in layer_signals(model, x, between).items():
            if name not in sums:
                n, c, k = signal.gradients.shape
                p = k * (signal.inputs.shape[1] + signal.has_bias)
                sums[name] = signal.gradients.new_zeros(n * c, p)
            _add_features(sums[name], signal, 1 / points)
    return sums


def adapted_kernel(
    model: nn.Module, start: Parameters, end: Parameters, x: torch.Tensor, points: int = 50
) -> TangentKernel:
    """Adapted kernel K(x, x') = ∇̄f_θ(x) ∇̄f_θ(x')ᵀ of the average tangent features.

    Arguments are those of `average_tangent_features`. The initial kernel K₀ is
    `tangent_kernel(model, x, parameters=start)`.

    Source: LeJeune & Alemohammad 2024, Section 3 (adapted kernel) and Appendix B.1.

    Raises:
        ValueError: if there are fewer than two points, or the model is not supported.
    """
    features = average_tangent_features(model, start, end, x, points)
    grams = {name: phi @ phi.T for name, phi in features.items()}
    return TangentKernel(grams, outputs=len(next(iter(features.values()))) // len(x))


def label_kernel(change: torch.Tensor) -> torch.Tensor:
    """Label kernel K_ŷ(x, x') = (f_θ(x) − f_θ₀(x)) (f_θ(x') − f_θ₀(x'))ᵀ.

    Of rank one, (n·c, n·c) and sample-major. `change` (n, c) is what training added to the outputs;
    the labels themselves play no part.

    Source: LeJeune & Alemohammad 2024, Theorem 1.

    Raises:
        ValueError: if `change` is not (n, c).

    Example:
        >>> label_kernel(torch.tensor([[1.0], [-2.0]]))
        tensor([[ 1., -2.],
                [-2.,  4.]])
    """
    if change.ndim != 2:
        raise ValueError(f"change: shape {tuple(change.shape)}; it must be (n, c).")
    return torch.outer(change.flatten(), change.flatten())


def _add_features(total: torch.Tensor, signal: LayerSignals, factor: float) -> None:
    """Add factor · features to `total`, without ever holding the features themselves."""
    n, c, k = signal.gradients.shape
    d = signal.inputs.shape[1]
    gradients = signal.gradients.reshape(n * c, k, 1)
    inputs = signal.inputs.repeat_interleave(c, dim=0).view(n * c, 1, d)
    total[:, : k * d].view(n * c, k, d).baddbmm_(gradients, inputs, alpha=factor)
    if signal.has_bias:
        total[:, k * d :].add_(gradients[:, :, 0], alpha=factor)
