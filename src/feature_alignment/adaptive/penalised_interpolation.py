"""Interpolation of least effective penalty, by alternating between coefficients and features.

Minimises Ω̃(B) = min over M of Ω(M) + ‖M⁻¹B‖² over B with JB = r. Given B, the best M is computed
by `feature_structures`. Given M, the best B is the minimum-norm interpolation with the adapted
kernel JM²Jᵀ. It is approximated by conjugate gradients within the affine set {B : JB = r}: each
iterate interpolates and lowers ‖M⁻¹B‖², so the objective never rises, however few steps are taken.
Between alternations the iterates are extrapolated (Anderson); an extrapolation is kept only if it
lowers the objective further.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import nn

from feature_alignment.adaptive.feature_structures import Structure, Transformation
from feature_alignment.adaptive.parameter_matrices import Matrices, combine, inner, matrix_layout
from feature_alignment.errors import UserError
from feature_alignment.kernels.jacobian import Jacobian
from feature_alignment.kernels.tangent import tangent_kernel

_MEMORY = 8  # number of past alternations used to extrapolate
_MAX_STEPS = 50  # conjugate-gradient steps per alternation
_ENOUGH = 0.02  # stop when a step gains no more than this share of the alternation's total gain
_DAMPING = 1e-12  # added to the Gram matrix of the moves, whose largest diagonal entry is 1
_TINY = 1e-300
# The gap at which an alternation that gains little counts as converged, in units of the tolerance,
# and its least share of the objective. Alternations may gain little long before the minimum; if
# more than `_MEMORY` in a row do, so that extrapolations know no other, they have stalled.
_GAP, _LEAST_GAP = 100, 1e-6
_INTERPOLATES = 1e-3
"""Largest relative residual ‖r − JB‖/‖r‖; for well-conditioned kernels it is rounding error."""


class Interpolation:
    """Coefficients B with J B = r, for the tangent features of a network at its own parameters.

    J (n·c × p) is never formed: products with J and Jᵀ are passes through the network. What is
    stored is the Cholesky factor (n·c × n·c) of the tangent kernel K₀ = JJᵀ, the `layout` of the
    parameters in B, and the `residual` r = y − f_θ₀(x) of targets y. The network has outputs
    (n, c); results have its precision. Products with J are slow, and a warning is logged, if
    PyTorch cannot differentiate the network twice.

    Raises:
        UserError: if y does not have the shape of the outputs; if the tangent features of the
            samples are linearly dependent and the factorisation detects it (`check` detects the
            other cases).
    """

    def __init__(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
        self.layout = matrix_layout(model)
        self._jacobian = Jacobian(model, x)
        if y.shape != self._jacobian.f.shape:
            raise UserError(
                f"y: shape {tuple(y.shape)}; the network's outputs have shape "
                f"{tuple(self._jacobian.f.shape)}."
            )
        self.residual = y - self._jacobian.f  # (n, c)
        self.many_products = self._jacobian.many_products
        kernel = tangent_kernel(model, x).total
        self._factor, failed = torch.linalg.cholesky_ex(kernel)
        # Of dependent features rounding errors are left, which may be positive and pass.
        left = self._factor.diagonal().square() / kernel.diagonal()
        dependent = ~(left > len(kernel) * torch.finfo(kernel.dtype).eps)
        if failed:
            dependent[int(failed) - 1] = True
        if dependent.any():
            raise UserError(
                f"x: the tangent features of {len(x)} samples are linearly dependent (from row "
                f"{int(dependent.nonzero()[0]) + 1} of {len(kernel)} of the kernel), so they "
                "cannot interpolate all targets; remove repeated samples or use a larger network."
            )

    @property
    def readout(self) -> str:
        """The layer that computes the outputs most directly.

        Of several, it is the last registered if one operation takes the parameters of all, as in
        (W₁ + W₂)x, and the first operand's if their results meet, as in W₁x + W₂x.
        """
        graph = self._jacobian.graph
        return next(
            layer
            for inputs in graph.inputs
            for layer, names in reversed(list(self.layout.layers.items()))
            if any(source and graph.names[source[0]][1:] in names for source in inputs)
        )

    def times(self, matrices: Matrices) -> torch.Tensor:
        """J B, (n, c)."""
        return self._jacobian.times(self.layout.split(matrices))

    def minimum_norm(self, targets: torch.Tensor) -> Matrices:
        """The interpolating B of least norm, Jᵀ K₀⁻¹ r for targets r (n, c)."""
        solved = torch.cholesky_solve(targets.reshape(-1, 1), self._factor).view(targets.shape)
        return self.layout.join(self._jacobian.transpose_times(solved))

    def check(self, matrices: Matrices) -> None:
        """Check that coefficients interpolate, to `_INTERPOLATES` of the residual's norm.

        Raises:
            UserError: if they do not, because the features are nearly dependent or the
                targets too large.
        """
        norm = float(self.residual.norm())
        left = float((self.residual - self.times(matrices)).norm())
        if not left <= _INTERPOLATES * norm:
            raise UserError(
                "x: the tangent features of the samples are linearly dependent in "
                f"{self.residual.dtype}, or the targets too large: of targets of norm {norm:.3g}, "
                f"{left:.3g} is left; remove nearly equal samples, give targets of unit size, use "
                "float64, or a larger network."
            )

    def within(self, matrices: Matrices) -> Matrices:
        """The part of B that leaves the outputs unchanged: (I − JᵀK₀⁻¹J) B."""
        return combine(matrices, -1.0, self.minimum_norm(self.times(matrices)))

    def corrected(self, matrices: Matrices) -> Matrices:
        """The interpolating coefficients nearest to B."""
        return combine(matrices, 1.0, self.minimum_norm(self.residual - self.times(matrices)))


@dataclass(frozen=True)
class Solution:
    """Where the alternation ended."""

    coefficients: Matrices  # B by layer
    transformation: Transformation  # the best M for B
    objectives: list[float]  # Ω̃(B) at the start and after each alternation, nonincreasing
    converged: bool  # whether the last alternation gained no more than the tolerance, with a small
    # gap to the minimum left


def minimise_penalty(
    interpolation: Interpolation,
    structure: Structure,
    tolerance: float,
    max_iterations: int,
    start: Transformation | None = None,
) -> Solution:
    """A local minimum of Ω̃(B) subject to JB = r, the interpolation's residual.

    Stops when the relative decrease is at most the tolerance and the gap to the minimum is small,
    when the decrease stays that small, or after `max_iterations`.

    Source: LeJeune & Alemohammad 2024, eq. 2, Theorems 1 and 2; the algorithm, iteratively
    reweighted least squares from a transformation `start` (None for I), is this project's.

    Raises:
        UserError: if the coefficients found do not interpolate, see `Interpolation.check`.
    """
    coefficients = interpolation.minimum_norm(interpolation.residual)
    interpolation.check(coefficients)
    if start is not None:
        coefficients = _reweighted(interpolation, coefficients, start, 0.0)
        coefficients = interpolation.corrected(coefficients)
    best = structure.adapt(coefficients)
    objectives, converged, stretch, idle = [best.penalty], False, 1.0, 0
    recent = deque[tuple[Matrices, Matrices]](maxlen=_MEMORY)
    while not converged and idle <= _MEMORY and len(objectives) <= max_iterations:
        negligible = 0.01 * tolerance * best.penalty
        found = _reweighted(interpolation, coefficients, best, negligible)
        found = interpolation.corrected(found)
        adapted = structure.adapt(found)
        recent.append((coefficients, found))
        move, stretch = combine(found, -1.0, coefficients), 2 * stretch
        for guess in (_settled(recent), combine(found, stretch, move)):  # the latter leaves saddles
            extrapolated = structure.adapt(guess)
            if extrapolated.penalty < adapted.penalty:
                found, adapted = guess, extrapolated
                break
        else:
            stretch = 1.0
        if adapted.penalty > best.penalty:  # only by rounding: no further progress is possible
            found, adapted = coefficients, best
        gained = best.penalty - adapted.penalty > tolerance * best.penalty
        coefficients, best, idle = found, adapted, 0 if gained else idle + 1
        objectives.append(best.penalty)
        allowed = max(_GAP * tolerance, _LEAST_GAP) * best.penalty
        converged = not gained and _gap(interpolation, coefficients, best) <= allowed
    interpolation.check(coefficients)
    return Solution(coefficients, best, objectives, converged)


def _gap(interpolation: Interpolation, b: Matrices, transformation: Transformation) -> float:
    """‖M⁻¹B − MJᵀα‖², which bounds how far ‖M⁻¹B‖² is above its minimum, for any α.

    It is the gap to the dual problem max 2αᵀr − ‖MJᵀα‖²; here α is that with Jᵀα nearest to M⁻²B.
    """
    nearest = interpolation.minimum_norm(interpolation.times(transformation.apply(b, -2)))
    left = combine(transformation.apply(b, -1), -1.0, transformation.apply(nearest, 1))
    return inner(left, left)


def _reweighted(
    interpolation: Interpolation, b: Matrices, transformation: Transformation, negligible: float
) -> Matrices:
    """Conjugate gradients for min ‖M⁻¹B‖² over interpolating B, started from an interpolating B."""
    residual = interpolation.within(transformation.apply(b, -2))
    direction, square = {layer: -r for layer, r in residual.items()}, inner(residual, residual)
    total = 0.0
    for _ in range(_MAX_STEPS):
        if square == 0:
            break
        curved = transformation.apply(direction, -2)
        step = square / inner(direction, curved)
        gain = step * square  # the decrease of ‖M⁻¹B‖²
        total += gain
        b = combine(b, step, direction)
        if gain <= max(negligible, _ENOUGH * total):
            break
        residual = interpolation.within(combine(residual, step, curved))
        square, previous = inner(residual, residual), square
        direction = combine({k: -r for k, r in residual.items()}, square / previous, direction)
    return b


def _settled(recent: Collection[tuple[Matrices, Matrices]]) -> Matrices:
    """An extrapolation from recent alternations B ↦ T(B), which interpolates as they do.

    It is Σ_i w_i T(B_i) with the w_i, Σ_i w_i = 1, of least ‖Σ_i w_i (T(B_i) − B_i)‖.
    """
    moves = [combine(after, -1.0, before) for before, after in recent]
    flat = torch.stack([torch.cat([m.flatten() for m in move.values()]) for move in moves])
    gram = flat @ flat.T  # (m, m)
    gram = gram / gram.diagonal().max().clamp(min=_TINY)
    gram = gram + _DAMPING * torch.eye(len(gram)).to(gram)
    weights = torch.linalg.solve(gram, torch.ones(len(gram)).to(gram))
    weights = weights / weights.sum()
    afters, zero = [after for _, after in recent], torch.zeros(())
    return {
        layer: sum((w * after[layer] for w, after in zip(weights, afters, strict=True)), zero)
        for layer in afters[0]
    }
