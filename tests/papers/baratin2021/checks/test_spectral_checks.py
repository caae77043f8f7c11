import numpy as np
import pytest
import torch
from torch import nn

from feature_alignment.models.mlp import MLP
from feature_alignment.papers.baratin2021.checks.spectral_checks import (
    function_update,
    metric_eigenfunctions,
    principal_components,
    time_constants,
)


@pytest.fixture
def network():
    """A small network, its inputs, and its tangent features (N, c, p) by automatic derivatives."""
    generator = torch.Generator().manual_seed(0)
    model = MLP(2, [3], 2, "erf", True, generator, dtype=torch.float64)
    x = torch.randn(20, 2, generator=generator, dtype=torch.float64)
    rows = []
    for sample in x:
        for output in model(sample[None])[0]:
            gradient = torch.autograd.grad(output, list(model.parameters()), retain_graph=True)
            rows.append(torch.cat([part.flatten() for part in gradient]))
    return model, x, torch.stack(rows).view(20, 2, -1).numpy()


def test_lemma_1_and_proposition_6_are_the_change_of_a_network_after_one_small_step(network):
    model, x, features = network
    samples, rate = np.arange(4), 1e-6
    before = model(x)
    labels = torch.tensor([0, 1, 1, 0])
    loss = nn.functional.cross_entropy(before[:4], labels)
    (gradient,) = torch.autograd.grad(loss, before, retain_graph=True)
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= rate * parameter.grad
        change = (model(x) - before).numpy()
    for basis in (metric_eigenfunctions(features), principal_components(features, samples)):
        update = function_update(basis, samples, gradient[:4].numpy(), rate)
        np.testing.assert_allclose(update, change, atol=1e-5 * np.abs(change).max())


def test_eigenfunctions_are_orthonormal_on_average_and_make_up_the_kernel(network):
    features = network[2]
    basis = metric_eigenfunctions(features)
    gram = np.einsum("xyi,xyj->ij", basis.functions, basis.functions) / len(features)
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-7)
    rows = features.reshape(40, -1)
    functions = basis.functions.reshape(40, -1)
    kernel = (functions * basis.eigenvalues) @ functions.T
    np.testing.assert_allclose(kernel, rows @ rows.T, atol=1e-10)
    assert (np.diff(basis.eigenvalues) <= 0).all()


def test_principal_components_are_orthonormal_on_the_samples(network):
    basis = principal_components(network[2], np.arange(3))
    own = basis.functions[:3].reshape(6, 6)
    np.testing.assert_allclose(own.T @ own, np.eye(6), atol=1e-9)


def test_time_constants_are_where_the_mode_has_decayed_by_e():
    eigenvalues = np.array([5.0, 2.0, 0.1])
    tau = time_constants(eigenvalues)
    np.testing.assert_allclose((1 - eigenvalues[1:] / 5) ** tau, np.exp(-1))
    assert tau[1] > tau[0]  # smaller eigenvalues are slower; the printed inverse says the opposite
