import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_alignment.determinism import stream, torch_stream
from feature_alignment.layer_features.feature_matrices import (
    agop_diagonal,
    average_gradient_outer_product,
    cosine_similarity,
    feature_pair,
    neural_feature_matrix,
    nfm_diagonal,
    preactivation_feature_covariance,
    preactivation_tangent_kernel,
    spectrum_preserving_rotation,
)
from feature_alignment.layer_features.preactivation_gradients import preactivation_gradients
from feature_alignment.models.mlp import MLP
from toys import draw, mlp_inputs


def model(activation="quadratic", outputs=1):
    generator = torch_stream(0, "init")
    return MLP(4, [6, 5], outputs, activation, False, generator, dtype=torch.float64)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("activation", ["relu", "quadratic", "erf"])
def test_agop_from_the_ptk_is_the_agop_of_the_layers_inputs(activation, outputs):
    network, x = model(activation, outputs), draw(9, 4)
    deltas, inputs = preactivation_gradients(network, x), mlp_inputs(network, x)
    for depth, (name, delta) in enumerate(deltas.items()):

        def tail(a, depth=depth):
            for layer in network.layers[depth:-1]:
                h = layer(a)
                a = {"relu": torch.relu, "quadratic": torch.square, "erf": torch.erf}[activation](h)
            return network.layers[-1](a)

        gradients = torch.stack(
            [torch.autograd.functional.jacobian(tail, inputs[depth][i]) for i in range(9)]
        )  # (n, c, d)
        covariance = preactivation_feature_covariance(delta)
        found = average_gradient_outer_product(network.get_submodule(name).weight, covariance)
        flat = gradients.flatten(0, 1)
        torch.testing.assert_close(found, flat.T @ flat / 9)


def test_proposition_2_the_nfc_is_the_alignment_of_weights_and_ptk():
    network, x = model(), draw(9, 4)
    leaf = x.clone().requires_grad_()
    (gradients,) = torch.autograd.grad(network(leaf).sum(), leaf)  # (n, d)
    weight = network.layers[0].weight
    covariance = preactivation_feature_covariance(preactivation_gradients(network, x)["layers.0"])
    direct = cosine_similarity(neural_feature_matrix(weight), gradients.T @ gradients)
    assert feature_pair(weight, covariance).correlation() == pytest.approx(direct, abs=1e-12)


def test_proposition_3_second_derivatives_of_the_centred_matrices_under_gradient_flow():
    network, x = model(), draw(9, 4)
    y = x[:, :1] * x[:, 1:2]
    layer, f = network.layers[1], network(x).detach()
    slope = torch.diag(2 * (f - y)[:, 0] / len(x))  # 𝓛̇, diagonal of ∂𝓛/∂f
    a = mlp_inputs(network, x)[1]
    ptk = preactivation_tangent_kernel(preactivation_gradients(network, x)["layers.1"])
    nfm = 2 * a.T @ slope @ ptk @ slope @ a
    agop = 2 * a.T @ slope @ ptk @ ptk @ slope @ a

    loss = ((network(x) - y) ** 2).mean()
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    start = layer.weight.detach().clone()
    t = 1e-5
    with torch.no_grad():
        for parameter, gradient in zip(network.parameters(), gradients, strict=True):
            parameter -= t * gradient  # one Euler step of gradient flow: exact to O(t²)
    change = layer.weight.detach() - start
    # The proposition's K has no factor 1/n.
    covariance = len(x) * preactivation_feature_covariance(
        preactivation_gradients(network, x)["layers.1"]
    )
    second = 2 / t**2
    torch.testing.assert_close(
        second * neural_feature_matrix(change), nfm, rtol=1e-4, atol=1e-4 * nfm.abs().max().item()
    )
    torch.testing.assert_close(
        second * average_gradient_outer_product(change, covariance),
        agop,
        rtol=1e-3,
        atol=1e-3 * agop.abs().max().item(),
    )


def test_cosine_is_its_formula_and_the_variant_is_pearsons():
    a, b = draw(5, 5), draw(5, 5, seed=1)
    trace = torch.trace(a.T @ b) / (torch.trace(a.T @ a) * torch.trace(b.T @ b)).sqrt()
    assert cosine_similarity(a, b) == pytest.approx(trace.item())
    pearson = np.corrcoef(a.flatten(), b.flatten())[0, 1]
    assert cosine_similarity(a, b, subtract_mean=True) == pytest.approx(pearson)
    assert abs(pearson - trace.item()) > 1e-3


@settings(deadline=None, derandomize=True, max_examples=20)
@given(st.integers(0, 500), st.floats(1e-30, 1e30), st.floats(1e-30, 1e30))
def test_cosine_ignores_scale_and_lies_in_0_1_for_psd_matrices(seed, first, second):
    a, b = draw(4, 2, seed=seed), draw(4, 3, seed=seed + 1000)
    a, b = a @ a.T, b @ b.T
    rho = cosine_similarity(a, b)
    assert 0 <= rho <= 1 + 1e-12
    assert cosine_similarity(first * a, second * b) == pytest.approx(rho, rel=1e-9)
    assert cosine_similarity(a, first * a) == pytest.approx(1)


def test_zero_and_constant_matrices_have_no_cosine():
    with pytest.raises(ValueError, match=r"zero matrix .* from step 1"):
        cosine_similarity(torch.zeros(2, 2), torch.eye(2))
    with pytest.raises(ValueError, match="zero once its mean is subtracted"):
        cosine_similarity(torch.full((3, 3), 0.1), torch.eye(3), subtract_mean=True)
    almost = torch.full((3, 3), 0.3, dtype=torch.float64)
    almost[0, 0] = 0.1 + 0.2  # the last digit is another one
    with pytest.raises(ValueError, match="zero once its mean is subtracted"):
        cosine_similarity(almost, torch.eye(3), subtract_mean=True)
    with pytest.raises(ValueError, match=r"shapes \(2, 2\) and \(3, 3\)"):
        cosine_similarity(torch.eye(2), torch.eye(3))
    with pytest.raises(ValueError, match=r"shapes \(0, 0\) and \(0, 0\)"):
        cosine_similarity(torch.eye(0), torch.eye(0))


@pytest.mark.parametrize("compare", [cosine_similarity, feature_pair])
@pytest.mark.parametrize(("first", "second"), [(1j, 1), (1, 1j)])
def test_imaginary_parts_are_not_dropped(compare, first, second):
    with pytest.raises(ValueError, match="it is complex; give real numbers"):
        compare(first * torch.eye(2), second * torch.eye(2))


@pytest.mark.parametrize("shape", [(2, 0), (0, 2)])
def test_weights_without_entries_have_no_pair(shape):
    with pytest.raises(ValueError, match=rf"weight: of shape \({shape[0]}, {shape[1]}\)"):
        feature_pair(torch.ones(shape), torch.eye(shape[0]))


def test_what_is_not_finite_has_no_random_conjugate():
    matrix = torch.diag(torch.tensor([torch.nan, 1.0]))
    with pytest.raises(ValueError, match="matrix: it has entries that are not finite"):
        spectrum_preserving_rotation(matrix, stream(0, "rotation"))


def test_random_conjugates_keep_the_spectrum_and_nothing_else():
    matrix = preactivation_feature_covariance(draw(9, 1, 6))
    first = spectrum_preserving_rotation(matrix, stream(0, "rotation"))
    again = spectrum_preserving_rotation(matrix, stream(0, "rotation"))
    other = spectrum_preserving_rotation(matrix, stream(1, "rotation"))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    for conjugate in (first, other):
        torch.testing.assert_close(conjugate, conjugate.T)
        torch.testing.assert_close(
            torch.linalg.eigvalsh(conjugate), torch.linalg.eigvalsh(matrix), atol=1e-12, rtol=0
        )


def test_random_eigenvectors_are_haar():
    # E[(v vᵀ)] = I/k for the leading eigenvector, and E[v_1⁴] = 3/(k(k+2)).
    matrix, generator = (
        torch.diag(torch.tensor([1.0, 0, 0], dtype=torch.float64)),
        stream(0, "haar"),
    )
    draws = torch.stack([spectrum_preserving_rotation(matrix, generator) for _ in range(4000)])
    torch.testing.assert_close(
        draws.mean(0), torch.eye(3, dtype=torch.float64) / 3, atol=0.02, rtol=0
    )
    assert (draws[:, 0, 0] ** 2).mean().item() == pytest.approx(3 / 15, abs=0.012)


def test_the_cosine_of_a_matrix_with_itself_is_one():
    for matrix in (torch.eye(3), 1e-30 * torch.eye(3), torch.ones(2, 2)):
        assert cosine_similarity(matrix.double(), matrix.double()) == pytest.approx(1)


def test_equal_columns_have_no_mean_subtracted_correlation():
    generator = torch.Generator().manual_seed(0)
    column = torch.randn(5, 1, generator=generator, dtype=torch.float64)
    half = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    pair = feature_pair(column.expand(5, 9), half @ half.T)
    with pytest.raises(ValueError, match="equal entries"):
        pair.correlation(subtract_mean=True)
    assert pair.correlation() == pytest.approx(1)


def test_equal_entries_of_one_of_both_leave_no_mean_subtracted_correlation():
    weight = torch.tensor([[1.0, 1.0], [1.0, -1.0]])  # WᵀW = 2I, and WᵀKW has ones only
    pair = feature_pair(weight, torch.diag(torch.tensor([1.0, 0.0])))
    with pytest.raises(ValueError, match="equal entries"):
        pair.correlation(subtract_mean=True)
    assert pair.correlation() == pytest.approx(1 / 2**0.5)


@pytest.mark.parametrize("size", [1e-30, 1e-16, 1e-12, 1.0, 1e12, 1e16, 1e30])
@pytest.mark.parametrize("other", [1e-30, 1.0, 1e16])
def test_matrices_of_single_precision_neither_under_nor_overflow(size, other):
    weight = size * torch.eye(2, 3)
    gradients = other * torch.ones(1, 1, 2)
    covariance = preactivation_feature_covariance(gradients)
    for found, expected in (
        (neural_feature_matrix(weight)[0, 0], size**2),
        (nfm_diagonal(weight)[0], size**2),
        (preactivation_tangent_kernel(gradients)[0, 0], 2 * other**2),
        (average_gradient_outer_product(weight, covariance)[0, 1], size**2 * other**2),
        (agop_diagonal(weight, covariance)[0], size**2 * other**2),
    ):
        assert float(found) == pytest.approx(expected, rel=1e-5)


def test_matrices_in_range_keep_single_precision():
    weight, gradients = draw(4, 3).float(), draw(5, 2, 4).float()
    covariance = preactivation_feature_covariance(gradients)
    matrices = (
        neural_feature_matrix(weight),
        nfm_diagonal(weight),
        preactivation_tangent_kernel(gradients),
        average_gradient_outer_product(weight, covariance),
        agop_diagonal(weight, covariance),
    )
    assert {matrix.dtype for matrix in matrices} == {torch.float32}
