import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import prune

from emulated_gpu import GPU
from feature_alignment.complexity import measures as complexity
from feature_alignment.complexity.path_norm import path_norm
from feature_alignment.gradients.parameter_values import select_parameters
from feature_alignment.kernels.tangent import tangent_features
from feature_alignment.models.mlp import MLP
from feature_alignment.models.vgg import VGG
from toys import Quiet, mlp

DIAGONAL = [
    torch.diag(torch.tensor([3.0, 1.0])).double(),
    torch.diag(torch.tensor([2.0, 4.0])).double(),
]
ZEROS = [torch.zeros(2, 2).double()] * 2


def test_convolutions_become_the_matrix_that_acts_on_a_patch():
    model = VGG(11, 2, 10, torch.Generator().manual_seed(0))
    matrices = complexity.layer_matrices(model)
    assert [tuple(m.shape) for m in matrices[:2]] == [(2, 27), (4, 18)]
    assert len(matrices) == 9
    torch.testing.assert_close(matrices[0], model.features[0].weight.double().flatten(1))
    others = nn.Sequential(nn.Conv1d(2, 3, 5), nn.Conv3d(3, 4, 2), nn.Linear(6, 1))
    shapes = [tuple(m.shape) for m in complexity.layer_matrices(others)]
    assert shapes == [(3, 10), (4, 24), (1, 6)]


@pytest.mark.parametrize(
    ("layer", "parameter"),
    [
        (nn.ConvTranspose2d(1, 2, 3), "weight"),
        (nn.MultiheadAttention(4, 2), "in_proj_weight"),
        (nn.LSTM(3, 4), "weight_ih_l0"),
        (nn.Embedding(5, 3), "weight"),
    ],
)
def test_matrices_that_are_no_layer_s_are_not_left_out(layer, parameter):
    model = nn.Sequential(nn.Linear(2, 3), layer)
    layer.scale = nn.Parameter(torch.ones(1, 4, 1))  # no matrix
    with pytest.raises(ValueError, match=rf"module '1' \({type(layer).__name__}\).*'{parameter}'"):
        complexity.layer_matrices(model)


def test_normalised_weights_are_those_that_the_layer_uses():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    (matrix,) = complexity.layer_matrices(nn.Sequential(layer, nn.BatchNorm1d(3)))
    torch.testing.assert_close(matrix, layer.weight.double())


def test_weights_of_hooks_and_complex_ones_are_refused():
    with pytest.warns(FutureWarning):
        hooked = nn.utils.weight_norm(nn.Linear(3, 2))
    for layer in (
        hooked,
        nn.utils.spectral_norm(nn.Linear(3, 2)),
        nn.Linear(2, 2, dtype=torch.cfloat),
    ):
        with pytest.raises(ValueError, match=r"'0' \(Linear\) has complex weights, or a hook"):
            complexity.layer_matrices(nn.Sequential(layer))


def test_reading_weights_leaves_what_parametrisations_keep():
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(40, 30)).train()
    norms = nn.LayerNorm((3, 3)), nn.RMSNorm((3, 3))  # whose gains have two axes
    model = nn.Sequential(layer, *norms)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    complexity.layer_matrices(model)
    assert before.keys() == {name for name, _ in model.named_buffers()}
    assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())
    assert layer.training


def test_arrays_count_as_tensors_do():
    model, y = mlp(), torch.arange(6) % 2
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(5)).double()
    weights, outputs = complexity.layer_matrices(mlp((5,))), model(x).detach()
    for measure, *tensors in (
        (lambda x, y: complexity.fisher_rao_norm(model, x, y, 4), x, y),
        (complexity.margin_quantile, outputs, y),
        (lambda x: complexity.unit_capacity_bound(weights, weights, x, 1.0), x),
    ):
        assert measure(*tensors) == measure(*(tensor.numpy() for tensor in tensors))


def test_labels_and_inputs_of_the_cpu_meet_a_network_on_the_gpu(emulation):
    model, x, y = mlp((5,)), torch.ones(4, 3).double(), torch.arange(4) % 2
    weights, f = complexity.layer_matrices(model), model(x).detach()
    expected = (
        complexity.fisher_rao_norm(model, x, y),
        complexity.margin_quantile(f, y),
        complexity.unit_capacity_bound(weights, weights, x, 1.0),
    )
    with emulation():
        weights = [matrix.to(GPU) for matrix in weights]
        found = (
            complexity.fisher_rao_norm(model.to(GPU), x.to(GPU), y),
            complexity.margin_quantile(f.to(GPU), y),
            complexity.unit_capacity_bound(weights, weights, x, 1.0),
        )
    assert found == pytest.approx(expected)


def test_parameters_with_one_long_axis_are_no_matrices():
    scaled = nn.PReLU()
    scaled.scale = nn.Parameter(torch.ones(1, 4, 1))
    assert len(complexity.layer_matrices(nn.Sequential(nn.Linear(2, 4), scaled))) == 1


def test_a_model_without_weights_is_refused():
    with pytest.raises(ValueError, match="no linear or convolutional layer"):
        complexity.layer_matrices(nn.ReLU())


def test_closed_forms_of_diagonal_layers():
    assert complexity.spectral_product(DIAGONAL) == pytest.approx(12)
    assert complexity.frobenius_product(DIAGONAL) == pytest.approx(math.sqrt(10 * 20))
    assert complexity.l1_infinity_product(DIAGONAL) == pytest.approx(12)
    # Rows have norms 3 and 1, 2 and 4: sums 4 and 6, over spectral norms 3 and 4.
    expected = 12 * ((4 / 3) ** (2 / 3) + (6 / 4) ** (2 / 3)) ** 1.5
    assert complexity.spectral_complexity(DIAGONAL, ZEROS) == pytest.approx(expected)
    expected = math.sqrt(2) * 12 * math.sqrt(10 / 9 + 20 / 16)
    assert complexity.pac_bayes_spectral(DIAGONAL, ZEROS) == pytest.approx(expected)
    assert complexity.unit_capacity(DIAGONAL, ZEROS) == pytest.approx(math.sqrt(20 * 10))
    assert complexity.unit_capacity(DIAGONAL, DIAGONAL) == pytest.approx(math.sqrt(20) * 3)
    assert complexity.distance_from_start(DIAGONAL, ZEROS) == pytest.approx(math.sqrt(30))


def test_what_counts_from_the_start_is_the_change_of_the_weights():
    rng = np.random.default_rng(0)
    shapes = [(5, 3), (4, 5), (2, 4)]
    w, start = ([rng.standard_normal(shape) for shape in shapes] for _ in range(2))
    norms = [np.linalg.norm(matrix, 2) for matrix in w]
    changes = [now - before for now, before in zip(w, start, strict=True)]
    weights, initial = ([torch.tensor(matrix) for matrix in group] for group in (w, start))
    distance = math.sqrt(sum(np.square(change).sum() for change in changes))
    assert complexity.distance_from_start(weights, initial) == pytest.approx(distance)
    relative = [np.linalg.norm(c) / s for c, s in zip(changes, norms, strict=True)]
    expected = math.sqrt(5) * math.prod(norms) * math.sqrt(np.square(relative).sum())
    assert complexity.pac_bayes_spectral(weights, initial) == pytest.approx(expected)
    relative = [np.linalg.norm(c, axis=1).sum() / s for c, s in zip(changes, norms, strict=True)]
    expected = math.prod(norms) * np.sum(np.array(relative) ** (2 / 3)) ** 1.5
    assert complexity.spectral_complexity(weights, initial) == pytest.approx(expected)


def test_the_widest_hidden_layer_counts_and_not_the_outputs():
    inputs_to_one_unit, to_many_outputs = torch.eye(3)[:1].double(), torch.ones(7, 1).double()
    start = [torch.zeros(1, 3).double(), torch.zeros(7, 1).double()]
    found = complexity.pac_bayes_spectral([inputs_to_one_unit, to_many_outputs], start)
    assert found == pytest.approx(math.sqrt(1) * math.sqrt(7) * math.sqrt(2))
    one_layer = complexity.pac_bayes_spectral([to_many_outputs], start[1:])
    assert one_layer == pytest.approx(math.sqrt(7))


@pytest.mark.parametrize(
    "measure",
    [
        complexity.distance_from_start,
        complexity.pac_bayes_spectral,
        complexity.spectral_complexity,
    ],
)
def test_weights_and_start_have_as_many_layers(measure):
    with pytest.raises(ValueError, match="initial: layers of shapes"):
        measure(DIAGONAL, ZEROS[:1])


def test_the_bound_by_unit_capacity_has_the_data_and_the_margin_in_it():
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    start = [torch.eye(2, dtype=torch.float64), torch.zeros(2, 2).double()]
    # ‖U − U⁰‖_F = 2, ‖X‖_F = ‖U⁰X‖_F = √5, ‖V‖_F = √20, c = h = n = 2.
    expected = math.sqrt(20) * 3 * math.sqrt(5) / 0.5 + math.sqrt(2)
    assert complexity.unit_capacity_bound(DIAGONAL, start, x, 0.5) == pytest.approx(expected)
    images = x.reshape(2, 1, 2, 1)
    assert complexity.unit_capacity_bound(DIAGONAL, start, images, 0.5) == pytest.approx(expected)
    for margin in (0.0, math.nan, "a", torch.ones(2)):
        with pytest.raises(ValueError, match="margin: "):
            complexity.unit_capacity_bound(DIAGONAL, start, x, margin)


def test_unit_capacity_is_for_a_second_layer_of_the_first_ones_units():
    weights = [torch.ones(5, 3), torch.ones(4, 3)]
    with pytest.raises(ValueError, match="takes 3 inputs, and the first has 5 units"):
        complexity.unit_capacity(weights, weights)


def test_unit_capacity_is_for_two_layers_only():
    weights = complexity.layer_matrices(mlp())
    with pytest.raises(ValueError, match=r"^unit_capacity: the network has 3 layers"):
        complexity.unit_capacity(weights, weights)
    with pytest.raises(ValueError, match=r"^unit_capacity_bound: the network has 3 layers"):
        complexity.unit_capacity_bound(weights, weights, torch.ones(1, 3), 1.0)


@settings(deadline=None, max_examples=20)
@given(st.floats(0.1, 10), st.integers(0, 100))
def test_rescaling_between_layers_leaves_products_and_path_norm(scale, seed):
    """relu(a h) = a relu(h), so a and 1/a around a hidden layer give the same function."""
    model = mlp(seed=seed)
    weights = complexity.layer_matrices(model)
    before = [measure(weights) for measure in PRODUCTS]
    path_before = path_norm(model, (3,))
    with torch.no_grad():
        model.layers[0].weight.mul_(scale)
        model.layers[0].bias.mul_(scale)
        model.layers[1].weight.div_(scale)
    weights = complexity.layer_matrices(model)
    assert [measure(weights) for measure in PRODUCTS] == pytest.approx(before, rel=1e-9)
    assert path_norm(model, (3,)) == pytest.approx(path_before, rel=1e-9)


PRODUCTS = (
    complexity.spectral_product,
    complexity.frobenius_product,
    complexity.l1_infinity_product,
)


def test_matrices_and_deviations_are_copies_that_training_does_not_change():
    model = mlp()
    before = complexity.layer_matrices(model)
    kept = [matrix.clone() for matrix in before]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert all(torch.equal(a, b) for a, b in zip(before, kept, strict=True))
    assert complexity.distance_from_start(complexity.layer_matrices(model), before) > 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_has_no_measure(value):
    model = mlp()
    with torch.no_grad():
        model.layers[0].weight[0, 0] = value
    with pytest.raises(ValueError, match="some weights of the model are not finite"):
        complexity.layer_matrices(model)
    with pytest.raises(ValueError, match="the sum over paths is not finite"):
        path_norm(model, (3,))
    with pytest.raises(ValueError, match="outputs: some are not finite"):
        complexity.margin_quantile(torch.tensor([[value, 0.0]]), torch.tensor([0]))


@pytest.mark.parametrize("build", [mlp, lambda: VGG(11, 2, 4, torch.Generator().manual_seed(1))])
def test_the_fisher_rao_norm_is_that_of_each_sample_s_own_gradient(build):
    model = build().double()
    shape = (3,) if isinstance(model, MLP) else (3, 32, 32)
    x = torch.randn(6, *shape, generator=torch.Generator().manual_seed(2)).double()
    y = torch.arange(6) % 2
    products = []
    for sample, label in zip(x, y, strict=True):
        loss = nn.functional.cross_entropy(model(sample[None]), label[None])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        pairs = zip(gradients, model.parameters(), strict=True)
        products.append(sum(float((g * w.detach()).sum()) for g, w in pairs))
    expected = math.sqrt(np.square(products).mean())
    assert complexity.fisher_rao_norm(model, x, y, 4) == pytest.approx(expected, rel=1e-9)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_fisher_rao_norm_takes_inputs_and_outputs_as_a_kernel_does():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x, shift):
            return {"hidden": x, "logits": self.layer(x + shift)}

    layer = nn.Linear(3, 2)
    model = Shifted()
    x, y, shift = torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1]), torch.ones(3)
    expected = complexity.fisher_rao_norm(layer, x + shift, y, 2)
    batch, options = {"x": x, "shift": shift}, {"inputs": ["x"], "output": "logits"}
    assert complexity.fisher_rao_norm(model, batch, y, 3, **options) == pytest.approx(expected)


def test_the_fisher_rao_norm_of_a_homogeneous_network_needs_outputs_alone():
    """Without biases Jw = L f, Theorem 3.1 of arXiv:1711.01530."""
    model = mlp(bias=False)
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(3)).double()
    y = torch.arange(7) % 2
    f = model(x).detach()
    gradient = f.softmax(1) - nn.functional.one_hot(y, 2)
    expected = 3 * float((gradient * f).sum(1).square().mean().sqrt())
    assert complexity.fisher_rao_norm(model, x, y) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("margin", [3, 30, 60, 300])
def test_the_fisher_rao_norm_of_well_fitted_labels_is_not_rounded_away(margin, dtype):
    model = nn.Linear(3, 3, bias=False, dtype=dtype)
    nn.init.eye_(model.weight)
    f = torch.tensor([[margin, 0, 0]], dtype=dtype)
    expected = 2 * margin / (math.exp(margin) + 2)  # of the other classes' probabilities alone
    found = complexity.fisher_rao_norm(model, f, torch.tensor([0]))
    assert found == pytest.approx(expected, rel=1e-12, abs=0)


def test_a_fisher_rao_norm_that_is_not_finite_is_refused():
    x = torch.full((2, 3), 1e200, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"fisher_rao_norm: .* is not finite"):
        complexity.fisher_rao_norm(nn.Linear(3, 2).double(), x, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"y: labels of shape \(\) for 2 samples; give one for"):
        complexity.fisher_rao_norm(nn.Linear(3, 2).double(), x, torch.tensor(1))


def test_the_margin_is_that_to_the_strongest_rival():
    f = torch.tensor([[1.0, 4.0, 2.0], [0.0, -3.0, 1.0]])
    y = torch.tensor([1, 0])
    assert complexity.margin_quantile(f, y, 0.0) == pytest.approx(-1)
    assert complexity.margin_quantile(f, y, 1.0) == pytest.approx(2)
    assert complexity.margin_quantile(f, y, 0.5) == pytest.approx(0.5)
    assert complexity.margin_quantile(f - 9, y, 0.0) == pytest.approx(-1)
    assert complexity.margin_quantile(f, y) == complexity.margin_quantile(f, y, 0.1)
    for q, found in (("a", "a str"), (torch.ones(2), "2 numbers")):
        with pytest.raises(ValueError, match=f"q: {found}; give a number from 0 to 1"):
            complexity.margin_quantile(f, y, q)
    for q in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"q: .*; a quantile is from 0 to 1"):
            complexity.margin_quantile(f, y, q)


def test_margins_of_half_precision_are_differences_in_double():
    f = torch.tensor([[2048, 0.5]], dtype=torch.float16)
    assert complexity.margin_quantile(f, torch.tensor([0]), 0.0) == 2047.5


def test_a_layer_of_zeros_has_no_spectral_measure():
    weights = [torch.ones(3, 2), torch.zeros(1, 3)]
    for measure in (complexity.spectral_complexity, complexity.pac_bayes_spectral):
        with pytest.raises(ValueError, match="weights are zero"):
            measure(weights, weights)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Dropout(), nn.Linear(5, 2))


@pytest.mark.parametrize(
    "y",
    [
        *([[0], [1], [0], [1]], [0, 1], [0, 1, 0, 1, 0]),
        *([-2, -1, 0, 1], [0, 1, 2, 0], [0.5, 1, 0, 1]),
    ],
)
def test_labels_that_are_no_class_numbers_are_refused(y):
    x = torch.randn(4, 3)
    with pytest.raises(ValueError, match="y: "):
        complexity.fisher_rao_norm(network(), x, torch.tensor(y))
    with pytest.raises(ValueError, match="y: "):
        complexity.margin_quantile(torch.randn(4, 2), torch.tensor(y))


def test_the_fisher_rao_norm_takes_modes_and_frozen_parameters_as_they_count():
    model, x, y = network().eval(), torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
    expected = complexity.fisher_rao_norm(model, x, y)
    model.train()
    model[0].weight.requires_grad_(False)
    model.register_parameter("unused", nn.Parameter(torch.ones(2)))
    with torch.no_grad():
        assert complexity.fisher_rao_norm(model, x, y) == pytest.approx(expected, rel=1e-12)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    "measure",
    [
        complexity.distance_from_start,
        complexity.spectral_complexity,
        complexity.pac_bayes_spectral,
        complexity.unit_capacity,
    ],
)
def test_initial_weights_of_another_shape_are_refused(measure):
    weights = [torch.eye(3), torch.eye(3)]
    with pytest.raises(ValueError, match="initial: layers of shapes"):
        measure(weights, [torch.zeros(3, 1), torch.eye(3)])


class Branch(nn.Module):
    def __init__(self, quiet):
        super().__init__()
        torch.manual_seed(0)
        self.quiet, self.first, self.last = quiet, nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        h = self.first(x)
        return self.last(torch.tanh(h) + (Quiet.apply(h) if self.quiet else h))


def test_fisher_rao_of_a_branch_without_second_derivatives():
    x, y = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3
    found, expected = (complexity.fisher_rao_norm(Branch(quiet), x, y) for quiet in (True, False))
    assert found == pytest.approx(expected, rel=1e-5)


def test_fisher_rao_of_attention_and_integers():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(24, 3)).eval()
    model.count = nn.Parameter(torch.ones(1, dtype=torch.long), requires_grad=False)
    x, y = torch.randn(4, 3, 8), torch.arange(4) % 3
    phi = tangent_features(model, x)  # (n, c, p)
    names = select_parameters(model, None)
    w = torch.cat([dict(model.named_parameters())[name].detach().flatten() for name in names])
    gradient = model(x).detach().softmax(1) - nn.functional.one_hot(y, 3)
    along = (gradient * (phi @ w)).sum(1)
    assert complexity.fisher_rao_norm(model, x, y) == pytest.approx(
        float(along.square().mean().sqrt())
    )


@pytest.mark.parametrize("shape", [(0, 2), (5, 1)])
def test_margins_need_a_sample_and_two_classes(shape):
    with pytest.raises(ValueError, match=rf"y: labels .* {shape[0]} samples and {shape[1]} outp"):
        complexity.margin_quantile(torch.randn(shape), torch.zeros(shape[0]))


@pytest.mark.parametrize("shape", [(5,), (5, 3, 2)])
def test_outputs_that_are_no_classes_are_told(shape):
    with pytest.raises(ValueError, match=r"outputs of shape \(5.*\); \(n, c\) is needed"):
        complexity.margin_quantile(torch.randn(shape), torch.zeros(5))


def test_weights_that_a_hook_makes_are_refused():
    """They would be those of the last forward pass."""
    model = mlp()
    layer = next(m for m in model.modules() if isinstance(m, nn.Linear))
    prune.random_unstructured(layer, "weight", amount=0.4)
    with pytest.raises(ValueError, match="a hook that makes them at each forward pass"):
        complexity.layer_matrices(model)


def test_grouped_convolutions_have_the_matrix_of_the_dense_one():
    torch.manual_seed(0)
    grouped = nn.Conv2d(6, 4, 3, groups=2, bias=False)
    patch = torch.randn(6, 3, 3)
    (matrix,) = complexity.layer_matrices(grouped)
    assert matrix.shape == (4, 54)
    torch.testing.assert_close(
        matrix @ patch.flatten().double(), grouped(patch).flatten().detach().double()
    )


@pytest.mark.parametrize(
    "weights",
    [
        mlp(),
        None,
        (matrix for matrix in DIAGONAL),
        [],
        torch.eye(2),
        {"a": torch.eye(2)},
        [torch.eye(2)[0]],
        [torch.ones(0, 2)],
        [torch.full((2, 2), math.nan)],
        [torch.ones(2, 3, 1, 1)],
    ],
)
@pytest.mark.parametrize(
    "measure",
    [
        complexity.spectral_product,
        complexity.frobenius_product,
        complexity.l1_infinity_product,
        lambda w: complexity.spectral_complexity(w, w),
        lambda w: complexity.pac_bayes_spectral(w, w),
        lambda w: complexity.distance_from_start(w, w),
        lambda w: complexity.unit_capacity(w, w),
    ],
)
def test_weights_that_are_no_finite_matrices_are_refused(measure, weights):
    with pytest.raises(ValueError, match=r"weights: found .*; give a list of finite matrices"):
        measure(weights)


@pytest.mark.parametrize("shape", [(0, 3), (5, 2), (5,), ()])
def test_inputs_that_do_not_fit_the_bound_are_refused(shape):
    weights = [torch.ones(4, 3), torch.ones(2, 4)]
    with pytest.raises(ValueError, match=r"x: of shape .*; the first layer takes 3 inputs"):
        complexity.unit_capacity_bound(weights, weights, torch.ones(shape), 1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_inputs_that_are_not_finite_have_no_bound(value):
    with pytest.raises(ValueError, match=r"^x: some inputs are not finite"):
        complexity.unit_capacity_bound(DIAGONAL, ZEROS, torch.tensor([[value, 1.0]]), 1.0)


def test_a_network_whose_outputs_are_no_tensor_is_told_by_the_fisher_rao_norm():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(3, 2)

        def forward(self, x):
            return {"logits": self.f(x)}

    with pytest.raises(ValueError, match=r"logits"):
        complexity.fisher_rao_norm(Named(), torch.ones(4, 3), torch.zeros(4))


@pytest.mark.parametrize("size", [0, -1, 2.5])
def test_chunks_of_no_sample_are_refused(size):
    with pytest.raises(ValueError, match=f"^chunk_size: {size}; it must be a whole number of at"):
        complexity.fisher_rao_norm(network(), torch.ones(4, 3), torch.zeros(4), size)


def test_classes_of_tokens_have_no_fisher_rao_norm():
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 5))
    tokens, y = torch.arange(6).reshape(2, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"one class number for each sample, for outputs of shape"):
        complexity.fisher_rao_norm(model, tokens, y)
    expected = complexity.fisher_rao_norm(model, tokens[:, -1], y)
    for output in (lambda f: f[:, -1], lambda f: f[:, -1, :, None]):
        last = complexity.fisher_rao_norm(model, tokens, y, output=output)
        assert last == pytest.approx(expected)
