"""Gradient descent seen in function space: updates in eigenbases of the tangent kernel.

Axes: N inputs of the population, n samples, c outputs, p parameters, r modes.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FunctionBasis:
    """Functions that diagonalise a kernel, evaluated on many inputs."""

    eigenvalues: np.ndarray  # λ, (r,), largest first
    functions: np.ndarray  # u_j(x)[y], (N, c, r)


def metric_eigenfunctions(features: np.ndarray) -> FunctionBasis:
    """Eigenfunctions u_j(x) = ⟨v_j, Φ(x)⟩/√λ_j from the metric g = E_x Φ(x) Φ(x)ᵀ = Σ λ_j v_j v_jᵀ.

    Source: baratin2021, eqs. 3, 22, 27 and 28. The same p functions as
    `feature_alignment.kernels.eigenfunctions` finds from the kernel, up to signs; their mean over x
    of ‖u_j(x)‖² is 1. The features Φ(x)[y], (N, c, p), of rank p, are those of the whole
    population, each input equally likely.
    """
    metric = np.einsum("xyp,xyq->pq", features, features) / len(features)
    eigenvalues, vectors = np.linalg.eigh(metric)
    eigenvalues, vectors = eigenvalues[::-1], vectors[:, ::-1]
    return FunctionBasis(eigenvalues, features @ vectors / np.sqrt(eigenvalues))


def principal_components(features: np.ndarray, samples: np.ndarray) -> FunctionBasis:
    """The n·c principal components û_j(x) = ⟨v̂_j, Φ(x)⟩/√λ̂_j of the samples' kernel.

    Φ_S = Σ_j √λ̂_j û_j v̂_jᵀ is the singular value decomposition of the samples' features. (As
    printed, Appendix A.5.2 lacks the square root.) Over the samples, Σ_i û_j(x_i)² = 1.

    Source: baratin2021, eqs. 41 and 47. Features are Φ(x)[y], (N, c, p), of all inputs, as are the
    results; the n·c of the samples (indices) are linearly independent.
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
    """Steps τ_j = −1/log(1 − λ_j/λ_1) in which mode j of linear regression decays by e.

    At learning rate 1/λ_1, mode j decays like e^{−t/τ_j}; the first mode is learned at once. Takes
    λ, (r,), largest first, and returns τ_2, …, τ_r, (r − 1,).

    Source: baratin2021, after eq. 51, where the inverse −log(1 − λ_j/λ_1) is printed.
    """
    return -1 / np.log1p(-eigenvalues[1:] / eigenvalues[0])
