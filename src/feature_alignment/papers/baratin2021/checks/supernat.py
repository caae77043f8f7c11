"""SuperNat: gradient descent on a linear model that rescales its own features at every step.

The features Φ_t = Σ_j √λ_jt u_j v_jᵀ keep their singular vectors, so that modes evolve separately.
Eigenvalues λ and residuals u_jᵀ(f − y) underflow within a few hundred steps, so their logarithms
are stored. (Computed as a difference, the residual of a fitted mode would be rounding error.)

Axes: n samples, p parameters, r = rank modes, t steps.
"""

from dataclasses import dataclass

import numpy as np

from feature_alignment.training.errors import TrainingDivergedError

_LARGEST_LOG = 230.0  # of residuals and eigenvalues: 1e100
# Replaces a factor of exactly zero, if a step fits a mode, so that logarithms stay finite.
_SMALLEST = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Flow:
    """Training of a linear model; the weights are those of f(x) = ⟨w, Φ(x)⟩ with Φ = Φ_0."""

    weights: np.ndarray  # (steps + 1, p)
    log_eigenvalues: np.ndarray  # (steps + 1, r), log λ_jt of the kernel matrix Φ_t Φ_tᵀ
    directions: np.ndarray  # (p, r), the right singular vectors v_j


def optimal_update_scales(gradient: np.ndarray, kappa: float = 1.0) -> np.ndarray:
    """Scales ν_j = κ/|u_jᵀ∇L|, (r,), the minimisers of `update_bound`, for κ > 0.

    Source: baratin2021, Propositions 3 and 15. The gradient is u_jᵀ∇L, (r,), nowhere zero.
    """
    return kappa / np.abs(gradient)


def update_bound(eigenvalues: np.ndarray, gradient: np.ndarray, scales: np.ndarray) -> float:
    """Complexity ‖δw‖_A ‖A⁻¹Φᵀ‖_F of one gradient step, divided by the step size.

    √(Σ_j ν_j λ_j (u_jᵀ∇L)²) · √(Σ_j λ_j/ν_j) with A = Σ_j √ν_j v_j v_jᵀ on the span of the v_j.

    Source: baratin2021, Step 2 of Figure 5 and eq. 88, whose second left-hand side lacks a square.
    All arguments are (r,): eigenvalues λ, gradient u_jᵀ∇L, scales ν.
    """
    norm = np.sum(scales * eigenvalues * gradient**2)
    return float(np.sqrt(norm) * np.sqrt(np.sum(eigenvalues / scales)))


def supernat(
    features: np.ndarray,
    y: np.ndarray,
    learning_rate: float | np.ndarray,
    steps: int,
    kappa: str | None,
    factor: float = 0.5,
) -> Flow:
    """Train f(x) = ⟨w, Φ(x)⟩ from w = 0 on L = factor·‖f − y‖²/n by SuperNat, or without κ by GD.

    Each step adds δf_j = −η λ_jt u_jᵀ∇L to mode j, then λ_j(t+1) = λ_jt |u_jᵀ∇L|/κ_t, with the
    gradient before the step. The constant κ_t, which Proposition 3 leaves open, is

    - `max`: max_j |u_jᵀ∇L|, so that no mode grows;
    - `fixed`: that of the first step, at all steps;
    - `literal`: 1, eq. 17 as printed;
    - `trace`: the one that preserves the trace Σ_j λ_j;
    - `lambda_max`: the one that preserves the largest λ_j.

    Source: baratin2021, Figure 5 (left), Proposition 3 and eq. 17.

    Features are Φ, (n, p), of rank min(n, p), and labels (n,). There is one learning rate, or one
    for each step. Without κ this is plain gradient descent, which leaves λ fixed. The result has
    the weights and eigenvalues before the first step and after each step.

    Raises:
        ValueError: if the features are rank-deficient.
        TrainingDivergedError: if the training diverges.
    """
    left, singular_values, right = np.linalg.svd(features, full_matrices=False)
    if singular_values[-1] <= singular_values[0] * max(features.shape) * np.finfo(float).eps:
        raise ValueError("features: rank-deficient; SuperNat needs the rank min(n, p).")
    target = left.T @ y  # (r,)
    rates = np.broadcast_to(learning_rate, steps)
    log = 2 * np.log(singular_values)
    log_residual = np.log(np.maximum(np.abs(target), _SMALLEST))
    sign = -np.sign(target)  # of u_jᵀ(f − y), at f = 0
    scale = len(y) / (2 * factor)  # ratio of residuals to the gradient
    first = log_residual.max() - np.log(scale)
    log_eigenvalues, modes = [log], [np.zeros_like(target)]
    for step in range(1, steps + 1):
        log_gradient = log_residual - np.log(scale)
        left_over = 1 - rates[step - 1] * np.exp(log) / scale  # what a step leaves of the residual
        log_residual = log_residual + np.log(np.maximum(np.abs(left_over), _SMALLEST))
        sign = sign * np.where(left_over < 0, -1.0, 1.0)
        if kappa is not None:
            log = log + log_gradient - _log_kappa(kappa, log, log_gradient, float(first))
        if not max(log_residual.max(), log.max()) < _LARGEST_LOG:
            raise TrainingDivergedError(
                f"step {step}: training with learning rate {rates[step - 1]} and kappa {kappa} "
                "diverges; take a smaller learning rate."
            )
        modes.append(target + sign * np.exp(log_residual))
        log_eigenvalues.append(log)
    return Flow((np.array(modes) / singular_values) @ right, np.array(log_eigenvalues), right.T)


def _log_kappa(kappa: str, log: np.ndarray, log_gradient: np.ndarray, first: float) -> float:
    """Logarithm of κ_t, from log λ_t, log |u_jᵀ∇L| and the latter's maximum at the first step."""
    grown = log + log_gradient
    return {
        "max": float(log_gradient.max()),
        "fixed": first,
        "literal": 0.0,
        "trace": _log_sum(grown) - _log_sum(log),
        "lambda_max": float(grown.max() - log.max()),
    }[kappa]


def _log_sum(logs: np.ndarray) -> float:
    largest = logs.max()
    return float(largest + np.log(np.exp(logs - largest).sum()))
