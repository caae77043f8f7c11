"""Statements of beaglehole2024 about means and large matrices, as printed and corrected.

They are compared with samples or with each other. Trace formulas take the traces of words in A, B,
C = Ā and D = B̄, and tr(R), tr(R²) and so on.

Source: beaglehole2024, Section 2.1 (EGOP), eq. 10-15, 19, 20, 22 and 26-28, Theorem 9's proof,
Lemma 13 and Proposition 16.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from math import e, prod
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse.linalg import eigsh
from scipy.stats import beta

from feature_alignment.data.synthetic import chain_monomial, uniform_sphere
from feature_alignment.free_probability import centred_correlation as correlation
from feature_alignment.free_probability.random_features import matrix_moments, sample_r
from feature_alignment.free_probability.words import Trace, free_trace, matrix_trace, moment_trace
from feature_alignment.layer_features.feature_matrices import cosine_similarity

BATCH = 500  # networks of Proposition 16 in memory at a time
EGOP_SAMPLES = 200_000
ALTERNATING = {
    12: ("C", (1,)),
    13: ("CD", (1, 2)),
    14: ("CCD", (1, 2, 1)),
    15: ("CDCD", (1, 2, 1, 2)),
}
"""For each equation the letters (C for Ā, D for B̄) and the powers of R alternating with them."""


def egop_of_chain(rank: int, dimension: int, rng: np.random.Generator) -> dict[str, float]:
    """Diagonal, off-diagonal entries and rank of the chain-monomial task's EGOP, from samples.

    Gradients are central differences of labels, exact for a polynomial of second degree.
    """
    d = max(dimension, rank + 1)  # at least one coordinate outside
    x = rng.standard_normal((EGOP_SAMPLES, d))
    differences = [
        chain_monomial(x + unit, rank) - chain_monomial(x - unit, rank) for unit in np.eye(d)
    ]
    gradient = np.stack(differences, axis=1) / 2  # (n, d)
    egop = gradient.T @ gradient / len(x)
    block = egop[:rank, :rank]
    off_diagonal = block[~np.eye(rank, dtype=bool)]
    return {
        "egop_diagonal_distance": abs(block.diagonal() - 2).max(),
        "egop_off_diagonal_distance": np.minimum(abs(off_diagonal), abs(off_diagonal - 1)).max(),
        "egop_outside_max": max(abs(egop[rank:]).max(), abs(egop[:, rank:]).max()),
        "egop_rank_minus_length": np.linalg.matrix_rank(egop, rtol=1e-6) - rank,
    }


class Expansion(NamedTuple):
    """What a linearised kernel h(⟨x, z⟩/d) depends on: h(0), h′(0), h″(0) and h(1)."""

    at_zero: float
    slope: float
    curvature: float
    at_one: float


EXPONENTIAL = Expansion(at_zero=e, slope=e, curvature=e, at_one=e**2)
"""The kernel e^(1+u) of φ = exp, which satisfies the paper's Assumption 6."""


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


def linearisation_rests(n: int, d: int, rng: np.random.Generator) -> dict[str, float]:
    """Spectral norm of the exponential's kernel minus its linearisation by eq. 10."""
    x = torch.tensor(uniform_sphere(n, d, d**0.5, rng))
    gram = x @ x.T
    kernel = torch.exp(1 + gram / d)
    start = rng.standard_normal(n)  # ARPACK's default start cannot be seeded
    rests = {}
    for form, as_printed in (("as_printed", True), ("corrected", False)):
        linear = linearised_kernel(gram, d, EXPONENTIAL, as_printed=as_printed)
        rest = (kernel - linear).numpy()
        found = eigsh(rest, k=1, v0=start, tol=1e-4, return_eigenvectors=False)  # pyright: ignore[reportArgumentType]: SciPy's types know whole tolerances only
        rests[f"equation_10_rest_{form}"] = abs(np.asarray(found).item())
    return rests


def sphere_statements(n: int, d: int, rng: np.random.Generator) -> dict[str, float]:
    """Statements in Theorem 9's proof about data X on the sphere of radius √d, labels y = x₁.

    Returns:
        ‖Xᵀy/n − E[xy]‖ of Lemma 13, where E[xy] = e₁, and the same as printed, which lets labels be
        large with a probability of o(1): d for the 1/log d of samples with the largest |x₁|, or
        else 0, where E[xy] = 0; ‖XᵀX/n − I‖, printed for the unit sphere; tr((XᵀYΔYX)²)/‖XᵀX‖²,
        Δ = I, which the proof states to be Õ(1), and the same over d.
    """
    x = uniform_sphere(n, d, d**0.5, rng)
    gram, weighted, one = x.T @ x, x.T @ (x[:, :1] ** 2 * x), np.eye(d)
    ratio = float(np.sum(weighted**2) / np.linalg.norm(gram, 2) ** 2)
    bound = d * beta(0.5, (d - 1) / 2).isf(1 / np.log(d))  # of x₁², as x₁²/d has this distribution
    rare = d * (x[:, 0] ** 2 > bound)
    return {
        "lemma_13_deviation": float(np.linalg.norm(gram[0] / n - one[0])),
        "lemma_13_deviation_as_printed": float(np.linalg.norm(rare @ x / n)),
        "theorem9_covariance_as_printed": float(np.linalg.norm(gram / d / n - one, 2)),
        "theorem9_covariance_corrected": float(np.linalg.norm(gram / n - one, 2)),
        "theorem9_fourth_trace_as_printed": ratio,
        "theorem9_fourth_trace_corrected": ratio / d,
    }


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


def proposition_16(
    x: torch.Tensor, y: torch.Tensor, width: int, networks: int, generator: torch.Generator
) -> dict[str, float]:
    """Means of ẆᵀẆ and ẆᵀKẆ over networks, against the formulas as printed and corrected.

    For each formula: its norm over that of the sampled mean, the cosine between them, and the norm
    of their difference over that of the mean. Inputs are (n, d), labels (n,).
    """
    normal = partial(torch.randn, generator=generator, dtype=x.dtype)
    label_weighted, gram = x.T @ (y[:, None] * x), x.T @ x
    nfm, agop = torch.zeros_like(gram), torch.zeros_like(gram)
    for start in range(0, networks, BATCH):
        batch = min(BATCH, networks - start)
        weight = normal(batch, width, x.shape[1]).to(x.device) / width**0.5
        scaled = normal(batch, width, 1).to(x.device) * weight
        r = scaled.mT @ scaled  # (batch, d, d)
        nfm += r.sum(dim=0) / networks
        agop += (r @ gram @ r).sum(dim=0) / networks
    sampled_agop = label_weighted @ agop @ label_weighted
    pairs = {
        "nfm": (label_weighted @ label_weighted, label_weighted @ nfm @ label_weighted),
        "agop_as_printed": (expected_agop_derivative_as_printed(x, y), sampled_agop),
        "agop_corrected": (expected_agop_derivative(x, y, width), sampled_agop),
    }
    found = {}
    for name, (formula, sampled) in pairs.items():
        found[f"proposition_16_{name}_norm_ratio"] = float(formula.norm() / sampled.norm())
        found[f"proposition_16_{name}_cosine"] = cosine_similarity(formula, sampled)
        found[f"proposition_16_{name}"] = float((formula - sampled).norm() / sampled.norm())
    return found


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


def alternating_as_printed(
    t: Trace, moments: Sequence[Any], letters: str, powers: Sequence[int]
) -> Any:
    """tr[C̄₁R₁ … C̄ₘRₘ] for m up to 4, with letters C and D of trace 0 and Rᵢ = R^powers[i].

    Source: beaglehole2024, eq. 12-15; they hold as printed.
    """
    r = [moments[power - 1] for power in powers]
    value = prod(r) * t(letters)  # 0 for a single letter
    if len(r) == 4:
        even, odd = (moments[powers[i] + powers[i + 2] - 1] - r[i] * r[i + 2] for i in (0, 1))
        value += r[0] * r[2] * odd * t(letters[:2]) * t(letters[2:])
        value += r[1] * r[3] * even * t(letters[1:3]) * t(letters[3] + letters[0])
    return value


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


def trace_errors(
    x: torch.Tensor, y: torch.Tensor, networks: int, generator: torch.Generator
) -> dict[str, float]:
    """Relative errors of traces of words in large matrices, n = d = k, by eq. 12-15, 20, 22 and 28.

    Errors of eq. 12-15 are relative to the product of the factors' root mean squares, since the
    trace in eq. 12 is 0, and beside the sampled trace the printed formula is compared with the
    exact trace of free families. For eq. 20, 22 and 28, both the derived and the printed formula
    are compared with samples. Inputs are (n, n), labels (n,).
    """
    size = len(x)
    data = {word: m / m.norm() * size**0.5 for word, m in correlation.data_matrices(x, y).items()}
    letters_of = with_centred(data)
    data_trace = matrix_trace(letters_of)
    equations = {
        "equation_20": (correlation.NUMERATOR, numerator_as_printed),
        "equation_22": (correlation.NFM_WORD, first_denominator_as_printed),
        "equation_28": (correlation.AGOP_WORD, second_denominator_as_printed),
    }
    sampled, formulas = defaultdict[str, float](float), defaultdict[tuple[str, str], float](float)
    alternating = defaultdict[str, float](float)
    for _ in range(networks):
        r = sample_r(size, size, generator, x.device)
        # With each network's own moments, so that the formulas alone are tested.
        moments = matrix_moments(r)
        families = {"R": moment_trace(moments), "ABCD": data_trace}
        products = matrix_trace({"P": data["A"] @ r, "Q": data["B"] @ r})
        for equation, (word, printed) in equations.items():
            sampled[equation] += products(word.replace("AR", "P").replace("BR", "Q")) / networks
            formulas[equation, "derived"] += free_trace(word, families) / networks
            formulas[equation, "as_printed"] += printed(data_trace, moments) / networks
        trace = matrix_trace(letters_of | {"R": r})
        free = families | {"R": trace}  # of all powers
        for number, (letters, powers) in ALTERNATING.items():
            rs = ["R" * power for power in powers]
            word = "".join(c + r for c, r in zip(letters, rs, strict=True))
            formula = alternating_as_printed(data_trace, moments, letters, powers)
            scale = networks * prod(trace(factor * 2) ** 0.5 for factor in (*letters, *rs))
            for form, value in (("sampled", trace(word)), ("as_printed", free_trace(word, free))):
                alternating[f"equation_{number}_{form}"] += abs(value - formula) / scale
    found = {
        f"{equation}_{form}": abs(value / sampled[equation] - 1)
        for (equation, form), value in formulas.items()
    }
    return found | alternating
