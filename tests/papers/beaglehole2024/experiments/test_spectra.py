import pandas as pd
import pytest
import torch

from feature_alignment.errors import UserError
from feature_alignment.papers.beaglehole2024.experiments import chain_task
from feature_alignment.papers.beaglehole2024.experiments.spectra import run_seed
from feature_alignment.papers.beaglehole2024.parameters import Spectra
from feature_alignment.pipeline.run import SeedRun

PARAMETERS = Spectra(
    samples=40,
    test_samples=50,
    dimension=6,
    rank=3,
    decay=1.0,
    width=16,
    first_layer_scales=[1.0, 0.1],
    steps=12,
)


def run(**changes):
    result = run_seed(SeedRun(0, PARAMETERS.but(**changes), torch.device("cpu")))
    return pd.DataFrame(result.rows)


def test_every_scale_is_trained_on_the_same_samples_and_measured_on_schedule():
    rows = run()
    assert set(rows["scale"]) == {1.0, 0.1}
    assert set(rows["step"]) == {0, 5, 10, 12}
    assert set(rows["layer"]) == {"all", "layers.0", "layers.1"}
    measures = rows[rows["metric"] == "ptk_centred_nfc"]
    assert len(measures) == 2 * 2 * 3  # not at the start
    # A scale of its own gives what it gives among others.
    alone = run(first_layer_scales=[0.1])
    both = rows[rows["scale"] == 0.1].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone, both)


def test_the_first_nfc_does_not_depend_on_the_first_layers_scale():
    rows = run()
    start = rows[(rows["metric"] == "nfc") & (rows["step"] == 0)]
    values = start.pivot(index="layer", columns="scale", values="value")
    assert (values[1.0] - values[0.1]).abs().max() < 1e-9


def test_all_layers_can_be_scaled_and_spectra_begin_at_k_0():
    def start(scale, **changes):
        rows = run(**changes)
        chosen = (rows["metric"] == "loss") & (rows["split"] == "train") & (rows["step"] == 0)
        return rows[chosen & (rows["scale"] == scale)]["value"].item()

    assert start(1.0, scaled_layers="all") == start(1.0)
    assert start(0.1, scaled_layers="all") != start(0.1)
    assert start(1.0, first_index=0) != start(1.0)
    # Outputs are proportional to the inputs, so there is a larger loss to begin with.
    assert start(1.0, unit_variance=True) != start(1.0)


def test_both_layers_of_the_figures_are_there():
    with pytest.raises(UserError, match="hidden_layers: found 1, at least 2 is needed"):
        Spectra().but(hidden_layers=1)


def test_descent_has_the_rate_asked_for(monkeypatch):
    def recorded(run, model, task, optimizer, *given, own=chain_task.train_network):
        rates.extend(group["lr"] for group in optimizer.param_groups)
        return own(run, model, task, optimizer, *given)

    rates = []
    monkeypatch.setattr(chain_task, "train_network", recorded)
    run(learning_rate=0.125, steps=1)
    assert rates == [0.125, 0.125]  # of two scales
