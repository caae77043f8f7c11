import numpy as np
import pytest

from feature_alignment.adaptive.adaptive_scales import (
    ABSOLUTE,
    EFFECTIVE_JOINT_THRESHOLD,
    SQUARE,
    adaptive_scales,
    excess_root,
)
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


SLOPES = {
    "square": lambda s: 2 * (s - 1),
    "absolute": np.ones_like,
    "logarithmic": lambda s: 2 * s - 2 / s,
    "rigid": lambda s: np.full_like(s, np.inf),
}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(("square", "square"), ("absolute", "absolute"), ("logarithmic", "logarithmic")),
        *(("square", "absolute"), ("absolute", "square")),
        *(("square", "rigid"), ("absolute", "rigid"), ("logarithmic", "rigid")),
    ],
)
def test_closed_forms_are_stationary_to_rounding(first, second):
    """Where s > 1, s ω′(s) = 2d²/(s₁s₂)²; where s = 1 it is no less."""
    d = np.array([0.3, 0.7, 0.96, 0.97, 1, 1.5, 3, 10, 100, 1e6, 1e20, 1e149])
    found = adaptive_scales(CLOSED[first], CLOSED[second], d)
    pull = 2 * (d / (found.first * found.second)) ** 2
    for name, s in ((first, found.first), (second, found.second)):
        push, grown = s * SLOPES[name](s), s > 1
        np.testing.assert_allclose(push[grown], pull[grown], rtol=1e-12)
        assert (push >= pull * (1 - 1e-12)).all()


@pytest.mark.parametrize("a", [5 / 3, 2, 3, 5])
def test_the_excess_solves_its_equation_to_rounding(a):
    for c in np.geomspace(1e-12, 1e12, 49):
        t = excess_root(a, np.array(c))
        assert t * (1 + t) ** a == pytest.approx(c, rel=1e-14, abs=0)


def test_the_absolute_side_grows_from_the_threshold_on():
    d = EFFECTIVE_JOINT_THRESHOLD * (1 + 1e-6 * np.array([-1, 1]))
    below, above = adaptive_scales(SQUARE, ABSOLUTE, d).second
    assert 1 == below < above < 1 + 1e-5


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
