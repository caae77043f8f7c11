"""Dual kernels E[φ(u)φ(v)] and E[φ′(u)φ′(v)] of activations, for jointly Gaussian u and v.

All take broadcastable tensors S_uu, S_vv and S_uv and compute in their precision.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, pi

import torch

from feature_alignment.errors import UserError, check_choice, check_whole

DualKernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Dual:
    """E[φ(u)φ(v)] and E[φ′(u)φ′(v)] of one activation φ, from E[u²], E[v²] and E[uv]."""

    value: DualKernel
    derivative: DualKernel


def _relu(uu: torch.Tensor, vv: torch.Tensor, uv: torch.Tensor) -> torch.Tensor:
    norms = torch.sqrt(uu * vv)
    cosine = _cosine(uu, vv, uv)
    angle = torch.arccos(cosine)
    return norms * (torch.sqrt(1 - cosine**2) + (pi - angle) * cosine) / (2 * pi)


def _cosine(uu: torch.Tensor, vv: torch.Tensor, uv: torch.Tensor) -> torch.Tensor:
    return torch.clamp(uv / torch.sqrt(uu * vv), -1, 1)


def _exponential(uu: torch.Tensor, vv: torch.Tensor, uv: torch.Tensor) -> torch.Tensor:
    return torch.exp((uu + vv) / 2 + uv)


DUALS: dict[str, Dual] = {
    "quadratic": Dual(lambda uu, vv, uv: uu * vv + 2 * uv**2, lambda uu, vv, uv: 4 * uv),
    "relu": Dual(_relu, lambda uu, vv, uv: (pi - torch.arccos(_cosine(uu, vv, uv))) / (2 * pi)),
    "relu_linearised": Dual(  # φ′(u) ≈ 1/2 + u/√(2π S_uu)
        _relu, lambda uu, vv, uv: 1 / 4 + _cosine(uu, vv, uv) / (2 * pi)
    ),
    "erf": Dual(
        lambda uu, vv, uv: 2 / pi * torch.arcsin(2 * uv / torch.sqrt((1 + 2 * uu) * (1 + 2 * vv))),
        lambda uu, vv, uv: 4 / pi / torch.sqrt((1 + 2 * uu) * (1 + 2 * vv) - 4 * uv**2),
    ),
    "exponential": Dual(_exponential, _exponential),
}
"""By activation: h², max(h, 0), max(h, 0) with φ′ replaced by its linear part (the first two
Hermite polynomials), erf(h) and exp(h).

Source: Cho and Saul 2009 (ReLU, orders 1 and 0); Williams 1997 (erf); Gaussian integrals (others).
"""


def expected_preactivation_kernel(
    x: torch.Tensor, activation: str, hidden_layers: int, weight_variance: float
) -> torch.Tensor:
    """Expected PTK E[𝒦], (n, n), of the first layer at initialisation, for infinite width.

    For independent weights of variance v/fan_in, with S₀ = v XXᵀ/d and S_ℓ = v E[φφ](S_{ℓ−1}),

        E[𝒦(x, z)] = Π_ℓ v E[φ′φ′](S_ℓ)(x, z),

    one factor for each hidden layer: the weights above it have variance v/k, so that sums over its
    k units become averages. Exact at any width for one hidden layer and Gaussian weights. No row of
    the inputs (n, d) may be zero; the activation is one of `DUALS`. PyTorch's default is v = 1/3.

    Source: Beaglehole et al. 2024, Appendix E; the recursion is the NTK's (Jacot et al. 2018).

    Raises:
        UserError: if the activation is unknown, the number of hidden layers negative, or a variance
            of the first pre-activations, v‖x‖²/d, not positive or not finite.
    """
    check_choice("activation", activation, DUALS)
    check_whole("hidden_layers", hidden_layers, 0)
    dual = DUALS[activation]
    covariance = weight_variance * (x @ x.T) / x.shape[1]  # S_0, (n, n)
    variances = covariance.diagonal()
    if not ((variances > 0) & (variances < inf)).all():
        raise UserError(
            "x, weight_variance: variances of the first pre-activations are not positive, or not "
            "finite; give a positive variance, and finite inputs without rows of zeros."
        )
    kernel = torch.ones_like(covariance)
    for _ in range(hidden_layers):
        variances = covariance.diagonal()
        pair = variances[:, None], variances[None, :], covariance
        kernel = kernel * weight_variance * dual.derivative(*pair)
        covariance = weight_variance * dual.value(*pair)
    return kernel
