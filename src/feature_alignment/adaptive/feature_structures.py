"""Structures of the feature transformation M, and the best M for given coefficients B.

A structure defines which M are allowed and their penalty. For coefficients B = MW it gives the
transformation that minimises Ω(M) + ‖M⁻¹B‖² (Theorem 1, Appendix A.1 and Theorem 2 of
LeJeune & Alemohammad 2024) and that minimum, the effective penalty Ω̃(B).
"""

from dataclasses import dataclass

import numpy as np
import torch

from feature_alignment.adaptive.adaptive_scales import adaptive_scales
from feature_alignment.adaptive.parameter_matrices import Matrices, inner
from feature_alignment.adaptive.penalties import Penalty, rigid_penalty


@dataclass(frozen=True)
class Structureless:
    """M is any matrix on all parameters together, with Ω(M) = Σ_j ω(σ_j(M)); `penalty` is ω.

    Source: LeJeune & Alemohammad 2024, Theorem 1.
    """

    penalty: Penalty

    def adapt(self, coefficients: Matrices) -> "RankOneTransformation":
        """The best M for coefficients B by layer: I + (s − 1)uuᵀ along the unit vector u of B."""
        norm = inner(coefficients, coefficients) ** 0.5
        scales = adaptive_scales(self.penalty, rigid_penalty, np.array(norm))
        unit = {layer: b / norm if norm > 0 else b for layer, b in coefficients.items()}
        return RankOneTransformation(float(scales.penalty), unit, float(scales.first))


@dataclass(frozen=True)
class RankOneTransformation:
    """M = I + (s − 1)uuᵀ."""

    penalty: float  # Ω̃(B)
    direction: Matrices  # u by layer, of norm 1 over all layers together (zero if B is)
    scale: float  # s

    def apply(self, matrices: Matrices, power: int) -> Matrices:
        """M^power applied to matrices by layer; the power may be negative."""
        along = (self.scale**power - 1) * inner(self.direction, matrices)
        return {
            layer: torch.add(matrix, self.direction[layer], alpha=along)
            for layer, matrix in matrices.items()
        }


@dataclass(frozen=True)
class Diagonal:
    """M is diagonal, with Ω(M) = Σ_j ω(m_j); `penalty` is ω.

    Source: LeJeune & Alemohammad 2024, Appendix A.1.
    """

    penalty: Penalty

    def adapt(self, coefficients: Matrices) -> "DiagonalTransformation":
        """The best M for coefficients B by layer: a separate scale for each coefficient."""
        total, scales = 0.0, {}
        for layer, b in coefficients.items():
            found = adaptive_scales(self.penalty, rigid_penalty, b.abs().cpu().numpy())
            total += float(found.penalty.sum())
            scales[layer] = torch.as_tensor(found.first).to(b)
        return DiagonalTransformation(total, scales)


@dataclass(frozen=True)
class DiagonalTransformation:
    """M = diag(m); `penalty` is Ω̃(B), and `scales` are m by layer, in the matrices' shapes."""

    penalty: float
    scales: Matrices

    def apply(self, matrices: Matrices, power: int) -> Matrices:
        """See `RankOneTransformation.apply`."""
        return {layer: matrix * self.scales[layer] ** power for layer, matrix in matrices.items()}


@dataclass(frozen=True)
class LayerStructure:
    """M multiplies each layer's matrix from both sides, with a penalty for each side.

    Ω(M) = Σ_ℓ Σ_j ω⁽¹⁾(σ_j(M_ℓ⁽¹⁾)) + ω⁽²⁾(σ_j(M_ℓ⁽²⁾)). M⁽¹⁾ acts on a layer's inputs, M⁽²⁾ on its
    outputs; M⁽²⁾ is fixed at I for the layer `readout` (Model A, item 4). If ω⁽¹⁾ or ω⁽²⁾ is not
    convex in log v for v ≥ 1 (|v − 1|^½ is not), M is only the best with the singular vectors of B,
    and Ω̃(B) an upper bound: other M may cost less, contrary to Lemma 5.

    Source: LeJeune & Alemohammad 2024, Model A and Theorem 2.
    """

    input_penalty: Penalty
    output_penalty: Penalty
    readout: str | None = None

    def adapt(self, coefficients: Matrices) -> "LayerTransformation":
        """The best M for coefficients B by layer: scales along each layer's singular vectors."""
        total, sides = 0.0, {}
        for layer, b in coefficients.items():
            left, d, right = torch.linalg.svd(b, full_matrices=False)
            output = rigid_penalty if layer == self.readout else self.output_penalty
            found = adaptive_scales(self.input_penalty, output, d.cpu().numpy())
            total += float(found.penalty.sum())
            s1, s2 = (torch.as_tensor(s).to(b) for s in (found.first, found.second))
            sides[layer] = Sides(right.T, s1, left, s2)
        return LayerTransformation(total, sides)


@dataclass(frozen=True)
class Sides:
    """Both transformations of one layer, M⁽¹⁾ = V S⁽¹⁾Vᵀ + (I − VVᵀ), and M⁽²⁾ likewise from U."""

    inputs: torch.Tensor  # V as columns, (d, r) orthonormal
    input_scales: torch.Tensor  # s⁽¹⁾, (r,)
    outputs: torch.Tensor  # U as columns, (k, r) orthonormal
    output_scales: torch.Tensor  # s⁽²⁾, (r,)


@dataclass(frozen=True)
class LayerTransformation:
    """W_ℓ ↦ M_ℓ⁽²⁾ W_ℓ M_ℓ⁽¹⁾ in PyTorch's orientation (outputs, inputs); `penalty` is Ω̃(B)."""

    penalty: float
    sides: dict[str, Sides]

    def apply(self, matrices: Matrices, power: int) -> Matrices:
        """See `RankOneTransformation.apply`."""
        found = {}
        for layer, matrix in matrices.items():
            side = self.sides[layer]
            on_inputs = _scaled(matrix.T, side.inputs, side.input_scales, power).T
            found[layer] = _scaled(on_inputs, side.outputs, side.output_scales, power)
        return found

    def dense(self, layer: str) -> tuple[torch.Tensor, torch.Tensor]:
        """M⁽¹⁾ (d, d) and M⁽²⁾ (k, k) of a layer."""
        side = self.sides[layer]
        sides = (side.inputs, side.input_scales), (side.outputs, side.output_scales)
        on_inputs, on_outputs = (_scaled(torch.eye(len(v)).to(v), v, s, 1) for v, s in sides)
        return on_inputs, on_outputs


Structure = Structureless | Diagonal | LayerStructure
"""A set of transformations M and a penalty Ω on them; `adapt` gives the M that minimises
Ω(M) + ‖M⁻¹B‖²."""
Transformation = RankOneTransformation | DiagonalTransformation | LayerTransformation
"""A symmetric M ⪰ I on the parameters; `penalty` is Ω̃(B) of the coefficients B it is the best
for."""


def _scaled(
    matrix: torch.Tensor, vectors: torch.Tensor, scales: torch.Tensor, power: int
) -> torch.Tensor:
    """(V Sᵖ Vᵀ + I − VVᵀ) X for X (d, m)."""
    grown = scales != 1
    if not grown.any():
        return matrix
    chosen = vectors[:, grown]
    return matrix + chosen @ ((scales[grown] ** power - 1)[:, None] * (chosen.T @ matrix))
