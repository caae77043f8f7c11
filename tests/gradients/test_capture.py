import pytest
import torch
from torch import nn
from torch.nn import functional as F

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients.capture import (
    backpropagate,
    collect_signals,
    evaluation_point,
    record,
    refuse_reordered_samples,
    ruled_modules,
)
from feature_alignment.gradients.cotangents import one_hot_cotangents, random_sign_cotangents
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


def recording(model, x=X):
    return record(model, evaluation_point(model), x, ruled_modules(model))


def test_every_call_is_recorded_and_every_use_counted():
    found = recording(odd())
    assert set(found.calls) == {("twice", 0), ("twice", 1), ("nothing", 0)}
    assert found.parameter_uses() == {"twice.weight": 2, "twice.bias": 2, "behind.weight": 1}


def test_gradients_are_those_by_what_the_calls_returned():
    model = odd()
    found = recording(model)
    cotangent = torch.randn(4, 3, dtype=X.dtype, generator=torch_stream(0, "cotangent"))
    (gradients,) = backpropagate(found, iter([cotangent]))
    first = model.twice(X)
    second = model.twice(torch.tanh(first))
    f = F.linear(torch.tanh(second), model.behind.weight)
    expected = torch.autograd.grad(f, [first, second], cotangent)
    torch.testing.assert_close(gradients["twice", 0], expected[0])
    torch.testing.assert_close(gradients["twice", 1], expected[1])
    assert not gradients["nothing", 0].any()


def test_signals_are_those_of_all_outputs_and_may_be_written_to_given_space():
    model = odd()
    found = recording(model)
    space = torch.full((4, 3, 3), torch.nan, dtype=X.dtype)
    signals = collect_signals(found, {("twice", 1): space})
    assert signals["twice", 1] is space
    for y, gradients in enumerate(backpropagate(found, one_hot_cotangents(found.f))):
        for key, gradient in gradients.items():
            torch.testing.assert_close(signals[key][:, y], gradient)
    refuse_reordered_samples(found, signals)


def test_signals_of_other_samples_are_noticed():
    found = recording(odd())
    signals = collect_signals(found)
    signals["twice", 0] = signals["twice", 0].flip(0)
    with pytest.raises(ValueError, match="'twice' does not get the samples in the order"):
        refuse_reordered_samples(found, signals)


def test_random_signs_are_orthonormal_on_average():
    f = torch.zeros(2000, 3)
    cotangents = torch.stack(list(random_sign_cotangents(f, 4, torch_stream(0, "signs"))))
    assert cotangents.shape == (4, 2000, 3)
    assert torch.equal(cotangents.abs(), torch.full_like(cotangents, 0.5))
    products = torch.einsum("mny,mnz->nyz", cotangents, cotangents).mean(0)
    torch.testing.assert_close(products, torch.eye(3), atol=0.05, rtol=0)
