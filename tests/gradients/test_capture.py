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
def test_each_of_many_samples_has_a_weight_of_its_own(dtype, n):
    found = SimpleNamespace(f=torch.zeros(n, 2), leaves={"w": torch.zeros(1, dtype=dtype)})
    weights, _ = distinct_weights(found)
    assert len(weights.unique()) == n
    assert torch.equal(weights.to(dtype).to(weights), weights)


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
