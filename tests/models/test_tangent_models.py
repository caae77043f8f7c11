import pytest
import torch
from torch import nn

from feature_alignment.kernels.jacobian import Jacobian
from feature_alignment.models.mlp import sequential_mlp, small_cnn
from feature_alignment.models.tangent_models import TangentModel


def build(name):
    generator = torch.Generator().manual_seed(0)
    if name == "mlp":
        network = sequential_mlp(12, [7, 6], 3, generator, "lecun")
        x = torch.randn(5, 12, generator=generator)
    elif name == "strided":
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(2, 3, 3, stride=2, padding=1, dilation=2),
            nn.ReLU(),
            nn.Conv2d(3, 4, 2, stride=(1, 2), dilation=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4 * 4 * 2, 3),
        )
        x = torch.randn(5, 2, 13, 13, generator=generator)
    else:
        network = small_cnn(16, 2, 2, 3, generator, "lecun")
        x = torch.randn(5, 2, 16, 16, generator=generator)
    return network.double(), x.double()


def randomise(model):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for update in model.updates.values():
            for parameter in update.parameters():
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator).double()


def composed(update):
    """δ_W and δ_b of a factorised update, by loops over the window."""
    if update.weight.ndim == 2:
        weight = update.on_outputs @ update.weight @ update.on_inputs
    else:
        flat = update.weight.flatten(2)
        weight = torch.zeros_like(flat)
        for p in range(flat.shape[2]):
            for q in range(flat.shape[2]):
                moved = update.on_outputs @ flat[:, :, p] @ update.on_inputs
                weight[:, :, q] += update.on_positions[p, q] * moved
        weight = weight.view(update.weight.shape)
    return {"weight": weight, "bias": update.on_outputs @ update.bias}


@pytest.mark.parametrize("mode", ["linearised", "factorised"])
@pytest.mark.parametrize("name", ["mlp", "cnn", "strided"])
def test_outputs_are_the_first_order_expansion(name, mode):
    network, x = build(name)
    model = TangentModel(network, mode)
    torch.testing.assert_close(model(x), network(x))
    randomise(model)
    with torch.no_grad():
        direction = {
            f"{place}.{key}": value
            for place, update in model.updates.items()
            for key, value in (
                dict(update.named_parameters()) if mode == "linearised" else composed(update)
            ).items()
        }
        expected = network(x) + Jacobian(network, x).times(direction)
        torch.testing.assert_close(model(x), expected)
        for place, deviation in model.deviations().items():
            torch.testing.assert_close(deviation, direction[f"{place}.weight"])
        many = torch.cat([x] * 3)  # enough samples for the other order of the product
        torch.testing.assert_close(model(many), torch.cat([expected] * 3))


@pytest.mark.parametrize("mode", ["linearised", "factorised"])
def test_only_updates_have_gradients_and_the_network_is_left_alone(mode):
    network, x = build("cnn")
    before = [p.clone() for p in network.parameters()]
    model = TangentModel(network, mode)
    randomise(model)
    model(x).square().sum().backward()
    assert all(p.grad is None for p in model.network.parameters())
    assert all(p.grad.abs().max() > 0 for p in model.updates.parameters())
    assert all(torch.equal(p, old) for p, old in zip(network.parameters(), before, strict=True))


def test_what_is_not_supported_is_refused():
    with pytest.raises(ValueError, match="mode: 'lazy' is unknown; allowed: factorised"):
        TangentModel(nn.Sequential(nn.Linear(2, 1)), "lazy")
    with pytest.raises(ValueError, match="layer 1 is Tanh"):
        TangentModel(nn.Sequential(nn.Linear(2, 1), nn.Tanh()), "linearised")
    with pytest.raises(ValueError, match="layers without biases"):
        TangentModel(nn.Sequential(nn.Linear(2, 1, bias=False)), "factorised")
    with pytest.raises(ValueError, match="convolutions with groups"):
        TangentModel(nn.Sequential(nn.Conv2d(2, 2, 3, groups=2)), "factorised")
    for side in (8, 15):
        with pytest.raises(ValueError, match=f"side: {side}; four pools need"):
            small_cnn(side, 1, 2, 10, torch.Generator(), "lecun")


def test_a_layer_that_is_used_twice_is_refused():
    relu = nn.ReLU()
    network = nn.Sequential(nn.Linear(3, 4), relu, nn.Linear(4, 4), relu, nn.Linear(4, 2))
    with pytest.raises(ValueError, match="used twice"):
        TangentModel(network, "linearised")


@pytest.mark.parametrize("mode", ["linearised", "factorised"])
def test_signals_of_the_beginning_serve_every_later_moment(mode):
    network, x = build("cnn")
    model = TangentModel(network, mode)
    signals = model.signals(x)
    torch.testing.assert_close(model.from_signals(signals), network(x))
    randomise(model)
    assert torch.equal(model.from_signals(signals), model(x))
    assert not torch.equal(model(x), network(x))


@pytest.mark.parametrize("mode", ["linearised", "factorised"])
def test_deviations_stay_what_they_were(mode):
    model = TangentModel(build("mlp")[0], mode)
    deviations = model.deviations()
    randomise(model)
    assert not any(deviation.any() for deviation in deviations.values())
    assert all(deviation.any() for deviation in model.deviations().values())


def test_inputs_stay_where_a_relu_works_in_place():
    network = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 2))
    x = -torch.ones(3, 4)
    TangentModel(network, "linearised")(x)
    assert (x == -1).all()
