import functools

import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.data.synthetic import power_law_gaussian
from feature_alignment.free_probability.centred_correlation import velocity_correlation
from feature_alignment.free_probability.dual_kernels import expected_preactivation_kernel
from feature_alignment.layer_features.preactivation_gradients import preactivation_gradients
from feature_alignment.models.initialisation import SCHEMES, new_linear
from feature_alignment.papers.beaglehole2024.experiments.depth_prediction import (
    VARIANCES,
    _labels,
    _network,
    run_seed,
)
from feature_alignment.papers.beaglehole2024.parameters import DepthPrediction
from feature_alignment.pipeline.run import SeedRun

PARAMETERS = DepthPrediction(
    samples=24, dimension=24, widths=[24, 600], decay_rates=[0.0, 1.0, 6.0], networks=4
)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_variances_are_those_of_the_weights(scheme):
    drawn = torch.Generator().manual_seed(0)
    layer = new_linear(500, 500, bias=False, scheme=scheme, generator=drawn, dtype=torch.float64)
    # Of 250,000 weights the variance has a standard error of at most 0.3 %.
    assert 500 * layer.weight.var().item() == pytest.approx(VARIANCES[scheme], rel=0.015)


@functools.cache  # several tests look at the same networks
def rows_of(parameters):
    return pd.DataFrame(run_seed(SeedRun(0, parameters, torch.device("cpu"))).rows)


def curves(**changes):
    rows = rows_of(PARAMETERS.but(**changes))
    observed = rows[rows["metric"] == "observed"]
    predicted = rows[rows["metric"] == "predicted"].set_index("decay_rate")["value"]
    return observed.pivot_table(index="decay_rate", columns="width", values="value"), predicted


@pytest.mark.parametrize(
    ("activation", "initialisation"),
    [("quadratic", "pytorch"), ("relu", "pytorch"), ("erf", "pytorch"), ("erf", "kaiming")],
)
def test_wide_networks_are_nearer_to_the_first_order_prediction(activation, initialisation):
    observed, predicted = curves(activation=activation, initialisation=initialisation)
    error = abs(observed.sub(predicted, axis=0)).max()
    assert error[600] < 0.06
    assert error[600] < error[24]


def test_rank_one_data_have_correlation_one():
    observed, predicted = curves(decay_rates=[40.0, 50.0, 60.0], target="high_rank")
    assert predicted.min() > 0.999
    assert observed.min().min() > 0.999


def test_the_expected_kernel_of_one_direction_is_a_projection():
    parameters = PARAMETERS.but(decay_rates=[0.0, 6.0, 50.0], networks=1)
    rows = rows_of(parameters)
    by_rate = rows.pivot_table(index="decay_rate", columns="metric", values="value")
    assert by_rate["expected_kernel_rank"].is_monotonic_decreasing
    assert by_rate.loc[50.0, "expected_kernel_rank"] == pytest.approx(1, abs=1e-6)
    assert by_rate.loc[50.0, "expected_kernel_projection"] == pytest.approx(1, abs=1e-6)
    assert by_rate.loc[0.0, "expected_kernel_projection"] < 0.99


def test_linearised_relu_is_another_prediction_and_the_quadratic_has_none():
    relu, quadratic = (rows_of(PARAMETERS.but(activation=phi)) for phi in ("relu", "quadratic"))
    assert "predicted_linearised" not in set(quadratic["metric"])
    curves = relu.pivot_table(index="decay_rate", columns="metric", values="value")
    assert (abs(curves["predicted_linearised"] - curves["predicted"]) > 1e-3).any()


def test_centred_labels_have_mean_zero_and_deviation_one():
    x = np.random.default_rng(0).standard_normal((50, 24))
    for target in ("low_rank", "high_rank"):
        p = PARAMETERS.but(target=target, centred_labels=True)
        y = _labels(SeedRun(0, p, torch.device("cpu")), x)
        assert (y.mean(), y.std()) == pytest.approx((0, 1))


@pytest.mark.parametrize("changes", [{"initialisation": "kaiming"}, {"residuals": "network"}])
def test_networks_weights_and_residuals_change_what_is_observed_alone(changes):
    (observed, predicted), (other, same) = curves(), curves(**changes)
    # They depend on the size of the weights by rounding alone: the activation is homogeneous.
    assert same.tolist() == pytest.approx(predicted.tolist(), rel=1e-10)
    assert (abs(other - observed)[24] > 1e-3)[[0.0, 1.0]].all()
    assert abs(other[600].sub(observed[600])).max() < 0.1


def test_a_spectrum_that_begins_at_k_0_keeps_two_directions():
    _, from_zero = curves(decay_rates=[40.0, 50.0, 60.0], first_index=0)
    _, from_one = curves(decay_rates=[40.0, 50.0, 60.0])
    assert from_one.min() > 0.999
    assert from_zero.max() < 0.999


def test_the_second_order_has_the_mean_of_the_networks_squared_kernels():
    p = PARAMETERS.but(decay_rates=[0.0, 1.0, 2.0])
    run = SeedRun(0, p, torch.device("cpu"))
    rows = pd.DataFrame(run_seed(run).rows)
    found = rows[(rows["metric"] == "predicted_with_mean_square") & (rows["width"] == 24)]
    found = found.set_index("decay_rate")["value"]
    inputs = power_law_gaussian(24, 24, 1.0, run.stream("data"), 1)
    x, y = torch.tensor(inputs), torch.tensor(_labels(run, inputs))
    generator, squares = run.torch_stream("networks of width 24"), []
    for _ in range(4 * 600 // 24):
        delta = preactivation_gradients(_network(x, 24, p, generator), x)["layers.0"][:, 0]
        squares.append((delta @ delta.T) @ (delta @ delta.T))
    kernel = expected_preactivation_kernel(x, p.activation, p.hidden_layers, 1 / 3)
    expected = velocity_correlation(x, y, kernel, torch.stack(squares))
    assert found[1.0] == pytest.approx(expected, rel=1e-9)
    assert found[1.0] != pytest.approx(velocity_correlation(x, y, kernel), abs=1e-4)


def test_residuals_of_the_network_are_what_is_left_of_the_labels():
    run = SeedRun(0, PARAMETERS.but(residuals="network"), torch.device("cpu"))
    rows = rows_of(run.parameters)
    rows = rows[(rows["metric"] == "observed") & (rows["decay_rate"] == 1)]
    found = rows[(rows["width"] == 24) & (rows["network"] == 0)]["value"].item()
    inputs = power_law_gaussian(24, 24, 1.0, run.stream("data"), 1)
    x, y = torch.tensor(inputs), torch.tensor(_labels(run, inputs))
    model = _network(x, 24, run.parameters, run.torch_stream("networks of width 24"))
    delta = preactivation_gradients(model, x)["layers.0"][:, 0]
    left = y - model(x).detach()[:, 0]
    assert found == pytest.approx(velocity_correlation(x, left, delta @ delta.T), rel=1e-9)


def test_the_expected_kernels_rank_is_its_participation_ratio():
    run = SeedRun(0, PARAMETERS.but(widths=[4, 8], networks=1), torch.device("cpu"))
    rows = pd.DataFrame(run_seed(run).rows)
    rank = rows[(rows["metric"] == "expected_kernel_rank") & (rows["decay_rate"] == 1)]["value"]
    x = torch.tensor(power_law_gaussian(24, 24, 1.0, run.stream("data"), 1))
    eigenvalues = torch.linalg.eigvalsh(expected_preactivation_kernel(x, "quadratic", 2, 1 / 3))
    expected = float(eigenvalues.sum() ** 2 / eigenvalues.square().sum())
    assert rank.item() == pytest.approx(expected)
