"""PTK, neural feature matrix (NFM), average gradient outer product (AGOP), and correlations."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch

from feature_alignment.arrays import real_tensor

ROUNDING = 1e-12
"""A squared norm of which no more than this share remains once the mean is subtracted is rounding
error, or has at most four correct digits."""
_FEW = 1e-10
"""A squared norm of at most this share of its bound has lost digits, unless computed with care."""
_NONE = 1e-13  # a norm of at most this share of its bound is rounding error


def preactivation_tangent_kernel(gradients: torch.Tensor) -> torch.Tensor:
    """PTK 𝒦(x_i, x_j) = ∂f(x_i)/∂h_ℓ · ∂f(x_j)/∂h_ℓ, (n, n), of δ = ∂f/∂h_ℓ (n, c, k).

    In float64 if the squares leave the range of single precision.

    Source: Beaglehole et al. 2024, Section 2.2 (PTK), for one output; summed over outputs here.
    """
    flat = _in_range(gradients.flatten(1))  # (n, c·k)
    return flat @ flat.T


def beyond_single_precision(values: torch.Tensor) -> bool:
    """Whether the squares of values leave the range of single precision."""
    return _leaves_range(_largest(values) ** 2)


def _largest(values: torch.Tensor) -> float:
    return max(abs(float(entry)) for entry in values.detach().aminmax()) if values.numel() else 0.0


def _leaves_range(size: float) -> bool:
    return 0 < size < 1e-30 or size > 1e30


def _in_range(values: torch.Tensor) -> torch.Tensor:
    return values.double() if beyond_single_precision(values) else values


def _both_in_range(
    weight: torch.Tensor, covariance: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """W and K in one precision, float64 if KW or WᵀKW leaves the range of single precision."""
    dtype = torch.promote_types(weight.dtype, covariance.dtype)
    w, k = _largest(weight), _largest(covariance)
    if _leaves_range(w * k) or _leaves_range(w * w * k):
        dtype = torch.float64
    return weight.to(dtype), covariance.to(dtype)


def preactivation_feature_covariance(gradients: torch.Tensor) -> torch.Tensor:
    """Covariance of the PTK's features, (k, k): K = (1/n) Σ_i (∂f(x_i)/∂h_ℓ)ᵀ (∂f(x_i)/∂h_ℓ).

    From δ = ∂f/∂h_ℓ (n, c, k), summed over outputs and not centred. The paper also defines it
    without 1/n (Section 2.2, and the proof of Proposition 3); cosine similarities are the same.
    In float64 if the squares leave the range of single precision.

    Source: Beaglehole et al. 2024, eq. 3.
    """
    flat = _in_range(gradients.flatten(0, 1))  # (n·c, k)
    return flat.T @ flat / gradients.shape[0]


def neural_feature_matrix(weight: torch.Tensor) -> torch.Tensor:
    """NFM F = WᵀW, (d, d), of a layer's W (k, d), in float64 beyond the range of W's precision.

    Source: Beaglehole et al. 2024, Section 2.1.
    """
    weight = _in_range(weight)
    return weight.T @ weight


def average_gradient_outer_product(weight: torch.Tensor, covariance: torch.Tensor) -> torch.Tensor:
    """AGOP Ḡ = WᵀKW, (d, d), of W (k, d) and K (k, k) from `preactivation_feature_covariance`.

    In the more precise of their types, and in float64 beyond the range of single precision.

    Source: Beaglehole et al. 2024, Section 2.2.
    """
    weight, covariance = _both_in_range(weight, covariance)
    return weight.T @ covariance @ weight


def nfm_diagonal(weight: torch.Tensor) -> torch.Tensor:
    """Diagonal (d,) of the NFM of W (k, d), in its precision, without forming the matrix.

    Source: Beaglehole et al. 2024, Figures 16 and 17.
    """
    return (_in_range(weight) ** 2).sum(0)


def agop_diagonal(weight: torch.Tensor, covariance: torch.Tensor) -> torch.Tensor:
    """Diagonal (d,) of the AGOP of W (k, d) and K (k, k), in its precision, without forming it.

    Source: Beaglehole et al. 2024, Figures 16 and 17.
    """
    weight, covariance = _both_in_range(weight, covariance)
    return (weight * (covariance @ weight)).sum(0)


def cosine_similarity(a: torch.Tensor, b: torch.Tensor, subtract_mean: bool = False) -> float:
    """Correlation ρ(A, B) = tr(AᵀB) / (‖A‖_F ‖B‖_F), the cosine of the flattened matrices.

    In [−1, 1], and in [0, 1] for positive semidefinite matrices; computed in float64. With
    `subtract_mean` the mean of each matrix's entries is subtracted first, which makes ρ Pearson's
    correlation ρ̄ of Appendix M; the released code computes it where the text has the NFC.

    Source: Beaglehole et al. 2024, Section 2.1 (NFC) and Appendix M (ρ̄).

    Raises:
        ValueError: if the shapes differ, or a matrix is empty, complex, zero (after its mean is
            subtracted) or not finite.
    """
    if a.shape != b.shape or 0 in a.shape:
        raise ValueError(
            f"matrices of shapes {tuple(a.shape)} and {tuple(b.shape)} have no cosine."
        )
    matrices = [real_tensor(name, matrix) for name, matrix in (("a", a), ("b", b))]
    units = [_unit(matrix.detach().double().flatten(), subtract_mean) for matrix in matrices]
    return float(units[0] @ units[1])


@dataclass(frozen=True)
class FeaturePair:
    """The numbers needed to compare F = WᵀW with G = WᵀKW, both (d, d)."""

    inner: float  # tr(FG); if F or G is zero up to rounding, it and both norms are 0
    norms: tuple[float, float]  # ‖F‖ and ‖G‖ in the Frobenius norm
    means: tuple[float, float]  # the means of their entries
    entries: int  # d²

    def correlation(self, subtract_mean: bool = False) -> float:
        """ρ(F, G), or Pearson's correlation of their entries; see `cosine_similarity`.

        Raises:
            ValueError: if F or G is zero (after its mean is subtracted).
        """
        inner, whole = self.inner, [norm * norm for norm in self.norms]
        squares = whole
        if subtract_mean:
            inner -= self.entries * self.means[0] * self.means[1]
            squares = [
                square - self.entries * mean**2
                for square, mean in zip(squares, self.means, strict=True)
            ]
        if any(s <= ROUNDING * w for s, w in zip(squares, whole, strict=True)):
            raise ValueError(
                "the correlation with a zero matrix, or one of equal entries, is not defined: "
                "weights, or their change, are zero, or no gradient reaches the layer."
            )
        return inner / (sqrt(squares[0]) * sqrt(squares[1]))


def feature_pair(weight: torch.Tensor, covariance: torch.Tensor) -> FeaturePair:
    """Compare F = WᵀW with G = WᵀKW in float64, for W (k, d) or its change, and symmetric K (k, k).

    If d ≥ k, from C = WWᵀ (k, k): tr(FG) = tr(C²K), ‖F‖ = ‖C‖ and ‖G‖² = tr((KC)²). For images,
    with thousands of inputs, F would be the largest matrix by far.

    Source: Beaglehole et al. 2024, Section 2.1 (NFC) and Proposition 2.

    Raises:
        ValueError: if W or K is no matrix or has an entry that is not finite or complex, or W has
            none, or K is not (k, k).
    """
    weight = real_tensor("weight", weight).detach().double()
    covariance = real_tensor("covariance", covariance).detach().double()
    for name, matrix in (("weight", weight), ("covariance", covariance)):
        if matrix.ndim != 2:
            raise ValueError(f"{name}: of shape {tuple(matrix.shape)}; give a matrix.")
        if not torch.isfinite(matrix).all():
            raise ValueError(
                f"{name}: it has entries that are not finite; NFM and AGOP need numbers."
            )
    k, d = weight.shape
    if not k * d:
        raise ValueError(f"weight: of shape {(k, d)}; NFM and AGOP need entries.")
    if covariance.shape != (k, k):
        raise ValueError(f"covariance: of shape {tuple(covariance.shape)}; give {(k, k)}.")
    if d < k:
        nfm = weight.T @ weight
        agop = weight.T @ covariance @ weight
        inner, squares = (nfm * agop).sum(), ((nfm**2).sum(), (agop**2).sum())
    else:
        gram = weight @ weight.T
        product = covariance @ gram
        inner = (gram * product).sum()
        squares = (gram**2).sum(), (product * product.T).sum()
    largest = weight.square().sum() ** 2 * covariance.square().sum()
    if not (squares[1] > _FEW * largest and inner > 0):
        # Sums of squares of products with the root of K, in which nothing cancels.
        values, vectors = torch.linalg.eigh(covariance)
        image = (values.clamp(min=0).sqrt() * vectors).T @ weight  # K^{1/2} W, up to a rotation
        gram = image @ image.T if k <= d else image.T @ image
        inner, squares = (image @ weight.T).square().sum(), (squares[0], gram.square().sum())
        if squares[1] <= _NONE**2 * largest:
            inner, squares = torch.zeros(()), (torch.zeros(()), torch.zeros(()))
    total = weight.sum(1)  # W1, (k,)
    sums = total @ total, total @ covariance @ total
    return FeaturePair(
        inner=float(inner),
        norms=(sqrt(squares[0]), sqrt(squares[1])),
        means=(float(sums[0]) / d**2, float(sums[1]) / d**2),
        entries=d**2,
    )


def spectrum_preserving_rotation(
    matrix: torch.Tensor, generator: np.random.Generator
) -> torch.Tensor:
    """Symmetric Q with the spectrum of K (k, k) and independent, Haar-distributed eigenvectors.

    Source: Beaglehole et al. 2024, Section 2.2 and Figure 1.

    Raises:
        ValueError: if K has an entry that is not finite.
    """
    if not torch.isfinite(matrix).all():
        raise ValueError("matrix: it has entries that are not finite; a spectrum needs numbers.")
    eigenvalues = np.linalg.eigvalsh(matrix.detach().double().cpu().numpy())
    gaussian = generator.standard_normal((len(eigenvalues), len(eigenvalues)))
    vectors, _ = np.linalg.qr(gaussian)  # Haar up to the columns' signs, which cancel in Q
    return torch.as_tensor((vectors * eigenvalues) @ vectors.T).to(matrix)


def _unit(entries: torch.Tensor, subtract_mean: bool) -> torch.Tensor:
    largest = entries.abs().max()
    if not torch.isfinite(largest):
        raise ValueError("a matrix holds values that are not finite; it has no cosine.")
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
