import pandas as pd
import pytest
import torch

from feature_alignment.papers.beaglehole2024.experiments.aspect_ratios import run_seed
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
