"""Formulas of beaglehole2024 as printed, and the corrections of those that do not hold.

Those of traces take the traces of words in A and B, and tr(R), tr(R²) and so on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from feature_alignment.free_probability.words import Trace


def expected_agop_derivative_as_printed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """3 Tr(B) C² + 6 CBC with C = XᵀYX and B = XᵀX, said to be E[ẆᵀKẆ].

    X is (n, d), y (n,), the result (d, d).

    Source: beaglehole2024, Proposition 16, second statement.
    """
    c, b = x.T @ (y[:, None] * x), x.T @ x
    return 3 * b.trace() * c @ c + 6 * c @ b @ c


def expected_agop_derivative(x: torch.Tensor, y: torch.Tensor, width: int) -> torch.Tensor:
    """E[ẆᵀKẆ] = C [(1 − 1/k) B + (3/k)(Tr(B) I + 2B)] C, C = XᵀYX, B = XᵀX, at any width.

    For f(x) = aᵀ(Wx)² with a ~ N(0, I), W ~ N(0, I/k), and as in the paper without the factor 4 of
    the squares' derivatives. ẆᵀKẆ = C R B R C with R = Σ_s a_s² w_s w_sᵀ. The k(k − 1) pairs s ≠ t
    of RBR contribute E[a²]² B/k² each, and the k pairs s = t E[a⁴] E[(wᵀBw) wwᵀ], which is
    3 (Tr(B) I + 2B)/k² by Wick's theorem. The printed formula lacks the pairs s ≠ t and the 1/k.

    Source: this project's, in place of beaglehole2024, Proposition 16, second statement.
    """
    c, b = x.T @ (y[:, None] * x), x.T @ x
    same = b.trace() * torch.eye(len(b), dtype=b.dtype, device=b.device) + 2 * b
    return c @ ((1 - 1 / width) * b + 3 / width * same) @ c


@dataclass(frozen=True)
class Expansion:
    """What a linearised kernel h(⟨x, z⟩/d) depends on.

    Attributes:
        at_zero: h(0).
        slope: h′(0).
        curvature: h″(0).
        at_one: h(1).
    """

    at_zero: float
    slope: float
    curvature: float
    at_one: float


def linearised_kernel(
    gram: torch.Tensor, d: int, h: Expansion, *, as_printed: bool = False
) -> torch.Tensor:
    """γ 11ᵀ + (α/d) XXᵀ + μ I, which h(XXᵀ/d) is near for x on the sphere of radius √d.

    α = h′(0), μ = h(1) − h(0) − h′(0) and γ = h(0) + h″(0)/(2d): the mean of u² over pairs is 1/d,
    and Taylor's second term is h″(0) u²/2. As printed γ lacks the 1/2, an error of h″(0) n/(2d) in
    spectral norm, which does not vanish for n ≥ d.

    Source: beaglehole2024, eq. 10; its correction is this project's.

    The Gram matrix XXᵀ is (n, n), d the input dimension.
    """
    gamma = h.at_zero + h.curvature / (d if as_printed else 2 * d)
    identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    mu = h.at_one - h.at_zero - h.slope
    return gamma + h.slope / d * gram + mu * identity


def numerator_as_printed(data_trace: Trace, moments: Sequence[float]) -> float:
    """tr(ARARBR) by eq. 20.

    Source: beaglehole2024, eq. 20; it holds as printed.
    """
    r1, r2, r3, *_ = moments
    a, b = data_trace("A"), data_trace("B")
    ab, aa = data_trace("AB") - a * b, data_trace("AA") - a**2  # tr[ĀB̄] and tr[Ā²]
    return (
        a**2 * b * r3 + 2 * a * r2 * r1 * ab + b * r1 * r2 * aa + r1**3 * _centred_aab(data_trace)
    )


def first_denominator_as_printed(data_trace: Trace, moments: Sequence[float]) -> float:
    """tr(ARAR) by eq. 22.

    Source: beaglehole2024, eq. 22; it holds as printed.
    """
    r1, r2, *_ = moments
    a = data_trace("A")
    return data_trace("AA") * r1**2 + a**2 * r2 - a**2 * r1**2


def second_denominator_as_printed(data_trace: Trace, moments: Sequence[float]) -> float:
    """tr(ARBRARBR) by eq. 28 as printed, whose last term is tr[Ā]² tr[B²] tr[R²]² = 0.

    It should be tr[Ā²] tr[B]² tr[R²]², as `free_probability_formulas` derives.

    Source: beaglehole2024, eq. 28.
    """
    r1, r2, r3, r4 = moments
    a, b = data_trace("A"), data_trace("B")
    ab, bb = data_trace("AB") - a * b, data_trace("BB") - b**2  # tr[ĀB̄] and tr[B̄²]
    aa = data_trace("AA") - a**2
    aab = _centred_aab(data_trace)
    abb = data_trace("ABB") - 2 * b * data_trace("AB") - a * data_trace("BB") + 2 * a * b**2
    # tr[(ĀB̄)²], from ABAB with each letter its trace plus its centred part.
    abab = (
        data_trace("ABAB")
        - 2 * b * aab
        - 2 * a * abb
        - 4 * a * b * ab
        - a**2 * bb
        - b**2 * aa
        - a**2 * b**2
    )
    return (
        r1**4 * abab
        + 2 * r1**2 * (r2 - r1**2) * ab**2
        + 2 * r1**2 * r2 * (b * aab + a * abb)
        + 4 * a * b * r3 * r1 * ab
        + a**2 * b**2 * r4
        + a**2 * bb * r2**2
    )


def _centred_aab(data_trace: Trace) -> float:
    """tr[Ā²B̄]."""
    a, b = data_trace("A"), data_trace("B")
    return data_trace("AAB") - 2 * a * data_trace("AB") - b * data_trace("AA") + 2 * a**2 * b
