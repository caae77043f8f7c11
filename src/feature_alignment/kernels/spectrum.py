"""How a kernel's eigenvalues are spread: effective rank, trace ratios, and their size.

Every measure takes the eigenvalues, so that a kernel is decomposed once.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.special
import torch

# Relative to the largest eigenvalue: in single precision, the zero eigenvalues of a kernel of a few
# thousand rows come out smaller than this.
ROUNDING = 1e-5


@dataclass(frozen=True)
class SpectrumSize:
    """Size of a spectrum, in the kernel's units.

    Attributes:
        maximum: λ_1.
        mean: Tr K / r.
        median: the middle one of all r eigenvalues, zeros included.
    """

    maximum: float
    mean: float
    median: float


def kernel_eigenvalues(
    kernel: torch.Tensor | np.ndarray, tolerance: float = ROUNDING
) -> np.ndarray:
    """Eigenvalues λ_1 ≥ … ≥ λ_r ≥ 0 of a kernel, computed in float64.

    Eigenvalues that rounding made negative are set to zero.

    Source: Baratin et al. 2021, Section 3.2.

    Args:
        kernel: symmetric positive semidefinite Gram matrix (r, r), e.g. r = n·c.
        tolerance: how asymmetric the kernel may be, relative to its largest entry, and how
            negative an eigenvalue, relative to the largest.

    Raises:
        ValueError: if the kernel is not square, finite, symmetric and positive semidefinite
            within the tolerance.

    Example:
        >>> kernel_eigenvalues(np.array([[2.0, 1.0], [1.0, 2.0]])).round(6).tolist()
        [3.0, 1.0]
    """
    if isinstance(kernel, torch.Tensor):
        kernel = kernel.detach().cpu().numpy()
    gram = np.asarray(kernel, dtype=np.float64)
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or not gram.size:
        raise ValueError(f"kernel of shape {gram.shape}; it must be square.")
    if not np.isfinite(gram).all():
        raise ValueError("the kernel holds values that are not finite.")
    if np.abs(gram - gram.T).max() > tolerance * np.abs(gram).max():
        raise ValueError("the kernel is not symmetric; its eigenvalues need not be real.")
    eigenvalues = scipy.linalg.eigvalsh((gram + gram.T) / 2)[::-1]
    return _without_rounding(eigenvalues, tolerance)


def effective_rank(eigenvalues: np.ndarray) -> float:
    """Effective rank exp(H(μ)), H(μ) = −Σ_j μ_j log μ_j with μ_j = λ_j / Σ_i λ_i.

    As printed the normalisation sums λ_j over i, a misprint: μ must sum to one. Zero eigenvalues
    add nothing, 0 log 0 = 0. Between 1 and the rank of the kernel.

    Source: Baratin et al. 2021, eq. 5.

    Args:
        eigenvalues: λ (r,), in any order.

    Raises:
        ValueError: if an eigenvalue is more negative than rounding can make it or not finite, or
            all of them are zero.

    Example:
        >>> effective_rank(np.array([1.0, 1.0, 0.0]))
        2.0
    """
    shares = _shares(eigenvalues)
    entropy = scipy.special.entr(shares).sum()
    return float(np.clip(np.exp(entropy), 1, len(shares)))


def trace_ratio(eigenvalues: np.ndarray, k: int) -> float:
    """Trace ratio T_k = Σ_{j≤k} λ_j / Σ_j λ_j: the share of the k largest eigenvalues.

    The paper prints j < k, and its released code reads index k of a cumulative sum, which adds
    k + 1 eigenvalues. The text says "the first top 40 eigenvalues": so the first k here.

    Source: Baratin et al. 2021, eq. 6.

    Args:
        eigenvalues: λ (r,), in any order.
        k: how many, from 1 to r.

    Raises:
        ValueError: if k is out of range, or `effective_rank` would refuse the eigenvalues.

    Example:
        >>> trace_ratio(np.array([4.0, 2.0, 2.0]), 2)
        0.75
    """
    shares = _shares(eigenvalues)
    if not 1 <= k <= len(shares):
        raise ValueError(f"k: {k} eigenvalues of {len(shares)} given.")
    # Partial sums of one sum, so that rounding never makes T_k fall with k.
    return float(min(1.0, np.cumsum(np.sort(shares)[::-1])[k - 1]))


def spectrum_size(eigenvalues: np.ndarray) -> SpectrumSize:
    """Largest, mean and median of eigenvalues in any order.

    Source: Baratin et al. 2021, Figure 2 (second row).

    Raises:
        ValueError: if there are none.
    """
    if not len(eigenvalues):
        raise ValueError("an empty spectrum has no size.")
    return SpectrumSize(
        maximum=float(np.max(eigenvalues)),
        mean=float(np.mean(eigenvalues)),
        median=float(np.median(eigenvalues)),
    )


def _shares(eigenvalues: np.ndarray) -> np.ndarray:
    values = np.asarray(eigenvalues, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError("eigenvalues: they must be a vector of finite numbers.")
    largest = values.max(initial=0)
    if largest == 0 and not values.any():
        raise ValueError("all eigenvalues are zero; the spread of a zero kernel is not defined.")
    values = _without_rounding(values, ROUNDING)
    values = values / largest  # so that the sum cannot overflow
    return values / values.sum()


def _without_rounding(eigenvalues: np.ndarray, tolerance: float) -> np.ndarray:
    smallest, largest = eigenvalues.min(), eigenvalues.max()
    if smallest < -tolerance * max(largest, 0):
        raise ValueError(
            f"the kernel is not positive semidefinite: eigenvalues from {smallest:.3g} to "
            f"{largest:.3g}, more negative than rounding can make them."
        )
    return np.maximum(eigenvalues, 0)
