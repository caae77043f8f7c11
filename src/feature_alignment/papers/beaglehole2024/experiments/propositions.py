"""Numerical checks of what beaglehole2024 states in propositions and equations.

Source: beaglehole2024, Propositions 2, 3, 12 and 16, Lemma 13, eq. 10, 20, 22 and 28, and the
EGOP of Section 2.1.
"""

from collections import Counter
from collections.abc import Callable
from math import e, log
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import eigsh

from feature_alignment.data.synthetic import chain_monomial, isotropic_gaussian, uniform_sphere
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.features.feature_matrices import (
    average_gradient_outer_product,
    cosine_similarity,
)
from feature_alignment.features.layer_signals import layer_signals
from feature_alignment.features.preactivation import (
    preactivation_feature_covariance,
    preactivation_tangent_kernel,
)
from feature_alignment.free_probability.centred_correlation import (
    AGOP_WORD,
    NFM_WORD,
    NUMERATOR,
    data_matrices,
)
from feature_alignment.free_probability.random_features import matrix_moments, sample_r
from feature_alignment.free_probability.words import free_trace, matrix_trace, moment_trace
from feature_alignment.models.mlp import ACTIVATIONS, MLP
from feature_alignment.papers.beaglehole2024.checks.gradient_flow import flow
from feature_alignment.papers.beaglehole2024.checks.printed_statements import (
    Expansion,
    expected_agop_derivative,
    expected_agop_derivative_as_printed,
    first_denominator_as_printed,
    linearised_kernel,
    numerator_as_printed,
    second_denominator_as_printed,
)
from feature_alignment.pipeline.run import SeedResult

Parameters = dict[str, Any]
BATCH = 500
"""Networks of Proposition 16 that are in memory at a time."""
RELATIVE_STEP = 1e-4
"""Length of the finite-difference step, as a share of the weights' norm."""
CHAIN_LENGTHS = (3, 4, 5)
EGOP_SAMPLES = 200_000
DIMENSIONS = (16, 32, 64, 128)
"""Input dimensions d for what holds as d grows."""
EXPONENTIAL = Expansion(at_zero=e, slope=e, curvature=e, at_one=e**2)
"""Of the kernel e^(1+u) of φ = exp, which fulfils the paper's Assumption 6."""


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: None, label: str
) -> SeedResult:
    """Measure by how much both sides of each statement differ, relative to their size.

    Args:
        seed: of data and networks.
        parameters: the section `beaglehole2024_propositions` of the config.
        device: where to compute.
        dataset: none is used.
        label: names the run in its progress lines.

    Returns:
        Relative differences of Propositions 2, 3 and 12, the largest over layers; for
        Proposition 16, by width, ratios of norms and cosines of formula and Monte-Carlo mean; for
        the trace formulas, relative differences of formula and sampled trace; by dimension the
        spectral norm of what eq. 10 leaves out, and the norm that Lemma 13 bounds; by length of
        the chain (column `rank`) what Section 2.1 says of the EGOP.
    """
    result = SeedResult()
    for rank in CHAIN_LENGTHS:
        _describe_egop(result, seed, rank, parameters["dimension"])
    for d in DIMENSIONS:
        _check_linearisation(result, seed, d)
        _check_lemma_13(result, seed, d)
    _check_identities(result, seed, parameters, device)
    for width in parameters["widths"]:
        _check_proposition_16(result, seed, width, parameters, device)
    _check_equations(result, seed, parameters, device)
    return result


def _describe_egop(result: SeedResult, seed: int, rank: int, dimension: int) -> None:
    """Diagonal, off-diagonal entries and rank of the chain-monomial task's EGOP, from samples.

    Gradients are central differences of labels, exact for a polynomial of second degree.
    """
    d = max(dimension, rank + 1)  # at least one coordinate outside
    x = isotropic_gaussian(EGOP_SAMPLES, d, stream(seed, f"egop/{rank}"))
    gradient = np.stack(
        [
            (chain_monomial(x + unit, rank) - chain_monomial(x - unit, rank)) / 2
            for unit in np.eye(d)
        ],
        axis=1,
    )  # (n, d)
    egop = gradient.T @ gradient / len(x)
    block = egop[:rank, :rank]
    off_diagonal = block[~np.eye(rank, dtype=bool)]
    distance = np.minimum(abs(off_diagonal), abs(off_diagonal - 1)).max()
    outside = max(abs(egop[rank:]).max(), abs(egop[:, rank:]).max())
    excess = np.linalg.matrix_rank(egop, rtol=1e-6) - rank
    where = {"step": 0, "rank": rank}
    result.add("egop_diagonal", block.diagonal().mean(), **where)
    result.add("egop_off_diagonal_distance", distance, **where)
    result.add("egop_outside_max", outside, **where)
    result.add("egop_rank_minus_length", excess, **where)


def _check_linearisation(result: SeedResult, seed: int, d: int) -> None:
    """Spectral norm of the kernel minus its linearisation by eq. 10, n = 4d log d."""
    rng = stream(seed, f"linearisation/{d}")
    n = round(4 * d * log(d))
    x = torch.tensor(uniform_sphere(n, d, d**0.5, rng))
    gram = x @ x.T
    kernel = torch.exp(1 + gram / d)
    start = rng.standard_normal(n)  # ARPACK's own start is not ours to seed
    for form, as_printed in (("as_printed", True), ("corrected", False)):
        rest = kernel - linearised_kernel(gram, d, EXPONENTIAL, as_printed=as_printed)
        (largest,) = eigsh(rest.numpy(), k=1, v0=start, tol=1e-4, return_eigenvectors=False)
        result.add(f"equation_10_rest_{form}", abs(largest), step=0, dimension=d, samples=n)


def _check_lemma_13(result: SeedResult, seed: int, d: int) -> None:
    """‖Xᵀy/n − E[xy]‖ for y = x₁ on the sphere, where E[xy] = e₁, and n = d log³d."""
    n = round(d * log(d) ** 3)
    x = uniform_sphere(n, d, d**0.5, stream(seed, f"lemma 13/{d}"))
    deviation = np.linalg.norm(x.T @ x[:, 0] / n - np.eye(d)[0])
    result.add("lemma_13_deviation", deviation, step=0, dimension=d, samples=n)


def _check_identities(
    result: SeedResult, seed: int, parameters: Parameters, device: torch.device
) -> None:
    """Propositions 2, 3 and 12 at every layer of a small network with two hidden layers."""
    rng = {"generator": torch_stream(seed, "identities"), "dtype": torch.float64}
    n, d = parameters["samples"], parameters["dimension"]
    x, y = torch.randn(n, d, **rng).to(device), torch.randn(n, 1, **rng).to(device)
    model = MLP(d, [d, d], 1, "erf", bias=False, **rng).to(device)
    largest: dict[str, float] = {}
    signals = layer_signals(model, x)
    input_gradients = _input_gradients(model, x)
    for (name, signal), gradients in zip(signals.items(), input_gradients, strict=True):
        weight = model.get_submodule(name).weight
        covariance = preactivation_feature_covariance(signal.gradients)
        agop = average_gradient_outer_product(weight.detach(), covariance)
        kernel = preactivation_tangent_kernel(signal.gradients)
        weight_gradients = torch.stack(
            [torch.autograd.grad(model(row).sum(), weight)[0].flatten() for row in x.split(1)]
        )  # (n, k·d)
        found = {
            "proposition_2": _relative(agop, gradients.T @ gradients / n),
            "proposition_12": _relative(
                kernel * (signal.inputs @ signal.inputs.T), weight_gradients @ weight_gradients.T
            ),
            **_finite_differences(model, name, x, y),
        }
        largest = {key: max(value, largest.get(key, 0.0)) for key, value in found.items()}
    for metric, value in largest.items():
        result.add(metric, value, step=0)


def _input_gradients(model: MLP, x: torch.Tensor) -> list[torch.Tensor]:
    """∂f/∂x_ℓ for every layer by automatic differentiation, (n, d_ℓ) each."""
    phi = ACTIVATIONS[model.activation]
    inputs = [x.clone().requires_grad_()]
    for layer in model.layers[:-1]:
        inputs.append(phi(layer(inputs[-1])))
    return list(torch.autograd.grad(model.layers[-1](inputs[-1]).sum(), inputs))


def _finite_differences(
    model: MLP, name: str, x: torch.Tensor, y: torch.Tensor
) -> dict[str, float]:
    """Proposition 3 at one layer, for the loss ½ Σ (f − y)²; K and 𝒦 without the factor 1/n."""

    def loss(network: MLP) -> torch.Tensor:
        return torch.sum((network(x) - y) ** 2) / 2

    weight = model.get_submodule(name).weight.detach()
    signal = layer_signals(model, x)[name]
    kernel = preactivation_tangent_kernel(signal.gradients)
    weighted = (model(x) - y).detach() * signal.inputs  # L̇X, (n, d)
    stated = {
        "nfm": weighted.T @ kernel @ weighted,
        "agop": weighted.T @ kernel @ kernel @ weighted,
    }
    gradient = signal.gradients[:, 0].T @ weighted
    step = float(RELATIVE_STEP * weight.norm() / gradient.norm())
    before, after = (_centred(model, name, x, loss, time) for time in (-step, step))
    differences, first_derivatives = {}, []
    for matrix, half in stated.items():
        second = (after[matrix] + before[matrix]) / step**2  # at time 0 both matrices vanish
        first = (after[matrix] - before[matrix]) / (2 * step)
        differences[f"proposition_3_{matrix}"] = _relative(second, 2 * half)
        # In units of the second derivative times the time in which the weights turn over.
        scale = (2 * half).norm() * step / RELATIVE_STEP
        first_derivatives.append(float(first.norm() / scale))
    return {**differences, "proposition_3_first_derivatives": max(first_derivatives)}


def _centred(
    model: MLP, name: str, x: torch.Tensor, loss: Callable, time: float
) -> dict[str, torch.Tensor]:
    """W̄ᵀW̄ and W̄ᵀKW̄ at a time of gradient flow, K that of the time."""
    parameters = flow(model, loss, time)
    change = parameters[f"{name}.weight"] - model.get_submodule(name).weight.detach()
    gradients = layer_signals(model, x, parameters)[name].gradients
    covariance = preactivation_feature_covariance(gradients) * len(x)
    return {"nfm": change.T @ change, "agop": change.T @ covariance @ change}


def _check_proposition_16(
    result: SeedResult, seed: int, width: int, parameters: Parameters, device: torch.device
) -> None:
    """Means of ẆᵀẆ and ẆᵀKẆ over networks, against the formulas as printed and corrected."""
    n, d, networks = (parameters[key] for key in ("samples", "dimension", "networks"))
    rng = {"generator": torch_stream(seed, f"proposition 16/{width}"), "dtype": torch.float64}
    x, y = torch.randn(n, d, **rng).to(device), torch.randn(n, **rng).to(device)
    label_weighted, gram = x.T @ (y[:, None] * x), x.T @ x
    nfm, agop = torch.zeros_like(gram), torch.zeros_like(gram)
    for start in range(0, networks, BATCH):
        batch = min(BATCH, networks - start)
        weight = torch.randn(batch, width, d, **rng).to(device) / width**0.5
        readout = torch.randn(batch, width, 1, **rng).to(device)
        scaled = readout * weight
        r = scaled.mT @ scaled  # (batch, d, d)
        nfm += r.sum(dim=0) / networks
        agop += (r @ gram @ r).sum(dim=0) / networks
    sampled_nfm = label_weighted @ nfm @ label_weighted
    sampled_agop = label_weighted @ agop @ label_weighted
    formulas = {
        "nfm": (label_weighted @ label_weighted, sampled_nfm),
        "agop_as_printed": (expected_agop_derivative_as_printed(x, y), sampled_agop),
        "agop_corrected": (expected_agop_derivative(x, y, width), sampled_agop),
    }
    for name, (formula, sampled) in formulas.items():
        ratio, cosine = float(formula.norm() / sampled.norm()), cosine_similarity(formula, sampled)
        result.add(f"proposition_16_{name}_norm_ratio", ratio, step=0, width=width)
        result.add(f"proposition_16_{name}_cosine", cosine, step=0, width=width)


def _check_equations(
    result: SeedResult, seed: int, parameters: Parameters, device: torch.device
) -> None:
    """Traces of words in large matrices, n = d = k, against derivations and printed formulas."""
    size, networks = parameters["matrix_size"], parameters["matrix_networks"]
    generator = torch_stream(seed, "equations")
    x = torch.randn(size, size, generator=generator, dtype=torch.float64).to(device)
    y = torch.randn(size, generator=generator, dtype=torch.float64).to(device)
    data = {word: m / m.norm() * size**0.5 for word, m in data_matrices(x, y).items()}
    data_trace = matrix_trace(data)
    words = {"equation_20": NUMERATOR, "equation_22": NFM_WORD, "equation_28": AGOP_WORD}
    printed_forms = {
        "equation_20": numerator_as_printed,
        "equation_22": first_denominator_as_printed,
        "equation_28": second_denominator_as_printed,
    }
    sampled, derived, printed = Counter[str](), Counter[str](), Counter[str]()
    for _ in range(networks):
        r = sample_r(size, size, generator, device)
        # With each network's own moments, so that the formulas alone are tested.
        moments = matrix_moments(r)
        families = {"R": moment_trace(moments), "AB": data_trace}
        products = matrix_trace({"P": data["A"] @ r, "Q": data["B"] @ r})
        for equation, word in words.items():
            short = word.replace("AR", "P").replace("BR", "Q")
            sampled[equation] += products(short) / networks
            derived[equation] += free_trace(word, families) / networks
            printed[equation] += printed_forms[equation](data_trace, moments) / networks
    for equation, trace in sampled.items():
        for form, formula in (("derived", derived), ("as_printed", printed)):
            result.add(f"{equation}_{form}", abs(formula[equation] / trace - 1), step=0)


def _relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())
