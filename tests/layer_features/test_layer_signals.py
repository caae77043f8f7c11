import pytest
import torch
from torch import nn

from feature_alignment.determinism import torch_stream
from feature_alignment.layer_features.layer_signals import layer_signals
from feature_alignment.models.mlp import MLP
from toys import linear, overwrites_its_input, twice, unused

X = torch.randn(5, 3, dtype=torch.float64, generator=torch_stream(0, "data"))


def nested():
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4, bias=False))
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), inner, nn.Softplus(), nn.Linear(4, 2)).double()


def finite_difference(model, layer, x, step=1e-6):
    """∂f/∂h of one layer by moving one pre-activation at a time: (n, c, k)."""
    moved = torch.zeros(layer.out_features, dtype=x.dtype)
    handle = layer.register_forward_hook(lambda module, args, out: out + moved)
    columns = []
    for unit in range(layer.out_features):
        values = []
        for sign in (1, -1):
            moved.zero_()
            moved[unit] = sign * step
            values.append(model(x).detach())
        columns.append((values[0] - values[1]) / (2 * step))
    handle.remove()
    return torch.stack(columns, dim=2)


def test_signals_of_a_nested_model_are_those_of_finite_differences():
    model = nested()
    signals = layer_signals(model, X)
    assert list(signals) == ["0", "2.0", "2.2", "4"]
    assert [signal.has_bias for signal in signals.values()] == [True, True, False, True]
    for name, signal in signals.items():
        expected = finite_difference(model, model.get_submodule(name), X)
        torch.testing.assert_close(signal.gradients, expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(signals["0"].inputs, X)
    torch.testing.assert_close(signals["2.0"].inputs, torch.relu(model[0](X)).detach())


def test_in_place_activations_do_not_spoil_the_signals():
    plain, in_place = nested(), nested()
    in_place[1] = nn.ReLU(inplace=True)
    start = nn.Sequential(nn.ReLU(inplace=True), in_place)
    expected = layer_signals(nn.Sequential(nn.ReLU(), plain), X)
    before = X.clone()
    found = layer_signals(start, X)
    assert torch.equal(X, before)
    for name in expected:
        torch.testing.assert_close(found[name].gradients, expected[name].gradients)
        torch.testing.assert_close(found[name].inputs, expected[name].inputs)


def test_recorded_inputs_are_not_overwritten_unnoticed():
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        layer_signals(overwrites_its_input(), X)


def test_other_parameters_can_be_looked_at_without_touching_the_model():
    model = MLP(3, [4], 1, "erf", True, torch_stream(0, "init"), dtype=torch.float64)
    other = MLP(3, [4], 1, "erf", True, torch_stream(1, "init"), dtype=torch.float64)
    before = [parameter.clone() for parameter in model.parameters()]
    found = layer_signals(model, X, dict(other.named_parameters()))
    for name, signal in layer_signals(other, X).items():
        assert torch.equal(found[name].gradients, signal.gradients)
    for old, parameter in zip(before, model.parameters(), strict=True):
        assert torch.equal(old, parameter)
    with pytest.raises(ValueError, match=r"parameters: 'layers.1.bias' is in only one"):
        layer_signals(model, X, dict(list(other.named_parameters())[:-1]))


def test_nothing_is_left_behind_and_frozen_layers_count_like_others():
    model, frozen = nested(), layer_signals(nested().requires_grad_(False), X)
    with torch.no_grad():
        signals = layer_signals(model, X)
    assert not any(module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(s.gradients.requires_grad or s.inputs.requires_grad for s in signals.values())
    assert all(torch.equal(frozen[name].gradients, s.gradients) for name, s in signals.items())


def tied():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)).double()
    model[2].weight = model[0].weight
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (twice(), "layer 'layer' is called more than once"),
        (unused(), "layer 'spare' was not used"),
        (tied(), "layers '0' and '2' share a parameter"),
        (nn.Sequential(linear(3, 2), nn.Flatten(0)), r"shape \(10,\) for 5 samples"),
        (nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)), r"'1' \(LayerNorm\) has parameters"),
        (nn.Sequential(nn.Linear(3, 2), nn.Dropout()), r"'1' \(Dropout\) is in training mode"),
        (
            nn.Sequential(nn.Unflatten(1, (3, 1)), nn.Linear(1, 1), nn.Flatten()).double(),
            r"layer '1' sees other inputs than \(n, d\)",
        ),
        (nn.ReLU(), "the model has no linear layer"),
    ],
)
def test_unsupported_models_are_named(model, message):
    with pytest.raises(ValueError, match=message):
        layer_signals(model, X)
