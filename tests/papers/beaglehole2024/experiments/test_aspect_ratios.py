import pandas as pd
import pytest
import torch

from feature_alignment.papers.beaglehole2024.experiments import aspect_ratios
from feature_alignment.papers.beaglehole2024.experiments.aspect_ratios import _network, _r, run_seed
from feature_alignment.papers.beaglehole2024.parameters import AspectRatios
from feature_alignment.pipeline.run import SeedRun

PARAMETERS = AspectRatios(dimension=80, samples_ratios=[0.5, 2], width_ratios=[0.5, 4], networks=4)


def maps(**changes):
    result = run_seed(SeedRun(0, PARAMETERS.but(**changes), torch.device("cpu")))
    return pd.DataFrame(result.rows).pivot_table(
        index=["psi1", "psi2"], columns="metric", values="value"
    )


def test_free_probability_predicts_every_ratio():
    values = maps()
    assert abs(values["observed"] - values["predicted_from_own_moments"]).max() < 0.03
    assert abs(values["observed"] - values["predicted"]).max() < 0.1


@pytest.mark.parametrize("activation", ["quadratic", "relu", "erf"])
def test_the_first_order_holds_for_many_units_only(activation):
    variance = 100.0 if activation == "erf" else 1.0
    values = maps(
        activation=activation,
        weight_variance=variance,
        width_ratios=[0.25, 16],
        samples_ratios=[1, 2],
    )
    error = abs(values["observed"] - values["predicted_first_order"]).xs(2, level="psi1")
    assert error[16] < 0.06
    assert error[16] < error[0.25]


def test_networks_have_the_variance_asked_for_and_r_is_of_their_weights():
    x = torch.ones(2, 300, dtype=torch.float64)
    model = _network(x, 200, "quadratic", 4.0, torch.Generator().manual_seed(0))
    w, a = (weight.detach() for weight in model.parameters())
    assert (w.shape, a.shape) == ((200, 300), (1, 200))
    assert w.var().item() * 300 == pytest.approx(4, rel=0.05)
    assert a.var().item() * 200 == pytest.approx(4, rel=0.25)
    expected = torch.einsum("ki,k,kj->ij", w, a[0] ** 2, w)
    torch.testing.assert_close(_r(model), expected)


def test_limits_are_those_of_the_ratio_of_inputs_to_units(monkeypatch):
    def recorded(ratio, even_moments, *, own=aspect_ratios.features.limiting_moments):
        seen.append(ratio)
        return own(ratio, even_moments)

    seen = []
    monkeypatch.setattr(aspect_ratios.features, "limiting_moments", recorded)
    maps(dimension=16, networks=1)
    assert seen == [2, 0.25] * 2  # d/k, for each n/d
