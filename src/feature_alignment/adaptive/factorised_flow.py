"""Gradient flow on the factorised model f = Σ_ℓ ⟨Φ_ℓ, M_ℓ⁽²⁾ W_ℓ M_ℓ⁽¹⁾⟩, integrated numerically.

Started at M = I and W = 0 it conserves M⁽¹⁾M⁽¹⁾ᵀ − WᵀW = I and M⁽²⁾ᵀM⁽²⁾ − WWᵀ = I (matrices are
(outputs, inputs)). So each singular value σ of W comes with scales √(1 + σ²) on both sides. These
are the optimal scales for the penalty ω(s) = s² − 1 − 2 log s: the adapted kernel has the form of
Theorem 2, though B = M⁽²⁾WM⁽¹⁾ does not minimise that problem.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.integrate


@dataclass(frozen=True)
class FactorisedModel:
    """The three factors of one block: M⁽¹⁾ (d, d), W (k, d) and M⁽²⁾ (k, k)."""

    on_inputs: np.ndarray
    weight: np.ndarray
    on_outputs: np.ndarray

    @property
    def coefficients(self) -> np.ndarray:
        """B = M⁽²⁾ W M⁽¹⁾, (k, d)."""
        return self.on_outputs @ self.weight @ self.on_inputs

    def conservation_error(self) -> float:
        """Largest entry of M⁽¹⁾M⁽¹⁾ᵀ − WᵀW − I and M⁽²⁾ᵀM⁽²⁾ − WWᵀ − I."""
        inputs = self.on_inputs @ self.on_inputs.T - self.weight.T @ self.weight
        outputs = self.on_outputs.T @ self.on_outputs - self.weight @ self.weight.T
        return max(np.abs(m - np.eye(len(m))).max() for m in (inputs, outputs))


def factorised_flow(
    features: Sequence[np.ndarray], targets: np.ndarray, duration: float
) -> list[FactorisedModel]:
    """Factors of each block after gradient flow on ½‖f − r‖² from M = I, W = 0, at learning rate 1.

    The features Φ_ℓ are (n, k, d), the targets r (n,).

    Source: LeJeune & Alemohammad 2024, Model A (item 2), and released code; conservation is ours.

    Raises:
        ValueError: if there is no block, the targets are not (n,), a value is not finite, or the
            duration is negative.
        RuntimeError: if the integration fails.
    """
    if not 0 <= duration < math.inf:
        raise ValueError(f"duration: {duration}; give a finite number of at least 0.")
    if not len(features):
        raise ValueError("features: there are none; give those of one block or more, (n, k, d).")
    targets = np.asarray(targets)
    if any(len(block) != len(targets) for block in features) or targets.ndim != 1:
        raise ValueError(
            f"targets: of shape {targets.shape} for features of {len(features[0])} samples; give "
            "one for each."
        )
    if not all(np.isfinite(values).all() for values in (*features, targets)):
        raise ValueError("features and targets: they must be finite.")
    shapes = [block.shape[1:] for block in features]
    sides = [side for k, d in shapes for side in ((d, d), (k, d), (k, k))]
    cuts = np.cumsum([rows * columns for rows, columns in sides])[:-1]

    def unpack(state: np.ndarray) -> list[FactorisedModel]:
        parts = [p.reshape(s) for p, s in zip(np.split(state, cuts), sides, strict=True)]
        return [FactorisedModel(*parts[i : i + 3]) for i in range(0, len(parts), 3)]

    def velocity(_: float, state: np.ndarray) -> np.ndarray:
        pairs = list(zip(features, unpack(state), strict=True))
        f = sum(np.einsum("nkd,kd->n", block, m.coefficients) for block, m in pairs)
        slopes = []
        for block, m in pairs:
            pull = np.einsum("n,nkd->kd", targets - f, block)  # −∂L/∂B
            slopes += [
                (m.on_outputs @ m.weight).T @ pull,
                m.on_outputs.T @ pull @ m.on_inputs.T,
                pull @ (m.weight @ m.on_inputs).T,
            ]
        return np.concatenate([slope.ravel() for slope in slopes])

    start = np.concatenate(
        [part.ravel() for k, d in shapes for part in (np.eye(d), np.zeros((k, d)), np.eye(k))]
    )
    found = scipy.integrate.solve_ivp(
        velocity, (0, duration), start, method="DOP853", rtol=1e-11, atol=1e-12
    )
    if not found.success:
        raise RuntimeError(f"gradient flow was not integrated: {found.message}")
    return unpack(found.y[:, -1])
