"""Formulas of beaglehole2024 as printed, and the corrections of those that do not hold.

Trace formulas take the traces of words in A, B, C = Ā and D = B̄, and tr(R), tr(R²) and so on.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from feature_alignment.free_probability import centred_correlation as correlation
from feature_alignment.free_probability.words import Trace, matrix_trace
from feature_alignment.layer_features.feature_matrices import cosine_similarity


def expected_agop_derivative_as_printed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """3 Tr(B) C² + 6 CBC, (d, d), with C = XᵀYX and B = XᵀX, said to be E[ẆᵀKẆ]; X is (n, d).

    Source: beaglehole2024, Proposition 16, second statement.
    """
    c, b = x.T @ (y[:, None] * x), x.T @ x
    return 3 * b.trace() * c @ c + 6 * c @ b @ c


def expected_agop_derivative(x: torch.Tensor, y: torch.Tensor, width: int) -> torch.Tensor:
    """E[ẆᵀKẆ] = C [(1 − 1/k) B + (3/k)(Tr(B) I + 2B)] C, C = XᵀYX, B = XᵀX, at any width.

    For f(x) = aᵀ(Wx)² with a ~ N(0, I), W ~ N(0, I/k) and, as in the paper, without the factor 4 of
    the squares' derivatives. ẆᵀKẆ = C R B R C with R = Σ_s a_s² w_s w_sᵀ. The k(k − 1) pairs s ≠ t
    of RBR contribute E[a²]² B/k² each; the k pairs s = t contribute E[a⁴] E[(wᵀBw) wwᵀ] each, which
    is 3 (Tr(B) I + 2B)/k² by Wick's theorem. The printed formula lacks the pairs s ≠ t and the 1/k.

    Source: this project, in place of beaglehole2024, Proposition 16, second statement.
    """
    c, b = x.T @ (y[:, None] * x), x.T @ x
    same = b.trace() * torch.eye(len(b)).to(b) + 2 * b
    return c @ ((1 - 1 / width) * b + 3 / width * same) @ c


class Expansion(NamedTuple):
    """What a linearised kernel h(⟨x, z⟩/d) depends on: h(0), h′(0), h″(0) and h(1)."""

    at_zero: float
    slope: float
    curvature: float
    at_one: float


def linearised_kernel(
    gram: torch.Tensor, d: int, h: Expansion, *, as_printed: bool = False
) -> torch.Tensor:
    """γ 11ᵀ + (α/d) XXᵀ + μ I ≈ h(XXᵀ/d), (n, n), for x on the sphere of radius √d.

    α = h′(0), μ = h(1) − h(0) − h′(0) and γ = h(0) + h″(0)/(2d): the mean of u² over pairs is 1/d,
    and the second-order Taylor term is h″(0) u²/2. As printed, γ lacks the 1/2: an error of
    h″(0) n/(2d) in spectral norm, which does not vanish for n ≥ d.

    Source: beaglehole2024, eq. 10; its correction is this project's.
    """
    gamma = h.at_zero + h.curvature / (d if as_printed else 2 * d)
    mu = h.at_one - h.at_zero - h.slope
    return gamma + h.slope / d * gram + mu * torch.eye(len(gram)).to(gram)


def alternating_as_printed(
    t: Trace, moments: Sequence[Any], letters: str, powers: Sequence[int]
) -> Any:
    """tr[C̄₁R₁ … C̄ₘRₘ] for m up to 4, with letters C and D of trace 0 and Rᵢ = R^powers[i].

    Source: beaglehole2024, eq. 12-15; they hold as printed.
    """
    r = [moments[power - 1] for power in powers]
    value = math.prod(r) * t(letters)  # 0 for a single letter
    if len(r) == 4:
        even, odd = (moments[powers[i] + powers[i + 2] - 1] - r[i] * r[i + 2] for i in (0, 1))
        value += r[0] * r[2] * odd * t(letters[:2]) * t(letters[2:])
        value += r[1] * r[3] * even * t(letters[1:3]) * t(letters[3] + letters[0])
    return value


def with_centred(data: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A and B, and C = A − tr[A] and D = B − tr[B]."""
    one = torch.eye(len(data["A"])).to(data["A"])
    return data | {c: data[m] - data[m].trace() / len(one) * one for c, m in ("CA", "DB")}


def expansion_errors(x: torch.Tensor, y: torch.Tensor, r: torch.Tensor) -> dict[str, float]:
    """Relative errors of eq. 11, and of eq. 19, 26 and 27, which expand A and B.

    Inputs are (n, d), labels (n,), R is (d, d). Eq. 11 has the square roots in the denominator with
    exponents -1/2, which multiplies by them; in eq. 19 the last factor must be tr(R³), not tr(R)³.

    Source: beaglehole2024, Appendix F, eq. 11, 17-19 and 23-27.
    """
    c, data = x.T @ (y[:, None] * x), correlation.data_matrices(x, y)
    t = matrix_trace({**with_centred(data), "R": r})
    ta, tb, agop, whole = t("A"), t("B"), t(correlation.AGOP_WORD), t(correlation.NUMERATOR)
    rho = cosine_similarity(c @ r @ c, c @ r @ data["B"] @ r @ c)
    root = (t(correlation.NFM_WORD) * agop) ** 0.5
    numerator = t("CRCRDR") + 2 * ta * t("CRDRR") + tb * t("CRCRR")
    numerator += ta**2 * t("DRRR") + 2 * ta * tb * t("CRRR")
    third = t("CRDRCRBR") + 2 * ta * t("CRDRRBR") + tb * t("CRRCRBR")
    third += 2 * ta * tb * t("RRRCRB") + ta**2 * tb * t("RRRRB") + ta**2 * t("RRDRRB")
    last = t("CRDRCRDR") + 2 * tb * t("CRDRCRR") + 2 * ta * t("CRDRRDR")
    last += 4 * ta * tb * t("RRRCRD") + 2 * ta * tb**2 * t("RRRRC") + 2 * ta**2 * tb * t("RRRRD")
    last += ta**2 * tb**2 * t("RRRR") + ta**2 * t("RRDRRD") + tb**2 * t("RRCRRC")
    expansions = {
        "equation_11_as_printed": (whole * root, rho),
        "equation_11_corrected": (whole / root, rho),
        "equation_19_as_printed": (numerator + ta**2 * tb * t("R") ** 3, whole),
        "equation_19_corrected": (numerator + ta**2 * tb * t("RRR"), whole),
        "equation_26_as_printed": (third, agop),
        "equation_27_as_printed": (last, agop),
    }
    return {name: abs(formula / value - 1) for name, (formula, value) in expansions.items()}


def numerator_as_printed(t: Trace, moments: Sequence[Any]) -> Any:
    """tr(ARARBR) by eq. 20 of beaglehole2024, which holds as printed."""
    r1, r2, r3, *_ = moments
    a, b = t("A"), t("B")
    return a**2 * b * r3 + 2 * a * r2 * r1 * t("CD") + b * r1 * r2 * t("CC") + r1**3 * t("CCD")


def first_denominator_as_printed(t: Trace, moments: Sequence[Any]) -> Any:
    """tr(ARAR) by eq. 22 of beaglehole2024, which holds as printed."""
    r1, r2, *_ = moments
    return t("AA") * r1**2 + t("A") ** 2 * r2 - t("A") ** 2 * r1**2


def second_denominator_as_printed(t: Trace, moments: Sequence[Any]) -> Any:
    """tr(ARBRARBR) by eq. 28 of beaglehole2024 as printed, whose last term is 0.

    That term, tr[Ā]² tr[B²] tr[R²]², should be tr[Ā²] tr[B]² tr[R²]², as `free_trace` derives.
    """
    r1, r2, r3, r4 = moments
    a, b = t("A"), t("B")
    value = r1**4 * t("CDCD") + 2 * r1**2 * (r2 - r1**2) * t("CD") ** 2
    value += 2 * r1**2 * r2 * (b * t("CCD") + a * t("CDD")) + 4 * a * b * r3 * r1 * t("CD")
    return value + a**2 * b**2 * r4 + a**2 * t("DD") * r2**2
