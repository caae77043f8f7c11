import numpy as np
import pandas as pd
import pytest

from feature_alignment.papers.baratin2021.figures import architecture_curves
from feature_alignment.papers.baratin2021.figures import fig3 as baratin2021_fig3
from feature_alignment.papers.baratin2021.figures.classification_curves import (
    curves,
    layers,
    mlp,
    vgg19,
)
from feature_alignment.papers.baratin2021.figures.spectrum_curves import (
    TRACE_RATIOS,
    draw_spectra,
    spectrum_summary,
)
from feature_alignment.pipeline.figures.make import Runs

STEPS = [0, 5, 10, 20, 40]
METRICS = {
    "largest_eigenvalue": [100, 20, 4, 40, 800],
    "mean_eigenvalue": [10, 2, 1, 4, 20],
    "median_eigenvalue": [1, 1, 1, 1, 2],
    "effective_rank": [80, 100, 90, 20, 40],
    "trace_ratio_40": [0.4, 0.4, 0.5, 0.9, 0.8],
    "accuracy": [0.1, 0.1, 0.2, 0.6, 0.5],
    "label_alignment": [0.02, 0.02, 0.04, 0.1, 0.08],
    "label_alignment_uncentred": [0.02, 0.01, 0.01, 0.01, 0.01],
}


def rows(metric, values, layer="all", factor=1.0):
    return [
        {
            "seed": 0,
            "step": step,
            "layer": layer,
            "split": split,
            "metric": metric,
            "value": (factor if split == "test" else 1.0) * value,
        }
        for split in ("train", "test")
        for step, value in zip(STEPS, values, strict=True)
    ]


def metrics(point, **further):
    found = [row for metric, values in METRICS.items() for row in rows(metric, values)]
    for layer, scale in further.items():
        alignment = [scale * value for value in METRICS["label_alignment"]]
        found += rows("label_alignment", alignment, layer)
    frame = pd.DataFrame(found)
    frame.insert(0, "point", point)
    return frame


def value(frame, metric, split="train"):
    (found,) = frame.loc[(frame["metric"] == metric) & (frame["split"] == split), "value"]
    return found


def test_gains_count_from_before_the_first_step_and_from_iteration_10():
    found = spectrum_summary(metrics("a"))
    assert value(found, "largest_eigenvalue_gain") == pytest.approx(8)
    assert value(found, "largest_eigenvalue_gain_from_10") == pytest.approx(200)
    assert value(found, "mean_eigenvalue_gain") == pytest.approx(2)
    assert value(found, "mean_eigenvalue_gain_from_10") == pytest.approx(20)
    assert value(found, "anisotropic_growth") == pytest.approx(200 / 2)
    assert set(found["step"]) == {40}


def test_the_effective_rank_has_its_lowest_value_its_rise_and_its_relation_to_accuracy():
    found = spectrum_summary(metrics("a"))
    assert value(found, "effective_rank_lowest") == pytest.approx(20)
    assert value(found, "effective_rank_lowest_share") == pytest.approx(0.25)
    assert value(found, "effective_rank_lowest_of_peak") == pytest.approx(0.2)
    assert value(found, "effective_rank_after_peak") == pytest.approx(2)
    assert value(found, "effective_rank_accuracy_spearman") == pytest.approx(-1)
    assert value(found, "trace_ratio_40_highest") == pytest.approx(0.9)
    # Means of three consecutive measurements: (90 + 20 + 40)/3, (0.5 + 0.9 + 0.8)/3.
    assert value(found, "effective_rank_smoothed_share") == pytest.approx(50 / 80)
    assert value(found, "trace_ratio_40_smoothed_gain") == pytest.approx(2.2 / 3 - 0.4)


def test_the_difference_of_splits_is_relative_and_a_mean_over_steps():
    frame = metrics("a")
    test_rank = (frame["metric"] == "effective_rank") & (frame["split"] == "test")
    frame.loc[test_rank, "value"] *= [1.1, 0.9, 1.1, 0.9, 1.0]
    found = spectrum_summary(frame)
    assert value(found, "effective_rank_split_difference") == pytest.approx(0.08)


def test_a_correlation_of_too_few_values_is_left_out():
    frame = metrics("a")
    found = spectrum_summary(frame[frame["step"].isin([0, 10])])
    assert "effective_rank_accuracy_spearman" not in set(found["metric"])
    assert "effective_rank_smoothed_share" not in set(found["metric"])


def test_eigenvalues_and_effective_ranks_have_one_range_in_all_columns():
    frames = []
    for point, factor in (("a", 1.0), ("b", 3.0)):
        frame = metrics(point)
        ratios = [row for k in TRACE_RATIOS for row in rows(f"trace_ratio_{k}", [0.5] * 5)]
        frame = frame[frame["metric"] != "trace_ratio_40"]
        grown = frame["metric"].isin(["largest_eigenvalue", "effective_rank"])
        frame.loc[grown, "value"] *= factor
        frames.append(pd.concat([frame, pd.DataFrame(ratios).assign(point=point)]))
    axes = draw_spectra(pd.concat(frames), {"a": "A", "b": "B"}).axes
    for first, highest in ((2, 2400), (4, 300)):
        left, right = axes[first : first + 2]
        assert left.get_ylim() == right.get_ylim()
        assert left.get_ylim()[1] > highest
    assert axes[4].get_ylim()[0] == 0


class FakeRuns(Runs):
    """Runs with given metrics in place of files."""

    def __init__(self, frame):
        self._frame = frame

    @property
    def metrics(self):
        return self._frame


def test_figure_3_sums_up_the_network_and_its_layers():
    frame = metrics("vgg19-random0", first=9.0, a=2.0, b=6.0, c=5.0, last=3.0)
    table = baratin2021_fig3.table(FakeRuns(frame)).frame
    assert layers(table) == ["first", "a", "b", "c", "last"]
    # The second half of five measured steps is the last three: (0.04 + 0.1 + 0.08)/3.
    assert value(table, "label_alignment_late_gain") == pytest.approx(0.22 / 3 / 0.02)
    assert value(table, "label_alignment_learning") == pytest.approx(0.1)
    assert value(table, "label_alignment_peak_step") == 1
    assert value(table, "layer_alignment_highest") == pytest.approx(0.6)
    assert value(table, "layer_alignment_second") == pytest.approx(0.5)
    assert value(table, "last_layer_share") == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("metric", "gain", "from_10"),
    [("label_alignment", 4, 2), ("label_alignment_uncentred", 0.5, 1)],
)
def test_figures_11_and_12_sum_up_the_gain_of_their_alignment(metric, gain, from_10):
    table = architecture_curves.alignment_table(FakeRuns(metrics("mlp")), metric).frame
    assert value(table, f"{metric}_gain", "test") == pytest.approx(gain)
    assert value(table, f"{metric}_gain_from_10", "test") == pytest.approx(from_10)


def test_curves_have_steps_in_rows_and_seeds_in_columns():
    frame = pd.concat([metrics("a").assign(seed=seed) for seed in (0, 1)])
    found = curves(frame, metric="accuracy", split="test")
    assert list(found.index) == STEPS
    assert list(found.columns) == [0, 1]
    np.testing.assert_array_equal(found[1], METRICS["accuracy"])
    with pytest.raises(KeyError, match=r"no rows where .*'loss'"):
        curves(frame, metric="loss")


def test_points_share_runs_between_figures_and_the_mlp_has_its_own_steps_and_seeds():
    assert vgg19(0.2).name == "vgg19-random20"
    assert vgg19(0, 0.003).overrides["learning_rate"] == 0.003
    point = mlp({"baratin2021_classification": {"mlp": {"steps": 40, "seeds": 7}}})
    assert (point.overrides["steps"], point.overrides["seeds"]) == (40, 7)
    assert point.overrides["mlp"] is vgg19(0).overrides["mlp"] is None  # no part of other runs
    assert point.overrides["dataset"] == "mnist"
