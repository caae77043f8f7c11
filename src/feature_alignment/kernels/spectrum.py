"""The spread of a kernel's eigenvalues: effective rank and trace ratios."""

import numpy as np
import scipy.linalg
import scipy.special

from feature_alignment.arrays import Matrix, real_array
from feature_alignment.errors import check_whole

# Relative to the largest eigenvalue: in single precision, the zero eigenvalues of a kernel of a few
# thousand rows come out smaller than this.
ROUNDING = 1e-5

# The largest share of the trace that rounding may have made negative. It has then made as much
# positive, which moves the effective rank by about ten times the share.
_LOST = 0.01


def kernel_eigenvalues(kernel: Matrix, tolerance: float = ROUNDING) -> np.ndarray:
    """Eigenvalues λ_1 ≥ … ≥ λ_r ≥ 0 of a symmetric positive semidefinite kernel (r, r), in float64.

    Eigenvalues that rounding made negative are set to zero. The tolerance bounds the kernel's
    asymmetry, relative to its largest entry, and negative eigenvalues, relative to the largest
    eigenvalue.

    Source: Baratin et al. 2021, Section 3.2.

    Raises:
        ValueError: if the kernel is not square, finite, symmetric and positive semidefinite
            within the tolerance, or its negative eigenvalues add up to over 1 % of its trace.

    Example:
        >>> kernel_eigenvalues(np.array([[2.0, 1.0], [1.0, 2.0]])).round(6).tolist()
        [3.0, 1.0]
    """
    eigenvalues = scipy.linalg.eigvalsh(symmetric_gram(kernel, tolerance))[::-1]
    return _without_rounding(eigenvalues, tolerance)


def symmetric_gram(kernel: Matrix, tolerance: float) -> np.ndarray:
    """The kernel (r, r) in float64, averaged with its transpose.

    Raises:
        ValueError: if it is not square, finite, and symmetric to within the tolerance times its
            largest entry.
    """
    gram = real_array("kernel", kernel)
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or not gram.size:
        raise ValueError(f"kernel of shape {gram.shape}; it must be square, with an entry.")
    if not np.isfinite(gram).all():
        raise ValueError("the kernel holds values that are not finite.")
    if np.abs(gram - gram.T).max() > tolerance * np.abs(gram).max():
        raise ValueError("the kernel is not symmetric; its eigenvalues need not be real.")
    return (gram + gram.T) / 2


def effective_rank(eigenvalues: np.ndarray) -> float:
    """Effective rank exp(H(μ)), H(μ) = −Σ_j μ_j log μ_j with μ_j = λ_j / Σ_i λ_i, of λ (r,).

    The printed normalisation sums λ_j over i, a misprint, since μ must sum to one. Zero eigenvalues
    contribute nothing (0 log 0 = 0). The result is between 1 and the rank of the kernel.

    Source: Baratin et al. 2021, eq. 5.

    Raises:
        ValueError: if eigenvalues are not a vector, not finite, all zero, or more negative than
            rounding can make them, or the negative ones add up to over 1 % of their sum.

    Example:
        >>> effective_rank(np.array([1.0, 1.0, 0.0]))
        2.0
    """
    shares = _shares(eigenvalues)
    entropy = scipy.special.entr(shares).sum()
    return float(np.clip(np.exp(entropy), 1, len(shares)))


def trace_ratio(eigenvalues: np.ndarray, k: int) -> float:
    """Trace ratio T_k = Σ_{j≤k} λ_j / Σ_j λ_j: the share of the k largest eigenvalues λ (r,).

    The paper prints j < k, and its released code reads index k of a cumulative sum, which adds
    k + 1 eigenvalues. The text says "the first top 40 eigenvalues", so k of them are added here.

    Source: Baratin et al. 2021, eq. 6.

    Raises:
        ValueError: if k is not from 1 to r, or `effective_rank` rejects the eigenvalues.

    Example:
        >>> trace_ratio(np.array([4.0, 2.0, 2.0]), 2)
        0.75
    """
    shares = _shares(eigenvalues)
    check_whole("k", k, 1, len(shares))
    # Partial sums of one sum, so that rounding never makes T_k fall with k.
    return float(min(1.0, np.cumsum(np.sort(shares)[::-1])[k - 1]))


def _shares(eigenvalues: np.ndarray) -> np.ndarray:
    values = real_array("eigenvalues", eigenvalues)
    if values.ndim != 1:
        raise ValueError(
            f"eigenvalues: found an array of shape {values.shape}; give a vector, such as that of "
            "`kernel_eigenvalues(kernel)`."
        )
    if not np.isfinite(values).all():
        raise ValueError("eigenvalues: some are not finite.")
    largest = values.max(initial=0)
    if largest == 0 and not values.any():
        raise ValueError("all eigenvalues are zero; the spread of a zero kernel is not defined.")
    values = _without_rounding(values, ROUNDING)
    values = values / largest  # so that the sum cannot overflow
    return values / values.sum()


def _without_rounding(eigenvalues: np.ndarray, tolerance: float) -> np.ndarray:
    smallest, largest = eigenvalues.min(), eigenvalues.max()
    if smallest < -tolerance * largest:
        raise ValueError(
            f"the kernel is not positive semidefinite: eigenvalues from {smallest:.3g} to "
            f"{largest:.3g}, more negative than rounding can make them."
        )
    kept = np.maximum(eigenvalues, 0)
    trace = (kept / (largest or 1)).sum()  # in units of the largest, so that it cannot overflow
    lost = trace - (eigenvalues / (largest or 1)).sum()
    if lost > _LOST * trace:
        raise ValueError(
            f"rounding made eigenvalues negative that add up to {lost / trace:.1%} of the trace, "
            "and others as much too large; compute the kernel in float64 (model.double())."
        )
    return kept
