import numpy as np
import pytest
import torch

from feature_alignment.adaptive.penalties import PowerPenalty, logarithmic_penalty
from feature_alignment.adaptive.penalty_slopes import (
    effective_penalty_of,
    effective_slope,
    joint_penalty_of,
    joint_slope,
)

SQUARE, ABSOLUTE = PowerPenalty(2), PowerPenalty(1)


@pytest.mark.parametrize(
    "omega",
    [SQUARE, ABSOLUTE, PowerPenalty(3.5), logarithmic_penalty],
)
def test_gradients_of_effective_penalties_are_those_of_finite_differences(omega):
    v = torch.tensor([0.2, 0.5, 1.3, 4.0, 20.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda v: effective_penalty_of(omega, v), v, eps=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(("first", "second"), [(2, 1), (1, 2), (2, 2), (3, 1.5), (0.5, 2)])
def test_gradients_of_joint_penalties_are_those_of_finite_differences(first, second):
    v = torch.tensor([1.1, 1.2, 3.0, 30.0], dtype=torch.float64, requires_grad=True)
    penalties = PowerPenalty(first), PowerPenalty(second)
    assert torch.autograd.gradcheck(
        lambda v: joint_penalty_of(*penalties, v), v, eps=1e-5, atol=1e-4
    )


def test_slopes_of_closed_forms():
    np.testing.assert_allclose(effective_slope(SQUARE, np.array([0.0])), [0])
    v = np.array([1.5, 9.0])  # ω₁ ⊕ ω₁ is 2(√v − 1)²
    np.testing.assert_allclose(joint_slope(SQUARE, SQUARE, v), 2 - 2 / np.sqrt(v), rtol=1e-6)
    np.testing.assert_array_equal(SQUARE.slope(np.array([1.0, 3.0])), [0, 4])
