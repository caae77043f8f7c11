import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

from feature_alignment.determinism import torch_stream
from feature_alignment.kernels.tangent import tangent_features, tangent_kernel
from feature_alignment.models.mlp import MLP


def jacobian(model, x):
    """Slow oracle: ∂f/∂w for each named parameter by automatic differentiation, (n·c, p_name)."""
    names, values = zip(*model.named_parameters(), strict=True)

    def f(*parameters):
        return functional_call(model, dict(zip(names, parameters, strict=True)), (x,)).flatten()

    blocks = torch.autograd.functional.jacobian(f, tuple(v.detach() for v in values))
    return {name: block.flatten(1) for name, block in zip(names, blocks, strict=True)}


def inputs(n, d=3, seed=0):
    return torch.randn(n, d, dtype=torch.float64, generator=torch_stream(seed, "data"))


def mlp(activation="relu", bias=True, outputs=2, seed=0):
    generator = torch_stream(seed, "init")
    return MLP(3, [5, 4], outputs, activation, bias, generator, dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["relu", "quadratic", "erf"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_kernel_of_each_layer_is_that_of_the_explicit_jacobian(activation, bias, outputs):
    model, x, x2 = mlp(activation, bias, outputs), inputs(6), inputs(4, seed=1)
    rows, columns = jacobian(model, x), jacobian(model, x2)
    kernel, cross = tangent_kernel(model, x), tangent_kernel(model, x, x2)
    assert kernel.outputs == outputs
    for layer in ("layers.0", "layers.1", "layers.2"):
        own = [name for name in rows if name.startswith(layer)]
        a = torch.cat([rows[name] for name in own], dim=1)
        b = torch.cat([columns[name] for name in own], dim=1)
        torch.testing.assert_close(kernel.layers[layer], a @ a.T)
        torch.testing.assert_close(cross.layers[layer], a @ b.T)
    a, b = torch.cat(list(rows.values()), 1), torch.cat(list(columns.values()), 1)
    torch.testing.assert_close(kernel.total, a @ a.T)
    torch.testing.assert_close(cross.total, a @ b.T)


def test_samples_come_first_in_the_index():
    model, x = mlp(outputs=3), inputs(4)
    entry = tangent_kernel(model, x).total[2 * 3 + 1, 0 * 3 + 2]
    features = tangent_features(model, x)
    torch.testing.assert_close(entry, features[2, 1] @ features[0, 2])


def test_features_are_the_explicit_jacobian_in_parameter_order():
    model, x = mlp(outputs=2), inputs(4)
    expected = torch.cat(list(jacobian(model, x).values()), dim=1)
    torch.testing.assert_close(tangent_features(model, x).flatten(0, 1), expected)


def test_a_linear_models_kernel_is_the_inner_product_of_inputs():
    model = nn.Linear(3, 1).double()
    x, x2 = inputs(4), inputs(2, seed=1)
    torch.testing.assert_close(tangent_kernel(model, x, x2).total, x @ x2.T + 1)


def test_kernel_at_other_parameters_is_the_other_models_kernel():
    model, other, x = mlp(), mlp(seed=1), inputs(4)
    found = tangent_kernel(model, x, parameters=dict(other.named_parameters()))
    torch.testing.assert_close(found.total, tangent_kernel(other, x).total)


@settings(deadline=None, derandomize=True, max_examples=15)
@given(st.integers(0, 1000), st.sampled_from(["relu", "quadratic", "erf"]), st.integers(1, 3))
def test_kernel_is_symmetric_positive_semidefinite_and_follows_a_reordering(seed, phi, outputs):
    model, x = mlp(phi, outputs=outputs, seed=seed), inputs(5, seed=seed)
    kernel = tangent_kernel(model, x).total
    torch.testing.assert_close(kernel, kernel.T)
    eigenvalues = torch.linalg.eigvalsh(kernel)
    assert eigenvalues[0] >= -1e-10 * eigenvalues[-1]
    order = torch.randperm(5, generator=torch_stream(seed, "order"))
    rows = (order[:, None] * outputs + torch.arange(outputs)).flatten()
    reordered = tangent_kernel(model, x[order]).total
    torch.testing.assert_close(reordered, kernel[rows][:, rows])
