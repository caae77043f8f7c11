from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from feature_alignment.papers.baratin2021.figures import fig2_fig14, fig3, fig11_fig12
from feature_alignment.papers.baratin2021.figures.training_curves import layers_of, vgg19
from feature_alignment.papers.baratin2021.parameters import Classification, ClassificationMLP
from feature_alignment.pipeline.figures.figure import Settings
from feature_alignment.pipeline.figures.table import FigureTable

STEPS = [0, 5, 10, 20, 40]
METRICS = {
    "largest_eigenvalue": [100, 20, 4, 40, 800],
    "mean_eigenvalue": [10, 2, 1, 4, 20],
    "median_eigenvalue": [1, 1, 1, 1, 2],
    "effective_rank": [80, 100, 90, 20, 40],
    "effective_rank_uncentred": [40, 40, 10, 10, 10],
    "trace_ratio_40": [0.4, 0.4, 0.5, 0.9, 0.8],
    "trace_ratio_80": [0.5, 0.5, 0.8, 0.8, 0.8],
    "trace_ratio_160": [0.6, 0.6, 0.6, 0.6, 0.6],
    "accuracy": [0.1, 0.1, 0.2, 0.6, 0.5],
    "label_alignment": [0.02, 0.02, 0.04, 0.1, 0.08],
    "label_alignment_uncentred": [0.02, 0.01, 0.01, 0.01, 0.01],
    "label_alignment_uncentred_kernel": [0.01, 0.01, 0.02, 0.1, 0.1],
}


def rows(metric, values, layer="all", factor=1.0):
    return [
        {"seed": 0, "step": step, "layer": layer, "split": split, "metric": metric}
        | {"value": (factor if split == "test" else 1.0) * value}
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


def summed(frame):
    """The rows that sum up the curves."""
    found = fig2_fig14.table(SimpleNamespace(metrics=frame)).frame
    return found[~found["metric"].isin(METRICS)]


@pytest.mark.parametrize("table", [fig2_fig14.table, fig2_fig14.late_table])
def test_tables_of_spectra_have_one_reading_of_the_alignment(table):
    frame = metrics("a", first=1.0, second=2.0)
    found = table(SimpleNamespace(metrics=frame)).frame
    own = set(found["metric"]) & set(METRICS)
    other = {"label_alignment_uncentred", "label_alignment_uncentred_kernel"}
    assert own == set(METRICS) - other


def test_gains_count_from_before_the_first_step_and_from_iteration_10():
    found = summed(metrics("a"))
    assert value(found, "largest_eigenvalue_gain") == 8
    assert value(found, "largest_eigenvalue_gain_from_10") == 200
    assert value(found, "mean_eigenvalue_gain") == 2
    assert value(found, "mean_eigenvalue_gain_from_10") == 20
    # The lowest effective rank is at iteration 20: 40/4 over 1/1; images are never fitted.
    assert value(found, "anisotropic_growth") == 10
    assert not any("fitted" in metric for metric in found["metric"])
    assert set(found["step"]) == {40}


def test_gains_are_taken_where_the_training_images_are_fitted():
    frame = metrics("a")
    learnt = (frame["metric"] == "accuracy") & (frame["split"] == "train")
    frame.loc[learnt, "value"] = [0.1, 0.5, 0.99, 0.9995, 0.99]
    for split in ("train", "test"):
        found = summed(frame)
        assert value(found, "largest_eigenvalue_gain_fitted", split) == pytest.approx(0.4)
        assert value(found, "largest_eigenvalue_gain_fitted_from_10", split) == pytest.approx(10)
        assert value(found, "mean_eigenvalue_gain_fitted_from_10", split) == pytest.approx(4)
        assert value(found, "anisotropic_growth_fitted", split) == pytest.approx(10)


def test_the_effective_rank_has_its_lowest_value_its_rise_and_its_relation_to_accuracy():
    found = summed(metrics("a"))
    assert value(found, "effective_rank_lowest") == 20
    assert value(found, "effective_rank_lowest_share") == 0.25
    assert value(found, "effective_rank_lowest_of_peak") == 0.2
    assert value(found, "effective_rank_after_peak") == 2
    assert value(found, "effective_rank_highest") == 100
    assert value(found, "label_alignment_highest") == 0.1
    assert value(found, "accuracy_at_lowest_rank") == 0.6
    assert value(found, "effective_rank_uncentred_smoothed_share") == 0.25
    assert value(found, "trace_ratio_80_smoothed_gain") == pytest.approx(0.3)
    assert value(found, "trace_ratio_160_smoothed_gain") == pytest.approx(0)
    assert value(found, "effective_rank_accuracy_spearman") == pytest.approx(-1)
    assert value(found, "trace_ratio_40_highest") == pytest.approx(0.9)
    # Means of three consecutive measurements: (90 + 20 + 40)/3, (0.5 + 0.9 + 0.8)/3.
    assert value(found, "effective_rank_smoothed_share") == pytest.approx(50 / 80)
    assert value(found, "trace_ratio_40_smoothed_gain") == pytest.approx(2.2 / 3 - 0.4)


def test_the_difference_of_splits_is_relative_and_a_mean_over_steps():
    frame = metrics("a")
    test_rank = (frame["metric"] == "effective_rank") & (frame["split"] == "test")
    frame.loc[test_rank, "value"] *= [1.1, 0.9, 1.1, 0.9, 1.0]
    grown = (frame["metric"] == "largest_eigenvalue") & (frame["split"] == "test")
    frame.loc[grown, "value"] *= [1, 10, 1, 1, 0.1]
    found = summed(frame)
    assert value(found, "effective_rank_split_difference") == pytest.approx(0.08)
    # Two of five are a decade apart, on an axis from 4 to 800.
    expected = 0.4 / np.log10(800 / 4)
    assert value(found, "largest_eigenvalue_split_difference") == pytest.approx(expected)
    assert value(found, "mean_eigenvalue_split_difference") == 0


def test_a_correlation_of_too_few_values_is_left_out():
    frame = metrics("a")
    found = summed(frame[frame["step"].isin([0, 10])])
    assert "effective_rank_accuracy_spearman" not in set(found["metric"])
    assert "effective_rank_smoothed_share" not in set(found["metric"])


def test_the_late_figure_asks_when_layers_peak_and_the_rank_is_lowest():
    frame = metrics("a", first=1.0, last=1.0)
    early = (frame["layer"] == "first") & (frame["metric"] == "label_alignment")
    frame.loc[early, "value"] = [0.1, 0.9, 0.1, 0.1, 0.1] * 2  # at step 5; the accuracy's is 20
    frame.loc[early & (frame["split"] == "test"), "value"] = [0.1, 0.1, 0.9, 0.1, 0.1]
    found = fig2_fig14.late_table(SimpleNamespace(metrics=frame)).frame
    assert set(found["layer"]) == {"all"}
    assert value(found, "layers_peak_share") == 0.5
    assert value(found, "layers_peak_share", "test") == 1  # step 10, counted from 1: 11 of 21
    assert value(found, "effective_rank_lowest_step") == 1
    late = frame["metric"].eq("accuracy") & frame["step"].eq(40)
    frame.loc[late, "value"] = 0.9
    found = fig2_fig14.late_table(SimpleNamespace(metrics=frame)).frame
    assert value(found, "effective_rank_lowest_step") == 21 / 41


def test_eigenvalues_and_effective_ranks_have_one_range_in_all_columns():
    frames = []
    for share, factor in ((0.0, 1.0), (0.5, 3.0)):
        frame = metrics("a")
        ratios = [
            row for k in fig2_fig14.TRACE_RATIOS for row in rows(f"trace_ratio_{k}", [0.5] * 5)
        ]
        frame = frame[~frame["metric"].str.startswith("trace_ratio")]
        grown = frame["metric"].isin(["largest_eigenvalue", "effective_rank"])
        frame.loc[grown, "value"] *= factor
        frame = pd.concat([frame, pd.DataFrame(ratios)])
        frames.append(frame.assign(random_label_share=share, learning_rate=0.01))
    axes = fig2_fig14.draw(FigureTable(pd.concat(frames)), 0.01, "fig2").axes
    for first, highest in ((2, 2400), (4, 300)):
        left, right = axes[first : first + 2]
        assert left.get_ylim() == right.get_ylim()
        assert left.get_ylim()[1] > highest
    assert axes[4].get_ylim()[0] == 0


def test_figure_3_sums_up_the_network_and_its_layers():
    frame = metrics("vgg19-random0", first=9.0, a=2.0, b=6.0, c=5.0, last=3.0)
    table = fig3.table(SimpleNamespace(metrics=frame)).frame
    assert layers_of(table) == ["first", "a", "b", "c", "last"]
    # The second half of five measured steps is the last three: (0.04 + 0.1 + 0.08)/3.
    assert value(table, "label_alignment_late_gain") == pytest.approx(0.22 / 3 / 0.02)
    assert value(table, "label_alignment_learning") == pytest.approx(0.1)
    assert value(table, "label_alignment_peak_step") == 1
    assert value(table, "layer_alignment_highest") == pytest.approx(0.6)
    assert value(table, "layer_alignment_second") == pytest.approx(0.5)
    assert value(table, "last_layer_share") == pytest.approx(3 / 5)
    assert value(table, "layers_peak_share") == 1
    # Ranks of 0.02, 0.02, 0.04, 0.1, 0.08 against those of the steps.
    ranks = np.corrcoef([1.5, 1.5, 3, 5, 4], range(5))[0, 1]
    assert value(table, "label_alignment_trend") == pytest.approx(ranks)


def test_layers_whose_alignment_is_highest_at_another_time_are_counted_out():
    frame = metrics("vgg19-random0", first=1.0, a=2.0, b=3.0, last=4.0)
    early = (frame["layer"] == "a") & (frame["step"] == 5)
    frame.loc[early, "value"] = 9.0
    table = fig3.table(SimpleNamespace(metrics=frame)).frame
    assert value(table, "layers_peak_share") == 0.75


def generalising_late():
    """Test accuracy is highest at iteration 40, training accuracy and alignment are at 20."""
    frame = metrics("vgg19-random0", first=1.0, a=2.0, b=3.0, last=4.0)
    late = frame["metric"].eq("accuracy") & frame["split"].eq("test") & frame["step"].eq(40)
    frame.loc[late, "value"] = 0.9
    return frame


@pytest.mark.parametrize("split", ["train", "test"])
def test_times_are_compared_with_that_of_the_best_accuracy_on_test_images(split):
    runs = SimpleNamespace(metrics=generalising_late())
    spectra, alignments = fig2_fig14.table(runs).frame, fig3.table(runs).frame
    assert value(spectra, "effective_rank_after_peak", split) == 1
    for frame in (spectra, alignments):
        assert value(frame, "label_alignment_peak_step", split) == pytest.approx(21 / 41)


@pytest.mark.parametrize(
    ("figure", "gains"),
    [
        (0, {"label_alignment": (4, 2)}),
        (
            1,
            {
                "label_alignment_uncentred": (0.5, 1),
                "label_alignment_uncentred_kernel": (10, 5),
            },
        ),
    ],
)
def test_figures_11_and_12_sum_up_the_gains_of_their_alignments(figure, gains):
    table = fig11_fig12.FIGURES[figure].table(SimpleNamespace(metrics=metrics("mlp"))).frame
    assert set(table["metric"]) == {"accuracy", *gains} | {
        f"{metric}_gain{since}" for metric in gains for since in ("", "_from_10")
    }
    for metric, (gain, from_10) in gains.items():
        assert value(table, f"{metric}_gain", "test") == pytest.approx(gain)
        assert value(table, f"{metric}_gain_from_10", "test") == pytest.approx(from_10)


def test_points_share_runs_between_figures_and_the_mlp_has_its_own_steps_and_seeds():
    section = Classification(mlp={"steps": 40, "seeds": 7})
    settings = Settings({Classification.experiment: section})
    assert vgg19(settings, 0.5).name == "vgg19-random50"
    slow = vgg19(settings, 0, 0.003)
    assert (slow.name, slow.parameters.learning_rate) == ("vgg19-random0-lr0.003", 0.003)
    points = {point.name: point.parameters for point in fig11_fig12.points(settings)}
    assert list(points) == list(fig11_fig12.TITLES)
    assert points["vgg19-random0"] == vgg19(settings, 0).parameters
    mlp = points["mlp"]
    assert (mlp.steps, mlp.seeds, mlp.dataset) == (40, 7, "mnist")
    for parameters in points.values():  # the MLP's own settings are no part of other runs
        assert parameters.mlp == ClassificationMLP()


def set_values(frame, metric, values, split=None):
    rows_of = (frame["metric"] == metric) & (frame["layer"] == "all")
    for part in [split] if split else ["train", "test"]:
        frame.loc[rows_of & (frame["split"] == part), "value"] = values


def test_numbers_at_the_lowest_rank_and_after_the_start():
    frame = generalising_late()
    assert value(summed(frame), "effective_rank_at_peak_share") == 0.5  # at 40, of test images
    frame = metrics("a")
    set_values(frame, "effective_rank", [80, 100, 90, 20, 10])
    set_values(frame, "trace_ratio_40", [0.45, 0.4, 0.5, 0.9, 0.8])
    set_values(frame, "accuracy", [0.1, 0.1, 0.2, 0.6, 0.4], "train")
    found = summed(frame)
    assert value(found, "accuracy_at_lowest_rank") == 0.4
    assert value(found, "trace_ratio_40_smoothed_gain") == pytest.approx(2.2 / 3 - 0.45)
    set_values(frame, "effective_rank", [5, 100, 90, 20, 40])  # lowest at the start, before 10
    assert value(summed(frame), "anisotropic_growth") == 10


def test_the_last_layer_is_compared_with_the_median_of_those_between():
    frame = metrics("vgg19-random0", first=12.0, a=2.0, b=6.0, c=5.0, last=9.0)
    table = fig3.table(SimpleNamespace(metrics=frame)).frame
    assert value(table, "layer_alignment_highest") == pytest.approx(0.6)
    assert value(table, "layer_alignment_second") == pytest.approx(0.5)
    assert value(table, "last_layer_share") == pytest.approx(9 / 6)  # the median; the mean is 6.8
