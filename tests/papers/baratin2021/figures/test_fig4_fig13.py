from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from feature_alignment.papers.baratin2021.figures import fig4_fig13
from feature_alignment.papers.baratin2021.figures.training_curves import summary
from feature_alignment.papers.baratin2021.parameters import DepthStudy, Difficulty
from feature_alignment.pipeline.figures.figure import Settings

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


def summed(metrics):
    return summary(metrics, lambda curve: fig4_fig13.hierarchy_numbers(curve, epoch=50)).set_index(
        ["split", "metric"]
    )["value"]


def test_the_summary_of_curves_made_by_hand(metrics):
    found = summed(metrics)
    assert found.to_dict() == {
        ("easy", "maximum"): 0.12,
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
        # From iteration 99 on, the first after the epoch of 50, there is no rise.
        ("both", "onset_step_after_epoch"): 99,
        ("both", "rise_decades_after_epoch"): 0,
        ("both", "accuracy_lead"): pytest.approx(1 / 3),
    }


def test_a_ratio_that_is_still_high_at_the_end_counts_as_high_for_the_whole_run(metrics):
    """It may have begun late, and is not ranked below one that fell after as many steps."""
    chosen = metrics["metric"] == "label_alignment"
    easy, difficult = (chosen & (metrics["split"] == split) for split in ("easy", "difficult"))
    metrics.loc[easy, "value"] = [0.02, 0.04, 0.12, 0.2]
    metrics.loc[difficult, "value"] = [0.02, 0.03, 0.03, 0.04]
    found = summed(metrics)
    assert found["both", "ratio_high_censored"] == 1
    assert found["both", "ratio_high_iterations"] == 999
    assert found["both", "ratio_high_decades"] == pytest.approx(3)


def test_the_rise_after_the_first_epoch_is_another_reading(metrics):
    easy = (metrics["metric"] == "label_alignment") & (metrics["split"] == "easy")
    metrics.loc[easy, "value"] = [0.02, 0.02, 0.06, 0.12]
    found = summed(metrics)
    assert (found["both", "onset_step"], found["both", "onset_step_after_epoch"]) == (99, 999)
    assert found["both", "rise_decades_after_epoch"] == 0
    metrics.loc[easy, "value"] = [0.02, 0.06, 0.06, 0.12]
    table = summary(metrics, lambda curve: fig4_fig13.hierarchy_numbers(curve, epoch=5))
    found = table.set_index(["split", "metric"])["value"]
    assert (found["both", "onset_step"], found["both", "onset_step_after_epoch"]) == (9, 999)


@pytest.mark.parametrize(
    ("values", "onset", "half", "decades"),
    [
        ([0.02, 0.031, 0.111, 0.12], 9, 99, 1),
        ([0.02, 0.031, 0.109, 0.12], 9, 99, 2),
        ([0.02, 0.029, 0.071, 0.12], 99, 99, 1),
        ([0.02, 0.029, 0.069, 0.12], 99, 999, 1),
    ],
)
def test_a_rise_is_from_a_tenth_to_nine_tenths_of_it(metrics, values, onset, half, decades):
    easy = (metrics["metric"] == "label_alignment") & (metrics["split"] == "easy")
    metrics.loc[easy, "value"] = values
    found = summed(metrics)
    assert found["easy", "half_rise_step"] == half
    assert (found["both", "onset_step"], found["both", "rise_decades"]) == (onset, decades)
    height = dict(zip(STEPS, values, strict=True))
    end = (1 + onset) * 10**decades - 1
    assert found["both", "rise_rate"] == pytest.approx((height[end] - height[onset]) / decades)


def test_an_alignment_that_never_rises_has_no_rise(metrics):
    easy = (metrics["metric"] == "label_alignment") & (metrics["split"] == "easy")
    metrics.loc[easy, "value"] = [0.05, 0.04, 0.03, 0.02]
    found = summed(metrics)
    assert found["easy", "rise"] == 0
    assert found["both", "rise_decades"] == 0
    assert ("both", "rise_rate") not in found
    assert np.isfinite(found).all()


def test_a_run_that_ends_before_an_epoch_has_no_numbers_after_it(metrics):
    found = summed(metrics[metrics["step"] < 50])
    assert ("both", "rise_decades") in found
    assert [metric for _, metric in found.index if metric.endswith("_after_epoch")] == []


def test_a_missing_curve_is_named(metrics):
    with pytest.raises(KeyError, match=r"no rows where .*'label_alignment'.*'difficult'"):
        summed(metrics[metrics["split"] == "easy"])


def test_each_depth_has_the_settings_of_the_study():
    section = Difficulty(depth_study=DepthStudy(linear_layers=(4, 2), steps=7))
    points = fig4_fig13.depth_points(Settings({Difficulty.experiment: section}))
    assert [(point.name, point.columns) for point in points] == [
        ("depth2", {"depth": 2}),
        ("depth4", {"depth": 4}),
    ]
    deep = points[1].parameters
    assert (deep.linear_layers, deep.steps, deep.width) == (4, 7, section.depth_study.width)
    assert deep.depth_study == DepthStudy()  # no part of the run


def test_trends_with_depth_are_rank_correlations():
    frame = pd.DataFrame(
        {"point": ["depth2", "depth4", "depth8"], "depth": [2.0, 4.0, 8.0]}
        | {"seed": 0, "step": 10, "layer": "all", "split": "both"}
    )
    table = pd.concat(
        [
            frame.assign(metric="largest_ratio", value=[3.0, 5.0, 50.0]),
            frame.assign(metric="onset_step", value=[3.0, 9.0, 5.0]),
            frame.assign(metric="rise_decades", value=1.0),  # no trend
            frame.assign(metric="accuracy_lead", value=[1.0, 2.0, 3.0]),  # not asked for
        ]
    )
    found = fig4_fig13.depth_trends(table).set_index("metric")["value"].to_dict()
    assert found == {
        "largest_ratio_depth_spearman": pytest.approx(1),
        "onset_step_depth_spearman": pytest.approx(0.5),
        "rise_decades_depth_spearman": 0,
    }


def test_a_trend_says_which_depths_it_lacks():
    frame = pd.DataFrame(
        {"point": ["depth2", "depth4", "depth8"], "depth": [2.0, 4.0, 8.0]}
        | {"step": 10, "layer": "all", "split": "both"}
    )
    table = pd.concat(
        [
            frame.assign(seed=0, metric="rise_decades", value=[0.0, 1.0, 2.0]),
            frame[1:].assign(seed=0, metric="rise_rate", value=[1.0, 2.0]),
            frame.assign(seed=1, metric="rise_rate", value=[1.0, 3.0, 2.0]),
        ]
    )
    found = fig4_fig13.depth_trends(table).set_index(["metric", "seed"])["remark"]
    remark = "without depth 2 in some seeds, where rise_rate has no value"
    assert found["rise_rate_depth_spearman", 0] == remark
    assert found.drop(("rise_rate_depth_spearman", 0)).isna().all()


class Runs(dict):
    """One run with these metrics and parameters."""

    def __init__(self, metrics, **parameters):
        super().__init__(default=SimpleNamespace(parameters=parameters))
        self.metrics = metrics


def test_the_first_epoch_is_that_of_easy_and_difficult_examples_together(metrics):
    easy = (metrics["metric"] == "label_alignment") & (metrics["split"] == "easy")
    metrics.loc[easy, "value"] = [0.02, 0.12, 0.06, 0.12]
    runs = Runs(metrics, easy_samples=60, difficult_samples=40, batch_size=10)  # 10 iterations
    table = fig4_fig13.table(runs)
    assert table.values("onset_step").tolist() == [9]
    assert table.values("onset_step_after_epoch").tolist() == [999]
