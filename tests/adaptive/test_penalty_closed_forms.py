import numpy as np
import pytest

from feature_alignment.adaptive.adaptive_scales import (
    ABSOLUTE,
    EFFECTIVE_JOINT_THRESHOLD,
    SQUARE,
    adaptive_scales,
)
from feature_alignment.adaptive.penalties import effective_penalty, joint_penalty, rigid_penalty


def square(v):
    return adaptive_scales(SQUARE, rigid_penalty, v).penalty


def absolute(v):
    return adaptive_scales(ABSOLUTE, rigid_penalty, v).penalty


def joint(v):
    return adaptive_scales(SQUARE, ABSOLUTE, v).penalty


V = np.concatenate([[0, 1e-4, 1e-2], np.linspace(0.05, 6, 60), [30, 1e3]])


@pytest.mark.parametrize(
    ("closed", "penalty", "at_5", "at_1"),
    [
        (square, SQUARE, 6.24653, 0.66950),
        (absolute, ABSOLUTE, 4.52605, 0.88988),
        (joint, joint_penalty(SQUARE, ABSOLUTE), 3.36743, 0.66900),
    ],
)
def test_they_agree_with_the_numerical_minimum_and_figure_2(closed, penalty, at_5, at_1):
    np.testing.assert_allclose(closed(V), effective_penalty(penalty)(V), rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(closed(np.array([5.0, 1.0])), [at_5, at_1], atol=6e-6)


def test_tails():
    v = np.array([1e14])
    assert square(v)[0] == pytest.approx(2e14, rel=1e-3)
    assert joint(v)[0] == pytest.approx(2 * np.sqrt(2e14), rel=1e-3)


@pytest.mark.parametrize(
    ("closed", "threshold"),
    [
        (absolute, np.sqrt(0.5)),
        (joint, EFFECTIVE_JOINT_THRESHOLD),
    ],
)
def test_branches_meet_smoothly(closed, threshold):
    h = 1e-5
    below, low, high, above = closed(threshold + h * np.array([-2.0, -1.0, 1.0, 2.0]))
    slope = (low - below) / h
    assert (high - low) / (2 * h) == pytest.approx(slope, rel=1e-3)
    assert (above - high) / h == pytest.approx(slope, rel=1e-3)
