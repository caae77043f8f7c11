import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.data.synthetic import uniform_sphere
from feature_alignment.free_probability.centred_correlation import velocity_correlation
from feature_alignment.free_probability.dual_kernels import expected_preactivation_kernel
from feature_alignment.papers.beaglehole2024.checks import theorem9 as check
from feature_alignment.papers.beaglehole2024.experiments.theorem9 import run_seed
from feature_alignment.papers.beaglehole2024.parameters import Theorem9
from feature_alignment.pipeline.run import SeedRun

PARAMETERS = Theorem9(
    dimensions=[8, 32], most_samples=1000, network_dimension=16, network_width=2000
)


def rows(**changes):
    result = run_seed(SeedRun(0, PARAMETERS.but(**changes), torch.device("cpu")))
    return pd.DataFrame(result.rows)


@pytest.mark.parametrize("activation", ["relu", "erf", "exponential"])
def test_the_correlation_grows_with_dimension_if_the_target_has_a_linear_part(activation):
    frame = rows(activation=activation)
    many = frame[(frame["sample_size"] == "4d log d") & frame["target"].notna()]
    values = many[many["metric"] == "one_minus_correlation"].pivot(
        index="dimension", columns="target", values="value"
    )
    for target in ("linear", "non-linear"):
        assert 0 < values.loc[32, target] < values.loc[8, target]
    if activation == "relu":
        assert values.loc[32, "linear"] < 1e-3
        assert values.loc[32, "no linear part"] > 0.02


def test_sizes_and_targets_are_what_their_names_say():
    sizes = {name: rule(8) for name, rule in check.SAMPLE_SIZES.items()}
    log = np.log(8)
    expected = {"d/4": 2, "d": 8, "4d log d": 32 * log, "d log³d": 8 * log**3}
    assert sizes == pytest.approx(expected)
    z = torch.tensor([0.0, 1.0, 3.0])
    targets = {name: target(z).tolist() for name, target in check.TARGETS.items()}
    quadratic = {"non-linear": [-1, 1, 11], "no linear part": [-1, 0, 8]}
    assert targets == {"linear": [0, 1, 3], **quadratic}


def test_sizes_above_the_limit_are_left_out():
    sizes = rows(most_samples=300).dropna(subset="sample_size")
    assert sizes[sizes["method"].isna()]["samples"].max() <= 300
    n = round(check.SAMPLE_SIZES["4d log d"](8))
    assert n in set(rows(most_samples=n)["samples"])


def test_blocks_change_nothing(monkeypatch):
    whole = rows()["value"]
    monkeypatch.setattr(check, "BLOCK", 7)
    assert rows()["value"].tolist() == pytest.approx(whole.tolist(), abs=1e-9)


def test_the_deviation_is_that_of_the_expected_kernel():
    x = torch.tensor(uniform_sphere(40, 8, 8**0.5, np.random.default_rng(0)))
    kernel = expected_preactivation_kernel(x, "relu", 1, 1.0)
    found = check.deviations(x, {"linear": x[:, 0]}, "relu")["linear"]
    assert found == pytest.approx(1 - velocity_correlation(x, x[:, 0], kernel), abs=1e-9)


def test_both_methods_are_alike_and_the_exponential_is_of_infinite_width_only():
    frame = rows()
    network = frame.dropna(subset="method").set_index("method")["value"]
    assert network["small readout"] == pytest.approx(network["copy subtracted"], rel=0.05)
    assert rows(activation="exponential")["metric"].eq("one_minus_correlation").all()


def test_only_what_is_left_to_learn_differs_between_ways_to_start_a_network():
    x = torch.tensor(uniform_sphere(30, 8, 8**0.5, np.random.default_rng(0)))
    found = check.network_deviations(x, x[:, 0], 50, "relu", torch.Generator().manual_seed(0))
    normal = {"generator": torch.Generator().manual_seed(0), "dtype": torch.float64}
    h = x @ torch.randn(50, 8, **normal).T / 8**0.5
    readout = torch.randn(50, **normal) / 50**0.5
    outputs, features = torch.relu(h) @ readout, (h > 0) * readout
    for method, factor in {"copy subtracted": 0, "small readout": 1e-3, "neither": 1}.items():
        residual = x[:, 0] - factor * outputs
        expected = 1 - velocity_correlation(x, residual, features @ features.T)
        assert found[method] == pytest.approx(expected, abs=1e-9)


def test_the_network_has_the_size_asked_for(monkeypatch):
    def recorded(x, _, *given):
        seen.append((x.shape[1], *given[:2]))
        return {}

    seen = []
    monkeypatch.setattr(check, "network_deviations", recorded)
    rows()
    assert seen == [(16, 2000, "relu")]
