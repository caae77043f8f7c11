import pytest
import torch

from feature_alignment.determinism import torch_stream
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.layer_features.feature_matrices import (
    preactivation_feature_covariance,
    preactivation_tangent_kernel,
)
from feature_alignment.layer_features.preactivation_gradients import preactivation_gradients
from feature_alignment.models.mlp import MLP
from toys import mlp_inputs


def model(activation="relu", outputs=1):
    generator = torch_stream(0, "init")
    return MLP(3, [6, 5], outputs, activation, False, generator, dtype=torch.float64)


X = torch.randn(7, 3, dtype=torch.float64, generator=torch_stream(0, "data"))
GRADIENTS = torch.randn(4, 2, 3, dtype=torch.float64, generator=torch_stream(0, "gradients"))


def test_kernel_is_the_loop_over_samples_and_outputs():
    kernel = preactivation_tangent_kernel(GRADIENTS)
    for i in range(4):
        for j in range(4):
            expected = sum(GRADIENTS[i, y] @ GRADIENTS[j, y] for y in range(2))
            assert kernel[i, j].item() == pytest.approx(expected.item())


def test_covariance_is_the_mean_outer_product():
    expected = sum(torch.outer(g, g) for sample in GRADIENTS for g in sample) / 4
    torch.testing.assert_close(preactivation_feature_covariance(GRADIENTS), expected)


def test_for_one_output_kernel_and_covariance_share_their_spectrum_up_to_n():
    kernel = torch.linalg.eigvalsh(preactivation_tangent_kernel(GRADIENTS[:, :1]))
    covariance = torch.linalg.eigvalsh(preactivation_feature_covariance(GRADIENTS[:, :1]))
    torch.testing.assert_close(kernel[-3:], 4 * covariance)


@pytest.mark.parametrize("activation", ["relu", "quadratic", "erf"])
def test_proposition_12_each_layers_tangent_kernel_is_the_ptk_times_the_input_kernel(activation):
    network = model(activation)
    kernel = tangent_kernel(network, X)
    gradients = preactivation_gradients(network, X)
    for (name, delta), a in zip(gradients.items(), mlp_inputs(network, X), strict=True):
        expected = preactivation_tangent_kernel(delta) * (a @ a.T)
        torch.testing.assert_close(kernel.layers[name], expected, rtol=1e-12, atol=1e-12)
