import numpy as np
import pytest

from feature_alignment.data.synthetic import grid
from feature_alignment.papers.baratin2021.experiments.disk import rotation_invariance
from feature_alignment.papers.baratin2021.figures import fig1_fig10
from feature_alignment.papers.baratin2021.parameters import Disk
from feature_alignment.pipeline.figures.figure import Settings


def test_functions_of_the_radius_are_invariant_and_functions_of_the_angle_are_not():
    points = grid(50)
    radius, angle = np.hypot(*points.T), np.arctan2(*points.T)
    step = np.where(radius < 0.8, 1.0, -1.0)  # on a ring's edge
    functions = [step, radius**2, points[:, 0], np.cos(4 * angle), step + np.sqrt(2) * points[:, 0]]
    found = rotation_invariance(points, np.column_stack(functions))
    assert found[0] == pytest.approx(1)
    assert found[1] > 0.99
    assert found[2:4] == pytest.approx(0, abs=0.01)
    # Var = 0.9216 of the step, 1/2 of √2 x, on the unit disk and uncorrelated.
    assert found[4] == pytest.approx(0.9216 / 1.4216, abs=0.02)


def test_both_readings_of_six_layers_are_run_and_only_the_first_is_the_figures():
    section = Disk(linear_layers=4, seeds=3, six_hidden_seeds=2)
    settings = Settings({Disk.experiment: section})
    default, hidden = fig1_fig10.FIGURES[0].points(settings)
    assert (default.parameters.linear_layers, default.parameters.seeds) == (4, 3)
    assert (hidden.parameters.linear_layers, hidden.parameters.seeds) == (5, 2)
    (shared,) = fig1_fig10.FIGURES[1].points(settings)
    assert shared == default
    assert default.parameters == section.but(six_hidden_seeds=5)  # no part of the run
