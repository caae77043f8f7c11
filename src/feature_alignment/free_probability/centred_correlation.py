"""The C-NFC at initialisation of f(x) = aᵀ(Wx)²: correlation of the first non-zero derivatives.

With R = Wᵀ diag(a²) W, and A = (XᵀYX)² and B = XᵀX of the data, Y = diag(y), all (d, d):

    ρ = tr(ARARBR) · tr(ARAR)^(−1/2) · tr(ARBRARBR)^(−1/2).

The factor 4 from the derivative of the square is omitted, as in the paper; ρ does not depend on it.
"""

from collections.abc import Callable, Sequence
from math import frexp, inf

import torch

from feature_alignment.arrays import Matrix, real_tensor
from feature_alignment.errors import check_kind
from feature_alignment.free_probability.words import Trace, free_trace, matrix_trace, moment_trace
from feature_alignment.layer_features.feature_matrices import cosine_similarity

_ROUNDING = 1e-6
NUMERATOR, NFM_WORD, AGOP_WORD = "ARARBR", "ARAR", "ARBRARBR"


def data_matrices(x: Matrix, y: Matrix) -> dict[str, torch.Tensor]:
    """A = (XᵀYX)² and B = XᵀX, both (d, d), of inputs X (n, d) and labels y (n,).

    Source: Beaglehole et al. 2024, eq. 16.

    Raises:
        ValueError: if x is not (n, d), or y does not have one label per sample.

    Example:
        >>> data_matrices(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.ones(2))["A"]
        tensor([[ 1.,  0.],
                [ 0., 16.]])
    """
    x, y = _checked_data(x, y)
    label_weighted = x.T @ (y[:, None] * x)  # XᵀYX, (d, d)
    return {"A": label_weighted @ label_weighted, "B": x.T @ x}


def _checked_data(x: Matrix, y: Matrix) -> tuple[torch.Tensor, torch.Tensor]:
    x = real_tensor("x", x)
    y = real_tensor("y", y, x)
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise ValueError(
            f"x, y: of shapes {tuple(x.shape)} and {tuple(y.shape)}; (n, d) and (n,) are needed."
        )
    return x, y


def predicted_correlation(data_trace: Trace, moments: Sequence[float]) -> float:
    """ρ if R is free of the data, from traces of words in A and B and the moments tr(R), …, tr(R⁴).

    R = Wᵀ diag(a²) W is the network's, of f(x) = aᵀ(Wx)²; A and B are those of `data_matrices`.

    Source: Beaglehole et al. 2024, eq. 11 and Appendix F.

    Raises:
        ValueError: if a trace of the denominator is not positive, there are under four moments, or
            the correlation exceeds 1, as it may for moments of no R.

    Example:
        >>> data = matrix_trace({"A": torch.eye(2), "B": torch.eye(2)})
        >>> round(predicted_correlation(data, [1, 4, 25, 202]), 4)
        0.8795
    """
    check_kind("data_trace", data_trace, Callable, "matrix_trace(data_matrices(x, y))")
    families = {"R": moment_trace(moments), "AB": data_trace}
    words = NUMERATOR, NFM_WORD, AGOP_WORD
    return _correlation(*(free_trace(word, families) for word in words))


def observed_correlation(data: dict[str, torch.Tensor], r: torch.Tensor) -> float:
    """ρ of one network, from its R (d, d) and the A and B of `data_matrices`.

    Equal to ρ(ẆᵀẆ, ẆᵀKẆ) under gradient flow on the MSE loss, if the outputs on the data are zero.

    Source: Beaglehole et al. 2024, eq. 7.

    Raises:
        ValueError: if a trace of the denominator is not positive, or a matrix is complex or not
            (d, d).
    """
    a, b, r = real_tensor("A", data["A"]), real_tensor("B", data["B"]), real_tensor("R", r)
    matrix_trace({"A": a, "B": b, "R": r})  # refuses shapes that do not fit
    trace = matrix_trace({"P": a @ r.to(a), "Q": b @ r.to(b)})
    return _correlation(trace("PPQ"), trace("PP"), trace("PQPQ"))


def _correlation(numerator: float, nfm: float, agop: float) -> float:
    """ρ from the three traces; ValueError if it is undefined."""  # noqa: DOC501
    if not (0 < nfm < inf and 0 < agop < inf):
        raise ValueError(
            f"tr(ARAR) = {nfm:.3g} and tr(ARBRARBR) = {agop:.3g}; both must be positive: labels, "
            "inputs or R are zero, or too large for their precision."
        )
    correlation = numerator * nfm**-0.5 * agop**-0.5
    if not abs(correlation) <= 1 + _ROUNDING:
        raise ValueError(
            f"a correlation of {correlation:.4g} is impossible; no matrix R has these moments, or "
            "the traces are not those of one set of data."
        )
    return correlation


def velocity_correlation(
    x: Matrix, y: Matrix, kernel: Matrix, square: Matrix | None = None
) -> float:
    """Correlation ρ(XᵀY𝒦YX, XᵀY𝒦²YX) of the first non-zero derivatives of NFM and AGOP.

    X (n, d) are a layer's inputs, Y = diag(y) with the residuals y (n,), which are the labels if
    the outputs are zero; 𝒦 is (n, n). With the PTK of one network as 𝒦 it is the observed value.
    With E[𝒦] it is the paper's first-order prediction. With E[𝒦²] as `square` in addition, used
    instead of 𝒦 times itself, only the covariance of both factors is neglected. If `square` holds
    the 𝒦² of m ≥ 2 networks, (m, n, n), it is their mean, whose scatter lowers ρ by a term in 1/m;
    the jackknife removes it on average, so that the value of single draws may exceed 1.

    Source: Beaglehole et al. 2024, Proposition 3, eq. 7 and eq. 9.

    Raises:
        ValueError: if a shape does not fit, a matrix is zero, or `square` is of one network.

    Example:
        >>> projection = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
        >>> round(velocity_correlation(torch.eye(2), torch.ones(2), projection), 6)
        1.0
    """
    x, y = _checked_data(x, y)
    kernel = real_tensor("kernel", kernel, x)
    if kernel.shape != (len(x), len(x)):
        raise ValueError(
            f"kernel: of shape {tuple(kernel.shape)} for {len(x)} samples; give (n, n)."
        )
    kernel = _near_one(kernel)
    weighted = y[:, None] * x  # YX, (n, d)
    image = kernel @ weighted
    if square is None:  # 𝒦² need not be formed
        agop = image.T @ image
    else:
        square = real_tensor("square", square, x)
        if square.ndim not in (2, 3) or square.shape[-2:] != kernel.shape:
            raise ValueError(
                f"square: of shape {tuple(square.shape)} for {len(x)} samples; give (n, n) or "
                "(m, n, n)."
            )
        agop = weighted.T @ _near_one(square) @ weighted
    nfm = weighted.T @ image
    if agop.ndim == 3 and len(agop) < 2:
        raise ValueError(f"square: of {len(agop)} networks; give (n, n), or at least 2 networks'.")
    if not (nfm.any() and agop.any()):
        raise ValueError("no correlation is defined: labels, inputs, kernel or square are zero.")
    if agop.ndim == 2:
        return cosine_similarity(nfm, agop)
    total, m = agop.sum(dim=0), len(agop)
    without_one = sum(cosine_similarity(nfm, total - one) for one in agop) / m
    return m * cosine_similarity(nfm, total) - (m - 1) * without_one


def _near_one(matrix: torch.Tensor) -> torch.Tensor:
    # A power of two, which changes no correlation, but lets no product of small entries underflow.
    exponent = frexp(float(matrix.abs().max()))[1] if matrix.numel() else 0
    return (matrix.double() * 2.0**-exponent).to(matrix.dtype)
