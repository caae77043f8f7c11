from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients.capture import (
    ReorderedSamplesError,
    backpropagate,
    collect_signals,
    distinct_weights,
    in_other_order,
    leaf_gradients,
    one_hot_cotangents,
    random_sign_cotangents,
    recorded,
    refuse_reordered_samples,
)
from feature_alignment.gradients.graph import Place
from feature_alignment.gradients.model_function import ModelFunction
from feature_alignment.gradients.operation_rules import ProductCall
from feature_alignment.gradients.parameter_values import evaluation_point
from feature_alignment.gradients.samples import as_samples
from feature_alignment.layer_features.layers import matrix_uses
from toys import Toy, linear

X = torch.randn(4, 3, dtype=torch.float64, generator=torch_stream(0, "data"))


def odd():
    """Calls one layer twice, another behind its back, and a third for nothing."""

    def forward(m, x):
        m.nothing(x)
        h = torch.tanh(m.twice(torch.tanh(m.twice(x))))
        return F.linear(h, m.behind.weight)

    twice = linear(3, 3)  # seeds the others, which differ from it
    others = {name: nn.Linear(3, 3).double() for name in ("behind", "nothing")}
    return Toy(forward, twice=twice, **others)


@pytest.fixture
def recording():
    model = odd()
    values = evaluation_point(model)
    with recorded(ModelFunction(model), values, as_samples(X), list(values)) as found:
        yield found


@pytest.fixture
def calls(recording):
    """Products with the weights, in their order."""
    found = {}
    for use in matrix_uses(recording):
        *_, (operand, source) = enumerate(recording.graph.inputs[use.number])
        shape, node = recording.graph.shape(source), recording.graph.nodes[use.number]
        found[use.number] = ProductCall(node, {operand: shape}, Place(0))
    return found


def test_every_use_of_a_matrix_is_found_in_its_order(recording):
    uses = [use.name for use in matrix_uses(recording)]
    assert uses == ["twice.weight", "twice.weight", "behind.weight"]


def test_gradients_are_those_by_what_the_operations_returned(recording, calls):
    cotangent = torch.randn(4, 3, dtype=X.dtype, generator=torch_stream(0, "cotangent"))
    (gradients,) = backpropagate(recording, list(calls), iter([cotangent]))
    model = odd()
    with torch.enable_grad():
        first = model.twice(X)
        second = model.twice(torch.tanh(first))
        f = F.linear(torch.tanh(second), model.behind.weight)
        expected = [*torch.autograd.grad(f, [first, second], cotangent), cotangent]
    for number, gradient in zip(calls, expected, strict=True):
        torch.testing.assert_close(gradients[number], gradient)


def test_signals_are_those_of_all_outputs_and_may_be_written_to_given_space(recording, calls):
    number = next(iter(calls))
    space = torch.full((4, 3, 1, 3), torch.nan, dtype=X.dtype)
    signals = collect_signals(recording, calls, {number: space})
    assert signals[number] is space
    cotangents = one_hot_cotangents(recording.f)
    for y, gradients in enumerate(backpropagate(recording, list(calls), cotangents)):
        for key, gradient in gradients.items():
            torch.testing.assert_close(signals[key][:, y, 0], gradient)
    refuse_reordered_samples(recording, calls, signals)


def test_signals_of_other_samples_are_noticed(recording, calls):
    signals = collect_signals(recording, calls)
    number = next(iter(calls))
    signals[number] = signals[number].flip(0)
    with pytest.raises(ReorderedSamplesError, match=r"'twice\.\w+' does not meet the samples"):
        refuse_reordered_samples(recording, calls, signals)


@pytest.mark.parametrize(("dtype", "n"), [(torch.float32, 162), (torch.float16, 38)])
@pytest.mark.parametrize("times", [1, 2])
def test_each_of_many_samples_has_a_weight_of_its_own(dtype, n, times):
    """And of more samples, no weight has more than its share."""
    weights, _ = weights_of(n * times, dtype)
    distinct, counts = weights.unique(return_counts=True)
    assert len(distinct) == n
    assert (counts == times).all()
    assert torch.equal(weights.to(dtype).to(weights), weights)


def weights_of(n, dtype=X.dtype, outputs=2):
    f, leaves = torch.zeros(n, outputs, dtype=X.dtype), {"w": torch.zeros(1, dtype=dtype)}
    return distinct_weights(SimpleNamespace(f=f, leaves=leaves))


def test_no_output_cancels_another():
    _, by_output = weights_of(1, outputs=1000)
    assert len(by_output.abs().unique()) == 1000
    assert (by_output.abs() >= 1).all()
    assert 400 < (by_output > 0).sum() < 600


RELATIVE = 1e-3


def out_of_order(signals, order=(0, 1, 2, 3), noise=0.0):
    """Which of the signals, (n, 2, k) by name, are noticed if samples get others' weights.

    The noise is in units of the weighted outputs' signals if none cancels another.
    """
    by_sample, by_output = weights_of(4)
    weighted = {
        key: by_sample[list(order)] * (by_output @ signal)
        + by_sample * noise * (signal.abs().amax(2) @ by_output.abs())[:, None]
        for key, signal in signals.items()
    }
    return in_other_order(weighted, signals, (by_sample, by_output), RELATIVE, str)


@pytest.mark.parametrize("scales", [(1, 1, 1, 1), (-1, -1, -1, -1), (1, 1, 1e-60, -1e-60)])
def test_any_two_samples_that_change_places_are_noticed(scales):
    """Whatever the signs of their signals, and if they are smaller than other samples'."""
    one = torch.tensor(scales, dtype=X.dtype)[:, None, None].expand(4, 2, 3)
    assert out_of_order({"one": one}) == []
    for i, j in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)):
        order = [{i: j, j: i}.get(place, place) for place in range(4)]
        assert out_of_order({"one": one}, order) == ["one"]


def test_rounding_errors_are_not_taken_for_samples_that_change_places():
    ones = torch.ones(4, 2, 3, dtype=X.dtype)
    signals = {"large": ones, "small": 1e-6 * ones, "rounding errors": 1e-9 * ones}
    assert out_of_order(signals, noise=0.7 * RELATIVE) == []
    assert out_of_order(signals, noise=2 * RELATIVE) == ["large"]
    assert out_of_order(signals, noise=100) == ["large", "small"]


def test_random_signs_are_orthonormal_on_average():
    f = torch.zeros(2000, 3)
    cotangents = torch.stack(list(random_sign_cotangents(f, 4, torch_stream(0, "signs"))))
    assert cotangents.shape == (4, 2000, 3)
    assert torch.equal(cotangents.abs(), torch.full_like(cotangents, 0.5))
    products = torch.einsum("mny,mnz->nyz", cotangents, cotangents).mean(0)
    torch.testing.assert_close(products, torch.eye(3), atol=0.05, rtol=0)


def test_a_recurrent_layer_that_fails_leaves_pytorchs_flags_as_they_were():
    model, flags = nn.LSTM(2, 2).double(), torch.backends.mkldnn
    assert flags.enabled
    run_here = ModelFunction(model, output=0).installed(evaluation_point(model))
    with pytest.raises(RuntimeError, match="input"), run_here as run:
        run(as_samples(X))
    assert flags.enabled


def test_batch_normalisation_outside_modules_gives_one_image_the_right_gradients():
    def forward(m, x):
        h = F.batch_norm(m.layer(x).view(-1, 4, 3, 3), mean, mean.exp())
        return torch.tanh(F.layer_norm(h.flatten(2).transpose(1, 2), (4,)) @ v).mean(1)

    model, mean = Toy(forward, layer=linear(3, 36)), torch.arange(4.0, dtype=X.dtype)
    v = torch.eye(4, 2, dtype=X.dtype)
    values = evaluation_point(model)
    gradients = []
    for samples in (X[:1], X[[0, 0]]):
        with recorded(ModelFunction(model), values, as_samples(samples), list(values)) as found:
            cotangent = torch.zeros_like(found.f)
            cotangent[0, 0] = 1
            gradients.append(leaf_gradients(found.f, found.leaves, cotangent)["layer.weight"])
    torch.testing.assert_close(*gradients)
