import numpy as np
import pytest
import torch

from feature_alignment.kernels.tangent_grams import TangentKernel
from feature_alignment.papers.lejeune2024.experiments.kernel_measures import (
    compare,
    fit_kernels,
    kernel_of,
    last_features,
    locate,
    parts_of_prediction,
    transformation,
)
from feature_alignment.pipeline.run import SeedResult

N, SIZES = 8, {"layers.0.weight": 30, "layers.0.bias": 5, "layers.1.weight": 12}


def draw(seed):
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(N, size, generator=generator, dtype=torch.float64)
        for name, size in SIZES.items()
    }


def flat(features):
    return torch.cat(list(features.values()), dim=1).numpy()


def of(average, first):
    """Kernel and change of the features, of which the transformation is measured."""
    change = {name: average[name] - phi for name, phi in first.items()}
    return kernel_of(first).total, change


def test_the_smallest_transformation_is_measured_without_forming_it():
    average, first, residual = draw(0), draw(1), torch.arange(8.0)
    found = transformation(*of(average, first), residual)
    phi, mean = flat(first), flat(average)
    squares = np.linalg.svd(np.linalg.pinv(phi) @ (mean - phi), compute_uv=False)[:N] ** 2
    shares = squares / squares.sum()
    assert found["transformation_rank_share"] == pytest.approx(
        np.exp(-(shares * np.log(shares)).sum()) / N
    )
    half = np.linalg.pinv(phi[::2]) @ (mean[::2] - phi[::2])
    left = mean[1::2] - phi[1::2] - phi[1::2] @ half
    explained = 1 - np.sum(left**2) / np.sum((mean[1::2] - phi[1::2]) ** 2)
    assert found["transferred_share"] == pytest.approx(explained)
    assert found["initial_rank_share"] == 1
    beta = np.linalg.pinv(phi) @ residual.numpy()
    assert found["ridgeless_norm"] == pytest.approx(np.linalg.norm(beta))


def test_one_transformation_of_all_images_carries_over_and_repeated_images_lose_rank():
    first = draw(1)
    first["layers.0.weight"][:, :] = 0
    first["layers.0.bias"][:, 2:] = 0
    first["layers.1.weight"][:, 1:] = 0  # three features in all, fewer than half of the images
    average = {name: 3 * phi for name, phi in first.items()}
    found = transformation(*of(average, first), torch.ones(N))
    assert found["transferred_share"] == pytest.approx(1)
    assert found["initial_rank_share"] == 3 / N
    assert found["transformation_rank_share"] == pytest.approx(3 / N)


def test_the_weights_of_a_sum_of_kernels_are_found():
    y = torch.linspace(-1.2, 1.2, 9, dtype=torch.float64)
    initial, sign = torch.eye(9).double(), torch.sign(y)
    parts = [2 * initial, 0.5 * torch.outer(y, y), 0.25 * torch.outer(sign, sign)]
    kernel = sum(parts)
    found = locate(kernel, initial, y)
    for name, part in zip(("initial", "linear", "binarised"), parts, strict=True):
        assert found[f"weight_of_{name}"] == pytest.approx(float(part.norm() / kernel.norm()))
    assert found["three_kernels_residual"] == pytest.approx(0, abs=1e-12)
    weights, residual = fit_kernels(initial, [torch.outer(y, y)])
    cosine = float((y**2).sum() / (3 * (y @ y)))
    assert weights == [pytest.approx(cosine)]
    assert residual == pytest.approx(np.sqrt(1 - cosine**2))


@pytest.mark.parametrize("factor", [1.0, 2.6])
def test_a_kernel_that_only_grew_has_not_changed_by_the_label_kernel(factor):
    """K = aK₀ + bK_ŷ is a mixture for any a, but K₀ plus a multiple of K_ŷ for a = 1 only."""
    initial = kernel_of(draw(0))
    label = torch.ones(N, N, dtype=torch.float64)
    layers = {name: factor * gram + label for name, gram in initial.layers.items()}
    adapted = TangentKernel(layers, outputs=1)
    result = SeedResult()
    compare({"adapted": adapted, "initial": initial, "final": adapted}, label, 1, result)
    found = {row["metric"]: row["value"] for row in result.rows}
    assert found["mixture_residual"] == pytest.approx(0, abs=1e-12)
    assert found["final_average_cosine"] == pytest.approx(1)
    assert (found["label_change_cosine"] > 1 - 1e-9) == (factor == 1)  # of the last layer
    assert found["mixture_initial_factor"] == pytest.approx(factor)
    weight = 2 * label.norm() / adapted.total.norm()  # of both layers
    assert found["mixture_label_weight"] == pytest.approx(float(weight))
    change = adapted.total - initial.total
    cosine = float((change * label).sum() / change.norm() / label.norm())
    assert found["change_residual"] == pytest.approx((1 - cosine**2) ** 0.5, abs=1e-7)
    assert (found["change_residual"] < 1e-7) == (factor == 1)


def test_a_kernel_that_is_large_near_zero_is_told():
    y = torch.tensor([-1.0, -0.1, 0.1, 1.0], dtype=torch.float64)
    kernel = torch.diag(torch.tensor([1.0, 3.0, 3.0, 1.0], dtype=torch.float64))
    found = locate(kernel, torch.eye(4).double(), y)
    assert found["diagonal_ratio_near_boundary"] == pytest.approx(3)
    assert found["pearson_diagonal_residual"] == pytest.approx(1)
    assert "diagonal_ratio_near_boundary" not in locate(kernel, kernel, 5 * y.sign())
    between = torch.cat([y, torch.tensor([0.5])])  # neither near 0 nor near a label
    larger = torch.block_diag(kernel, torch.tensor([[9.0]]))
    assert locate(larger, larger, between)["diagonal_ratio_near_boundary"] == pytest.approx(3)


def test_a_kernel_is_summed_by_layer():
    features = draw(0)
    kernel = kernel_of(features)
    assert list(kernel.layers) == ["layers.0", "layers.1"]
    np.testing.assert_allclose(kernel.total, flat(features) @ flat(features).T)


def test_each_layer_predicts_what_its_features_and_its_change_make():
    average = draw(4)
    moved = {name: phi[1].reshape(-1, 1) for name, phi in draw(5).items()}
    y, residual = torch.linspace(-1.5, 1, N, dtype=torch.float64), draw(6)["layers.0.bias"][:, 0]
    found = parts_of_prediction(average, moved, "layers.1", y, residual)
    by_layer = {layer: np.zeros(N) for layer in ("0", "1")}
    for name, phi in average.items():
        by_layer[name.split(".")[1]] += phi.numpy() @ moved[name].numpy().ravel()
    linear, left, sign = y.numpy(), residual.numpy(), np.sign(y.numpy())

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    multiple = by_layer["1"] @ linear / (linear @ linear)
    assert found == pytest.approx(
        {
            "last_layer_target_cosine": cosine(by_layer["1"], linear),
            "last_layer_sign_cosine": cosine(by_layer["1"], sign),
            "last_layer_target_share": by_layer["1"] @ linear / (sum(by_layer.values()) @ linear),
            "earlier_layers_residual_cosine": cosine(by_layer["0"], left - multiple * linear),
            "earlier_layers_sign_cosine": cosine(by_layer["0"], sign),
        }
    )


def test_a_prediction_as_the_paper_tells_it_has_cosines_of_one():
    y = torch.tensor([-1.3, -0.4, 0.2, 0.9], dtype=torch.float64)
    sign = torch.sign(y)
    average = {"layers.0.weight": (sign - 0.7 * y)[:, None], "layers.1.weight": y[:, None]}
    moved = {"layers.0.weight": torch.ones(1, 1), "layers.1.weight": torch.tensor([[0.7]])}
    moved = {name: change.double() for name, change in moved.items()}
    found = parts_of_prediction(average, moved, "layers.1", y, sign)
    assert found["last_layer_target_cosine"] == pytest.approx(1)
    assert found["earlier_layers_residual_cosine"] == pytest.approx(1)
    assert found["last_layer_target_share"] == pytest.approx(0.7 * float(y @ y) / float(y @ sign))


def test_last_features_fit_as_least_squares_do():
    z = draw(7)["layers.0.bias"].numpy()
    z = np.hstack([z, z[:, :1], np.zeros((N, 1))])  # a unit twice, and one that is never active
    y = np.linspace(-1, 1.3, N)
    fits = [z @ np.linalg.lstsq(z, target)[0] for target in (y, np.sign(y))]
    cosines = [
        a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        for a, b in zip([*fits, fits[1]], [y, np.sign(y), y], strict=True)
    ]
    found = last_features(torch.from_numpy(z), torch.from_numpy(y))
    assert list(found.values()) == pytest.approx(cosines)


def test_last_features_that_are_nearly_alike_fit_as_well_as_others():
    z = draw(7)["layers.0.bias"].float()
    z[:, 1] = z[:, 0] + 3e-4 * z[:, 1]  # the square of 3e-4 is below the rounding of kernels
    y = torch.linspace(-1, 1.3, N, dtype=torch.float64)
    found = last_features(z, y)
    fit = z.numpy() @ np.linalg.lstsq(z.numpy().astype(float), y.numpy())[0]
    cosine = fit @ y.numpy() / np.linalg.norm(fit) / float(y.norm())
    assert found["last_features_target_cosine"] == pytest.approx(cosine, abs=1e-6)
