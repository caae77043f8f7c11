import pandas as pd
import pytest
import torch

from feature_alignment.experiments.beaglehole2024_propositions import run_seed

PARAMETERS = {
    "samples": 9,
    "dimension": 5,
    "widths": [1, 6],
    "networks": 20000,
    "matrix_size": 200,
    "matrix_networks": 20,
}


@pytest.fixture(scope="module")
def values():
    result = run_seed(0, PARAMETERS, torch.device("cpu"), None, "test")
    return pd.DataFrame(result.rows).set_index("metric")["value"]


def test_identities_hold_to_rounding(values):
    assert values["proposition_2"] < 1e-14
    assert values["proposition_12"] < 1e-14


def test_second_derivatives_hold_to_the_finite_differences_error(values):
    for statement in ("nfm", "agop", "first_derivatives"):
        assert values[f"proposition_3_{statement}"] < 1e-4


def test_proposition_16_holds_as_corrected_and_not_as_printed(values):
    for formula in ("nfm", "agop_corrected"):
        assert values[f"proposition_16_{formula}_norm_ratio"].tolist() == pytest.approx(
            [1, 1], abs=0.1
        )
        assert (values[f"proposition_16_{formula}_cosine"] > 0.995).all()
    # At k = 1 there are no pairs of units, and nothing is missing.
    one, six = values["proposition_16_agop_as_printed_norm_ratio"]
    assert one == pytest.approx(1, abs=0.1)
    assert six > 3


def test_equations_20_and_22_hold_and_28_if_derived(values):
    for equation in ("20", "22", "28_derived"):
        assert values[f"equation_{equation}"] < 0.2  # differences of O(1/N), large at N = 200
    assert values["equation_28_as_printed"] > values["equation_28_derived"] + 0.1
