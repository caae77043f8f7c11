import numpy as np
import pytest
import torch

from feature_alignment.determinism import torch_stream
from feature_alignment.free_probability.centred_correlation import (
    data_matrices,
    observed_correlation,
    predicted_correlation,
    velocity_correlation,
)
from feature_alignment.free_probability.random_features import matrix_moments, sample_r
from feature_alignment.free_probability.words import matrix_trace
from feature_alignment.layer_features.feature_matrices import (
    cosine_similarity,
    preactivation_feature_covariance,
)
from feature_alignment.layer_features.preactivation_gradients import preactivation_gradients
from feature_alignment.models.mlp import MLP


def task(n, d, seed=0):
    generator = torch_stream(seed, "tests/task")
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return x, x[:, 0] * x[:, 1] + 0.5


def test_observed_is_the_correlation_of_the_weights_velocity():
    """ρ(ẆᵀẆ, ẆᵀKẆ) by automatic differentiation, with outputs subtracted by a copy."""
    x, y = task(30, 8)
    model = MLP(8, [12], 1, "quadratic", False, torch_stream(0, "tests/net"), dtype=torch.float64)
    outputs = model(x)[:, 0]
    loss = torch.sum((outputs - outputs.detach() - y) ** 2) / 2
    weight = model.layers[0].weight
    (gradient,) = torch.autograd.grad(loss, weight)
    covariance = preactivation_feature_covariance(preactivation_gradients(model, x)["layers.0"])
    expected = cosine_similarity(gradient.T @ gradient, gradient.T @ covariance @ gradient)
    scaled = model.layers[1].weight.detach().T * weight.detach()
    found = observed_correlation(data_matrices(x, y), scaled.T @ scaled)
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("n", "d", "k"), [(600, 400, 800), (200, 400, 400), (500, 300, 100)])
def test_prediction_meets_observation_in_large_matrices(n, d, k):
    data = data_matrices(*task(n, d))
    r = sample_r(d, k, torch_stream(0, "tests/net"))
    predicted = predicted_correlation(matrix_trace(data), matrix_moments(r))
    assert predicted == pytest.approx(observed_correlation(data, r), abs=0.02)


def test_many_units_leave_the_data_alone():
    """As k/d → ∞, R → I and ρ is that of A and its product with B."""
    data = data_matrices(*task(40, 10))
    predicted = predicted_correlation(matrix_trace(data), [1.0, 1.0, 1.0, 1.0])
    assert predicted == pytest.approx(observed_correlation(data, torch.eye(10).double()), abs=1e-12)


@pytest.mark.parametrize("moments", [[1.0, 0.5, 0.1, 0.01], [1.0, 0.0, 0.0, 0.0]])
def test_moments_of_no_matrix_are_refused(moments):
    """m₂ < m₁² is impossible."""
    data = matrix_trace(data_matrices(*task(40, 10)))
    with pytest.raises(ValueError, match=r"is impossible|must be positive"):
        predicted_correlation(data, moments)


def test_correlations_are_beyond_1_by_rounding_only():
    """With A = B = I, ρ = m₃/√(m₂ m₄)."""
    data = matrix_trace({"A": torch.eye(2), "B": torch.eye(2)})
    assert predicted_correlation(data, [1, 1, 1 + 1e-7, 1]) == pytest.approx(1, abs=1e-6)
    large = [2.0 ** (200 * n) for n in range(1, 5)]
    assert predicted_correlation(data, large) == pytest.approx(1)
    for third in (1.005, -1.005):
        with pytest.raises(ValueError, match=rf"a correlation of {third} is impossible"):
            predicted_correlation(data, [1, 1, third, 1])


def test_inputs_of_a_single_sample_are_refused():
    with pytest.raises(ValueError, match=r"x, y: of shapes \(4,\) and \(4,\)"):
        data_matrices(torch.ones(4), torch.ones(4))


def test_labels_as_a_column_are_refused():
    with pytest.raises(ValueError, match=r"x, y: of shapes \(4, 3\) and \(4, 1\)"):
        data_matrices(torch.ones(4, 3), torch.ones(4, 1))


@pytest.mark.parametrize("shape", [(4, 1), (1,)])
def test_residuals_are_one_for_each_sample(shape):
    with pytest.raises(ValueError, match="x, y: of shapes"):
        velocity_correlation(torch.eye(4), torch.ones(shape), torch.eye(4))


def test_inputs_and_kernel_have_a_row_for_each_sample():
    with pytest.raises(ValueError, match=r"x, y: of shapes \(4,\) and \(4,\)"):
        velocity_correlation(torch.ones(4), torch.ones(4), torch.eye(4))
    for shape in ((5, 5), (4, 5), (4,)):
        with pytest.raises(ValueError, match=r"kernel: of shape .* for 4 samples; give \(n, n\)"):
            velocity_correlation(torch.eye(4), torch.ones(4), torch.ones(shape))
    for shape in ((5, 5), (2, 5, 5), (4, 3), (4,), (2, 2, 4, 4)):
        with pytest.raises(ValueError, match=r"square: of shape .*; give \(n, n\) or \(m, n, n\)"):
            velocity_correlation(torch.eye(4), torch.ones(4), torch.eye(4), torch.ones(shape))


def test_labels_may_have_another_precision():
    x, y = torch.ones(3, 2), torch.ones(3, dtype=torch.float64)
    assert data_matrices(x, y)["A"].dtype == torch.float32
    assert velocity_correlation(x, y, torch.eye(3)) == pytest.approx(1)
    double = torch.eye(3).double()
    assert velocity_correlation(x, y, double, double) == pytest.approx(1)
    kernel = 10 * torch.rand(3, 3, generator=torch_stream(0, "kernel")).double()
    whole = velocity_correlation(torch.eye(3, dtype=torch.int64), torch.ones(3), kernel)
    assert whole == velocity_correlation(torch.eye(3).double(), torch.ones(3).double(), kernel)
    assert data_matrices(x.requires_grad_(), y)["B"].requires_grad
    x = x.detach()
    arrays = [tensor.double().numpy() for tensor in (x, y, torch.eye(3))]
    assert velocity_correlation(*arrays) == velocity_correlation(*arrays, square=np.eye(3))
    assert torch.equal(data_matrices(*arrays[:2])["A"], data_matrices(x.double(), y)["A"])


@pytest.mark.parametrize("scale", [100.0, 1e-6])
def test_products_of_single_precision_neither_overflow_nor_vanish(scale):
    """tr(ARBRARBR) is of degree 12 in the inputs."""
    x, y = task(200, 20)
    moments = (1, 3, 15, 105)
    expected = predicted_correlation(matrix_trace(data_matrices(scale * x, y)), moments)
    data = data_matrices((scale * x).float(), y.float())
    assert predicted_correlation(matrix_trace(data), moments) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("scale", [1e30, 1e60])
def test_traces_beyond_any_precision_are_told(scale):
    data = data_matrices(scale * torch.ones(3, 2, dtype=torch.float64), torch.ones(3).double())
    with pytest.raises(ValueError, match=r"= inf; .* too large for their precision"):
        predicted_correlation(matrix_trace(data), (1, 3, 15, 105))


@pytest.mark.parametrize(("a", "b", "trace"), [(1e160, 1e-60, "inf"), (1e-170, 1e100, "0")])
def test_one_trace_beyond_any_precision_is_told(a, b, trace):
    eye = torch.eye(2, dtype=torch.float64)
    with pytest.raises(ValueError, match=rf"tr\(ARAR\) = {trace} and tr\(ARBRARBR\) = 1e"):
        observed_correlation({"A": a * eye, "B": b * eye}, eye)


def test_a_correlation_with_nothing_is_told():
    data = data_matrices(torch.ones(3, 2), torch.zeros(3))
    with pytest.raises(ValueError, match=r"tr\(ARBRARBR\) = 0; both must be positive"):
        observed_correlation({"A": torch.eye(2), "B": torch.zeros(2, 2)}, torch.eye(2))
    with pytest.raises(ValueError, match=r"tr\(ARAR\) = 0 .* both must be positive"):
        predicted_correlation(matrix_trace(data), (1, 2, 5, 14))
    with pytest.raises(ValueError, match=r"tr\(ARAR\) = 0 .* both must be positive"):
        observed_correlation(data, torch.eye(2))


def test_r_may_have_another_precision_but_no_other_shape():
    x, y = task(40, 5)
    data, single = data_matrices(x, y), data_matrices(x.float(), y.float())
    r = sample_r(5, 8, torch_stream(0, "tests/net"))
    expected = pytest.approx(observed_correlation(data, r), rel=1e-5)
    assert observed_correlation(single, r) == expected
    assert observed_correlation(data, r.float()) == expected
    with pytest.raises(ValueError, match=r"of shapes \[\(4, 4\), \(5, 5\)\]; all must be \(d, d\)"):
        observed_correlation(data, r[:4, :4])
