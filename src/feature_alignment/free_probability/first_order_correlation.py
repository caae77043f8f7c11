"""The C-NFC at initialisation from a PTK, and its first-order prediction from the expected PTK."""

import torch

from feature_alignment.layer_features.feature_matrices import cosine_similarity


def velocity_correlation(
    x: torch.Tensor,
    y: torch.Tensor,
    kernel: torch.Tensor,
    square: torch.Tensor | None = None,
) -> float:
    """ρ(XᵀY𝒦YX, XᵀY𝒦²YX), Y = diag(y): of the first non-zero derivatives of NFM and AGOP.

    With the PTK of one network it is the observed value. With E[𝒦] it is the paper's first-order
    prediction; with E[𝒦²] as `square` as well, only the covariance of both factors is left out.

    Source: Beaglehole et al. 2024, Proposition 3, eq. 7 and eq. 9.

    Args:
        x: inputs of the layer, (n, d).
        y: residuals, which are the labels where the outputs are zero, (n,).
        kernel: 𝒦, symmetric (n, n).
        square: stands for 𝒦², (n, n); None for the product of 𝒦 with itself.

    Raises:
        ValueError: if one of the matrices is zero.

    Example:
        >>> projection = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
        >>> round(velocity_correlation(torch.eye(2), torch.ones(2), projection), 6)
        1.0
    """
    weighted = y[:, None] * x  # YX, (n, d)
    image = kernel @ weighted
    # In the second case 𝒦² need not be formed.
    agop = image.T @ image if square is None else weighted.T @ square @ weighted
    return cosine_similarity(weighted.T @ image, agop)
