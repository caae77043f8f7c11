"""Slopes of penalties found by minimisation, and the penalties as differentiable functions.

By the envelope theorem the slope of a minimum is the slope of the objective at the minimiser. Where
the minimiser jumps, the slope does too; there it is the slope on one side.
"""

from typing import Any, Protocol

import numpy as np
import torch

from feature_alignment.adaptive.penalties import (
    Penalty,
    adaptive_scale,
    effective_penalty,
    joint_penalty,
    joint_split,
)


class SmoothPenalty(Protocol):
    """A penalty that knows its slope, such as `penalties.PowerPenalty`."""

    def __call__(self, v: np.ndarray) -> np.ndarray:
        """ω(v)."""

    def slope(self, v: np.ndarray) -> np.ndarray:
        """ω'(v)."""


def effective_slope(omega: Penalty, v: np.ndarray) -> np.ndarray:
    """Slope dω̃/dv = 2v/s², with s the scale that attains ω̃(v).

    Source: lejeune2024, Section 3.2 (effective penalty) and the proof of Proposition 3.

    Args:
        omega: ω; it need not be smooth.
        v: singular values, at least 0, any shape.

    Example:
        >>> from feature_alignment.adaptive.penalties import PowerPenalty
        >>> effective_slope(PowerPenalty(1), np.array([0.25, 2.0])).round(6)
        array([0.5, 1. ])
    """
    v = np.asarray(v, dtype=float)
    return 2 * v / adaptive_scale(omega, v) ** 2


def joint_slope(first: SmoothPenalty, second: SmoothPenalty, v: np.ndarray) -> np.ndarray:
    """Slope of ω₁ ⊕ ω₂ at v: ω₁'(z) z/v with z the first one's share, ω₂'(v) where z is 1.

    Source: lejeune2024, Section 3.2 (joint penalty).

    Args:
        first: ω₁.
        second: ω₂.
        v: joint scales, at least 1, any shape.

    Example:
        >>> from feature_alignment.adaptive.penalties import PowerPenalty
        >>> joint_slope(PowerPenalty(2), PowerPenalty(2), np.array([4.0])).round(6)
        array([1.])
    """
    v = np.asarray(v, dtype=float)
    z = joint_split(first, second, v)
    return np.where(z > 1, first.slope(z) * z / v, second.slope(v))


def effective_penalty_of(omega: Penalty, v: torch.Tensor) -> torch.Tensor:
    """ω̃(v) of a tensor, with its gradient; see `penalties.effective_penalty`."""
    return _Tabulated.apply(v, effective_penalty(omega), lambda u: effective_slope(omega, u))


def joint_penalty_of(first: SmoothPenalty, second: SmoothPenalty, v: torch.Tensor) -> torch.Tensor:
    """(ω₁ ⊕ ω₂)(v) of a tensor, with its gradient; see `penalties.joint_penalty`."""
    value = joint_penalty(first, second)
    return _Tabulated.apply(v, value, lambda u: joint_slope(first, second, u))


class _Tabulated(torch.autograd.Function):
    """A function of arrays and its slope, as a function of tensors."""

    @staticmethod
    def forward(ctx: Any, v: torch.Tensor, value: Penalty, slope: Penalty) -> torch.Tensor:
        array = v.detach().cpu().numpy()
        ctx.slope = slope
        ctx.save_for_backward(v)
        return torch.as_tensor(value(array)).to(v)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (v,) = ctx.saved_tensors
        return gradient * torch.as_tensor(ctx.slope(v.detach().cpu().numpy())).to(v), None, None
