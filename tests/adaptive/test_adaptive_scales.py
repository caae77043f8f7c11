import numpy as np
import pytest

from feature_alignment.adaptive.adaptive_scales import ABSOLUTE, SQUARE, adaptive_scales
from feature_alignment.adaptive.penalties import (
    PowerPenalty,
    adaptive_scale,
    effective_penalty,
    joint_penalty,
    logarithmic_penalty,
    rigid_penalty,
)

D = np.array([0, 0.01, 0.3, 0.7, 0.9, 0.96, 0.97, 1, 1.5, 3, 10, 100.0])
CLOSED = {
    "square": SQUARE,
    "absolute": ABSOLUTE,
    "logarithmic": logarithmic_penalty,
    "rigid": rigid_penalty,
}


@pytest.mark.parametrize("first", CLOSED)
@pytest.mark.parametrize("second", CLOSED)
def test_scales_attain_the_effective_joint_penalty_found_by_search(first, second):
    omega_1, omega_2 = CLOSED[first], CLOSED[second]
    found = adaptive_scales(omega_1, omega_2, D)
    assert (found.first >= 1).all()
    assert (found.second >= 1).all()
    if first == second == "rigid":
        np.testing.assert_allclose(found.penalty, D**2, rtol=1e-14)
        return
    joint = joint_penalty(omega_1, omega_2)
    np.testing.assert_allclose(found.penalty, effective_penalty(joint)(D), rtol=1e-12, atol=1e-14)
    scale = adaptive_scale(joint, D)
    np.testing.assert_allclose(found.first * found.second, scale, rtol=1e-6)


@pytest.mark.parametrize("name", CLOSED)
def test_either_side_may_be_held_fixed(name):
    found = adaptive_scales(rigid_penalty, CLOSED[name], D)
    other = adaptive_scales(CLOSED[name], rigid_penalty, D)
    np.testing.assert_array_equal(found.first, np.ones_like(D))
    np.testing.assert_array_equal(found.second, other.first)


def test_a_penalty_without_closed_form_is_searched():
    d = np.array([0.5, 4.0])
    found = adaptive_scales(PowerPenalty(3), PowerPenalty(1.5), d)
    z1, z2 = np.meshgrid(np.linspace(1, 4, 1501), np.linspace(1, 4, 1501))
    for value, at in zip(found.penalty, d, strict=True):
        brute = ((z1 - 1) ** 3 + (z2 - 1) ** 1.5 + (at / (z1 * z2)) ** 2).min()
        assert value <= brute * (1 + 1e-13)
        assert value == pytest.approx(brute, rel=1e-4)


def test_negative_singular_values_are_refused():
    with pytest.raises(ValueError, match=r"d: -1.0 to -1.0; singular values are at least 0"):
        adaptive_scales(SQUARE, SQUARE, np.array([-1.0]))
    for value in (np.nan, np.inf, 1e200):
        with pytest.raises(ValueError, match="their squares must be finite"):
            adaptive_scales(SQUARE, SQUARE, np.array([value]))
