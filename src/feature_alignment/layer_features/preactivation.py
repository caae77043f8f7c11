"""The pre-activation tangent kernel (PTK) of a layer and the covariance of its features."""

import torch


def preactivation_tangent_kernel(gradients: torch.Tensor) -> torch.Tensor:
    """PTK 𝒦(x_i, x_j) = ∂f(x_i)/∂h_ℓ · ∂f(x_j)/∂h_ℓ, (n, n), summed over outputs.

    Source: Beaglehole et al. 2024, Section 2.2 (PTK), which has one output.

    Args:
        gradients: δ = ∂f/∂h_ℓ, (n, c, k), from `layer_signals`.

    Example:
        >>> preactivation_tangent_kernel(torch.tensor([[[3.0, 4.0]]]))
        tensor([[25.]])
    """
    flat = gradients.flatten(1)  # (n, c·k)
    return flat @ flat.T


def preactivation_feature_covariance(gradients: torch.Tensor) -> torch.Tensor:
    """Covariance of the PTK's features, (k, k): K = (1/n) Σ_i (∂f(x_i)/∂h_ℓ)ᵀ (∂f(x_i)/∂h_ℓ).

    With the factor 1/n, summed over outputs and not centred. The paper also defines it without
    1/n (Section 2.2, and the proof of Proposition 3): its n-fold. Cosine similarities do not care.

    Source: Beaglehole et al. 2024, eq. 3.

    Args:
        gradients: δ = ∂f/∂h_ℓ, (n, c, k), from `layer_signals`.

    Example:
        >>> preactivation_feature_covariance(torch.tensor([[[2.0]], [[4.0]]]))
        tensor([[10.]])
    """
    flat = gradients.flatten(0, 1)  # (n·c, k)
    return flat.T @ flat / gradients.shape[0]
