import numpy as np
import pandas as pd
import pytest

from feature_alignment.papers.beaglehole2024.figures.curves import (
    change_between,
    draw_curve,
    last_rows,
    spread_over,
)
from feature_alignment.pipeline.figures.style import new_figure


@pytest.fixture
def frame():
    rows = [
        (seed, step, scale, "nfc", value)
        for seed in (0, 1)
        for step, scale, value in [
            (0, 1.0, 0.2),
            (0, 0.1, 0.5),
            (8, 1.0, 0.3),
            (8, 0.1, 0.9 + seed),
        ]
    ]
    return pd.DataFrame(rows, columns=["seed", "step", "scale", "metric", "value"])


def test_a_curve_is_the_mean_over_seeds_in_a_band_of_its_deviation(frame):
    _, axes = new_figure(1, 1, 3, 3)
    draw_curve(axes[0, 0], frame[frame["scale"] == 0.1], "black", "a")
    (line,) = axes[0, 0].lines
    assert line.get_ydata().tolist() == pytest.approx([0.5, 1.4])
    (band,) = axes[0, 0].collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.max() == pytest.approx(1.4 + np.std([0.9, 1.9], ddof=1))


def test_on_a_logarithmic_axis_the_band_is_that_of_the_logarithms(frame):
    _, axes = new_figure(1, 1, 3, 3)
    axes[0, 0].set_yscale("log")
    draw_curve(axes[0, 0], frame[frame["scale"] == 0.1], "black")
    assert axes[0, 0].lines[0].get_ydata().tolist() == pytest.approx([0.5, np.sqrt(0.9 * 1.9)])
    with pytest.raises(ValueError, match="not positive"):
        draw_curve(axes[0, 0], frame.iloc[:1].assign(value=0.0), "black")


def test_one_seed_has_no_band(frame):
    _, axes = new_figure(1, 1, 3, 3)
    draw_curve(axes[0, 0], frame[(frame["seed"] == 0) & (frame["scale"] == 1.0)], "black")
    vertices = axes[0, 0].collections[0].get_paths()[0].vertices
    assert set(np.round(vertices[:, 1], 12)) == {0.2, 0.3}


def test_curves_of_nothing_or_of_several_values_are_refused(frame):
    _, axes = new_figure(1, 1, 3, 3)
    with pytest.raises(ValueError, match="no rows"):
        draw_curve(axes[0, 0], frame.iloc[:0], "black", "empty")
    with pytest.raises(ValueError, match="several values"):
        draw_curve(axes[0, 0], frame, "black")


def test_changes_and_spreads_are_taken_within_groups(frame):
    change = change_between(frame, "step", 0, 8, ["seed", "scale", "metric"], "rise")
    assert set(change["metric"]) == {"nfc_rise"}
    assert set(change["step"]) == {8}
    by_group = change.set_index(["seed", "scale"])["value"]
    assert by_group[1, 0.1] == pytest.approx(1.4)
    assert by_group[0, 1.0] == pytest.approx(0.1)
    spread = spread_over(last_rows(frame), "scale", ["seed", "metric"])
    assert spread["metric"].tolist() == ["nfc_scale_spread"] * 2
    assert spread["value"].tolist() == pytest.approx([0.6, 1.6])
