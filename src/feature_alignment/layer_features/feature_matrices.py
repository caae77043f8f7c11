"""Neural feature matrix (NFM), average gradient outer product (AGOP), and their correlations."""

import numpy as np
import torch


def neural_feature_matrix(weight: torch.Tensor) -> torch.Tensor:
    """NFM F = WᵀW, (d, d), of a layer's W (k, d).

    Source: Beaglehole et al. 2024, Section 2.1.

    Example:
        >>> neural_feature_matrix(torch.tensor([[1.0, 2.0]]))
        tensor([[1., 2.],
                [2., 4.]])
    """
    return weight.T @ weight


def average_gradient_outer_product(weight: torch.Tensor, covariance: torch.Tensor) -> torch.Tensor:
    """AGOP Ḡ = WᵀKW, (d, d), of W (k, d) and K (k, k) of `preactivation_feature_covariance`.

    Source: Beaglehole et al. 2024, Section 2.2.

    Example:
        >>> average_gradient_outer_product(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0]]))
        tensor([[ 3.,  6.],
                [ 6., 12.]])
    """
    return weight.T @ covariance @ weight


def nfm_diagonal(weight: torch.Tensor) -> torch.Tensor:
    """Diagonal (d,) of the NFM of W (k, d), without the matrix.

    Source: Beaglehole et al. 2024, Figures 16 and 17.

    Example:
        >>> nfm_diagonal(torch.tensor([[1.0, 2.0]]))
        tensor([1., 4.])
    """
    return (weight**2).sum(0)


def agop_diagonal(weight: torch.Tensor, covariance: torch.Tensor) -> torch.Tensor:
    """Diagonal (d,) of the AGOP of W (k, d) and K (k, k), without the matrix.

    Source: Beaglehole et al. 2024, Figures 16 and 17.

    Example:
        >>> agop_diagonal(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0]]))
        tensor([ 3., 12.])
    """
    return (weight * (covariance @ weight)).sum(0)


def cosine_similarity(a: torch.Tensor, b: torch.Tensor, subtract_mean: bool = False) -> float:
    """Correlation ρ(A, B) = tr(AᵀB) / (‖A‖_F ‖B‖_F), the plain cosine of the flattened matrices.

    In [−1, 1], and in [0, 1] for positive semidefinite matrices; computed in float64. With
    `subtract_mean` each matrix first loses the mean of its entries, which makes ρ Pearson's
    correlation: what the authors' released code computes, not what the paper defines.

    Source: Beaglehole et al. 2024, Section 2.1 (NFC).

    Raises:
        ValueError: if the shapes differ, or a matrix is zero (after its mean is subtracted).

    Example:
        >>> round(cosine_similarity(torch.eye(2), torch.ones(2, 2)), 6)
        0.707107
    """
    if a.shape != b.shape:
        raise ValueError(
            f"matrices of shapes {tuple(a.shape)} and {tuple(b.shape)} have no cosine."
        )
    first, second = a.detach().double().flatten(), b.detach().double().flatten()
    units = [_unit(entries, subtract_mean) for entries in (first, second)]
    return float(units[0] @ units[1])


def spectrum_preserving_rotation(
    matrix: torch.Tensor, generator: np.random.Generator
) -> torch.Tensor:
    """Symmetric Q with the spectrum of K (k, k) and independent, Haar distributed eigenvectors.

    Source: Beaglehole et al. 2024, Section 2.2 and Figure 1.
    """
    eigenvalues = np.linalg.eigvalsh(matrix.detach().double().cpu().numpy())
    gaussian = generator.standard_normal((len(eigenvalues), len(eigenvalues)))
    vectors, _ = np.linalg.qr(gaussian)  # Haar up to the columns' signs, which cancel in Q
    conjugate = (vectors * eigenvalues) @ vectors.T
    return torch.as_tensor(conjugate).to(matrix)


def _unit(entries: torch.Tensor, subtract_mean: bool) -> torch.Tensor:
    largest = entries.abs().max()
    if largest == 0:
        raise ValueError(
            "the cosine of a zero matrix is not defined; weight changes are zero before training, "
            "so measure the centred correlation from step 1."
        )
    scaled = entries / largest  # so that squares neither under- nor overflow
    if subtract_mean:
        scaled = scaled - scaled.mean()
    norm = scaled.norm()
    if norm <= 1e-14 * len(entries) ** 0.5:
        raise ValueError("a matrix of equal entries is zero once its mean is subtracted.")
    return scaled / norm
