import pytest
import torch

from feature_alignment.models.mlp import MLP, sequential_mlp, small_cnn


def make(activation="relu", bias=True, seed=0, widths=(6, 5), output_dim=2, **options):
    generator = torch.Generator().manual_seed(seed)
    options = {"dtype": torch.float64} | options
    return MLP(4, widths, output_dim, activation, bias, generator, **options)


@pytest.mark.parametrize(
    ("name", "phi"),
    [
        ("relu", lambda h: h.clamp(min=0)),
        ("quadratic", lambda h: h * h),
        ("erf", torch.special.erf),
    ],
)
def test_forward_is_the_formula(name, phi):
    model = make(name)
    (w0, b0), (w1, b1), (w2, b2) = [(layer.weight, layer.bias) for layer in model.layers]
    x = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = phi(phi(x @ w0.T + b0) @ w1.T + b1) @ w2.T + b2
    torch.testing.assert_close(model(x), expected)


def test_scalar_outputs_keep_their_axis_and_images_are_flattened():
    model = make(output_dim=1)
    assert model(torch.zeros(3, 1, 2, 2, dtype=torch.float64)).shape == (3, 1)


def test_an_empty_list_of_widths_is_a_linear_model():
    model = make(widths=(), bias=False)
    x = torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close(model(x), model.layers[0].weight.T)


def test_layer_scales_multiply_weights_and_biases_of_their_layer_only():
    plain, scaled = make(), make(layer_scales=[0.01, 1, 3])
    for scale, a, b in zip([0.01, 1, 3], plain.layers, scaled.layers, strict=True):
        torch.testing.assert_close(scale * a.weight, b.weight)
        torch.testing.assert_close(scale * a.bias, b.bias)


def test_without_biases_no_layer_has_one():
    assert [name for name, _ in make(bias=False).named_parameters()] == [
        "layers.0.weight",
        "layers.1.weight",
        "layers.2.weight",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "rely"}, "activation: 'rely' is unknown; did you mean 'relu'"),
        ({"widths": (6, 0)}, "widths: 0; it must be a whole number of at least 1"),
        ({"widths": (6, 4.5)}, "widths: .*4.5"),
        ({"widths": ("6",)}, "widths: .*6"),
        ({"layer_scales": [0.1, 1]}, "layer_scales: 2 factors for 3 layers"),
        ({"layer_scales": [0.1, 1, float("nan")]}, r"layer_scales: .*nan\]; each factor"),
        ({"init": "xavier"}, "init: 'xavier' is unknown"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_the_networks_of_the_earlier_version_are_their_layers():
    generator = torch.Generator().manual_seed(0)
    cnn = small_cnn(32, 3, 2, 10, generator, "lecun")
    kinds = ["Conv2d", "ReLU", "AvgPool2d"] * 4 + ["Flatten", "Linear", "ReLU"] * 2 + ["Linear"]
    assert [type(layer).__name__ for layer in cnn] == kinds
    sizes = [(2, 3, 3, 3), (4, 2, 3, 3), (8, 4, 3, 3), (16, 8, 3, 3), (16, 64), (16, 16), (10, 16)]
    assert [tuple(p.shape) for p in cnn.parameters() if p.ndim > 1] == sizes
    assert cnn(torch.ones(2, 3, 32, 32)).shape == (2, 10)
    mlp = sequential_mlp(12, [7, 6], 3, generator, "lecun")
    kinds = ["Flatten", "Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert [type(layer).__name__ for layer in mlp] == kinds
    assert mlp(torch.ones(2, 3, 2, 2)).shape == (2, 3)


def test_preactivations_are_what_the_layers_give():
    model, given = make(), []
    x = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for layer in model.layers:
        layer.register_forward_hook(lambda *arguments: given.append(arguments[-1]))
    found = model.preactivations(x)
    assert [h.shape for h in found] == [(3, 6), (3, 5), (3, 2)]
    torch.testing.assert_close(found, given, rtol=0, atol=0)
