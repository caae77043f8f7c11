from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from feature_alignment.determinism import torch_stream
from feature_alignment.kernels import tangent
from feature_alignment.kernels.alignment import label_alignment
from feature_alignment.kernels.tangent import tangent_features, tangent_kernel
from feature_alignment.kernels.tangent_grams import TangentKernel
from feature_alignment.models.mlp import MLP
from toys import Toy


def inputs(n, d=3, seed=0):
    return torch.randn(n, d, dtype=torch.float64, generator=torch_stream(seed, "data"))


def mlp(activation="relu", bias=True, outputs=2, seed=0):
    generator = torch_stream(seed, "init")
    return MLP(3, [5, 4], outputs, activation, bias, generator, dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["relu", "quadratic", "erf"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_kernels_and_features_are_those_of_the_explicit_jacobian(
    activation, bias, outputs, explicit_kernel, assert_same_kernel, explicit_jacobian
):
    model, x, x2 = mlp(activation, bias, outputs), inputs(6), inputs(4, seed=1)
    kernel = tangent_kernel(model, x)
    assert kernel.outputs == outputs
    assert_same_kernel(kernel, explicit_kernel(model, x), 1e-10)
    assert_same_kernel(tangent_kernel(model, x, x2), explicit_kernel(model, x, x2), 1e-10)
    features = tangent_features(model, x).flatten(0, 1)
    torch.testing.assert_close(features, explicit_jacobian(model, x))


def test_features_are_formed_some_samples_at_a_time(monkeypatch, explicit_jacobian):
    monkeypatch.setattr(tangent, "_FEATURES", 80)  # of two samples, as the largest has 2 · 20
    model, x = mlp(), inputs(5)
    features = tangent_features(model, x).flatten(0, 1)
    torch.testing.assert_close(features, explicit_jacobian(model, x))


def test_a_linear_models_kernel_is_the_inner_product_of_inputs():
    model = nn.Linear(3, 1).double()
    x, x2 = inputs(4), inputs(2, seed=1)
    torch.testing.assert_close(tangent_kernel(model, x, x2).total, x @ x2.T + 1)


def test_arrays_of_the_columns_are_taken_in_the_models_precision():
    model, x, x2 = mlp().float(), inputs(4).numpy(), inputs(2, seed=1).numpy()
    found = tangent_kernel(model, x, x2).total
    expected = tangent_kernel(model, torch.tensor(x).float(), torch.tensor(x2).float()).total
    torch.testing.assert_close(found, expected)


def test_kernel_and_features_at_other_parameters_are_the_other_models():
    model, other, x = mlp(), mlp(seed=1), inputs(4)
    values = dict(other.named_parameters())
    found = tangent_kernel(model, x, parameters=values)
    torch.testing.assert_close(found.total, tangent_kernel(other, x).total)
    torch.testing.assert_close(tangent_features(model, x, values), tangent_features(other, x))


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


@pytest.mark.parametrize("shape", [(5,), (20,), (10, 3), (10, 1), (10, 2, 2), ()])
def test_an_alignment_needs_a_label_for_each_sample(shape):
    kernel = tangent_kernel(nn.Linear(3, 2).double(), torch.randn(10, 3).double())
    assert kernel.alignment(torch.arange(10) % 2) == kernel.alignment(torch.eye(2)[[0, 1] * 5])
    with pytest.raises(ValueError, match="for 10 samples and 2 outputs; give"):
        kernel.alignment(torch.zeros(shape))


@pytest.mark.parametrize("apart", [1, 1e-3])
def test_a_kernel_between_two_sets_has_no_alignment(apart):
    kernel = tangent_kernel(mlp(), inputs(6), inputs(6) + apart * inputs(6, seed=1))
    with pytest.raises(ValueError, match="between two sets of samples"):
        kernel.alignment(torch.tensor([0, 1, 0, 1, 0, 1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features_that_are_exactly_the_same_are_0_once_centred(dtype):
    kernel = tangent_kernel(nn.Linear(3, 2, dtype=dtype), inputs(4).to(dtype), only=["bias"])
    assert not kernel.centred.any()
    zero = TangentKernel({"": torch.zeros(4, 4, dtype=dtype)}, outputs=1)
    for each in (kernel, zero):
        with pytest.raises(ValueError, match="the kernel is 0: the features are the same for all"):
            each.spectrum()
    with pytest.raises(ValueError, match=r"^the kernel is 0: the features of all samples are 0"):
        zero.spectrum(centred=False)


@pytest.mark.parametrize("scale", [1e-150, 1e-90, 1e78])  # whose squares under- or overflow
def test_a_spectrum_does_not_depend_on_the_scale(scale):
    model, x = nn.Linear(3, 1, bias=False).double(), inputs(4)
    kernel, expected = tangent_kernel(model, scale * x), tangent_kernel(model, x)
    for centred in (True, False):
        found = kernel.effective_rank(centred=centred)
        assert found == pytest.approx(expected.effective_rank(centred=centred), rel=1e-6)


def test_negative_eigenvalues_are_rounding_only_as_far_as_the_precision():
    for dtype, smallest in ((torch.float32, -1e-5), (torch.float64, -1e-11)):
        gram = torch.diag(torch.tensor([1, smallest], dtype=dtype))
        assert TangentKernel({"": gram}, 1).spectrum(centred=False).tolist() == [1, 0]
        with pytest.raises(ValueError, match="not positive semidefinite"):
            TangentKernel(
                {"": torch.diag(gram.diagonal() * gram.new_tensor([1, 100]))}, 1
            ).spectrum(centred=False)


def test_a_part_of_a_kernel_has_its_outputs():
    kernel = tangent_kernel(mlp(outputs=3), inputs(4))
    for part in (kernel.by_block(), kernel[next(iter(kernel))]):
        assert part.outputs == 3


def test_a_kernel_of_no_layer_is_refused():
    with pytest.raises(ValueError, match="layers: there are none"):
        TangentKernel({}, 1)


def test_what_is_wrong_with_the_columns_is_told_of_them():
    model, x = nn.Linear(3, 2), inputs(4).float()
    with pytest.raises(
        ValueError, match=r"x2, the inputs of the columns: torch\.int64, where.*labels"
    ):
        tangent_kernel(model, x, torch.tensor([0, 1, 0, 1]))
    with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
        tangent_kernel(model, x, torch.ones(4, 5))
    assert caught.value.__notes__ == ["This is of x2, the inputs of the kernel's columns."]


def test_a_spectrum_is_allowed_the_rounding_that_centring_leaves():
    x = 1 + 0.01 * inputs(12)
    exact = tangent_kernel(mlp("erf"), x).spectrum()
    found = tangent_kernel(mlp("erf").float(), x.float()).spectrum()
    assert found / exact[0] == pytest.approx(exact / exact[0], abs=2e-3)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_layers_in_two_precisions_are_summed_in_the_higher(order):
    grams = [torch.eye(2), torch.full((2, 2), 1e-9, dtype=torch.float64)]
    total = TangentKernel({str(i): grams[i] for i in order}, 1).total
    assert total.dtype == torch.float64
    assert (total - torch.eye(2)).tolist() == [[pytest.approx(1e-9, rel=1e-6)] * 2] * 2


def test_a_layer_in_two_precisions_is_summed_in_the_higher():
    model = Toy(lambda m, x: x @ m.weight.double().T + m.bias)
    model.weight = nn.Parameter(torch.ones(2, 3))
    model.bias = nn.Parameter(torch.ones(2, dtype=torch.float64))
    x = inputs(5).float().double()
    found = tangent_kernel(model, x).total
    torch.testing.assert_close(found, torch.kron(x @ x.T + 1, torch.eye(2).double()))


def test_features_in_half_precision_are_summed_in_single():
    model = Toy(lambda m, x: m.layer(x).float().sum(1), layer=nn.Linear(3, 1).half())
    x = inputs(200)[None].half()
    found = tangent_features(model, x)
    torch.testing.assert_close(found[0, 0, :3], x[0].float().sum(0), rtol=1e-6, atol=0)


@pytest.mark.parametrize("spread", [1e-3, 1e-4])
def test_an_alignment_that_would_be_of_rounding_is_refused(spread):
    model, x, y = mlp("erf"), 1 + spread * inputs(12), torch.arange(12) % 2
    assert 0 < tangent_kernel(model, x).alignment(y) < 1
    kernel = tangent_kernel(model.float(), x.float())
    assert kernel.alignment(y, "uncentred") > 0
    for alignment in (kernel.alignment, partial(label_alignment, kernel.total)):
        with pytest.raises(ValueError, match=r"once centred, the kernel is zero to rounding"):
            alignment(y)
    for measure in (lambda: kernel.centred, kernel.spectrum, kernel.effective_rank):
        with pytest.raises(ValueError, match=r"is rounding: .* in float32; try model\.double\(\)"):
            measure()


def test_a_single_sample_has_no_centred_kernel():
    kernel = tangent_kernel(nn.Linear(3, 2), torch.randn(1, 3))
    with pytest.raises(ValueError, match="a single sample has no centred kernel"):
        kernel.effective_rank()
    assert kernel.spectrum(centred=False)[0] > 0
