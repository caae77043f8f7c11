"""Statements about means and large matrices, checked against samples.

Source: beaglehole2024, Section 2.1 (EGOP), eq. 10, 12-15, 20, 22 and 28, Theorem 9's proof, Lemma
13 and Proposition 16.
"""

from collections import defaultdict
from functools import partial
from math import e, prod

import numpy as np
import torch
from scipy.sparse.linalg import eigsh

from feature_alignment.data.synthetic import chain_monomial, uniform_sphere
from feature_alignment.free_probability import centred_correlation as correlation
from feature_alignment.free_probability.random_features import matrix_moments, sample_r
from feature_alignment.free_probability.words import free_trace, matrix_trace, moment_trace
from feature_alignment.layer_features.feature_matrices import cosine_similarity
from feature_alignment.papers.beaglehole2024.checks import printed_statements

BATCH = 500  # networks of Proposition 16 in memory at a time
EGOP_SAMPLES = 200_000
ALTERNATING = {
    12: ("C", (1,)),
    13: ("CD", (1, 2)),
    14: ("CCD", (1, 2, 1)),
    15: ("CDCD", (1, 2, 1, 2)),
}
"""For each equation the letters (C for Ā, D for B̄) and the powers of R alternating with them."""
EXPONENTIAL = printed_statements.Expansion(at_zero=e, slope=e, curvature=e, at_one=e**2)
"""The kernel e^(1+u) of φ = exp, which satisfies the paper's Assumption 6."""


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


def linearisation_rests(n: int, d: int, rng: np.random.Generator) -> dict[str, float]:
    """Spectral norm of the exponential's kernel minus its linearisation by eq. 10."""
    x = torch.tensor(uniform_sphere(n, d, d**0.5, rng))
    gram = x @ x.T
    kernel = torch.exp(1 + gram / d)
    start = rng.standard_normal(n)  # ARPACK's default start cannot be seeded
    rests = {}
    for form, as_printed in (("as_printed", True), ("corrected", False)):
        linear = printed_statements.linearised_kernel(gram, d, EXPONENTIAL, as_printed=as_printed)
        rest = (kernel - linear).numpy()
        found = eigsh(rest, k=1, v0=start, tol=1e-4, return_eigenvectors=False)  # pyright: ignore[reportArgumentType]: SciPy's types know whole tolerances only
        rests[f"equation_10_rest_{form}"] = abs(np.asarray(found).item())
    return rests


def sphere_statements(n: int, d: int, rng: np.random.Generator) -> dict[str, float]:
    """Statements in Theorem 9's proof about data X on the sphere of radius √d, labels y = x₁.

    Returns:
        ‖Xᵀy/n − E[xy]‖ of Lemma 13, where E[xy] = e₁; ‖XᵀX/n − I‖, printed for the unit sphere;
        tr((XᵀYΔYX)²)/‖XᵀX‖², Δ = I, which the proof states to be Õ(1), and the same over d.
    """
    x = uniform_sphere(n, d, d**0.5, rng)
    gram, weighted, one = x.T @ x, x.T @ (x[:, :1] ** 2 * x), np.eye(d)
    ratio = float(np.sum(weighted**2) / np.linalg.norm(gram, 2) ** 2)
    return {
        "lemma_13_deviation": float(np.linalg.norm(gram[0] / n - one[0])),
        "theorem9_covariance_as_printed": float(np.linalg.norm(gram / d / n - one, 2)),
        "theorem9_covariance_corrected": float(np.linalg.norm(gram / n - one, 2)),
        "theorem9_fourth_trace_as_printed": ratio,
        "theorem9_fourth_trace_corrected": ratio / d,
    }


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
    printed = printed_statements.expected_agop_derivative_as_printed(x, y)
    corrected = printed_statements.expected_agop_derivative(x, y, width)
    pairs = {
        "nfm": (label_weighted @ label_weighted, label_weighted @ nfm @ label_weighted),
        "agop_as_printed": (printed, sampled_agop),
        "agop_corrected": (corrected, sampled_agop),
    }
    found = {}
    for name, (formula, sampled) in pairs.items():
        found[f"proposition_16_{name}_norm_ratio"] = float(formula.norm() / sampled.norm())
        found[f"proposition_16_{name}_cosine"] = cosine_similarity(formula, sampled)
        found[f"proposition_16_{name}"] = float((formula - sampled).norm() / sampled.norm())
    return found


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
    letters_of = printed_statements.with_centred(data)
    data_trace = matrix_trace(letters_of)
    equations = {
        "equation_20": (correlation.NUMERATOR, printed_statements.numerator_as_printed),
        "equation_22": (correlation.NFM_WORD, printed_statements.first_denominator_as_printed),
        "equation_28": (correlation.AGOP_WORD, printed_statements.second_denominator_as_printed),
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
            formula = printed_statements.alternating_as_printed(
                data_trace, moments, letters, powers
            )
            scale = networks * prod(trace(factor * 2) ** 0.5 for factor in (*letters, *rs))
            for form, value in (
                ("sampled", trace(word)),
                ("as_printed", free_trace(word, free)),
            ):
                alternating[f"equation_{number}_{form}"] += abs(value - formula) / scale
    found = {
        f"{equation}_{form}": abs(value / sampled[equation] - 1)
        for (equation, form), value in formulas.items()
    }
    return found | alternating
