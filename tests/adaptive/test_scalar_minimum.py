import numpy as np
import pytest

from feature_alignment.adaptive.penalties import minimise_rows

GRID = np.linspace(0, 1, 33)


def test_interior_minima_are_found_for_every_row():
    rows = np.linspace(0.013, 0.987, 7)
    u, minimum = minimise_rows(lambda u, row: (u - row) ** 2 + row, GRID, rows)
    np.testing.assert_allclose(u, rows, atol=1e-8)
    np.testing.assert_allclose(minimum, rows, rtol=1e-12)


@pytest.mark.parametrize(("sign", "end"), [(1, 0.0), (-1, 1.0)])
def test_minima_at_the_ends_are_exact(sign, end):
    u, minimum = minimise_rows(lambda u, row: sign * np.sqrt(u) + row, GRID, np.array([2.0]))
    assert u[0] == end
    assert minimum[0] == 2 + sign * np.sqrt(end)


def test_the_deepest_valley_wins_even_when_the_grid_prefers_two_others():
    centre = (GRID[20] + GRID[21]) / 2  # the deep valley lies between two grid points

    def objective(u, row):
        deep = 40 * np.abs(u - centre)
        shallow = 0.5 + np.minimum(np.abs(u - GRID[5]), np.abs(u - GRID[12]))
        return np.minimum(deep, shallow) + 0 * row

    assert objective(GRID[20], 0) > objective(GRID[5], 0) == objective(GRID[12], 0)
    u, minimum = minimise_rows(objective, GRID, np.zeros(1))
    assert u[0] == pytest.approx(centre, abs=1e-12)
    assert minimum[0] == pytest.approx(0, abs=1e-12)


def test_of_equal_minima_the_first_is_returned():
    u, _ = minimise_rows(lambda u, row: (u - 0.25) ** 2 * (u - 0.75) ** 2 + row, GRID, np.zeros(1))
    assert u[0] == 0.25
    waves = np.array([0.0, 8.0])
    u, _ = minimise_rows(
        lambda u, row: abs((row * u + 0.5) % 1 - 0.5), np.linspace(0, 1, 257), waves
    )
    np.testing.assert_array_equal(u, [0, 0])


def test_infinite_values_are_walls_and_nan_is_refused():
    u, _ = minimise_rows(lambda u, row: np.where(u < 0.5, np.inf, u) + row, GRID, np.zeros(2))
    np.testing.assert_array_equal(u, [0.5, 0.5])
    with pytest.raises(ValueError, match="not a number somewhere"):
        minimise_rows(lambda u, row: np.where(u > 0.5, np.nan, u) + row, GRID, np.zeros(1))
