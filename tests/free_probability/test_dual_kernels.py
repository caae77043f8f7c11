import numpy as np
import pytest
import torch

from feature_alignment.determinism import torch_stream
from feature_alignment.free_probability.dual_kernels import DUALS, expected_preactivation_kernel
from feature_alignment.layer_features.feature_matrices import preactivation_tangent_kernel
from feature_alignment.layer_features.preactivation_gradients import preactivation_gradients
from feature_alignment.models.mlp import MLP

ACTIVATIONS = {
    "quadratic": (torch.square, lambda h: 2 * h),
    "relu": (torch.relu, lambda h: (h > 0).double()),
    "erf": (torch.erf, lambda h: 2 / np.sqrt(np.pi) * torch.exp(-(h**2))),
    "exponential": (torch.exp, torch.exp),
}
COVARIANCES = [(1.0, 1.0, 0.3), (0.5, 2.0, -0.8), (1.2, 0.1, 0.0), (1.3, 0.7, 0.4)]


def gaussian_average(function, uu, vv, uv, nodes=400):
    """E[g(u, v)] in polar coordinates of the whitened pair, where kinks are at few angles."""
    radius, weights = np.polynomial.laguerre.laggauss(60)  # of ρ²/2
    angles = torch.arange(nodes * 50, dtype=torch.float64) * 2 * np.pi / (nodes * 50)
    rho = torch.tensor(np.sqrt(2 * radius))[:, None]
    a, b = rho * torch.cos(angles), rho * torch.sin(angles)
    u = np.sqrt(uu) * a
    v = uv / np.sqrt(uu) * a + np.sqrt(vv - uv**2 / uu) * b
    return float(torch.tensor(weights) @ function(u, v).mean(dim=1))


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_dual_kernels_are_gaussian_averages(name, covariance):
    phi, slope = ACTIVATIONS[name]
    arguments = [torch.tensor(entry, dtype=torch.float64) for entry in covariance]
    value = gaussian_average(lambda u, v: phi(u) * phi(v), *covariance)
    derivative = gaussian_average(lambda u, v: slope(u) * slope(v), *covariance)
    assert float(DUALS[name].value(*arguments)) == pytest.approx(value, rel=2e-3, abs=1e-4)
    assert float(DUALS[name].derivative(*arguments)) == pytest.approx(
        derivative, rel=2e-3, abs=1e-4
    )


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_the_linearised_kernel_is_that_of_the_linear_part_of_relus_derivative(covariance):
    uu, vv, uv = covariance
    slope, mean = (
        gaussian_average(lambda u, v, k=k: u**k * (u > 0), uu, vv, uv) for k in (1, 0)
    )  # E[φ′(u)u] and E[φ′(u)]
    other = gaussian_average(lambda u, v: v * (v > 0), uu, vv, uv)
    expected = mean**2 + slope / uu * other / vv * uv
    arguments = [torch.tensor(entry, dtype=torch.float64) for entry in covariance]
    found = DUALS["relu_linearised"].derivative(*arguments)
    assert float(found) == pytest.approx(expected, rel=2e-3, abs=1e-4)
    value = DUALS["relu_linearised"].value(*arguments)
    torch.testing.assert_close(value, DUALS["relu"].value(*arguments))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_derivative_kernel_is_the_slope_of_the_value_kernel(name):
    """∂/∂S_uv E[φ(u)φ(v)] = E[φ′(u)φ′(v)]."""
    uu, vv = torch.tensor(1.3, dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64)
    uv = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(DUALS[name].value(uu, vv, uv), uv)
    torch.testing.assert_close(slope, DUALS[name].derivative(uu, vv, uv.detach()))


@pytest.mark.parametrize("hidden_layers", [1, 2])
@pytest.mark.parametrize("activation", ["quadratic", "relu", "erf"])
def test_sampled_networks_average_to_the_expected_kernel(activation, hidden_layers):
    x = torch.randn(6, 40, generator=torch_stream(0, "tests/x"), dtype=torch.float64)
    expected = expected_preactivation_kernel(x, activation, hidden_layers, 1 / 3)
    total, networks = torch.zeros_like(expected), 60
    generator = torch_stream(0, "tests/networks")
    for _ in range(networks):
        widths = [400] * hidden_layers
        model = MLP(40, widths, 1, activation, False, generator, dtype=torch.float64)
        gradients = preactivation_gradients(model, x)["layers.0"]
        total += preactivation_tangent_kernel(gradients)
    assert (total / networks - expected).norm() < 0.05 * expected.norm()


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_rounding_does_not_lead_past_parallel_arguments(side):
    one = torch.tensor(1.0, dtype=torch.float64)
    beyond = side * one * (1 + 1e-15)
    assert float(DUALS["relu"].value(one, one, beyond)) == pytest.approx((1 + side) / 4, abs=1e-7)
    assert float(DUALS["relu"].derivative(one, one, beyond)) == pytest.approx((1 + side) / 4)


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="activation: 'rely' is unknown; did you mean 'relu'"):
        expected_preactivation_kernel(torch.eye(2), "rely", 1, 1.0)


def test_without_hidden_layers_the_kernel_is_that_of_a_linear_model():
    x = torch.randn(3, 4, generator=torch_stream(0, "tests/x"), dtype=torch.float64)
    model = MLP(4, [], 1, "relu", False, torch_stream(0, "init"), dtype=torch.float64)
    found = preactivation_tangent_kernel(preactivation_gradients(model, x)["layers.0"])
    torch.testing.assert_close(expected_preactivation_kernel(x, "relu", 0, 1.0), found)


@pytest.mark.parametrize(
    ("x", "hidden_layers", "variance", "message"),
    [
        (torch.eye(2), -1, 1.0, "hidden_layers: -1; it must be a whole number of at least 0"),
        (torch.eye(2), 1, 0.0, "variances of the first pre-activations are not positive"),
        (torch.nan * torch.eye(2), 1, 1.0, "variances of the first pre-activations are not posit"),
        (torch.zeros(2, 2), 1, 1.0, "variances of the first pre-activations are not positive"),
        (1e30 * torch.ones(2, 2), 1, 1.0, "are not positive, or not finite; give .* finite inputs"),
    ],
)
def test_kernels_that_are_not_defined_are_refused(x, hidden_layers, variance, message):
    with pytest.raises(ValueError, match=message):
        expected_preactivation_kernel(x, "relu", hidden_layers, variance)
