import math

import pytest
import torch
from torch import nn

from feature_alignment.determinism import torch_stream
from feature_alignment.layer_features.preactivation_gradients import preactivation_gradients
from feature_alignment.models.mlp import MLP
from toys import linear, twice, unused

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


def test_gradients_of_a_nested_model_are_those_of_finite_differences():
    model = nested()
    found = preactivation_gradients(model, X)
    assert list(found) == ["0", "2.0", "2.2", "4"]
    for name, delta in found.items():
        expected = finite_difference(model, model.get_submodule(name), X)
        torch.testing.assert_close(delta, expected, rtol=1e-6, atol=1e-8)
    some = preactivation_gradients(model, X, ["4", "2.0"])
    assert list(some) == ["4", "2.0"]
    assert all(torch.equal(delta, found[name]) for name, delta in some.items())


def test_in_place_activations_do_not_spoil_the_gradients():
    plain, in_place = nested(), nested()
    in_place[1] = nn.ReLU(inplace=True)
    start = nn.Sequential(nn.ReLU(inplace=True), in_place)
    expected = preactivation_gradients(nn.Sequential(nn.ReLU(), plain), X)
    before = X.clone()
    found = preactivation_gradients(start, X)
    assert torch.equal(X, before)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name])


def test_other_parameters_can_be_looked_at_without_touching_the_model():
    model = MLP(3, [4], 1, "erf", True, torch_stream(0, "init"), dtype=torch.float64)
    other = MLP(3, [4], 1, "erf", True, torch_stream(1, "init"), dtype=torch.float64)
    before = [parameter.clone() for parameter in model.parameters()]
    found = preactivation_gradients(model, X, parameters=dict(other.named_parameters()))
    for name, delta in preactivation_gradients(other, X).items():
        assert torch.equal(found[name], delta)
    for old, parameter in zip(before, model.parameters(), strict=True):
        assert torch.equal(old, parameter)
    with pytest.raises(ValueError, match=r"parameters: 'layers.1.bias' is in only one"):
        preactivation_gradients(model, X, parameters=dict(list(other.named_parameters())[:-1]))


def test_nothing_is_left_behind_and_frozen_layers_count_like_others():
    model, frozen = nested(), preactivation_gradients(nested().requires_grad_(False), X)
    with torch.no_grad():
        found = preactivation_gradients(model, X)
    assert not any(module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(delta.requires_grad for delta in found.values())
    assert all(torch.equal(frozen[name], delta) for name, delta in found.items())


def tied():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)).double()
    model[2].weight = model[0].weight
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (twice(), "layer 'layer' was used 2 times"),
        (unused(), "layer 'spare' does not multiply"),
        (tied(), "layer '0' was used 2 times"),
        (nn.Sequential(linear(3, 2), nn.Flatten(0)), r"shape \(\d+,\) for \d samples"),
        (nn.Sequential(nn.Linear(3, 2), nn.Dropout()), r"'1' \(Dropout\) is in training mode"),
        (
            nn.Sequential(nn.Unflatten(1, (3, 1)), nn.Linear(1, 1), nn.Flatten()).double(),
            r"layer '1' sees other inputs than \(n, d\)",
        ),
        (nn.ReLU(), "no layer to measure"),
    ],
)
def test_unsupported_models_are_named(model, message):
    with pytest.raises(ValueError, match=message):
        preactivation_gradients(model, X)


def test_a_sample_that_is_not_finite_is_noticed_wherever_it_is():
    x = torch.ones(100, 4)
    x[37] = math.nan
    # Of a linear model the gradients are finite all the same.
    for model in (nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), nn.Linear(4, 3)):
        with pytest.raises(ValueError, match="not finite"):
            preactivation_gradients(model, x)


def test_a_single_sample_before_batch_normalisation_is_measured_as_among_others():
    torch.manual_seed(0)
    layers = nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2)
    model = nn.Sequential(*layers).double().eval()
    found = preactivation_gradients(model, X[:1])
    for name, delta in preactivation_gradients(model, X).items():
        torch.testing.assert_close(found[name], delta[:1])


def test_gradients_near_the_end_of_the_precision_are_told_apart_from_another_order():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    with torch.no_grad():
        model[2].weight.mul_(1e32)
    with pytest.raises(ValueError, match=r"by layer '0' are so large .* as model.double\(\)"):
        preactivation_gradients(model, torch.ones(6, 4))
    gradients = preactivation_gradients(model.double(), torch.ones(6, 4).double())["0"]
    assert gradients.isfinite().all()
