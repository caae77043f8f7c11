"""Correlations of WᵀW and WᵀKW, from products no larger than the smaller side of W."""

from dataclasses import dataclass
from math import sqrt

import torch


@dataclass(frozen=True)
class FeaturePair:
    """What it takes to compare F = WᵀW with G = WᵀKW, which are (d, d).

    Attributes:
        inner: tr(FG).
        norms: ‖F‖ and ‖G‖ in the Frobenius norm.
        means: the means of their entries.
        entries: d².
    """

    inner: float
    norms: tuple[float, float]
    means: tuple[float, float]
    entries: int

    def correlation(self, subtract_mean: bool = False) -> float:
        """ρ(F, G), or Pearson's correlation of their entries; see `cosine_similarity`.

        Raises:
            ValueError: if F or G is zero, once its mean is subtracted.
        """
        inner, squares = self.inner, [norm * norm for norm in self.norms]
        if subtract_mean:
            inner -= self.entries * self.means[0] * self.means[1]
            squares = [
                square - self.entries * mean**2
                for square, mean in zip(squares, self.means, strict=True)
            ]
        if min(squares) <= 0:
            raise ValueError(
                "the correlation with a zero matrix, or one of equal entries, is not defined; "
                "changes of weights are zero before training, so measure them from step 1."
            )
        return inner / sqrt(squares[0] * squares[1])


def feature_pair(weight: torch.Tensor, covariance: torch.Tensor) -> FeaturePair:
    """Compare F = WᵀW with G = WᵀKW in float64.

    With no fewer inputs than units, from C = WWᵀ (k, k): tr(FG) = tr(C²K), ‖F‖ = ‖C‖ and
    ‖G‖² = tr((KC)²). Images have thousands of inputs, and F is then the largest matrix by far.

    Source: Beaglehole et al. 2024, Section 2.1 (NFC) and Proposition 2.

    Args:
        weight: W, (k, d); its change since the start for centred measures.
        covariance: K, symmetric (k, k).
    """
    weight, covariance = weight.detach().double(), covariance.detach().double()
    k, d = weight.shape
    if d < k:
        nfm = weight.T @ weight
        agop = weight.T @ covariance @ weight
        inner, squares = (nfm * agop).sum(), ((nfm**2).sum(), (agop**2).sum())
    else:
        gram = weight @ weight.T
        product = covariance @ gram
        inner = (gram * product).sum()
        squares = (gram**2).sum(), (product * product.T).sum()
    total = weight.sum(1)  # W1, (k,)
    sums = total @ total, total @ covariance @ total
    return FeaturePair(
        inner=float(inner),
        norms=(sqrt(squares[0]), sqrt(squares[1])),
        means=(float(sums[0]) / d**2, float(sums[1]) / d**2),
        entries=d**2,
    )
