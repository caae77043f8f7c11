import pytest
import torch

from feature_alignment.determinism import torch_stream
from feature_alignment.free_probability.centred_correlation import velocity_correlation


def test_the_square_is_the_default():
    rng = {"generator": torch_stream(0, "tests/kernel"), "dtype": torch.float64}
    x, y = torch.randn(9, 4, **rng), torch.randn(9, **rng)
    features = torch.randn(9, 3, **rng)
    kernel = features @ features.T
    explicit = velocity_correlation(x, y, kernel, kernel @ kernel)
    assert velocity_correlation(x, y, kernel) == pytest.approx(explicit, abs=1e-12)
    diagonal = torch.diag(y)
    nfm = x.T @ diagonal @ kernel @ diagonal @ x
    agop = x.T @ diagonal @ kernel @ kernel @ diagonal @ x
    expected = torch.sum(nfm * agop) / nfm.norm() / agop.norm()
    assert explicit == pytest.approx(float(expected), abs=1e-12)


def test_a_multiple_of_a_projection_gives_one():
    rng = {"generator": torch_stream(1, "tests/kernel"), "dtype": torch.float64}
    basis = torch.linalg.qr(torch.randn(8, 3, **rng))[0]
    value = velocity_correlation(
        torch.randn(8, 5, **rng), torch.randn(8, **rng), 3 * basis @ basis.T
    )
    assert value == pytest.approx(1, abs=1e-12)


def test_a_square_of_its_own_takes_the_place_of_the_kernel_s():
    rng = {"generator": torch_stream(2, "tests/kernel"), "dtype": torch.float64}
    x, y = torch.randn(9, 4, **rng), torch.randn(9, **rng)
    features = torch.randn(9, 3, **rng)
    kernel, square = features @ features.T, torch.diag(torch.arange(1.0, 10).double())
    nfm = x.T @ torch.diag(y) @ kernel @ torch.diag(y) @ x
    agop = x.T @ torch.diag(y) @ square @ torch.diag(y) @ x
    expected = float(torch.sum(nfm * agop) / nfm.norm() / agop.norm())
    assert velocity_correlation(x, y, kernel, square) == pytest.approx(expected, abs=1e-12)


def test_the_scatter_of_a_mean_of_networks_is_taken_off():
    """By the jackknife, which is exact for networks that differ by factors."""
    rng = {"generator": torch_stream(3, "tests/kernel"), "dtype": torch.float64}
    x, y, features = torch.randn(9, 4, **rng), torch.randn(9, **rng), torch.randn(9, 3, **rng)
    kernel = features @ features.T
    exact = velocity_correlation(x, y, kernel)
    factors = torch.rand(5, 1, 1, **rng)
    multiples = velocity_correlation(x, y, kernel, factors * kernel @ kernel)
    assert multiples == pytest.approx(exact, abs=1e-12)
    squares = kernel @ kernel + 10 * torch.randn(400, 8, 9, 9, **rng)  # 400 groups of 8
    plain = [velocity_correlation(x, y, kernel, group.mean(0)) for group in squares]
    corrected = [velocity_correlation(x, y, kernel, group) for group in squares]
    bias, left = (abs(sum(found) / len(found) - exact) for found in (plain, corrected))
    assert left < bias / 4


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_size_of_a_single_precision_kernel_does_not_matter(scale):
    rng = {"generator": torch_stream(4, "tests/kernel")}
    x, y = torch.randn(9, 4, **rng), torch.randn(9, **rng)
    expected = velocity_correlation(x, y, x @ x.T)
    assert velocity_correlation(x, y, scale * (x @ x.T)) == pytest.approx(expected, abs=1e-6)


def test_zero_labels_inputs_or_kernels_have_no_correlation():
    x, y, kernel = torch.eye(2), torch.ones(2), torch.eye(2)
    for data in ((0 * x, y, kernel), (x, 0 * y, kernel), (x, y, 0 * kernel)):
        with pytest.raises(ValueError, match="labels, inputs, kernel or square are zero"):
            velocity_correlation(*data)
    for square in (0 * kernel, torch.zeros(2, 2, 2)):
        with pytest.raises(ValueError, match="labels, inputs, kernel or square are zero"):
            velocity_correlation(x, y, kernel, square)


@pytest.mark.parametrize("networks", [0, 1])
def test_a_mean_over_fewer_than_two_networks_is_refused(networks):
    square = torch.eye(2).expand(networks, 2, 2)
    with pytest.raises(ValueError, match=rf"^square: of {networks} networks; .*, or at least 2"):
        velocity_correlation(torch.eye(2), torch.ones(2), torch.eye(2), square)
