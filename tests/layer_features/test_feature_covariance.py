import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from feature_alignment.determinism import torch_stream
from feature_alignment.kernels.average_features import copy_parameters
from feature_alignment.layer_features.feature_covariance import features, layer_feature_matrices
from feature_alignment.layer_features.feature_matrices import (
    cosine_similarity,
    preactivation_feature_covariance,
)
from feature_alignment.layer_features.layer_matrices import FeatureMatrices
from feature_alignment.layer_features.preactivation_gradients import preactivation_gradients
from feature_alignment.models.gpt import GPT
from feature_alignment.models.mlp import MLP
from feature_alignment.models.resnet import ResNet18
from feature_alignment.models.vgg import VGG
from toys import Toy, draw, linear

DOUBLE = torch.float64


def stream(name="init", seed=0):
    return torch_stream(seed, name)


def mlp(outputs=3, bias=False):
    return MLP(4, [6, 5], outputs, "quadratic", bias, stream(), dtype=DOUBLE)


class Convolutions(nn.Module):
    """Strides, padding and dilation, with in-place activations and a readout."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, stride=2, padding=1, dtype=DOUBLE)
        self.second = nn.Conv2d(4, 3, (1, 2), dilation=2, padding="same", dtype=DOUBLE)
        self.readout = nn.Linear(3 * 9, 2, dtype=DOUBLE)
        for parameter, seed in zip(self.parameters(), range(9), strict=False):
            parameter.data = 0.5 * draw(*parameter.shape, seed=seed)

    def forward(self, x):
        h = torch.relu_(self.first(x))
        h = torch.tanh_(self.second(h))
        return self.readout(h.flatten(1))


def gpt(outputs="every_position"):
    return GPT(
        5, 2, 2, 4, 3, stream(), outputs=outputs, init="pytorch", tie_weights=True, dtype=DOUBLE
    )


def tokens(n=3):
    return torch.randint(5, (n, 3), generator=stream("tokens"))


def tangents(model, x, name):
    """∂f/∂h of one layer (n, c, P, k), one sample at a time by an added perturbation."""
    layer, found = model.get_submodule(name), []
    for sample in x:
        shape = {}

        def perturbed(epsilon, sample=sample, shape=shape):
            def hook(layer, arguments, output):
                shape["h"] = output.shape
                return output if epsilon is None else output + epsilon

            handle = layer.register_forward_hook(hook)
            try:
                return model(sample[None]).flatten()
            finally:
                handle.remove()

        perturbed(None)
        jacobian = torch.autograd.functional.jacobian(
            perturbed, torch.zeros(shape["h"], dtype=DOUBLE)
        )[:, 0]  # (c, …)
        rows = jacobian.movedim(1 if isinstance(layer, nn.Conv2d) else -1, -1)
        found.append(rows.reshape(len(rows), -1, rows.shape[-1]))
    return torch.stack(found)


def mean_outer_product(rows):
    """K of rows (n, c, P, k) by its definition: the mean over samples and positions."""
    return torch.einsum("ncpk,ncpl->kl", rows, rows) / (rows.shape[0] * rows.shape[2])


def oracle(model, x, name):
    rows = tangents(model, x, name)
    return mean_outer_product(rows), rows.shape[2]


CASES = {
    "mlp": (mlp, draw(5, 4), [1, 1, 1]),
    "mlp with biases": (lambda: mlp(1, True), draw(5, 4), [1, 1, 1]),
    "convolutions": (Convolutions, draw(4, 2, 5, 6), [9, 9, 1]),
    "gpt": (gpt, tokens(), [3] * 13),
    "gpt's last position": (lambda: gpt("last_position"), tokens(), [3] * 12 + [1]),
}


@pytest.mark.parametrize("case", CASES)
def test_covariances_are_those_of_explicit_perturbations(case):
    build, x, positions = CASES[case]
    model = build()
    found = layer_feature_matrices(model, x, chunk_size=2)
    assert [matrices.positions for matrices in found.values()] == positions
    for name, matrices in found.items():
        expected, count = oracle(model, x, name)
        assert count == matrices.positions
        torch.testing.assert_close(matrices.covariance, expected, rtol=1e-10, atol=1e-12)
        weight = model.get_submodule(name).weight.flatten(1)
        torch.testing.assert_close(matrices.weight_matrix, weight.detach())


@pytest.mark.parametrize("batch_norm", [False, True])
def test_vgg_and_resnet_layers(batch_norm):
    x = draw(2, 3, 32, 32)
    vgg = VGG(11, 1, 3, stream(), batch_norm=batch_norm, init="kaiming", dtype=DOUBLE).eval()
    resnet = ResNet18(1, 3, stream(), batch_norm=batch_norm, dtype=DOUBLE).eval()
    for model, names in (
        (vgg, ["features.0", "head.0"]),
        (resnet, ["stem", "stages.1.0.shortcut.0", "head"]),
    ):
        found = layer_feature_matrices(model, x, names)
        assert list(found) == names
        for name in names:
            expected, _ = oracle(model, x, name)
            torch.testing.assert_close(found[name].covariance, expected, rtol=1e-9, atol=1e-12)
    assert len(layer_feature_matrices(vgg, x)) == 9


@pytest.mark.parametrize("width", [64, 65, 200])
def test_wide_layers_are_summed_in_strips(width):
    model, x = MLP(3, [width], 2, "erf", True, stream(), dtype=DOUBLE), draw(6, 3)
    found = layer_feature_matrices(model, x)["layers.0"].covariance
    expected = preactivation_feature_covariance(preactivation_gradients(model, x)["layers.0"])
    torch.testing.assert_close(found, expected)
    assert torch.equal(found, found.T)


def test_agop_of_a_convolution_is_that_of_its_patches():
    model, x = Convolutions(), draw(4, 2, 5, 6)
    patches = nn.functional.unfold(x, 3, stride=2, padding=1).transpose(1, 2)  # (n, P, d)
    kernel, bias = model.first.weight.detach().flatten(1), model.first.bias.detach()

    def tail(rows):  # the network as a function of its first layer's patches
        h = (rows @ kernel.T + bias).T.reshape(1, 4, 3, 3)
        return model.readout(torch.tanh(model.second(torch.relu(h))).flatten(1))[0]

    jacobians = torch.stack(
        [torch.autograd.functional.jacobian(tail, sample) for sample in patches]
    )  # (n, c, P, d)
    flat = jacobians.movedim(2, 1).flatten(0, 2)  # (n·P·c, d)
    expected = flat.T @ flat / (jacobians.shape[0] * jacobians.shape[2])
    torch.testing.assert_close(layer_feature_matrices(model, x)["first"].agop, expected)


@pytest.mark.parametrize("part", [lambda w: w[:2], lambda w: w.T])
def test_the_matrix_is_the_selection_of_a_parameter_that_multiplies(part):
    model = Toy(lambda m, x: F.linear(x, part(m.layer.weight)), layer=linear(3, 3))
    found = layer_feature_matrices(model, draw(4, 3))["layer"]
    assert torch.equal(found.weight_matrix, part(model.layer.weight))


def test_parts_are_numbered_by_their_places_in_the_parameter():
    def last_part_first(m, x):
        return torch.tanh(x @ m.layer.weight[3:].T) @ m.layer.weight[:3].T

    model, x = Toy(last_part_first, layer=nn.Linear(3, 6, bias=False).double()), draw(5, 3)
    found = layer_feature_matrices(model, x)
    assert torch.equal(found["layer[0]"].weight_matrix, model.layer.weight[:3])
    assert torch.equal(found["layer[1]"].weight_matrix, model.layer.weight[3:])


@pytest.mark.parametrize("used", [(0,), (2,), (2, 0), (1, 2)])
@pytest.mark.parametrize("fused", [False, True])
def test_matrices_of_a_stack_keep_their_numbers_whichever_are_used(used, fused):
    def function(m, x):
        parts = m.w.chunk(3) if fused else m.w
        return sum(torch.tanh(x @ parts[i].mT) for i in used)

    model, x = Toy(function), draw(5, 4)
    model.w = nn.Parameter(draw(6, 4, seed=1) if fused else draw(3, 2, 4, seed=1))
    found = layer_feature_matrices(model, x)
    assert set(found) == {f"w[{i}]" for i in used}
    for i in used:
        assert torch.equal(found[f"w[{i}]"].weight_matrix, model.w.view(3, 2, 4)[i])


def test_matrices_do_not_follow_the_model():
    model, x = mlp(), draw(5, 4)
    found = layer_feature_matrices(model, x, initial=dict(model.named_parameters()))["layers.0"]
    before = model.layers[0].weight.detach().clone()
    with torch.no_grad():
        model.layers[0].weight.zero_()
    assert torch.equal(found.weight_matrix, before)
    assert torch.equal(found.initial_weight, before)


def test_weights_that_became_zero_have_a_centred_correlation_only():
    layer = FeatureMatrices(torch.zeros(2, 2), torch.eye(2), 1, torch.eye(2))
    found = layer.correlations()
    assert found == pytest.approx({"centred_nfc": 1, "centred_nfc_mean_subtracted": 1})


def test_chunks_change_nothing_and_precision_little():
    model, x = Convolutions(), draw(7, 2, 5, 6)
    whole, parts = (layer_feature_matrices(model, x, chunk_size=size) for size in (7, 3))
    single = layer_feature_matrices(model.float(), x.float(), chunk_size=3)
    for name in whole:
        torch.testing.assert_close(whole[name].covariance, parts[name].covariance)
        assert single[name].covariance.dtype == torch.float32
        torch.testing.assert_close(
            single[name].covariance.double(), whole[name].covariance, rtol=1e-4, atol=1e-6
        )


def test_chunks_of_float32_are_summed_in_float64():
    model = Toy(lambda m, x: m.layer(x) * x[:, :1], layer=nn.Linear(3, 1))
    x = torch.ones(101, 3)
    x[0, 0] = 1e4  # its square is 10⁸, to which single ones are below float32's rounding
    found = layer_feature_matrices(model, x, chunk_size=1)["layer"].covariance
    assert found.item() == pytest.approx((1e8 + 100) / 101, rel=1e-7)


def test_layers_come_in_the_order_asked_for():
    model, x = mlp(), draw(7, 4)
    for names in (["layers.1", "layers.0"], ["layers.0", "layers.1"]):
        assert list(layer_feature_matrices(model, x, names)) == names


def test_centred_matrices_use_the_weight_change_and_the_current_covariance():
    model, x = Convolutions(), draw(4, 2, 5, 6)
    initial = copy_parameters(model)
    model.first.weight.data += 0.1 * draw(4, 2, 3, 3, seed=20)
    found = layer_feature_matrices(model, x, ["first"], initial)["first"]
    change = (model.first.weight.detach() - initial["first.weight"]).flatten(1)
    torch.testing.assert_close(found.centred_nfm, change.T @ change)
    torch.testing.assert_close(found.centred_agop, change.T @ found.covariance @ change)
    weight = found.weight_matrix
    torch.testing.assert_close(found.nfm, weight.T @ weight)
    expected = {
        "nfc": cosine_similarity(found.nfm, found.agop),
        "nfc_mean_subtracted": cosine_similarity(found.nfm, found.agop, subtract_mean=True),
        "centred_nfc": cosine_similarity(found.centred_nfm, found.centred_agop),
    }
    assert len(set(expected.values())) == 3
    correlations = found.correlations()
    assert {name: correlations[name] for name in expected} == pytest.approx(expected)


def test_equation_4_the_terms_add_up_to_the_nfm():
    model, x = mlp(), draw(5, 4)
    initial = copy_parameters(model)
    model.layers[0].weight.data += draw(6, 4, seed=3)
    found = layer_feature_matrices(model, x, ["layers.0"], initial)["layers.0"]
    start, change = initial["layers.0.weight"], model.layers[0].weight.detach()
    change = change - start
    cross = start.T @ change
    torch.testing.assert_close(found.nfm, found.centred_nfm + cross + cross.T + start.T @ start)


def test_a_linear_network_with_equal_singular_values_correlates_perfectly():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)).double()
    for layer, seed in zip(model, (0, 1), strict=True):
        layer.weight.data = 2 * torch.linalg.qr(draw(4, 4, seed=seed))[0]
    for matrices in layer_feature_matrices(model, draw(3, 4)).values():
        assert matrices.correlations()["nfc"] == pytest.approx(1)


def test_random_signs_estimate_the_sum_over_outputs_without_bias():
    model, x = gpt(), tokens()
    name = "blocks.0.attention.value"
    exact = layer_feature_matrices(model, x, [name])[name].covariance
    generator = stream("signs")
    coarse, fine = (
        layer_feature_matrices(model, x, [name], output_samples=m, generator=generator)[name]
        for m in (4, 1600)
    )
    errors = [((e.covariance - exact).norm() / exact.norm()).item() for e in (coarse, fine)]
    assert errors[1] < 0.05
    assert errors[1] < errors[0] / 3


def test_the_model_is_left_as_it_was():
    model, x = Convolutions(), draw(4, 2, 5, 6)
    before, inputs = copy_parameters(model), x.clone()
    frozen = layer_feature_matrices(model.requires_grad_(False), x)
    model.requires_grad_(True)
    thawed = layer_feature_matrices(model, x)
    assert torch.equal(frozen["first"].covariance, thawed["first"].covariance)
    assert torch.equal(x, inputs)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None
    assert not any(module._forward_hooks for module in model.modules())


def test_models_may_change_their_input_in_place():
    layer, x = linear(), draw(4, 3)
    kept = x.clone()
    model = Toy(lambda m, x: torch.tanh(m.layer(x.mul_(2))), layer=layer)
    found = layer_feature_matrices(model, x, chunk_size=1)["layer"].covariance
    expected = layer_feature_matrices(nn.Sequential(layer, nn.Tanh()), 2 * x)["0"].covariance
    torch.testing.assert_close(found, expected)
    assert torch.equal(x, kept)


def twice():
    return Toy(lambda m, x: m.layer(m.layer(x)), layer=nn.Linear(4, 4), unused=nn.Linear(4, 4))


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (mlp(), {"layers": ["layers.3"]}, "'layers.3' is not in the model.*did you mean"),
        (gpt(), {"layers": ["norm"]}, "'norm' is a LayerNorm; only products"),
        (mlp(), {"layers": ["layers.1[0]"]}, r"'layers.1\[0\]' is no layer; did you mean"),
        (mlp(), {"layers": {"layers.0"}}, "layers: found {'layers.0'}; give a list of names"),
        (mlp(), {"layers": []}, "layers: an empty list; give names, or None for all layers"),
        (nn.ReLU(), {}, "no layer to measure"),
        (twice(), {}, "'layer' was used 2 times"),
        (twice(), {"layers": ["unused"]}, "'unused' does not multiply"),
        (
            nn.Sequential(nn.Unflatten(1, (4, 1)), nn.Conv1d(4, 4, 1, groups=2), nn.Flatten()),
            {"layers": ["1"]},
            "'1' has 2 groups",
        ),
        (
            nn.Sequential(nn.Unflatten(1, (4, 1)), nn.ConvTranspose1d(4, 4, 1), nn.Flatten()),
            {"layers": ["1"]},
            "'1' is a transposed convolution",
        ),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout()), {}, "'1' .Dropout. is in training mode"),
        (nn.Linear(4, 2), {"chunk_size": 0}, "chunk_size: 0"),
        (nn.Linear(4, 2), {"chunk_size": 2.5}, "chunk_size: 2.5; it must be a whole number"),
        (nn.Linear(4, 2), {"output_samples": 3}, "go together"),
        (nn.Linear(4, 2), {"generator": stream()}, "go together"),
        (nn.Linear(4, 2), {"centre_tangents": True}, "need the start"),
        (nn.Linear(4, 2), {"initial": {"weigth": torch.ones(2, 4)}}, "no value for 'weight'"),
        (nn.Linear(4, 2), {"initial": {"weight": torch.ones(4, 2)}}, r"shape \(4, 2\)"),
    ],
)
def test_what_is_not_defined_is_refused(model, options, message):
    x = tokens() if isinstance(model, GPT) else torch.ones(3, 4)
    x = x.double() if isinstance(model, MLP) else x
    with pytest.raises(ValueError, match=message):
        layer_feature_matrices(model, x, **options)


def test_centred_matrices_without_initial_weights_are_refused():
    found = layer_feature_matrices(mlp(), draw(3, 4))["layers.0"]
    with pytest.raises(ValueError, match="need the initial weights"):
        _ = found.centred_nfm


@pytest.mark.parametrize("kind", ["convolution", "tokens"])
def test_covariance_of_the_change_of_tangents(kind):
    torch.manual_seed(0)
    if kind == "tokens":
        network = Toy(
            lambda m, x: m.second(torch.tanh(m.first(x))).mean(dim=1),
            first=linear(3, 4),
            second=linear(4, 2),
        )
        x, names = torch.randn(5, 6, 3), ["first", "second"]
    else:
        layers = [nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Conv2d(3, 2, 2), nn.Tanh()]
        network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(18, 2))
        x, names = torch.randn(5, 2, 6, 6), ["0", "2", "5"]
    network, x = network.double().eval(), x.double()
    start = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    initial = dict(start.named_parameters())
    found = layer_feature_matrices(network, x, initial=initial, chunk_size=2, centre_tangents=True)
    assert list(found) == names
    for name in names:
        expected = mean_outer_product(tangents(network, x, name) - tangents(start, x, name))
        change = found[name].tangent_change
        torch.testing.assert_close(change, expected, rtol=1e-10, atol=1e-12)


def some_samples(m, x):
    """Adds the second layer's outputs for samples with a positive first entry."""
    chosen = (x[:, 0] > 0).nonzero()[:, 0]
    return m.first(x).index_add(0, chosen, torch.tanh(m.second(x[chosen])))


def some_tokens(m, x):
    chosen = x[..., 0] > 0
    h = torch.zeros_like(x)
    h[chosen], h[~chosen] = torch.tanh(m.first(x[chosen])), m.second(x[~chosen])
    return h.sum(1)


def twice_for_some(m, x):
    h, chosen = m.first(x), (x[:, 0] > 0).nonzero()[:, 0]
    return m.second(h.index_add(0, chosen, m.first(x[chosen])) if len(chosen) else h)


@pytest.mark.parametrize(
    ("function", "unlike"),
    [(some_samples, ["second"]), (some_tokens, ["first", "second"]), (twice_for_some, ["first"])],
)
def test_layers_that_only_some_samples_use_are_left_out(function, unlike, caplog):
    x = draw(7, 4, 3) if function is some_tokens else draw(7, 3)
    x[:4, ..., 0].abs_()
    x[4:, ..., 0].abs_().neg_()
    if function is some_tokens:
        x[:3, 0, 0].neg_()
    model = Toy(function, first=linear(3, 3), second=linear(3, 3))
    size = 4 if function is twice_for_some else 500
    told = "layer '{}' is used otherwise for some samples than for others"
    for name in unlike:
        with pytest.raises(ValueError, match=rf"layer '{name}' (is|was) used .*; leave it out"):
            layer_feature_matrices(model, x, [name], chunk_size=size)
    kept = {"first", "second"} - set(unlike)
    if not kept:
        with pytest.raises(ValueError, match="no layer to measure"):
            layer_feature_matrices(model, x, chunk_size=size)
        return
    found = layer_feature_matrices(model, x, chunk_size=size)
    assert found.keys() == kept
    for name in kept:
        expected = layer_feature_matrices(model, x, [name], chunk_size=3)[name].covariance
        torch.testing.assert_close(found[name].covariance, expected)
    assert f"{told.format(*unlike)}; no NFM or AGOP" in caplog.text


@pytest.mark.parametrize("first", [lambda w: w[:, :3], lambda w: w])
def test_overlapping_parts_that_different_samples_use_are_not_mixed(first):
    def forward(m, x):
        out = torch.zeros(len(x), 3).double()
        for chosen, part in ((x[:, 0] > 0, first), (x[:, 0] <= 0, lambda w: w[:, 1:])):
            if chosen.any():
                h = F.linear(part(x[chosen]), part(m.w))
                out = out.index_add(0, chosen.nonzero()[:, 0], h)
        return m.head(out)

    x, model = draw(8, 4), Toy(forward, head=linear(3, 2))
    x[:4, 0].abs_()
    x[4:, 0].abs_().neg_()
    model.w = nn.Parameter(draw(3, 4))
    assert layer_feature_matrices(model, x[:4], chunk_size=4).keys() == {"w", "head"}
    assert layer_feature_matrices(model, x, chunk_size=4).keys() == {"head"}


def test_a_layer_on_as_many_shared_inputs_as_there_are_samples_is_left_out(caplog):
    def forward(m, x):
        return m.readout(x @ torch.tanh(m.table(torch.eye(3).double())).T)

    model = Toy(forward, table=linear(3, 3), readout=linear(3, 2))
    assert layer_feature_matrices(model, draw(3, 3)).keys() == {"readout"}
    assert "layer 'table' is used on inputs that the samples share" in caplog.text


def test_a_last_chunk_of_one_sample_counts_once_where_outputs_are_squeezed():
    layers = {"first": linear(3, 3), "second": linear(3, 2)}
    model = Toy(lambda m, x: m.second(torch.tanh(m.first(x))).squeeze(), **layers)
    x, plain = draw(5, 3), nn.Sequential(layers["first"], nn.Tanh(), layers["second"])
    for size in (1, 2):
        found = layer_feature_matrices(model, x, chunk_size=size)
        for name, expected in zip(layers, layer_feature_matrices(plain, x).values(), strict=True):
            torch.testing.assert_close(found[name].covariance, expected.covariance)


def test_a_layer_that_every_other_sample_skips_is_left_out(caplog):
    def forward(m, x):
        h, chosen = m.first(x), (x[:, 0] > 0).nonzero()[:, 0]
        return h.index_add(0, chosen, m.second(x[chosen])) if len(chosen) else h

    x = draw(8, 3)
    x[::2, 0].abs_()
    x[1::2, 0].abs_().neg_()
    model = Toy(forward, first=linear(3, 3), second=linear(3, 3))
    for _ in range(2):
        assert list(layer_feature_matrices(model, x, chunk_size=4)) == ["first"]
    told = "layer 'second' is used on inputs that the samples share, or not on all"
    assert caplog.text.count(told) == 1  # not for each chunk or call


def force(m, x):
    """The readout of an energy's gradient by the inputs, where the energy is that of a network."""
    x = x.detach().requires_grad_()
    energy = m.last(torch.tanh(m.first(x))).sum()
    return m.readout(torch.autograd.grad(energy, x, create_graph=True)[0])


def test_a_linear_layer_that_is_called_is_not_its_product_in_a_gradient(caplog):
    """Of the energy's last layer a graph of the force has only 1·W, not the layer's own use."""
    layers = {"first": linear(3, 5), "last": linear(5, 1), "readout": linear(3, 2)}
    found = layer_feature_matrices(Toy(force, **layers), draw(7, 3))
    assert list(found) == ["readout"]
    assert "layer 'first' was used 2 times in the forward pass" in caplog.text
    assert "layer 'last' was used in the forward pass and in a gradient there" in caplog.text
    with pytest.raises(ValueError, match="'last' was used in the forward pass and in a gradient"):
        layer_feature_matrices(Toy(force, **layers), draw(7, 3), ["last"])


def test_a_linear_layer_that_is_not_called_may_multiply_as_its_transpose():
    class Transposed(nn.Linear):
        def forward(self, x):
            return x @ self.weight

    by_itself = Toy(lambda m, x: torch.tanh(x @ m.layer.weight), layer=linear(5, 3))
    called = Toy(lambda m, x: torch.tanh(m.layer(x)), layer=Transposed(5, 3).double())
    for model in (by_itself, called):
        found = layer_feature_matrices(model, draw(7, 3))["layer"]
        torch.testing.assert_close(found.weight_matrix, model.layer.weight.T)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda m, x: m.layer(F.dropout(x)), "draws random numbers"),
        (lambda m, x: torch.tanh(m.layer(x - x.mean(0))), "depend on the other samples"),
        (lambda m, x: m.layer(x) / 0, "not finite"),
    ],
)
def test_outputs_that_are_no_function_of_the_sample_are_refused(function, message):
    with pytest.raises(ValueError, match=message):
        layer_feature_matrices(Toy(function, layer=linear()), draw(5, 3))
    x = draw(5, 3)
    x[4] = torch.nan
    with pytest.raises(ValueError, match="not finite"):
        layer_feature_matrices(linear(), x)
    x = draw(20, 3)
    x[1] = torch.nan  # none of the few by which the model is checked beforehand
    with pytest.raises(ValueError, match="outputs of some samples are not finite"):
        layer_feature_matrices(linear(), x)


def test_arrays_are_measured_in_the_models_precision():
    model, x = linear().float(), draw(5, 3)
    found, expected = (layer_feature_matrices(model, v)[""] for v in (x.numpy(), x.float()))
    assert torch.equal(found.covariance, expected.covariance)


class Routed(nn.Module):
    """Layers behind a checkpoint, a table kept between calls, or a choice that weights make."""

    def __init__(self, way):
        super().__init__()
        torch.manual_seed(0)
        self.way, self.cache = way, {}
        self.route, self.table = linear(4, 4), nn.Parameter(torch.randn(4, dtype=DOUBLE))
        self.expert, self.readout = linear(4, 4), linear(4, 2)

    def forward(self, x):
        if self.way == "checkpoint":
            return checkpoint(self._run, x, use_reentrant=False)
        return self._run(x)

    def _run(self, x):
        h = torch.tanh(self.route(x))
        if self.way == "kept":
            h = h * self.cache.setdefault("cpu", torch.exp(self.table))
        elif self.way == "routed":  # the two largest entries of each sample, whichever they are
            h = h.gather(1, h.topk(2, 1).indices).repeat(1, 2)
        elif self.way == "parted":  # no index tells where, only the sizes
            few, many = h.split([1, 3] if self.table.norm() > 1 else [3, 1], 1)
            h = torch.cat([few.sin(), many], 1) * torch.exp(self.table)
        else:
            h = h * torch.exp(self.table)
        return self.readout(torch.tanh(self.expert(h)))


def tangent_changes(way, n=5, chunk_size=3, before=False):
    model, x = Routed(way), draw(n, 4)
    initial = {name: 0.3 * value.flip(0) for name, value in copy_parameters(model).items()}
    if before:
        with torch.no_grad():
            model(x)
    found = layer_feature_matrices(
        model, x, ["route", "readout"], initial, chunk_size, centre_tangents=True
    )
    return found["route"].tangent_change


def test_tangents_change_alike_behind_checkpoints_and_kept_tables():
    model, x, deltas = Routed("plain"), draw(5, 4), []
    initial = {name: 0.3 * value.flip(0) for name, value in copy_parameters(model).items()}
    for values in (copy_parameters(model), initial):
        model.load_state_dict(values)
        h = model.route(x).detach().requires_grad_()
        f = model.readout(torch.tanh(model.expert(torch.tanh(h) * torch.exp(model.table))))
        deltas.append(
            torch.stack([torch.autograd.grad(y, h, retain_graph=True)[0] for y in f.sum(0)])
        )
    change = (deltas[0] - deltas[1]).flatten(0, 1)
    for way, before in (("plain", False), ("checkpoint", False), ("kept", False), ("kept", True)):
        torch.testing.assert_close(tangent_changes(way, before=before), change.T @ change / 5)


@pytest.mark.parametrize("way", ["routed", "parted"])
def test_tangents_of_samples_that_take_other_paths_at_the_start_are_refused(way):
    with pytest.raises(ValueError, match="centre_tangents: at the initial parameters"):
        tangent_changes(way)


def test_a_dead_layer_leaves_the_others_in_the_table():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    nn.init.constant_(model[0].bias, -100.0)
    found = features(model, torch.ones(4, 2))
    table = found.frame()
    assert table["nfc"].isna().tolist() == [True, False]
    assert "0: W 3 × 2, no correlation is defined" in repr(found)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_half_precision_is_summed_in_single(dtype, scale):
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 100))

        def forward(self, x):
            return scale * self.body(x).float()

    torch.manual_seed(0)
    model = Half().to(dtype).eval()
    single = copy.deepcopy(model).float()
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(1)).to(dtype)
    found = layer_feature_matrices(model, x)
    expected = layer_feature_matrices(single, x.float())
    for name, matrices in expected.items():
        assert found[name].covariance.dtype == found[name].nfm.dtype == torch.float32
        torch.testing.assert_close(
            found[name].covariance, matrices.covariance, rtol=0.1, atol=0.02 * scale**2
        )
        nfc = matrices.correlations()["nfc"]
        assert found[name].correlations()["nfc"] == pytest.approx(nfc, abs=0.02)


@pytest.mark.parametrize("scale", [1e-30, 2e-24, 2e-22, 2e-15, 1e15, 1e20, 1e30])
def test_gradients_of_any_size_give_the_same_correlations(scale):
    model = MLP(4, [6], 3, "erf", True, stream())
    with torch.no_grad():
        model.layers[1].weight.mul_(scale)
    x = draw(5, 4).float()
    found = features(model, x)["layers.0"]
    expected = features(copy.deepcopy(model).double(), x.double())["layers.0"]
    torch.testing.assert_close(
        found.covariance.double() / scale**2, expected.covariance / scale**2, rtol=1e-5, atol=1e-8
    )
    assert found.correlations() == pytest.approx(expected.correlations(), abs=1e-5)
    assert cosine_similarity(found.agop, expected.agop) == pytest.approx(1)


@pytest.mark.parametrize("scales", [(1e-25, 0.0), (0.0, 1e-25), (1.0, 1e25), (1e25, 1.0)])
def test_the_size_of_every_output_counts_not_that_of_the_first(scales):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x = draw(6, 3)
    with torch.no_grad():
        model[2].weight.mul_(torch.tensor(scales, dtype=DOUBLE)[:, None])
    expected = layer_feature_matrices(model, x)["0"].covariance
    found = layer_feature_matrices(model.float(), x.float())["0"].covariance.double()
    torch.testing.assert_close(
        found / expected.norm(), expected / expected.norm(), atol=1e-5, rtol=0
    )


def test_a_layer_without_inputs_is_left_out(caplog):
    model = nn.ModuleDict({"empty": nn.Linear(1, 4), "full": nn.Linear(3, 4)})
    model["empty"].weight = nn.Parameter(torch.empty(4, 0))
    model.forward = lambda x: model["full"](x) + model["empty"](x[:, :0])
    assert list(layer_feature_matrices(model, torch.ones(5, 3))) == ["full"]


def test_centred_matrices_have_the_covariances_precision():
    layer = FeatureMatrices(torch.eye(2), 2 * torch.eye(2).double(), 1, torch.zeros(2, 2))
    assert torch.equal(layer.centred_agop, 2 * torch.eye(2).double())


def test_units_that_died_have_no_ratio_of_double_centred_products():
    change = torch.eye(2).double()
    layer = FeatureMatrices(torch.eye(2), torch.zeros(2, 2), 1, torch.zeros(2, 2), change)
    assert layer.correlations() == {"weight_change": 1, "double_centred_nfc": pytest.approx(1)}


@pytest.mark.parametrize(("size", "left"), [(1e-3, True), (3e-5, True), (1e-6, False), (0, False)])
def test_changes_of_tangents_that_are_rounding_errors_have_no_correlations(size, left):
    model = nn.Sequential(nn.Linear(5, 20), nn.Tanh(), nn.Linear(20, 2))
    initial, x = copy_parameters(model), draw(9, 5).float()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(size * p.abs().mean() * torch.randn_like(p))
    found = features(model, x, initial)["0"].correlations()
    start = {name: value.double() for name, value in initial.items()}
    expected = features(model.double(), x.double(), start)["0"].correlations()
    for metric in ("double_centred_nfc", "double_centred_ratio", "ptk_centred_nfc"):
        assert (metric in found) == left
        assert not left or found[metric] == pytest.approx(expected[metric], rel=0.01)


def test_tangents_need_not_be_centred():
    layer = nn.Linear(2, 2)
    found = features(layer, torch.eye(2), copy_parameters(layer), centre_tangents=False)
    assert found[""].tangent_change is None
    assert features(layer, torch.eye(2), copy_parameters(layer))[""].tangent_change is not None


def test_gradients_that_are_not_finite_are_refused():
    model, x = Toy(lambda m, x: m.layer(x).abs().sqrt(), layer=nn.Linear(3, 2, False)), draw(5, 3)
    x[4] = 0  # where the root's slope is not finite
    with pytest.raises(ValueError, match=r"layer 'layer'.* not finite"):
        layer_feature_matrices(model.double(), x)


def fused_experts(m, x):
    """Each sample goes through one of three matrices that one parameter holds."""
    chosen, out = (3 * torch.sigmoid(x[:, 0])).long(), torch.zeros(len(x), 3).to(x)
    for expert in range(3):
        (rows,) = (chosen == expert).nonzero(as_tuple=True)
        if len(rows):
            out = out.index_add(0, rows, torch.tanh(x[rows] @ m.w[expert]))
    return m.head(out)


@pytest.mark.parametrize("size", [1, 2, 3, 500])
def test_experts_that_one_parameter_holds_are_not_mixed(size):
    for seed in range(8):
        x = draw(6, 3, seed=seed)
        model = Toy(fused_experts, head=linear(3, 2))
        model.w = nn.Parameter(draw(3, 3, 3, seed=seed + 100))
        found = layer_feature_matrices(model, x, chunk_size=size)
        used = set((3 * torch.sigmoid(x[:, 0])).long().tolist())
        assert "head" in found
        assert all(name == "head" for name in found) or len(used) == 1
