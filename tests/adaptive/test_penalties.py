import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_alignment.adaptive.penalties import (
    PowerPenalty,
    adaptive_scale,
    effective_penalty,
    joint_penalty,
    logarithmic_penalty,
    rigid_penalty,
)
from feature_alignment.determinism import stream

SQUARE, ABSOLUTE = PowerPenalty(2), PowerPenalty(1)
JOINT = joint_penalty(SQUARE, ABSOLUTE)


PENALTIES = {
    "square": SQUARE,
    "absolute": ABSOLUTE,
    "joint": JOINT,
    "p=0.25": PowerPenalty(0.25),
    "p=4": PowerPenalty(4),
    "logarithmic": logarithmic_penalty,
}


def brute_effective(omega, v, points=400_001):
    z = 1 + np.concatenate([[0], np.logspace(-9, 6, points)])
    return (omega(z) + (v / z) ** 2).min()


@pytest.mark.parametrize("name", ["square", "absolute", "p=0.25", "p=4", "logarithmic"])
@pytest.mark.parametrize("v", [1e-3, 0.3, 1.0, 5.0, 40.0])
def test_effective_penalty_is_the_minimum_over_a_dense_grid(name, v):
    found = effective_penalty(PENALTIES[name])(np.array([v]))[0]
    brute = brute_effective(PENALTIES[name], v)
    assert found <= brute * (1 + 1e-14) + 1e-15  # ω itself rounds
    assert found == pytest.approx(brute, rel=1e-8)


@pytest.mark.parametrize(("first", "second"), [(2, 1), (2, 2), (0.5, 0.5), (0.25, 3), (1, 1)])
def test_joint_penalty_is_the_minimum_over_a_dense_grid(first, second):
    omega_1, omega_2 = PowerPenalty(first), PowerPenalty(second)
    v = np.array([1.0, 1.001, 1.3, 2.0, 9.0, 200.0])
    found = joint_penalty(omega_1, omega_2)(v)
    for value, scale in zip(found, v, strict=True):
        z = np.linspace(1, scale, 300_001)
        brute = (omega_1(z) + omega_2(scale / z)).min()
        assert value <= brute * (1 + 1e-13) + 1e-13
        assert value == pytest.approx(brute, rel=1e-8, abs=1e-12)
    np.testing.assert_allclose(joint_penalty(omega_2, omega_1)(v), found, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", PENALTIES)
def test_proposition_3_increasing_concave_in_the_square_and_quadratic_near_0(name):
    effective = effective_penalty(PENALTIES[name])
    square = np.linspace(0, 30, 121)
    values = effective(np.sqrt(square))
    assert values[0] == 0
    assert (np.diff(values) > 0).all()
    assert (np.diff(values, 2) <= 1e-9).all()
    small = np.array([1e-2, 1e-3])
    ratio = effective(small) / small**2
    assert (ratio <= 1 + 1e-9).all()
    assert (ratio >= 1 - np.array([0.1, 0.02])).all()


@pytest.mark.parametrize("p", [0.25, 0.5, 1, 2, 4])
def test_the_tail_of_the_effective_power_penalty_has_exponent_2p_over_p_plus_2(p):
    v = np.array([1e6, 1e7])
    values = effective_penalty(PowerPenalty(p))(v)
    assert np.log10(values[1] / values[0]) == pytest.approx(2 * p / (p + 2), rel=0.02)


def test_a_rigid_factor_leaves_the_other_penalty_alone():
    v = np.array([1.0, 1.7, 30.0])
    for joint in (joint_penalty(SQUARE, rigid_penalty), joint_penalty(rigid_penalty, SQUARE)):
        np.testing.assert_allclose(joint(v), SQUARE(v), rtol=1e-14)
    np.testing.assert_allclose(effective_penalty(rigid_penalty)(v), v**2, rtol=1e-14)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(st.floats(0.01, 50), st.sampled_from(["square", "absolute", "p=4", "logarithmic"]))
def test_the_scale_attains_the_minimum_and_its_inverse_square_is_the_slope(norm, name):
    omega = PENALTIES[name]
    effective = effective_penalty(omega)
    (s,) = adaptive_scale(omega, np.array([norm]))
    assert s >= 1
    assert omega(s) + (norm / s) ** 2 == pytest.approx(effective(np.array([norm]))[0], rel=1e-12)
    step = 1e-3 * norm**2
    low, high = effective(np.sqrt([norm**2 - step, norm**2 + step]))
    assert (high - low) / (2 * step) == pytest.approx(1 / s**2, rel=2e-3)


def test_scales_of_the_square_and_absolute_penalties_solve_their_equations():
    norm = np.array([0.2, 1.0, 5.0, 300.0])
    z = adaptive_scale(SQUARE, norm)
    np.testing.assert_allclose(z**3 * (z - 1), norm**2, rtol=1e-5)
    expected = np.maximum(1, np.cbrt(2 * norm**2))
    np.testing.assert_allclose(adaptive_scale(ABSOLUTE, norm), expected, rtol=1e-6)


def test_scales_of_a_penalty_that_grows_slowly_are_found_far_out():
    """ω = log has its minimum at z = √2 ‖β‖."""
    norm = np.array([1e3, 1e140])
    np.testing.assert_allclose(adaptive_scale(np.log, norm), 2**0.5 * norm, rtol=1e-6)


@pytest.mark.parametrize("name", ["square", "absolute", "logarithmic"])
def test_theorem_1_no_transformation_beats_the_rank_one_change(name):
    omega, generator = PENALTIES[name], stream(0, "transformations")
    beta = generator.standard_normal(4)
    norm = np.linalg.norm(beta)
    s = float(adaptive_scale(omega, np.array([norm]))[0])
    best = np.eye(4) + (s - 1) * np.outer(beta, beta) / norm**2

    def cost(matrix):
        singular = np.linalg.svd(matrix, compute_uv=False)
        return omega(singular).sum() + (np.linalg.solve(matrix, beta) ** 2).sum()

    assert cost(best) == pytest.approx(effective_penalty(omega)(np.array([norm]))[0])
    for size in (1e-3, 1e-2, 0.1, 1):
        for _ in range(50):
            assert cost(best + size * generator.standard_normal((4, 4))) >= cost(best) - 1e-10


def test_shapes_are_kept():
    v = np.linspace(1, 3, 6).reshape(2, 3)
    for function in (JOINT, effective_penalty(ABSOLUTE), lambda w: adaptive_scale(SQUARE, w)):
        assert function(v).shape == (2, 3)
        assert function(v[0, 1]).shape == ()
        # A scale is exact to about 1e-8 only, since the objective is flat at its minimum.
        assert function(v[0, 1]) == pytest.approx(function(v)[0, 1], rel=1e-6)
        assert function(np.empty(0)).shape == (0,)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PowerPenalty(0), "p: 0 is out of range"),
        (lambda: PowerPenalty(np.nan), "p: nan is out of range"),
        (lambda: PowerPenalty("a"), "p: a str; give a number above 0"),
        (lambda: JOINT(np.array([0.5])), "v: 0.5; a joint penalty is defined on v ≥ 1"),
        (lambda: JOINT(np.array([2.0, np.nan])), "v: nan; a joint penalty is defined on v ≥ 1"),
        (lambda: effective_penalty(SQUARE)(np.array([-1.0])), "v: -1.0; an effective penalty is"),
        (lambda: adaptive_scale(SQUARE, np.array([2.0, np.nan])), "v: nan; an effective penalty"),
        (lambda: effective_penalty(lambda v: v**2), "the penalty is 1.0 at 1; it must be 0"),
        (lambda: effective_penalty(lambda v: v - 2), "the penalty is -1.0 at 1; it must be 0"),
        (lambda: joint_penalty(SQUARE, np.cosh), r"the penalty is 1.5\d* at 1"),
        (lambda: joint_penalty(np.cosh, SQUARE), r"the penalty is 1.5\d* at 1"),
        (
            lambda: effective_penalty(lambda v: np.where(v > 1, np.nan, 0 * v)),
            "the penalty is not a number somewhere above 1",
        ),
        (lambda: effective_penalty(lambda v: np.ones(1) * max(v - 1, 0) ** 2), "takes no arrays"),
        (lambda: effective_penalty(lambda v: 1 - v), "the penalty decreases somewhere"),
        (
            lambda: effective_penalty(lambda v: 1 - 1 / v**3)(np.array([4.0])),
            "too slow for v = 4: the minimum over scales is not attained",
        ),
    ],
)
def test_what_is_no_penalty_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@st.composite
def quasi_convex_penalties(draw):
    """Increasing functions from ω(1) = 0: powers, saturating rises and steep ones, none convex."""
    weights = st.floats(0.05, 5)
    power, p = draw(weights), draw(st.floats(0.3, 4))
    rises = draw(st.lists(st.tuples(weights, st.floats(1, 6), st.floats(0.1, 30)), max_size=3))

    def omega(v):
        v = np.asarray(v, dtype=float)
        total = power * np.abs(v - 1) ** p
        for height, where, steepness in rises:
            total = total + height * (
                np.arctan(steepness * (v - where)) - np.arctan(steepness * (1 - where))
            )
        return total

    return omega


@settings(deadline=None, derandomize=True, max_examples=25)
@given(quasi_convex_penalties(), quasi_convex_penalties())
def test_proposition_4_joint_penalties_rise_strictly_from_0_at_1(first, second):
    v = np.concatenate([[1], 1 + np.geomspace(1e-3, 30, 12)])
    values = joint_penalty(first, second)(v)
    assert values[0] == 0
    assert (np.diff(values) > 0).all()


@settings(deadline=None, derandomize=True, max_examples=15)
@given(quasi_convex_penalties(), quasi_convex_penalties(), st.floats(1.01, 20))
def test_the_joint_penalty_lies_between_bounds_that_monotony_guarantees(first, second, v):
    """On a cell [a, b] of z no value is below ω₁(a) + ω₂(v/b)."""
    z = np.exp(np.linspace(0, np.log(v), 40_001))
    upper = (first(z) + second(np.maximum(v / z, 1))).min()
    lower = (first(z[:-1]) + second(np.maximum(v / z[1:], 1))).min()
    (found,) = joint_penalty(first, second)(np.array([v]))
    assert lower - 1e-12 <= found <= upper + 1e-12
    assert upper - lower < 0.02 * upper + 1e-6


@settings(deadline=None, derandomize=True, max_examples=15)
@given(quasi_convex_penalties())
def test_proposition_3_holds_for_penalties_that_are_not_convex(omega):
    effective = effective_penalty(omega)
    square = np.linspace(0, 20, 41)
    values = effective(np.sqrt(square))
    assert (np.diff(values) > 0).all()
    assert (np.diff(values, 2) <= 1e-9).all()
    assert (values <= square * (1 + 1e-12)).all()
