"""Numerical checks of baratin2021's statements on spectra and function updates (Appendix A).

The tangent features of a case are random vectors: the statements are linear algebra, and hold for
any features. Axes: N inputs of the population, n samples, c outputs, p parameters, r modes.
"""

from dataclasses import dataclass

import numpy as np

from feature_alignment.kernels.eigenfunctions import eigenfunctions
from feature_alignment.kernels.spectrum import effective_rank
from feature_alignment.pipeline.checks import Check, equation, misprint

INPUTS, OUTPUTS, PARAMETERS = 30, 2, 12
SAMPLES = np.arange(4)
STEPS = 7
LEARNING_RATE = 0.1


@dataclass(frozen=True)
class FunctionBasis:
    """Functions that diagonalise a kernel, evaluated on many inputs."""

    eigenvalues: np.ndarray  # λ, (r,), largest first
    functions: np.ndarray  # u_j(x)[y], (N, c, r)


def metric_eigenfunctions(features: np.ndarray) -> FunctionBasis:
    """Eigenfunctions u_j(x) = ⟨v_j, Φ(x)⟩/√λ_j from the metric g = E_x Φ(x) Φ(x)ᵀ = Σ λ_j v_j v_jᵀ.

    Source: baratin2021, eqs. 3, 22, 27 and 28. Up to signs, these are the p functions that
    `feature_alignment.kernels.eigenfunctions` finds from the kernel; the mean of ‖u_j(x)‖² over x
    is 1. The features Φ(x)[y], (N, c, p), of rank p, are those of the whole population, with all
    inputs equally likely.
    """
    metric = np.einsum("xyp,xyq->pq", features, features) / len(features)
    eigenvalues, vectors = np.linalg.eigh(metric)
    eigenvalues, vectors = eigenvalues[::-1], vectors[:, ::-1]
    return FunctionBasis(eigenvalues, features @ vectors / np.sqrt(eigenvalues))


def principal_components(features: np.ndarray, samples: np.ndarray) -> FunctionBasis:
    """The n·c principal components û_j(x) = ⟨v̂_j, Φ(x)⟩/√λ̂_j of the samples' kernel.

    Φ_S = Σ_j √λ̂_j û_j v̂_jᵀ is the singular value decomposition of the samples' features. (As
    printed, Appendix A.5.2 lacks the square root.) Over the samples, Σ_i û_j(x_i)² = 1.

    Source: baratin2021, eqs. 41 and 47. Features Φ(x)[y], (N, c, p), and results are those of all
    inputs; the n·c feature vectors of the samples (indices) are linearly independent.
    """
    rows = features[samples].reshape(-1, features.shape[-1])  # (n·c, p)
    _, singular_values, right = np.linalg.svd(rows, full_matrices=False)
    return FunctionBasis(singular_values**2, features @ right.T / singular_values)


def function_update(
    basis: FunctionBasis, samples: np.ndarray, gradient: np.ndarray, learning_rate: float
) -> np.ndarray:
    """Function update Σ_j δf_j u_j(x) with δf_j = −η λ_j u_jᵀ∇L of one step of gradient descent.

    Source: baratin2021, Lemma 1 (Proposition 5) with `metric_eigenfunctions`, Proposition 6 with
    `principal_components`. The gradient is ∇L with respect to the outputs on the samples (indices),
    (n, c); the update is that on all inputs, (N, c).
    """
    overlap = np.einsum("iyj,iy->j", basis.functions[samples], gradient)
    return basis.functions @ (-learning_rate * basis.eigenvalues * overlap)


def time_constants(eigenvalues: np.ndarray) -> np.ndarray:
    """Steps τ_j = −1/log(1 − λ_j/λ_1) in which mode j of linear regression decays by a factor e.

    At learning rate 1/λ_1, mode j decays like e^{−t/τ_j}; the first mode is learned at once. Takes
    λ, (r,), largest first, and returns τ_2, …, τ_r, (r − 1,).

    Source: baratin2021, after eq. 51, where the inverse −log(1 − λ_j/λ_1) is printed.
    """
    return -1 / np.log1p(-eigenvalues[1:] / eigenvalues[0])


def spectral_checks(generator: np.random.Generator) -> list[Check]:
    """Check Propositions 4–7 and 9, Lemmas 1 and 8 and their misprints on one random case."""
    # Directions of unequal size, so that eigenvalues are well separated.
    sizes = np.arange(1, PARAMETERS + 1) ** -0.5
    features = sizes * generator.standard_normal((INPUTS, OUTPUTS, PARAMETERS))
    gradient = generator.standard_normal((len(SAMPLES), OUTPUTS))
    # As printed in eq. 5, μ_j = λ_j/Σ_i λ_j = 1/r, whose entropy is log r whatever the eigenvalues.
    three_equal = np.array([1.0] * 3 + [1e-15] * 4)
    return [
        *_eigenfunctions(features),
        *_updates(features, gradient),
        *_principal_components(features[:, :1]),
        *_regression(features[:, :1], generator),
        *misprint("eq5", len(three_equal), effective_rank(three_equal), 3),
    ]


def _eigenfunctions(features: np.ndarray) -> list[Check]:
    """Proposition 4: metric and kernel have the same spectrum, and u_j are eigenfunctions."""
    rows = features.reshape(-1, PARAMETERS)
    from_kernel = eigenfunctions(rows @ rows.T, PARAMETERS, OUTPUTS)
    from_metric = metric_eigenfunctions(features)
    functions = from_metric.functions.reshape(-1, PARAMETERS)
    metric = rows.T @ rows / INPUTS
    values, vectors = np.linalg.eigh(metric)
    # The proof takes ⟨u_j, u_j'⟩ from v_j and v_j' (eq. 31), whereas eq. 30 has v_j twice.
    printed = np.sqrt(values[:, None] / values)  # v_jᵀgv_j/√(λ_jλ_j')
    whitened = vectors / np.sqrt(values)
    signs = np.sign((functions * from_kernel.functions).sum(axis=0))
    return [
        equation("prop4_spectrum", from_metric.eigenvalues, from_kernel.eigenvalues / INPUTS),
        equation("prop4_functions", functions * signs, from_kernel.functions),
        *misprint("eq30", printed, whitened.T @ metric @ whitened, np.eye(PARAMETERS)),
    ]


def _updates(features: np.ndarray, gradient: np.ndarray) -> list[Check]:
    """Lemma 1 and Proposition 6: updates by modes are those of gradient descent."""
    rows = features[SAMPLES].reshape(-1, PARAMETERS)
    step = -LEARNING_RATE * rows.T @ gradient.ravel()  # δw
    direct = features @ step
    bases = metric_eigenfunctions(features), principal_components(features, SAMPLES)
    by_population, by_components = (
        function_update(basis, SAMPLES, gradient, LEARNING_RATE) for basis in bases
    )
    left, singular_values, right = np.linalg.svd(rows, full_matrices=False)
    overlap = singular_values * (left.T @ gradient.ravel())  # √λ_j u_jᵀ∇L
    return [
        equation("lemma1", by_population, direct),
        equation("prop6", by_components, direct),
        *misprint("eq46", overlap, -LEARNING_RATE * overlap, right @ step),
    ]


def _principal_components(features: np.ndarray) -> list[Check]:
    """Lemma 8, and two formulas misprinted in its proof and in Appendix A.5.2."""
    basis, kernel, functions = _scalar_case(features)
    own = functions[SAMPLES]  # (n, n)
    rows = features[SAMPLES, 0]
    right = np.linalg.svd(rows, full_matrices=False)[2]
    right = right * np.sign(np.einsum("ij,ip,jp->j", own, rows, right))[:, None]  # signed as `own`
    scaled, rooted = own * basis.eigenvalues, own * np.sqrt(basis.eigenvalues)
    return [
        equation("lemma8", kernel @ own, functions * basis.eigenvalues),
        *misprint("lemma8_proof", functions @ own.T, functions * basis.eigenvalues @ own.T, kernel),
        *misprint("appendix_a52", scaled @ right, rooted @ right, rows),
    ]


def _scalar_case(features: np.ndarray) -> tuple[FunctionBasis, np.ndarray, np.ndarray]:
    """Principal components of one output, k(x, x_i) (N, n) and the functions (N, n)."""
    basis = principal_components(features, SAMPLES)
    return basis, features[:, 0] @ features[SAMPLES, 0].T, basis.functions[:, 0]


def _regression(features: np.ndarray, generator: np.random.Generator) -> list[Check]:
    """Propositions 7 and 9: gradient descent on ½‖f − y‖² from weights in the features' span."""
    basis, kernel, functions = _scalar_case(features)
    rows = features[SAMPLES, 0]
    y = generator.standard_normal(len(SAMPLES))
    start = rows.T @ generator.standard_normal(len(SAMPLES))
    rate = 1 / basis.eigenvalues[0]
    solution = np.linalg.lstsq(rows, y, rcond=None)[0]
    weights, difference = start, features[:, 0] @ (start - solution)
    for _ in range(STEPS):
        weights = weights - rate * rows.T @ (rows @ weights - y)
        difference = difference - rate * kernel @ difference[SAMPLES]  # (Id − ηK)(f − f*)
    direct = features[:, 0] @ weights
    initial, target = functions[SAMPLES].T @ (rows @ start), functions[SAMPLES].T @ y
    decay = (1 - rate * basis.eigenvalues) ** STEPS
    time = np.arange(1, STEPS + 1)[:, None]
    constants = time_constants(basis.eigenvalues)
    return [
        equation("prop7", features[:, 0] @ solution + difference, direct),
        equation("prop9", functions @ (target + decay * (initial - target)), direct),
        *misprint(
            "prop9_time_constant",
            np.exp(-time * constants),  # the printed τ_j is the inverse
            np.exp(-time / constants),
            (1 - rate * basis.eigenvalues[1:]) ** time,
        ),
    ]
