import pandas as pd
import pytest
import torch

from feature_alignment.experiments.lejeune2024_theory import run_seed

PARAMETERS = {
    "samples": 4,
    "dimension": 3,
    "width": 3,
    "target_scale": 8.0,
    "starts": 2,
    "flow_time": 5.0,
}


@pytest.fixture(scope="module")
def frame():
    result = run_seed(0, PARAMETERS, torch.device("cpu"), None, "test")
    return pd.DataFrame(result.rows).fillna("")


def test_every_statement_holds_but_the_printed_forms(frame):
    deviations = frame[frame["metric"] == "relative_deviation"]
    printed = deviations["form"] == "printed"
    assert (deviations.loc[~printed, "value"] < 1e-6).all()
    assert (deviations.loc[printed, "value"] > 0.05).all()


def test_a_harder_target_has_the_smaller_coefficient_and_flow_misses_the_minimum(frame):
    values = frame.set_index("metric")["value"]
    assert values["coefficient_hard_over_easy"] < 1
    assert values["flow_excess_penalty"] > 1e-3
    assert values["aligned_over_swapped"] == pytest.approx(2.125)
