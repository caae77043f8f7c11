"""What the figures' tables derive from their runs' metrics."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from feature_alignment.papers.beaglehole2024.figures import (
    curves,
    fig1,
    fig4_11,
    fig12,
    fig16,
    fig17,
)
from feature_alignment.papers.beaglehole2024.figures import fig5_6_8_9_10 as by_spectrum
from feature_alignment.papers.beaglehole2024.parameters import Spectra
from feature_alignment.pipeline.figures.figure import Settings

COLUMNS = ["point", "seed", "step", "layer", "split", "metric", "value", "scale"]


class Runs(dict):
    """Finished runs, as figures see them."""

    def __init__(self, rows, arrays=()):
        self.metrics = pd.DataFrame(rows, columns=COLUMNS)
        runs = {
            point: SimpleNamespace(array=stored.__getitem__, parameters={"steps": 600})
            for point, stored in arrays
        }
        super().__init__(runs)


def derived(table, metric, **where):
    return table.values(metric, **where).tolist()


def spectra_rows(metric, values):
    """One seed, layer and spectrum: values by (step, scale)."""
    return [
        ("flat", 0, step, "layers.0", "train", metric, value, scale)
        for (step, scale), value in values.items()
    ]


def loss_rows(losses):
    return [
        ("flat", 0, step, "all", split, "loss", value, scale)
        for (step, scale), pair in losses.items()
        for split, value in zip(("train", "test"), pair, strict=True)
    ]


NO_LOSS = loss_rows({(0, 1.0): (1, 1)})


def test_test_losses_are_compared_at_the_training_loss_that_every_scale_reaches():
    losses = {(0, 1.0): (1, 0.9), (20, 1.0): (0.3, 0.6), (800, 1.0): (0.1, 0.4)}
    losses |= {(0, 0.1): (1, 0.8), (20, 0.1): (0.5, 0.7), (800, 0.1): (0.3, 0.5)}
    rows = spectra_rows("nfc", {(0, 1.0): 0.1, (800, 1.0): 0.4})
    rows += spectra_rows("centred_nfc", {(800, 1.0): 0.9})
    table = by_spectrum.correlation_table(Runs(rows + loss_rows(losses)))
    assert derived(table, "loss_at_equal_training_loss", scale=1.0, step=800) == [0.6]
    assert derived(table, "loss_at_equal_training_loss", scale=0.1) == [0.5]


def test_spreads_compare_time_means_and_early_values_among_scales():
    nfc = {(0, 1.0): 0.1, (20, 1.0): 0.2, (800, 1.0): 0.4}
    nfc |= {(0, 0.1): 0.1, (20, 0.1): 0.7, (800, 0.1): 0.9}
    centred = {key: 0.9 for key in nfc if key[0] > 0}
    rows = spectra_rows("nfc", nfc) + spectra_rows("centred_nfc", centred)
    table = by_spectrum.correlation_table(Runs(rows + NO_LOSS))
    assert derived(table, "nfc_scale_spread") == pytest.approx([0.5])
    assert derived(table, "nfc_scale_spread_early") == pytest.approx([0.5])
    assert derived(table, "centred_nfc_scale_spread") == pytest.approx([0.0])
    assert derived(table, "nfc_rise", scale=0.1) == pytest.approx([0.8])
    assert derived(table, "nfc_rise", curve="flat 1 layers.0") == pytest.approx([0.3])


def test_a_scaled_second_layer_is_in_the_spread_of_its_early_values_alone():
    first = {(20, 1.0): 0.2, (800, 1.0): 0.4, (20, 0.1): 0.7, (800, 0.1): 0.9}
    rows = spectra_rows("nfc", first) + spectra_rows("centred_nfc", first)
    for layer in ("layers.0", "layers.1"):
        rows += [
            ("flat_layer2", 0, 20, layer, "train", metric, value, scale)
            for metric, values in (("nfc", (0.1, 0.8)), ("centred_nfc", (0.8, 0.9)))
            for value, scale in zip(values, (1.0, 0.1), strict=True)
        ]
    table = by_spectrum.correlation_table(Runs(rows + NO_LOSS))
    own = table.rows(point="flat_layer2")
    assert set(own["layer"]) == {"layers.1"}
    spreads = own.groupby("metric")["value"].agg(list)
    assert spreads["nfc_scale_spread_early"] == pytest.approx([0.7])
    assert spreads["centred_nfc_scale_spread_early"] == pytest.approx([0.1])
    assert spreads["nfc_early"] == [0.1, 0.8]
    assert len(spreads) == 4
    assert derived(table, "nfc_scale_spread_early", point="flat") == pytest.approx([0.5])
    assert set(own["step"]) == {800}


def test_early_is_the_first_measurement_from_step_20_on():
    values = {(5, 1.0): 0.1, (25, 1.0): 0.2, (30, 1.0): 0.3, (800, 1.0): 0.4}
    uncentred = {(5, 1.0): 0.0, (25, 1.0): 0.5, (30, 1.0): 0.6, (800, 1.0): 0.9, (900, 1.0): 1.0}
    rows = spectra_rows("double_centred_ratio", values)
    rows += spectra_rows("centred_uncentred_ratio", uncentred)
    rows += spectra_rows("double_centred_nfc", values)
    table = by_spectrum.ratio_table(Runs(rows))
    assert derived(table, "double_centred_ratio_early") == [0.2]
    assert derived(table, "double_centred_share") == pytest.approx([0.0, 0.1, 0.18, 0.36])
    assert derived(table, "double_centred_share_early") == [0.1]


def test_ptk_centred_change_is_from_the_first_to_the_last_measurement():
    values = {(5, 1.0): 0.8, (10, 1.0): 0.1, (800, 1.0): 0.3}
    table = by_spectrum.ptk_centred_table(Runs(spectra_rows("ptk_centred_nfc", values)))
    assert derived(table, "ptk_centred_nfc_change") == pytest.approx([-0.5])


@pytest.fixture
def slo_runs():
    values = {"nfc": 0.4, "centred_nfc": 0.5, "nfm_egop": 0.3, "agop_egop": 0.6}
    rows = [
        (point, 0, 600, "layers.0", "train", metric, start + gain, scale)
        for point in ("gd", "slo")
        for metric, start in values.items()
        for scale, gain in ((1.0, 0.0), (0.1, 0.4), (0.01, 0.3))
    ]
    rows += [
        (point, 0, 600, "layers.0", "train", "centred_uncentred_ratio", value, scale)
        for point in ("gd", "slo")
        for scale, value in ((1.0, 0.0), (0.1, 0.6), (0.01, 0.9))
    ]
    arrays = {
        f"scale{scale}/{name}/step600": np.eye(2) * float(scale)
        for scale in ("1", "0.1", "0.01")
        for name in ("nfm", "agop")
    }
    return Runs(rows, [("gd", arrays), ("slo", arrays)])


def test_figure_4_compares_scales_and_shows_the_largest(slo_runs):
    table = fig4_11.curves_table(slo_runs)
    assert derived(table, "nfc_gain", point="gd") == pytest.approx([0.3])
    step_up = "centred_uncentred_ratio_step_up"
    assert derived(table, step_up, point="gd", scale=0.1) == pytest.approx([0.6])
    assert derived(table, step_up, point="gd", scale=0.01) == pytest.approx([0.3])
    assert table.arrays["slo/nfm"][0, 0] == 1


def test_figure_11_measures_the_spread_over_scales(slo_runs):
    table = fig4_11.matrices_table(slo_runs)
    assert derived(table, "nfm_egop_scale_spread", point="slo") == pytest.approx([0.4])
    assert derived(table, "agop_egop_gain", point="gd") == pytest.approx([0.3])
    assert table.arrays["gd/agop/0.01"][0, 0] == pytest.approx(0.01)


def test_figure_12_compares_the_layers_last_values():
    rows = [
        ("slo_ends", 0, step, layer, "train", "nfc", value + step / 1000, None)
        for step in (0, 500)
        for layer, value in (("layers.0", 0.2), ("layers.1", 0.4), ("layers.2", 0.3))
    ]
    table = fig12.table(Runs(rows))
    for name, value in {"min": 0.7, "mean": 0.8, "max": 0.9, "spread": 0.2}.items():
        assert derived(table, f"nfc_layers_{name}") == pytest.approx([value])


def test_figure_12_finds_the_highest_value_of_any_layer_at_any_time():
    rows = [
        ("gd_ends", 0, step, layer, "train", "nfc", value, None)
        for layer, values in (("layers.0", (0.2, 0.95, 0.9)), ("layers.1", (0.3, 0.4, 0.5)))
        for step, value in zip((0, 250, 500), values, strict=True)
    ]
    table = fig12.table(Runs(rows))
    assert derived(table, "nfc_layers_highest", step=500) == [0.95]
    assert derived(table, "nfc_layers_max") == [0.9]


def test_changes_and_spreads_are_taken_within_groups():
    values = {(0, 1.0): 0.2, (0, 0.1): 0.5, (8, 1.0): 0.3, (8, 0.1): 0.9}
    rows = [
        {"seed": seed, "step": step, "scale": scale, "metric": "nfc", "value": value}
        | ({"value": value + seed} if (step, scale) == (8, 0.1) else {})
        for seed in (0, 1)
        for (step, scale), value in values.items()
    ]
    frame = pd.DataFrame(rows)
    change = curves.change_between(frame, "step", 0, 8, "rise")
    assert set(change["metric"]) == {"nfc_rise"}
    assert set(change["step"]) == {8}
    by_group = change.set_index(["seed", "scale"])["value"]
    assert by_group[1, 0.1] == pytest.approx(1.4)
    assert by_group[0, 1.0] == pytest.approx(0.1)
    spread = curves.spread_over(curves.last_rows(frame), "scale")
    assert spread["metric"].tolist() == ["nfc_scale_spread"] * 2
    assert spread["value"].tolist() == pytest.approx([0.6, 1.6])


def test_of_one_scale_there_is_no_effect_of_the_scale(slo_runs):
    frame = slo_runs.metrics
    one = frame[frame["scale"] == 1]
    assert curves.spread_over(one, "scale").empty
    assert curves.change_between(one, "scale", 1.0, 1.0, "gain").empty
    assert set(curves.spread_over(one, "scale")) == set(curves.spread_over(frame, "scale"))


def test_figures_show_the_matrices_of_the_runs_and_steps_that_they_name():
    def run(point):
        frame = pd.DataFrame(
            [(point, 0, 7, "layers.0", "train", "nfc", 0.5, None)], columns=COLUMNS
        )
        return SimpleNamespace(
            array=lambda name: f"{point}: {name}", parameters={"steps": 7}, metrics=frame
        )

    runs = Runs([("gd", 0, 7, "layers.0", "train", "nfc", 0.5, None)])
    runs |= {"gd": run("gd"), "slo": run("slo")}
    assert fig1.table({"a": run("a")}).arrays == {
        "egop": "a: egop",
        "random_conjugate_agop": "a: random_conjugate_agop",
        "nfm": "a: nfm/step7",
        "agop": "a: agop/step7",
    }
    names = "nfm", "agop", "random_conjugate"
    expected = {name: f"a: {name}_diagonal" for name in names}
    assert fig16.table({"a": run("a")}).arrays == expected
    assert fig17.table(runs).arrays == {
        f"{point}/{name}": f"{point}: {name}_diagonal"
        for point in ("gd", "slo")
        for name in ("nfm", "agop")
    }


def test_the_scaled_second_layer_is_measured_at_the_early_step():
    own = Spectra(steps=90, measure_every=15)
    points = by_spectrum.correlation_points(Settings({Spectra.experiment: own}), "flat")
    assert [point.parameters.steps for point in points] == [90, 30]
