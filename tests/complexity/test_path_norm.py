import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from feature_alignment.complexity.path_norm import path_norm
from toys import mlp


class Named(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)

    def forward(self, x):
        return {"logits": super().forward(x)}


@pytest.mark.parametrize("bias", [False, True])
def test_the_path_norm_sums_over_every_path(bias):
    model = mlp(bias=bias)
    w = [layer.weight.detach().numpy() for layer in model.layers]
    total = 0.0
    for i, j, k, y in itertools.product(range(3), range(5), range(4), range(2)):
        total += (w[0][j, i] * w[1][k, j] * w[2][y, k]) ** 2
    if bias:
        b = [layer.bias.detach().numpy() for layer in model.layers]
        total += np.square(b[2]).sum()
        for k, y in itertools.product(range(4), range(2)):
            total += (b[1][k] * w[2][y, k]) ** 2
        for j, k, y in itertools.product(range(5), range(4), range(2)):
            total += (b[0][j] * w[1][k, j] * w[2][y, k]) ** 2
    assert path_norm(model, (3,)) == pytest.approx(math.sqrt(total), rel=1e-12)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (nn.BatchNorm1d(4), r"module '1' \(BatchNorm1d\) normalises"),
        (nn.LayerNorm(4), r"module '1' \(LayerNorm\) normalises"),
        (nn.GroupNorm(2, 4), r"module '1' \(GroupNorm\) normalises"),
        (nn.RMSNorm(4), r"module '1' \(RMSNorm\) normalises"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), "weights of other parameters"),
        (nn.AvgPool1d(1), r"module '1' \(AvgPool1d\) normalises, averages"),
        (nn.AdaptiveAvgPool1d(4), "AdaptiveAvgPool1d"),
        (nn.GELU(), "are not proportional to the size of its inputs"),
        (nn.Tanh(), "networks with ReLU"),
        *((layer, "networks with ReLU") for layer in (nn.ELU(), nn.SELU(), nn.ReLU6())),
    ],
)
def test_networks_that_are_no_sums_over_paths_have_no_path_norm(layer, said):
    with pytest.raises(ValueError, match=said):
        path_norm(nn.Sequential(nn.Linear(3, 4), layer, nn.Linear(4, 1)), (3,))


@pytest.mark.parametrize("layer", [nn.ReLU(), nn.LeakyReLU(), nn.PReLU(), nn.Dropout()])
def test_biases_of_any_name_are_paths(layer):
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = nn.Parameter(torch.tensor([2.0, 0.0]))

        def forward(self, x):
            return x + self.shift

    last = nn.Linear(2, 1, bias=False)
    nn.init.ones_(last.weight)
    model = nn.Sequential(Shifted(), layer, last)
    assert path_norm(model, (2,)) == pytest.approx(math.sqrt(1 + 1 + 4))


def test_what_is_nearly_homogeneous_has_no_path_norm():
    class Offset(nn.Linear):
        def forward(self, x):
            return super().forward(x) + self.offset

    offset = Offset(3, 1, bias=False)
    nn.init.ones_(offset.weight)
    offset.offset = nn.Parameter(torch.full((1, 1), 1e-4))  # whose axes are those of a weight
    for model in (offset, nn.Sequential(nn.ELU(), nn.Linear(3, 1))):
        with pytest.raises(ValueError, match="are not proportional to the size of its inputs"):
            path_norm(model, (3,))


def test_parameters_that_take_no_part_leave_the_path_norm():
    model = mlp()
    expected = path_norm(model, (3,))
    model.unused = nn.Parameter(torch.ones(2, 2))
    model.count = nn.Parameter(torch.ones(1, dtype=torch.long), requires_grad=False)
    assert path_norm(model, (3,)) == expected


def test_weights_that_a_hook_makes_have_no_path_norm():
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(nn.Linear(3, 2))
    with pytest.raises(ValueError, match="weights of other parameters"):
        path_norm(layer, (3,))


def test_the_path_norm_is_that_of_evaluation_mode():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1)).train()
    state = torch.get_rng_state()
    found = {path_norm(model, (3,)) for _ in range(3)}
    assert found == {path_norm(model.eval(), (3,))}
    assert torch.equal(torch.get_rng_state(), state)


def test_the_path_norm_leaves_the_model():
    model = mlp()
    before = [parameter.clone() for parameter in model.parameters()]
    path_norm(model, (3,))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


def test_the_path_norm_leaves_the_random_numbers():
    model = nn.Sequential(nn.Conv2d(1, 1, 3), nn.FractionalMaxPool2d(2, 10))
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="not proportional"):
        path_norm(model, (1, 30, 30))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("factor", [1, 10])
def test_a_network_that_subtracts_has_no_path_norm(factor):
    class Difference(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.c(self.a(x) - factor * self.b(x))

    torch.manual_seed(0)
    with pytest.raises(ValueError, match="the model subtracts"):
        path_norm(Difference(), (3,))


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: m(x) - x,
        lambda m, x: m(torch.relu(-x)),
        lambda m, x: m(x - x.flip(1)),
        lambda m, x: m(torch.relu(torch.cat([m(x), -m(x)], 1))[:, 1:3]),
        lambda m, x: 0 - m(x),
        lambda m, x: m(torch.relu(0 - x)),
        lambda m, x: m(x)[:, 0].square() / m(x).sum(1),
    ],
)
def test_differences_of_what_rectifiers_hide_have_no_path_norm(function):
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return function(self.layer, x)

    with pytest.raises(ValueError, match=r"^path_norm: the model subtracts"):
        path_norm(Network(), (2,))


def test_interpolation_has_no_path_norm_but_repetition_has():
    layer = nn.Conv2d(1, 1, 1, bias=False)
    with pytest.raises(ValueError, match="averages"):
        path_norm(nn.Sequential(layer, nn.Upsample(scale_factor=2, mode="bilinear")), (1, 2, 2))
    model = nn.Sequential(layer, nn.Upsample(scale_factor=2))
    assert path_norm(model, (1, 2, 2)) == pytest.approx(4 * abs(layer.weight.item()))


@pytest.mark.parametrize(("model", "kind"), [(nn.LSTM(2, 2), "tuple"), (Named(), "dict")])
def test_a_model_that_returns_no_tensor_has_no_path_norm(model, kind):
    with pytest.raises(ValueError, match=f"returns a {kind}"):
        path_norm(model, (2,))


def threes(*shape):
    return torch.full(shape, 3.0, dtype=torch.float64)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda m, x: m(x) / 3**0.5, "Div"),
        (
            lambda m, x: torch.addcmul(m(x), m(x), torch.full((2,), 0.5).to(x)),
            "Addcmul",
        ),  # the NTK parametrisation
        (lambda m, x: 0.1 * m(x), "Mul"),
        (lambda m, x: m(x) * torch.tensor([0.0, 2.0]), "Mul"),
        (lambda m, x: x + torch.add(x, m(x)[:, :1], alpha=0.5), "Add"),
        (lambda m, x: m(x).mean(1), "Mean"),
        (lambda m, x: torch.addmm(m.bias, x, m.weight.T, alpha=0.5), "Addmm"),
        (lambda m, x: torch.addmm(m.bias, x, m.weight.T, beta=0.5), "Addmm"),
        (lambda m, x: m(x) @ threes(2), "Mv"),
        (lambda m, x: torch.dot(m(x)[0], threes(2)), "Dot"),
        (lambda m, x: torch.bmm(m(x)[None], threes(1, 2, 2)), "Bmm"),
        (lambda m, x: torch.addmv(m(x)[0], threes(2, 2), m(x)[0]), "Addmv"),
        (lambda m, x: torch.addbmm(m(x), m(x)[None], threes(1, 2, 2)), "Addbmm"),
        (lambda m, x: torch.baddbmm(m(x)[None], m(x)[None], threes(1, 2, 2)), "Baddbmm"),
        (lambda m, x: nn.functional.conv1d(m(x)[:, None], threes(1, 1, 2)), "Convolution"),
        (lambda m, x: torch.lerp(m(x), 2 * m(x), 0.5), "Lerp"),
        (
            lambda m, x: nn.functional.grid_sample(
                m(x)[None, None], torch.zeros(1, 1, 1, 2).to(x), align_corners=False
            ),
            "GridSampler",
        ),
        (lambda m, x: nn.functional.linear(m(x), torch.full((2, 2), 3.0).to(x)), "Mm"),
        (lambda m, x: nn.functional.avg_pool1d(m(x), 2), "AvgPool"),
    ],
)
def test_constant_factors_have_no_path_norm(function, said):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return function(self.layer, x)

    with pytest.raises(ValueError, match=rf"averages or multiplies by a constant \({said}"):
        path_norm(Scaled(), (3,))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda h: h.norm(dim=1, keepdim=True), "LinalgVectorNorm"),
        (lambda h: h.square().sum(1).sqrt(), "Sqrt"),
        (lambda h: h.prod(1).abs() ** 0.5, "Pow"),
        (lambda h: h.prod(1).abs() ** torch.tensor(0.5), "Pow"),
        (lambda h: torch.hypot(*h.unbind(1)), "Hypot"),
        (lambda h: h.square() * h.square().rsqrt(), "Rsqrt"),
        (lambda h: torch.cdist(h, torch.zeros_like(h)), "Cdist"),
        (lambda h: torch.linalg.svdvals(h), "LinalgSvd"),
        (torch.ops.aten.norm, "Norm"),
    ],
)
def test_roots_and_norms_have_no_path_norm(function, said):
    class Rooted(nn.Linear):
        def forward(self, x):
            return function(super().forward(x))

    with pytest.raises(ValueError, match=rf"^path_norm: .* takes a root or a norm \({said}\)"):
        path_norm(Rooted(3, 2, bias=False), (3,))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda h: h.amin(1), "Amin"),
        (lambda h: h.min(1).values, "Min"),
        (lambda h: torch.minimum(*h.unbind(1)), "Minimum"),
        (lambda h: torch.fmin(*h.unbind(1)), "Fmin"),
        (lambda h: h.median(1).values, "Median"),
        (lambda h: h.nanmedian(1).values, "Nanmedian"),
        (lambda h: h.kthvalue(1, 1).values, "Kthvalue"),
        (lambda h: h.cummin(1).values, "Cummin"),
    ],
)
def test_what_takes_less_than_the_largest_has_no_path_norm(function, said):
    class Smaller(nn.Linear):
        def forward(self, x):
            return function(super().forward(x).relu())

    with pytest.raises(ValueError, match=rf"^path_norm: .* than the largest .* \({said}\)"):
        path_norm(Smaller(3, 2), (3,))


def test_batch_normalisation_as_a_function_has_no_path_norm():
    class Normed(nn.Linear):
        def forward(self, x):
            mean, variance = torch.zeros(2).to(x), torch.full((2,), 4.0).to(x)
            return nn.functional.batch_norm(super().forward(x), mean, variance)

    with pytest.raises(ValueError, match=r"averages or multiplies by a constant \(NativeBatchNorm"):
        path_norm(Normed(3, 2, bias=False), (3,))


@pytest.mark.parametrize("power", [2, 3])
def test_powers_of_weights_have_a_path_norm(power):
    class Powers(nn.Linear):
        def forward(self, x):
            return x @ (self.weight**power).T

    model = Powers(3, 2, bias=False)
    expected = (model.weight.detach() ** power).norm()
    assert path_norm(model, (3,)) == pytest.approx(float(expected))


class OfWeights(nn.Linear):
    """A layer that first takes a function of its weights."""

    def __init__(self, function):
        super().__init__(3, 2, bias=False)
        self.function = function

    def forward(self, x):
        return x @ self.function(self.weight).T


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (torch.exp, "Exp"),
        (torch.tanh, "Tanh"),
        (torch.relu, "Relu"),
        (torch.round, "Round"),
        (lambda w: w.clamp(-1, 1), "Clamp"),
        (lambda w: w.softmax(1), "Softmax"),
        (lambda w: torch.where(w > 0, w, 0 * w), "Where"),
    ],
)
def test_functions_of_weights_have_no_path_norm(function, said):
    with pytest.raises(ValueError, match=rf"computes weights from other parameters \({said}\)"):
        path_norm(OfWeights(function), (3,))


@pytest.mark.parametrize(
    "function",
    [
        torch.abs,
        torch.tril,
        lambda w: w[[1, 0]].flip(1),
        lambda w: w.flatten().view(2, 3).T.contiguous().T,
        lambda w: torch.cat([w[:1], torch.stack(w[1:].unbind(1), 1)]),
        lambda w: nn.functional.pad(w, (0, 1))[:, :3],
        lambda w: w.T.expand(2, 3, 2)[0].T,
    ],
)
def test_weights_in_another_order_have_a_path_norm(function):
    model = OfWeights(function)
    expected = float(function(model.weight.detach()).norm())
    assert path_norm(model, (3,)) == pytest.approx(expected)


def test_masks_of_zeros_and_ones_have_a_path_norm():
    class Masked(nn.Linear):
        def forward(self, x):
            return super().forward(x) * torch.tensor([1.0, 0.0]) / 1

    model = Masked(3, 2)
    expected = model.weight[0].square().sum() + model.bias[0].square()
    assert path_norm(model, (3,)) ** 2 == pytest.approx(float(expected.detach()))


def test_sums_of_zeros_and_averages_of_one_number_have_a_path_norm():
    class Summed(nn.Linear):
        def forward(self, x):
            return torch.addmm(torch.zeros(1).to(x), x, self.weight.T).mean(1)

    model = Summed(3, 1, bias=False)
    assert path_norm(model, (3,)) == pytest.approx(float(model.weight.detach().norm()))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_path_norms_are_taken_without_gradients(mode):
    expected = path_norm(mlp(), (3,))
    with mode():
        assert path_norm(mlp(), (3,)) == expected


@pytest.mark.parametrize(
    ("model", "shape", "said"),
    [
        (nn.ReLU(), (3,), "^model: its parameters are none, or complex; give a network"),
        (nn.Linear(3, 1, dtype=torch.cfloat), (3,), "^model: its parameters are none, or complex"),
        (nn.Linear(3, 1), (2,), r"^input_shape: \(2,\); give the shape of one input .*multiplied"),
        (nn.Linear(3, 1), 3, "^input_shape: 3; give the shape of one input"),
    ],
)
def test_a_path_norm_without_weights_or_inputs_is_refused(model, shape, said):
    with pytest.raises(ValueError, match=said):
        path_norm(model, shape)
