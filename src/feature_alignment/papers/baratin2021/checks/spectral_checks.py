"""Numerical checks of baratin2021's statements on spectra and function updates (Appendix A).

The tangent features of a case are random vectors: the statements are linear algebra and hold for
any. Axes as in `function_updates`.
"""

import numpy as np

from feature_alignment.kernels.eigenfunctions import eigenfunctions
from feature_alignment.kernels.spectrum import effective_rank
from feature_alignment.papers.baratin2021.checks import function_updates as updates
from feature_alignment.papers.baratin2021.checks.function_updates import FunctionBasis
from feature_alignment.pipeline.checks import Check, equation, misprint

INPUTS, OUTPUTS, PARAMETERS = 30, 2, 12
SAMPLES = np.arange(4)
STEPS = 7
LEARNING_RATE = 0.1


def spectral_checks(generator: np.random.Generator) -> list[Check]:
    """Check Propositions 4–7 and 9, Lemmas 1 and 8 and their misprints on one random case."""
    # Directions of unequal size, so that eigenvalues are well apart.
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
    from_metric = updates.metric_eigenfunctions(features)
    functions = from_metric.functions.reshape(-1, PARAMETERS)
    metric = rows.T @ rows / INPUTS
    values, vectors = np.linalg.eigh(metric)
    # Its proof takes ⟨u_j, u_j'⟩ from v_j and v_j' (eq. 31), where eq. 30 has v_j twice.
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
    bases = updates.metric_eigenfunctions(features), updates.principal_components(features, SAMPLES)
    by_population, by_components = (
        updates.function_update(basis, SAMPLES, gradient, LEARNING_RATE) for basis in bases
    )
    left, singular_values, right = np.linalg.svd(rows, full_matrices=False)
    overlap = singular_values * (left.T @ gradient.ravel())  # √λ_j u_jᵀ∇L
    return [
        equation("lemma1", by_population, direct),
        equation("prop6", by_components, direct),
        *misprint("eq46", overlap, -LEARNING_RATE * overlap, right @ step),
    ]


def _principal_components(features: np.ndarray) -> list[Check]:
    """Lemma 8 and the two forms that its proof and Appendix A.5.2 misprint."""
    basis, kernel, functions = _scalar_case(features)
    own = functions[SAMPLES]  # (n, n)
    rows = features[SAMPLES, 0]
    right = np.linalg.svd(rows, full_matrices=False)[2]
    right = right * np.sign(np.einsum("ij,ip,jp->j", own, rows, right))[:, None]  # those of `own`
    scaled, rooted = own * basis.eigenvalues, own * np.sqrt(basis.eigenvalues)
    return [
        equation("lemma8", kernel @ own, functions * basis.eigenvalues),
        *misprint("lemma8_proof", functions @ own.T, functions * basis.eigenvalues @ own.T, kernel),
        *misprint("appendix_a52", scaled @ right, rooted @ right, rows),
    ]


def _scalar_case(features: np.ndarray) -> tuple[FunctionBasis, np.ndarray, np.ndarray]:
    """Principal components of one output, k(x, x_i) (N, n) and the functions (N, n)."""
    basis = updates.principal_components(features, SAMPLES)
    kernel = features[:, 0] @ features[SAMPLES, 0].T
    return basis, kernel, basis.functions[:, 0]


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
    constants = updates.time_constants(basis.eigenvalues)
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
