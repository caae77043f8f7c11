"""beaglehole2024, Theorem 9: how far ρ of the second derivatives of NFM and AGOP is from 1."""

from collections.abc import Callable, Mapping
from functools import partial
from math import log

import torch

from feature_alignment.free_probability.dual_kernels import DUALS
from feature_alignment.layer_features.feature_matrices import cosine_similarity
from feature_alignment.models.mlp import ACTIVATIONS

BLOCK = 2048  # rows of the kernel matrix in memory at a time
SAMPLE_SIZES: dict[str, Callable[[int], float]] = {
    "d/4": lambda d: d / 4,
    "d": lambda d: d,
    "4d log d": lambda d: 4 * d * log(d),
    "d log³d": lambda d: d * log(d) ** 3,
}
"""Numbers of samples n, by name. The theorem requires more than d log³d, for l = 1."""
TARGETS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "linear": lambda z: z,
    "non-linear": lambda z: z + z**2 - 1,
    "no linear part": lambda z: z**2 - 1,
}
"""Targets as functions of z = βᵀx with ‖β‖ = 1."""
SMALL_READOUT = 1e-3


def deviations(
    x: torch.Tensor, targets: Mapping[str, torch.Tensor], activation: str
) -> dict[str, float]:
    """1 − ρ(XᵀY𝒦YX, XᵀY𝒦²YX) for each target, without ever storing the whole of 𝒦.

    𝒦 is the infinite-width kernel. W has variance 1/d: with variance O(1/k), as in the theorem, the
    pre-activations vanish as k → ∞ and the kernel trivially has rank one.

    Inputs (n, d) are on the sphere of radius √d, targets are labels (n,) by name.
    """
    d = x.shape[1]
    weighted = torch.cat([y[:, None] * x for y in targets.values()], dim=1)  # (n, targets·d)
    one = x.new_ones(())
    images = torch.cat(
        [
            DUALS[activation].derivative(one, one, rows @ x.T / d) @ weighted
            for rows in x.split(BLOCK)
        ]
    )
    parts = zip(targets, weighted.split(d, dim=1), images.split(d, dim=1), strict=True)
    return {name: _deviation(part, image) for name, part, image in parts}


def network_deviations(
    x: torch.Tensor, y: torch.Tensor, width: int, activation: str, generator: torch.Generator
) -> dict[str, float]:
    """1 − ρ of one wide network, for each way of making its initial outputs zero.

    Inputs (n, d) are on the sphere of radius √d, labels (n,).

    Source: beaglehole2024, Methods 7 and 8, and neither.
    """
    d = x.shape[1]
    normal = partial(torch.randn, generator=generator, dtype=x.dtype)
    weight = (normal(width, d) / d**0.5).to(x.device)
    readout = (normal(width) / width**0.5).to(x.device)
    h = (x @ weight.T).requires_grad_()  # (n, k)
    activations = ACTIVATIONS[activation](h)
    (slopes,) = torch.autograd.grad(activations.sum(), h)
    outputs = activations.detach() @ readout
    # A small readout scales the kernel by ε², which leaves ρ unchanged.
    residuals = {
        "copy subtracted": y,
        "small readout": y - SMALL_READOUT * outputs,
        "neither": y - outputs,
    }
    features = slopes * readout  # ∂f/∂h, (n, k)
    weighted = {method: residual[:, None] * x for method, residual in residuals.items()}
    return {
        method: _deviation(part, features @ (features.T @ part))
        for method, part in weighted.items()
    }


def _deviation(weighted: torch.Tensor, image: torch.Tensor) -> float:
    """1 − ρ from YX and 𝒦YX, both (n, d)."""
    return 1 - cosine_similarity(weighted.T @ image, image.T @ image)
