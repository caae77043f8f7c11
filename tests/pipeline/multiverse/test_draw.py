"""Specification curves: what is drawn of values of very different sizes."""

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgba_array

from feature_alignment.pipeline.figures.style import PALETTE
from feature_alignment.pipeline.multiverse import draw
from feature_alignment.pipeline.multiverse.draw import draw_curves, draw_matrix
from toy_claims import claim


def drawn(values, holds=1):
    """The heights of the points of a curve, and their axis."""
    rows = {"claim": claim().id, "universe": range(len(values)), "status": "counted"}
    levels = ["1", "2"] * (len(values) // 2)
    judged = pd.DataFrame({**rows, "holds": holds, "ours": values, "toy.size": levels})
    ax = draw_curves(judged, ["toy.size"], [claim()]).axes[0]
    return np.asarray(ax.collections[0].get_offsets())[:, 1], ax


def test_a_diverged_universe_stands_at_the_edge_and_leaves_room_to_the_others():
    usual = np.linspace(-0.4, 0.8, 19)
    heights, ax = drawn([*usual, 8e61])
    np.testing.assert_allclose(heights[:-1], usual)
    assert 0.8 < heights[-1] < 2
    assert ax.get_ylim()[1] < 3


def test_values_are_vermilion_where_the_claim_holds_and_grey_where_not():
    _, ax = drawn([0.1, 0.2], holds=[0, 1])
    expected = to_rgba_array([PALETTE["grey"], PALETTE["vermillion"]])
    np.testing.assert_array_equal(ax.collections[0].get_facecolors(), expected)


def test_without_one_values_stand_where_they_are_and_positive_ones_on_a_logarithmic_axis():
    values = np.linspace(-1, 30, 20)
    np.testing.assert_allclose(drawn(values)[0], values)
    heights, ax = drawn(np.logspace(-3, 9, 20))
    np.testing.assert_allclose(heights, np.logspace(-3, 9, 20))
    assert ax.get_yscale() == "log"


def test_a_setting_of_which_one_value_is_left_has_no_difference():
    summary = pd.DataFrame({"claim": ["p.fig1.a"], "holding": [1], "universes": [2]})
    effects = pd.DataFrame(
        {
            "claim": ["p.fig1.a"] * 3,
            "setting": ["e.rate", "e.rate", "e.scale"],
            "value": ["1", "2", "1"],
            "share": [0.25, 1.0, 0.5],
        }
    )
    ax = draw_matrix(summary, effects, ["e.rate", "e.scale"]).axes[0]
    assert [(text.get_text(), *text.get_position()) for text in ax.texts] == [("n/a", 1, 0)]
    assert ax.images[0].get_array()[0, 0] == 0.75


def test_one_value_among_zeros_is_drawn_where_it_is():
    values = pd.Series([0.0] * 19 + [0.4])
    assert draw._without_outliers(values).max() == 0.4


def test_settings_stand_below_the_values_that_they_produced_and_the_default_is_ringed():
    rows = {"claim": claim().id, "universe": [0, 1, 2, 3], "status": "counted", "holds": 1}
    ours, levels = [0.3, 0.1, 0.4, 0.2], ["1", "2", "1", "1"]
    judged = pd.DataFrame({**rows, "ours": ours, "toy.size": levels})
    above, below = draw_curves(judged, ["toy.size"], [claim()]).axes[:2]
    assert above.collections[1].get_offsets()[:, 0].tolist() == [2]  # 0.3 is the third
    places = [marks.get_offsets()[:, 0].tolist() for marks in below.collections]
    assert places == [[1, 2, 3], [0]]
