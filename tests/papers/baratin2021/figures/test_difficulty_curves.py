import numpy as np
import pandas as pd
import pytest

from feature_alignment.papers.baratin2021.figures.difficulty_curves import curves, hierarchy_summary
from feature_alignment.papers.baratin2021.figures.fig13 import depth_trends

STEPS = (0, 9, 99, 999)


def rows(metric, split, values, point="default", seed=0):
    return [
        {"point": point, "seed": seed, "step": step, "layer": "all", "split": split}
        | {"metric": metric, "value": value}
        for step, value in zip(STEPS, values, strict=True)
    ]


@pytest.fixture
def metrics():
    return pd.DataFrame(
        [
            *rows("label_alignment", "easy", [0.02, 0.04, 0.12, 0.1]),
            *rows("label_alignment", "difficult", [0.01, 0.01, 0.02, 0.04]),
            *rows("accuracy", "easy", [0.1, 0.5, 0.9, 1.0]),
            *rows("accuracy", "difficult", [0.1, 0.1, 0.3, 1.0]),
        ]
    )


def test_the_summary_of_curves_made_by_hand(metrics):
    summary = hierarchy_summary(metrics).set_index(["split", "metric"])["value"]
    assert summary.to_dict() == {
        ("easy", "maximum"): pytest.approx(0.12),
        ("easy", "rise"): pytest.approx(0.1),
        ("easy", "half_rise_step"): 99,
        ("difficult", "maximum"): pytest.approx(0.04),
        ("difficult", "rise"): pytest.approx(0.03),
        ("difficult", "half_rise_step"): 999,
        ("both", "ratio_of_maxima"): pytest.approx(3),
        ("both", "largest_ratio"): pytest.approx(6),
        ("both", "half_rise_delay"): 900,
        ("both", "ratio_high_iterations"): 90,
        ("both", "ratio_high_decades"): pytest.approx(1),
        ("both", "ratio_high_censored"): 0,
        ("both", "onset_step"): 9,
        ("both", "rise_decades"): pytest.approx(1),
        ("both", "rise_rate"): pytest.approx(0.08),
        ("both", "accuracy_lead"): pytest.approx(1 / 3),
    }


def test_a_ratio_that_is_still_high_at_the_end_counts_as_high_for_the_whole_run(metrics):
    """It may have begun late, and is not ranked below one that fell after as many steps."""
    chosen = metrics["metric"] == "label_alignment"
    easy, difficult = (chosen & (metrics["split"] == split) for split in ("easy", "difficult"))
    metrics.loc[easy, "value"] = [0.02, 0.04, 0.12, 0.2]
    metrics.loc[difficult, "value"] = [0.02, 0.03, 0.03, 0.04]
    summary = hierarchy_summary(metrics).set_index(["split", "metric"])["value"]
    assert summary["both", "ratio_high_censored"] == 1
    assert summary["both", "ratio_high_iterations"] == 999
    assert summary["both", "ratio_high_decades"] == pytest.approx(3)


def test_an_alignment_that_never_rises_has_no_rise(metrics):
    easy = (metrics["metric"] == "label_alignment") & (metrics["split"] == "easy")
    metrics.loc[easy, "value"] = [0.05, 0.04, 0.03, 0.02]
    summary = hierarchy_summary(metrics).set_index(["split", "metric"])["value"]
    assert summary["easy", "rise"] == 0
    assert summary["both", "rise_decades"] == 0
    assert ("both", "rise_rate") not in summary
    assert np.isfinite(summary).all()


def test_a_missing_curve_is_named(metrics):
    with pytest.raises(KeyError, match="no label_alignment on test of default"):
        curves(metrics, "label_alignment", "test", "default")


def test_trends_with_depth_are_rank_correlations():
    frame = pd.DataFrame(
        {
            "point": [f"depth{depth}" for depth in (2, 4, 8)],
            "depth": [2.0, 4.0, 8.0],
            "seed": 0,
            "step": 10,
            "layer": "all",
            "split": "both",
        }
    )
    table = pd.concat(
        [
            frame.assign(metric="largest_ratio", value=[3.0, 5.0, 50.0]),
            frame.assign(metric="onset_step", value=[3.0, 9.0, 5.0]),
            frame.assign(metric="rise_decades", value=1.0),  # no trend
            frame.assign(metric="accuracy_lead", value=[1.0, 2.0, 3.0]),  # not asked for
        ]
    )
    found = depth_trends(table).set_index("metric")["value"].to_dict()
    assert found == {
        "largest_ratio_depth_spearman": pytest.approx(1),
        "onset_step_depth_spearman": pytest.approx(0.5),
        "rise_decades_depth_spearman": 0,
    }
