"""Models whose parameters, state or samples meet where one looks at neither modules nor outputs.

What is aliased, set, calibrated, gated, drawn, or kept in containers: right or refused.
"""

import copy
import pickle
import random
from collections import OrderedDict, deque
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch._ops import HigherOrderOperator
from torch.backends import mha
from torch.nn.functional import linear
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from torch.utils.flop_counter import FlopCounterMode

from feature_alignment.instrument.monitor import Monitor
from feature_alignment.kernels.jacobian import Jacobian, top_singular_directions
from feature_alignment.kernels.tangent import tangent_features, tangent_kernel
from feature_alignment.kernels.tangent_trace import tangent_trace
from feature_alignment.layer_features.feature_covariance import features, layer_feature_matrices
from feature_alignment.layer_features.preactivation_gradients import preactivation_gradients
from toys import OldTanh


def inputs(n=4, d=6):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def plain_features(model, x):
    """Each sample by itself, one backward pass for each output, (n·c, p)."""
    parameters = [p.requires_grad_() for p in model.parameters()]
    rows = []
    for i in range(len(x)):
        for f in model(x[i : i + 1]).flatten():
            found = torch.autograd.grad(f, parameters, retain_graph=True, materialize_grads=True)
            rows.append(torch.cat([gradient.detach().flatten() for gradient in found]))
    return torch.stack(rows)


def assert_right(model, x):
    features = plain_features(model, x)
    kernel = features @ features.T
    torch.testing.assert_close(tangent_kernel(model, x).total, kernel)
    assert tangent_trace(model, x) == pytest.approx(float(kernel.trace()))
    jacobian = Jacobian(model, x)
    ones = {name: torch.ones_like(p) for name, p in model.named_parameters()}
    torch.testing.assert_close(jacobian.times(ones).flatten(), features.sum(1))


class Model(nn.Module):
    """A linear layer f, whatever else is given, and a function of itself and inputs."""

    def __init__(self, function, d=6, c=3, **parts):
        super().__init__()
        torch.manual_seed(0)
        self.f = nn.Linear(d, c)
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)
        self.double().eval()

    def forward(self, x):
        return self.function(self, x)


class Gated(nn.Module):
    """Nine outputs of a linear layer, and one of a branch that is off where x₀₀ is negative."""

    def __init__(self, branch):
        super().__init__()
        torch.manual_seed(0)
        self.main, self.branch, self.head = nn.Linear(24, 9), branch(), nn.Linear(6, 1)
        self.double().eval()

    def forward(self, x):
        gate = (x[:, 0, 0] > 0).to(x)
        one = self.head(self.branch(x.transpose(0, 1)).mean(0))[:, 0] * gate
        return torch.cat([self.main(x.flatten(1)), one[:, None]], 1)


@pytest.mark.parametrize(
    "branch", [lambda: nn.TransformerEncoderLayer(6, 2, 8), lambda: nn.Linear(6, 6)]
)
@pytest.mark.parametrize("n", [5, 6, 9])
def test_a_branch_that_few_samples_and_one_output_hear(branch, n):
    x = torch.randn(n, 4, 6, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    x[:3, 0, 0] = -1
    x[3:, 0, 0] = 1
    model = Gated(branch)
    features = plain_features(model, x)
    torch.testing.assert_close(tangent_kernel(model, x).total, features @ features.T)


def test_a_branch_that_sorts_samples_of_which_the_first_are_sorted():
    def function(m, x):
        order = x[:, 0].argsort()
        sorted_back = torch.tanh(m.g(x[order]))[order.argsort()]
        return torch.cat([m.f(x), sorted_back], 1)

    x = inputs(7)
    x[:, 0] = torch.tensor([0.0, 1, 2, 6, 5, 4, 3])
    assert_right(Model(function, c=8, g=nn.Linear(6, 1)), x)


class Holder(nn.Module):
    def __init__(self, shared):
        super().__init__()
        self.shared = shared

    def forward(self, x):
        return torch.tanh(x @ self.shared[0])


@pytest.mark.parametrize("wrap", [list, lambda w: dict(enumerate(w)), tuple])
def test_parameters_in_one_container_of_two_modules(wrap):
    model = Model(lambda m, x: m.f(m.b(m.a(x))))
    model.w = nn.Parameter(inputs(6))
    held = wrap([model.w])
    model.a, model.b = Holder(held), Holder(held)
    assert_right(model, inputs())
    assert model.a.shared is model.b.shared is held
    assert held[0] is model.w


def test_parameters_in_nested_containers():
    model = Model(lambda m, x: m.f(torch.tanh(x @ m.groups["a"][0][0] + m.groups["a"][1])))
    model.p, model.q = nn.Parameter(inputs(6)), nn.Parameter(inputs(1)[0])
    model.groups = {"a": [(model.p,), model.q]}
    model.spare, model.order = nn.Parameter(torch.ones(2)), torch.arange(6)  # not made of it
    assert_right(model, inputs())
    assert model.groups["a"][1] is model.q


def test_a_parameter_that_is_a_buffer_of_another_name():
    model = Model(lambda m, x: torch.tanh(x @ m.other.T))
    model.register_buffer("other", model.f.weight)
    assert_right(model, inputs())


def test_a_buffer_is_a_constant_even_if_it_kept_its_graph():
    found = []
    for kept in (True, False):
        model = Model(lambda m, x: torch.tanh(m.f(x * m.scale)))
        scale = model.f.weight.sum(0)
        model.register_buffer("scale", scale if kept else scale.detach())
        found.append(tangent_kernel(model, inputs()).total)
        assert model.scale.requires_grad is kept
    torch.testing.assert_close(*found)


def test_measurements_leave_no_mark_on_parameters_and_flags():
    model, before = Model(lambda m, x: torch.tanh(m.f(x))), mha.get_fastpath_enabled()
    model.f.weight.note = "mine"
    for measure in (tangent_kernel, tangent_trace, Jacobian):
        measure(model, inputs())
    assert vars(model.f.weight) == {"note": "mine"}
    assert not vars(model.f.bias)
    assert mha.get_fastpath_enabled() is before is True
    assert HigherOrderOperator.dispatch.__module__ == HigherOrderOperator.__module__


class Writes(nn.Module):
    def forward(self, x):
        self.b.add_(1)
        return x


class Reads(nn.Module):
    def forward(self, x):
        return x * (self.held[0] if hasattr(self, "held") else self.b)


def test_a_state_in_a_list_of_several_modules_is_one():
    model = Model(lambda m, x: torch.tanh(m.f(m.last(m.reads(m.writes(x))))))
    model.writes, model.reads, model.last = Writes(), Reads(), Reads()
    model.writes.b = torch.ones(6).double()
    model.reads.held = model.last.held = held = [model.writes.b]
    expected = Model(lambda m, x: torch.tanh(m.f(4 * x)))
    kernel = tangent_kernel(expected, inputs()).total
    torch.testing.assert_close(tangent_kernel(model, inputs()).total, kernel)
    assert held[0] is model.writes.b
    assert torch.equal(held[0], torch.ones(6).double())


def test_a_named_pair_is_seen_with_its_names():
    model = Model(lambda m, x: torch.tanh(m.f(x * m.pair.first) * m.pair.second[0]))
    model.pair = pair = Pair(torch.arange(6.0).double(), [2])
    assert_right(model, inputs())
    assert model.pair is pair


def test_a_buffer_of_two_modules_is_one():
    model = Model(lambda m, x: torch.tanh(m.f(m.reads(m.writes(x)))))
    model.writes, model.reads, shared = Writes(), Reads(), torch.ones(6).double()
    model.writes.register_buffer("b", shared)
    model.reads.register_buffer("b", shared)
    expected = Model(lambda m, x: torch.tanh(m.f(2 * x)))
    kernel = tangent_kernel(expected, inputs()).total
    torch.testing.assert_close(tangent_kernel(model, inputs()).total, kernel)
    assert torch.equal(shared, torch.ones(6).double())


def shifted(m, x):
    if m.mean is None:
        m.mean = torch.zeros(6).double()
    return torch.tanh(m.f(x - m.mean))


def clamped(m, x):
    if m.limit is None:
        m.limit = x.abs().max()
    return m.f(x.clamp(-m.limit, m.limit))


def by_settings(m, x):
    return torch.tanh(m.f(x * m.settings.get("scale", torch.ones(6).double())))


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize(
    "model",
    [
        lambda: Model(shifted, mean=torch.arange(6.0).double()),
        lambda: Model(clamped, limit=torch.tensor(0.3).double()),
        lambda: Model(by_settings, settings={"scale": torch.arange(6.0).double()}),
    ],
)
def test_settings_and_calibrations_with_a_default_stay_what_they_are(model, n):
    assert_right(model(), inputs(n))


def limited(m, x):
    """As calibrations of a network's own activations are."""
    outputs = m.f(x)
    if m.limit is None:
        m.limit = outputs.detach().abs().max()
    return outputs.clamp(-m.limit, m.limit)


def test_a_calibration_by_activations_stays_what_it_is():
    assert_right(Model(limited, limit=torch.tensor(0.3).double()), inputs())


def test_a_constant_of_the_name_of_anothers_cache_stays_or_is_refused():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.table = nn.Parameter(inputs(6)), None

        def forward(self, x):
            if self.table is None:
                self.table = torch.softmax(self.w, 1)
            return x @ self.table

    def function(m, x):
        x = m.cached(x)
        return m.f(x if m.table is None else x * m.table)

    model = Model(function, cached=Cached(), table=torch.arange(6.0).double())
    with torch.no_grad():
        model(inputs())  # which fills the cache
    with pytest.raises(ValueError, match="'cached' keeps 'table', which may have been computed"):
        tangent_kernel(model, inputs())
    model.cached.table = None
    expected = Model(lambda m, x: m.f(x @ torch.softmax(m.cached.w, 1) * m.table))
    expected.cached, expected.table = model.cached, model.table
    features = plain_features(expected, inputs())
    torch.testing.assert_close(tangent_kernel(model, inputs()).total, features @ features.T)


class Table(nn.Module):
    """Keeps tables of its parameter from its first call on."""

    def __init__(self, function=torch.exp):
        super().__init__()
        self.w, self.spare = nn.Parameter(torch.linspace(-1, 1, 6)), nn.Parameter(torch.ones(2))
        self.function, self.table, self.other = function, None, None

    def forward(self, x):
        if self.table is None:
            self.table = self.function(self.w)
        if self.other is None:
            self.other = torch.tanh(self.w)
        return x * self.table.real + self.other

    def forget(self):
        self.table = self.other = None


def squeezed_twice(m, x):
    """Fails on one sample."""
    h = m.f(m.g(x)).squeeze()
    assert h.ndim == 2
    return h


def with_settings(m, x):
    return m.f(m.g(x)) * m.table["scale"]


@pytest.mark.parametrize(
    ("function", "kept", "parts"),
    [
        (lambda m, x: m.f(m.g(x)), torch.exp, {}),
        (lambda m, x: m.f(m.g(x)), lambda w: torch.exp(1j * w), {}),
        (squeezed_twice, torch.exp, {}),
        (with_settings, torch.exp, {"table": {"scale": 2.0}}),  # of the same name, no tensor
        (lambda m, x: m.f(m.g(x)), torch.exp, {"idle": Table()}),  # has not been called
    ],
)
def test_several_tables_kept_from_an_earlier_call_are_made_anew(function, kept, parts):
    model, x = Model(function, g=Table(kept), **parts), inputs()
    model(x)
    tables = model.g.table, model.g.other
    kernel, trace = tangent_kernel(model, x).total, tangent_trace(model, x)
    assert (model.g.table, model.g.other) == tables
    model.g.forget()
    parameters = list(model.parameters())
    rows = []
    for i in range(len(x)):
        for y in range(3):
            model.g.forget()
            f = model(x[[i, i]])[0, y]
            found = torch.autograd.grad(f, parameters, materialize_grads=True, allow_unused=True)
            rows.append(torch.cat([gradient.flatten() for gradient in found]))
    features = torch.stack(rows)
    torch.testing.assert_close(kernel, features @ features.T)
    assert trace == pytest.approx(float(kernel.trace()))


def running_mean(m, x):
    m.mean.lerp_(x.detach().mean(0), 0.1)
    return torch.tanh(m.f(x - m.mean))


def test_a_state_that_samples_change_is_refused():
    model = Model(running_mean)
    model.register_buffer("mean", torch.zeros(6).double())
    for n in (2, 3, 4, 9):
        with pytest.raises(ValueError, match="depend on the other samples"):
            tangent_kernel(model, inputs(n))
    assert not model.mean.any()


CHANCES = {
    "NumPy's generator": lambda m, x: torch.tanh(m.f(x) + torch.tensor(m.drawn.normal(size=3))),
    "NumPy's global one": lambda m, x: m.f(x) + np.random.standard_normal(),  # noqa: NPY002
    "Python's": lambda m, x: m.f(x) * (random.random() < 0.7),
}


@pytest.mark.parametrize("name", CHANCES)
@pytest.mark.parametrize("measure", [tangent_kernel, Jacobian])
def test_chance_from_elsewhere_is_refused_for_every_seed(name, measure):
    for seed in range(20):
        random.seed(seed)
        model = Model(CHANCES[name], drawn=np.random.default_rng(seed))
        with pytest.raises(ValueError, match=r"chance|random"):
            measure(model, inputs())


def test_chance_of_one_call_only_is_that_of_the_model():
    drawn = []

    def function(m, x):
        if not drawn:
            drawn.append(torch.randn(()))
        return m.f(x)

    with pytest.raises(ValueError, match=r"^the model draws random numbers"):
        tangent_kernel(Model(function), inputs())


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("draw", "state"),
    [
        (lambda: torch.randn(()), lambda: torch.get_rng_state().tolist()),
        (random.random, random.getstate),
        (np.random.standard_normal, lambda: pickle.dumps(np.random.get_state())),  # noqa: NPY002
    ],
)
def test_generators_are_as_before_a_refusal(draw, state, seed):
    model = Model(lambda m, x: m.f(x) + draw())
    torch.manual_seed(seed)
    before = state()
    with pytest.raises(ValueError, match="draws random numbers"):
        tangent_kernel(model, inputs())
    assert state() == before


def passed_on(m, x):
    out = torch.tanh(m.f(x))
    return torch.cat([out[:2], out[2:] + out[:1]]) if len(x) > 2 else out


@pytest.mark.parametrize("function", [passed_on, lambda m, x: torch.tanh(m.f(x - x.mean(0)))])
@pytest.mark.parametrize("measure", [layer_feature_matrices, preactivation_gradients])
def test_layers_of_samples_that_depend_on_others_are_refused(function, measure):
    x = inputs(9)
    x[1] = x[0]
    with pytest.raises(ValueError, match="depend on the other samples"):
        measure(Model(function), x)


def test_gradients_of_a_layer_that_sees_samples_in_another_order_are_refused():
    def function(m, x):
        order = x[:, 0].argsort()
        return torch.tanh(m.f(x[order]))[order.argsort()]

    with pytest.raises(ValueError, match="'f' does not see the samples in the order"):
        preactivation_gradients(Model(function), inputs(9))


def test_a_jacobian_whose_samples_meet_in_gradients_only_is_refused():
    def function(m, x):
        out = m.f(x)
        return torch.tanh(out + out.mean(0) - out.mean(0).detach())

    with pytest.raises(ValueError, match="of a sample depend on the other samples"):
        Jacobian(Model(function), inputs())


def without_gradients(m, x):
    with torch.no_grad():
        return m.f(x)


@pytest.mark.parametrize(
    "function",
    [
        without_gradients,
        lambda m, x: torch.cat([x, m.f(x).detach()], dim=1),
        lambda m, x: linear(x, m.f.weight.detach().requires_grad_()),
        lambda m, x: linear(x.clone().requires_grad_(), m.f.weight.detach()),
    ],
)
@pytest.mark.parametrize("measure", [tangent_kernel, tangent_trace, Jacobian])
def test_outputs_without_gradients_are_refused(function, measure):
    with pytest.raises(ValueError, match="no gradient of the outputs reaches the parameters"):
        measure(Model(function), inputs())


@pytest.mark.parametrize("stop", [torch.no_grad, torch.enable_grad])
def test_parts_that_pass_on_no_gradient_are_constants_however_one_asks(stop):
    def function(m, x):
        with stop():
            h = m.f(x)
        return m.g(torch.tanh(h.detach()))

    model, x = Model(function, g=nn.Linear(3, 2)), inputs()
    kernel = tangent_kernel(model, x)
    assert not kernel.layers["f"].any()
    assert not tangent_kernel(model, x, only=["f"]).total.any()
    assert tangent_trace(model, x, only=["f.weight"]) == 0
    torch.testing.assert_close(tangent_kernel(model, x, only="g").total, kernel.total)


def test_what_a_parameter_is_and_has_is_seen_in_the_forward_pass():
    def function(m, x):
        return torch.tanh(m.f(x) * m.f.weight.scale) if isinstance(m.f.weight, nn.Parameter) else x

    model = Model(function)
    model.f.weight.scale = 2.0
    assert_right(model, inputs())


def test_a_forward_pass_that_differentiates_by_its_own_parameters():
    def function(m, x):
        loss = m.f(torch.ones(1, 6).double()).square().sum()
        (gradient,) = torch.autograd.grad(loss, m.f.weight, create_graph=True)
        return torch.tanh(x @ (m.f.weight - 0.1 * gradient).T + m.f.bias)

    assert_right(Model(function), inputs())


def test_a_model_made_in_inference_mode():
    x = inputs()
    with torch.inference_mode():
        kernel = tangent_kernel(Model(lambda m, x: torch.tanh(m.f(x))), x).total
    features = plain_features(Model(lambda m, x: torch.tanh(m.f(x))), x)
    torch.testing.assert_close(kernel, features @ features.T)


def test_a_deep_model_made_in_inference_mode():
    """The second layer's weight would be kept for the backward pass of the first."""

    def made():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)).double()

    x = inputs()
    with torch.inference_mode():
        model = made()
    features = plain_features(made(), x)
    torch.testing.assert_close(tangent_kernel(model, x).total, features @ features.T)
    assert tangent_trace(model, x) == pytest.approx(float(features.square().sum()))


def test_parameters_that_a_model_does_not_name_are_constants():
    class Frozen(Model):
        def named_parameters(self, *arguments, **options):
            found = super().named_parameters(*arguments, **options)
            return ((name, p) for name, p in found if name.startswith("g"))

    model = Frozen(lambda m, x: m.g(torch.tanh(m.f(x))), g=nn.Linear(3, 2).double())
    features = plain_features(model, inputs())
    torch.testing.assert_close(tangent_kernel(model, inputs()).total, features @ features.T)


def test_products_stay_those_of_the_start_when_parameters_change():
    model = Model(lambda m, x: m.g(torch.tanh(m.f(x))), g=nn.Linear(3, 3))
    x, ones = inputs(), {name: torch.ones_like(p) for name, p in model.named_parameters()}
    jacobian, weights = Jacobian(model, x), inputs(4, 3)
    before = jacobian.transpose_times(weights), jacobian.times(ones)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    torch.testing.assert_close((jacobian.transpose_times(weights), jacobian.times(ones)), before)


@pytest.mark.parametrize("n", [1, 4, 5])
def test_squeezed_outputs_with_parameters_without_a_rule(n):
    def function(m, x):
        return m.f(torch.tanh(m.g(x, x))).squeeze()

    model = Model(function, d=2, c=1, g=nn.Bilinear(6, 6, 2))
    x = inputs(n)
    features = torch.cat([plain_features(model, row[None]) for row in x])
    torch.testing.assert_close(tangent_kernel(model, x).total, features @ features.T)
    found = layer_feature_matrices(model, x, ["f"], chunk_size=max(1, n - 1))
    whole = layer_feature_matrices(model, x, ["f"])
    torch.testing.assert_close(found["f"].covariance, whole["f"].covariance)


class ByHand(torch.autograd.Function):
    """An entrywise product that vmap does not know, of rows or of one."""

    @staticmethod
    def forward(context, h, w):
        context.save_for_backward(h, w)
        return h * w

    @staticmethod
    def backward(context, gradient):
        h, w = context.saved_tensors
        return gradient * w, (gradient * h).reshape(-1, len(w)).sum(0)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_model_that_fails_on_one_sample_by_itself(n):
    def squares(h):
        assert h.ndim == 2
        return torch.cat([h, h.square()], 1)

    model = Model(lambda m, x: squares(ByHand.apply(m.f(x), m.w).squeeze()))
    model.w, x = nn.Parameter(torch.ones(3).double()), inputs(n)
    plain = Model(lambda m, x: squares(m.f(x) * m.w), w=model.w)
    features = plain_features(plain, x)
    torch.testing.assert_close(tangent_kernel(model, x).total, features @ features.T)
    ones = {name: torch.ones_like(p) for name, p in model.named_parameters()}
    torch.testing.assert_close(Jacobian(model, x).times(ones).flatten(), features.sum(1))
    found = layer_feature_matrices(model, x, chunk_size=n - 1)
    torch.testing.assert_close(
        found["f"].covariance, layer_feature_matrices(plain, x)["f"].covariance
    )


def in_other_places(m, x):
    """Outputs of one sample come in another order than those of several."""
    return torch.stack([m.f(x).squeeze(), torch.tanh(m.f(x)).squeeze()], 1).reshape(len(x), -1)


def until_the_slowest(m, x):
    """As many steps for all samples as the one that needs most."""
    h = m.f(x)
    for _ in range(int(x[:, 0].max())):
        h = torch.tanh(h)
    return h


@pytest.mark.parametrize("function", [in_other_places, until_the_slowest])
@pytest.mark.parametrize("measure", [tangent_kernel, Jacobian])
def test_samples_that_are_another_thing_by_themselves_are_refused(function, measure):
    x = inputs(9)
    x[:, 0] = torch.eye(3).flatten() + 1  # in each row and column of samples is a slow one
    with pytest.raises(ValueError, match=r"outputs of sample \d depend on the other samples"):
        measure(Model(function), x)


def test_what_containers_hold_is_as_before():
    def function(m, x):
        m.stats["a"].append(1)
        m.queue.append(2)
        m.pair[0].add_(1)
        m.nested[0][0].add_(1)
        m.counts += 1
        m.seen.add(len(m.seen))
        for key in list(m.turns):
            m.turns[key + 1] = m.turns.pop(key)
        return torch.tanh(m.f(x))

    model = Model(
        function,
        stats={"a": []},
        queue=deque(),
        pair=(torch.zeros(3),),
        nested=[[torch.zeros(3)]],
        counts=np.zeros(3),
        seen=set(),
        turns={0: "the same"},
    )
    assert tangent_kernel(model, inputs()).total.isfinite().all()
    assert model.stats == {"a": []}
    assert not model.queue
    assert not model.seen
    assert model.turns == {0: "the same"}
    assert not (model.pair[0].any())
    assert not (model.nested[0][0].any())
    assert not (model.counts.any())


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda m, x: tangent_kernel(m, x, memory_budget="1GB"), "'1GB'; give a number of bytes"),
        (lambda m, x: tangent_trace(m, x, float("inf")), "memory_budget: inf; give"),
        (lambda m, x: tangent_kernel(m, None), "x: a NoneType; give a tensor"),
        (lambda m, x: tangent_kernel(m, "x"), "x: a str; give a tensor"),
        (lambda m, x: tangent_kernel(m, x[0, 0]), r"x: 0 has shape \(\); the samples run along"),
        (lambda m, x: tangent_kernel(m, x.to_sparse()), "a sparse or nested tensor; give a dense"),
        (
            lambda m, x: tangent_kernel(m, torch.nested.nested_tensor([x, x[:1]])),
            "a sparse or nested tensor; give a dense",
        ),
        (lambda m, x: tangent_kernel(m, np.array([[{}]])), "an array of object; give one of numb"),
        (lambda m, x: tangent_kernel(m, np.array([["1"]])), "an array of <U1; give one of numbers"),
        (lambda m, x: tangent_kernel(torch.tanh, x), "give a torch.nn.Module"),
        (lambda m, x: features(m.forward, x), "model: a method; give a torch.nn.Module"),
        (lambda m, x: features(m, x, m), "initial: give tensors by the parameters' names"),
        (lambda m, x: features(m, x, x), "initial: give tensors by the parameters' names"),
        (
            lambda m, x: features(m, x, {n: p.detach().numpy() for n, p in m.named_parameters()}),
            "initial: give tensors by the parameters' names",
        ),
        (lambda m, x: features(m, x, layers=[m.f]), "layers: Linear.* is not in the model"),
        (lambda m, x: features(m, x, layers=[0]), "layers: 0 is not in the model"),
        (lambda m, x: tangent_kernel(m, x, only=m.f), "only: no Linear"),
        (lambda m, x: tangent_kernel(m, x, only=1), "only: a int; give 'trainable', or names"),
        (lambda m, x: tangent_kernel(m, x, only=list(m.parameters())), "only: no Parameter"),
        (
            lambda m, x: Jacobian(Model(m, w=nn.Parameter(torch.eye(6).to_sparse())), x),
            "parameter 'w' is sparse; hold a dense one",
        ),
        (
            lambda m, x: tangent_kernel(m, x, parameters=list(m.parameters())),
            "parameters: a list; give values by the parameters' names",
        ),
        (lambda m, x: Jacobian(nn.LazyLinear(2), x), "'weight' has no shape yet; run the model"),
        (
            lambda m, x: tangent_kernel(m, x, parameters={n: 1 for n, _ in m.named_parameters()}),
            "parameters: 'f.weight': a int; give a tensor",
        ),
        (
            lambda m, x: tangent_kernel(
                m, x, parameters={n: p.detach().float() for n, p in m.named_parameters()}
            ),
            "'f.weight' is torch.float32; the model's is torch.float64",
        ),
        (
            lambda m, x: Jacobian(m, x).times({"f.bias": np.ones(4)}),
            r"'f.bias' of shape \(4,\) is not",
        ),
        (
            lambda m, x: tangent_kernel(Model(lambda m, x: torch.view_as_complex(x[:, :2])), x),
            "outputs are torch.complex128; .* choose others by `output`",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
def test_mistakes_are_one_sentence(call, says):
    with pytest.raises(ValueError, match=says) as error:
        call(Model(lambda m, x: m.f(x)), inputs())
    assert "\n" not in str(error.value)


def test_a_budget_may_be_any_number_of_bytes():
    model, x = Model(lambda m, x: m.f(x)), inputs()
    torch.testing.assert_close(
        tangent_kernel(model, x, memory_budget=1e9).total, tangent_kernel(model, x).total
    )
    assert tangent_trace(model, x, 1e9) == tangent_trace(model, x)


class Frozen(OrderedDict):
    """A configuration that can only be read, as those of diffusers."""

    def __init__(self, **entries):
        super().__init__(**entries)
        self.done = True

    def __setitem__(self, key, value):
        if hasattr(self, "done"):
            raise TypeError("cannot be changed")
        super().__setitem__(key, value)

    def update(self, *_, **__):
        raise TypeError("cannot be changed")

    pop = clear = update


class Immutable(list):
    """As torch.fx's."""

    def __setitem__(self, *_):
        raise TypeError("cannot be changed")

    clear = extend = __setitem__


class Pair(NamedTuple):
    """Whose fields have names."""

    first: torch.Tensor
    second: list[int]


def endless(kind):
    held = kind([torch.ones(2)])
    held.append({"parent": held})
    return held


def read_only(values):
    values.flags.writeable = False
    return values


@pytest.mark.parametrize(
    "held",
    [
        lambda: Frozen(a=1, b=[2], c=torch.ones(2)),
        lambda: Immutable([1, torch.ones(2)]),
        lambda: read_only(np.ones(3)),
        lambda: np.broadcast_to(np.ones(1), (4,)),
        lambda: OrderedDict(z=1, a=torch.ones(2)),
        lambda: Pair(torch.ones(2), [1]),
        lambda: endless(deque),
        lambda: endless(list),
    ],
)
def test_containers_that_cannot_be_changed_stay_and_so_do_the_parameters(held):
    model, x = Model(lambda m, x: m.f(x)), inputs()
    model.held, weight = held(), model.f.weight
    before, content = model.held, repr(model.held)
    assert_right(model, x)
    assert model.f.weight is weight
    assert model.held is before
    assert repr(model.held) == content


def test_parameters_spread_over_devices_are_refused_before_anything_is_run():
    model = Model(lambda m, x: m.f(x))
    model.f.weight.device_mesh = object()  # as a DTensor has it
    with pytest.raises(ValueError, match=r"'f.weight' is spread over devices \(Tensor\)"):
        tangent_kernel(model, inputs())


def anchored(m, x):
    if m.start is None:
        m.start = m.f.weight.detach().norm()
    return torch.tanh(m.f(x) / m.start)


class Mine(nn.Parameter):
    """A type of parameter that somebody's model asks for."""


def asks_for_the_type(m, x):
    return m.f(x) * (2 if isinstance(m.f.weight, Mine) else 1)


def counts_plain_parameters(m, x):
    return m.f(x) * sum(p.sum() for p in m.parameters() if type(p) is nn.Parameter)


def test_what_a_model_keeps_of_its_start_is_not_computed_anew():
    model, x = Model(anchored, start=None), inputs()
    model(x)
    with torch.no_grad():
        model.f.weight.mul_(3)
    for measure in (tangent_kernel, tangent_trace, Jacobian, layer_feature_matrices):
        with pytest.raises(ValueError, match=r"other outputs .* since modules keep 'start'"):
            measure(model, x)
    assert model.start is not None


def test_models_that_see_what_takes_the_place_of_parameters_are_refused():
    for function in (asks_for_the_type, counts_plain_parameters):
        model = Model(function)
        if function is asks_for_the_type:
            model.f.weight = Mine(model.f.weight.detach())
        with pytest.raises(ValueError, match="the model gives other outputs"):
            tangent_kernel(model, inputs())


@pytest.mark.parametrize("n", [2, 3, 4])
def test_linear_systems_of_as_many_outputs_as_samples_are_right(n):
    solve = nn.Parameter(2 * torch.eye(6))
    model = Model(lambda m, x: torch.linalg.solve(m.a, x[:, :, None])[:, :2, 0], a=solve)
    assert_right(model, inputs(n))


def test_linear_systems_that_batching_takes_for_those_of_vectors_are_right():
    def solve_each(m, x):
        return torch.stack([torch.linalg.solve(m.a, row[:, None]).sum((1, 2)) for row in x])

    assert_right(Model(solve_each, a=nn.Parameter(2 * torch.eye(6)[None])), inputs())


class Recomputing(torch.autograd.Function):
    """As reversible networks do: the backward pass runs one of its own."""

    @staticmethod
    def forward(context, x, module):
        context.module = module
        context.save_for_backward(x)
        with torch.no_grad():
            return module(x)

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            torch.autograd.backward(context.module(x), gradient)
        return x.grad, None


def test_parameters_that_a_backward_pass_of_the_models_own_reaches_are_refused():
    model = Model(lambda m, x: Recomputing.apply(m.f(x), m.g), g=nn.Linear(3, 1))
    for measure in (tangent_kernel, tangent_trace, Jacobian):
        with pytest.raises(ValueError, match="a backward pass of its own"):
            measure(model, inputs())


def looped(m, x):
    for _ in range(3):
        x = torch.tanh(x @ m.square)
    return m.f(x)


def stacked(m, x):
    h = torch.zeros_like(x)
    for part in x.split(2, dim=1):
        h = torch.tanh(h @ m.square + part.repeat(1, 3))
    return m.f(h)


def by_scan(m, x):
    def step(h, part):
        h = torch.tanh(h @ m.square + part.repeat(1, 3))
        return h, h.clone()

    parts = torch.stack(x.split(2, dim=1))
    return m.f(scan(step, torch.zeros_like(x), parts)[0])


# The model as PyTorch's operator of higher order, and as plain code.
OPERATORS = {
    "cond of modules": (
        lambda m, x: m.f(torch.cond(m.square.sum() > -99, m.g, m.other, (x,)).tanh()),
        lambda m, x: m.f(m.g(x).tanh()),
    ),
    "cond of closures": (
        lambda m, x: m.f(
            torch.cond(m.square.sum() > -99, lambda z: z @ m.square, lambda z: z.sin(), (x,))
        ),
        lambda m, x: m.f(x @ m.square),
    ),
    "cond of operands": (
        lambda m, x: m.f(
            torch.cond(m.square.sum() > -99, torch.mm, lambda z, w: z - w[:1], (x, m.square)).tanh()
        ),
        lambda m, x: m.f((x @ m.square).tanh()),
    ),
    "while_loop": (
        lambda m, x: m.f(
            while_loop(
                lambda i, z: i < 3,
                lambda i, z: (i + 1, torch.tanh(z @ m.square)),
                (torch.tensor(0), x),
            )[1]
        ),
        looped,
    ),
    "scan": (by_scan, stacked),
    "map": (
        lambda m, x: m.f(mapped(lambda z: torch.tanh(z @ m.square), x)),
        lambda m, x: m.f(torch.tanh(x @ m.square)),
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_higher_order_are_the_code_that_they_stand_for(name):
    def made(function):
        torch.manual_seed(1)
        square = nn.Parameter(torch.randn(6, 6))
        return Model(function, square=square, g=nn.Linear(6, 6), other=nn.Linear(6, 6))

    (model, plain), x = map(made, OPERATORS[name]), inputs()
    assert_right(plain, x)
    kernel, expected = tangent_kernel(model, x), tangent_kernel(plain, x)
    for layer, gram in expected.layers.items():
        torch.testing.assert_close(kernel.layers[layer], gram)
    torch.testing.assert_close(tangent_features(model, x), tangent_features(plain, x))
    assert tangent_trace(model, x) == pytest.approx(float(expected.total.trace()))
    u = torch.ones(4, 3, dtype=torch.float64)
    for name, found in Jacobian(model, x).transpose_times(u).items():
        torch.testing.assert_close(found, Jacobian(plain, x).transpose_times(u)[name])
    found, wanted = (
        Monitor(m, x, torch.arange(4) % 3, measure="kernel").frame() for m in (model, plain)
    )
    np.testing.assert_allclose(found["value"], wanted["value"], rtol=1e-6)


def test_operators_of_higher_order_that_are_counted_are_refused_by_name():
    def counted(m, x):
        with FlopCounterMode(display=False):
            return OPERATORS["cond of modules"][0](m, x)

    parts = {"square": nn.Parameter(torch.ones(2)), "g": nn.Linear(6, 6), "other": nn.Linear(6, 6)}
    with pytest.raises(ValueError, match=r"uses cond within a .*; leave that context, or write"):
        tangent_kernel(Model(counted, **parts), inputs())


@pytest.mark.filterwarnings("ignore:A saved_tensors_hooks context:FutureWarning")
@pytest.mark.parametrize("measure", [tangent_kernel, tangent_trace, tangent_features, Jacobian])
def test_selective_checkpoints_are_refused_with_a_cure(measure):
    def chosen(_, operation, *arguments, **options):
        kept = operation == torch.ops.aten.addmm.default
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    def function(m, x):
        contexts = partial(create_selective_checkpoint_contexts, chosen)
        return checkpoint(lambda z: torch.tanh(m.f(z)), x, use_reentrant=False, context_fn=contexts)

    model = Model(function)
    model(inputs()).sum().backward()
    with pytest.raises(ValueError, match=r"selective activation .* without context_fn\.$"):
        measure(model, inputs())


@pytest.mark.parametrize("n", [5, 8])
@pytest.mark.parametrize("one", [0, -1])
def test_a_choice_of_the_batch_between_equal_branches_is_right_or_refused(n, one):
    def function(m, x):
        return (m.f if x[:, 0].sum() > 0 else m.g)(x)

    model, x = Model(function, g=nn.Linear(6, 3)), inputs(n)
    model.g = copy.deepcopy(model.f)
    x[:, 0], x[one, 0] = 1, -0.9
    features = plain_features(model, x)
    try:
        found = tangent_kernel(model, x).total
    except ValueError as error:
        assert "of one sample depend on" in str(error)  # noqa: PT017
    else:
        torch.testing.assert_close(found, features @ features.T)


class Step(nn.Module):
    """A learned step size whose gradient is divided by the root of the batch's entries (LSQ)."""

    def __init__(self):
        super().__init__()
        self.size = nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        factor = (x.numel() * 7) ** -0.5
        step = (self.size - self.size * factor).detach() + self.size * factor
        y = (x / step).clamp(-8, 7)
        return ((y.round() - y).detach() + y) * step


@pytest.mark.parametrize("head", [nn.Linear(3, 1), nn.Sequential(nn.Linear(3, 2), nn.Softmax(1))])
def test_gradients_scaled_by_the_batch_are_refused(head):
    model = Model(lambda m, x: m.g(m.step(torch.tanh(m.f(x)))), step=Step(), g=head)
    for n in (1, 2, 5):
        with pytest.raises(ValueError, match=r"'step.size' .* how many samples are in the batch"):
            tangent_kernel(model, inputs(n))


def clamps(m, x):
    with torch.no_grad():
        m.g.weight.clamp_(-10, 10)
    return m.g(torch.tanh(m.f(x)))


def test_a_parameter_that_is_written_to_with_what_it_is_has_products():
    model, x = Model(clamps, g=nn.Linear(3, 2)), inputs()
    assert_right(model, x)
    found = Jacobian(model, x).transpose_times(torch.ones(4, 2, dtype=torch.float64))
    torch.testing.assert_close(found["g.bias"], torch.full((2,), 4.0, dtype=torch.float64))
    assert set(layer_feature_matrices(model, x)) == {"f", "g"}


def test_a_product_in_single_precision_within_is_rounding_not_dependence():
    single = nn.Parameter(torch.randn(64, 64))
    model = Model(
        lambda m, x: m.g((torch.tanh(m.f(x)).float() @ m.w.float()).double()),
        c=64,
        g=nn.Linear(64, 2),
        w=single,
    )
    x = inputs(7)
    features = plain_features(model, x)
    found = tangent_kernel(model, x).total
    assert (found - features @ features.T).norm() < 1e-5 * found.norm()


@pytest.mark.parametrize("measure", [tangent_kernel, Jacobian, layer_feature_matrices])
def test_a_default_device_is_refused_and_may_be_left_for_a_while(measure):
    model, x = Model(lambda m, x: m.f(x)), inputs()
    with torch.device("meta"):  # as torch.set_default_device("cuda") would
        with pytest.raises(ValueError, match="the default device is meta"):
            measure(model, x)
        with torch.device("cpu"):
            measure(model, x)


def test_lazy_modules_are_told_as_such():
    with pytest.raises(ValueError, match="has no shape yet; run the model once"):
        tangent_kernel(nn.LazyLinear(2), torch.ones(2, 3))


@pytest.mark.parametrize("strength", [1.0, 1e-2, 1e-5])
def test_a_weak_branch_without_a_second_derivative_is_not_left_out_of_products(strength):
    model = Model(lambda m, x: m.g(x + strength * OldTanh.apply(m.f(x))), c=6, g=nn.Linear(6, 2))
    x, features = inputs(), plain_features(model, inputs())
    found = Jacobian(model, x).times({"f.bias": torch.ones(6, dtype=torch.float64)}).flatten()
    torch.testing.assert_close(found, features[:, 36:42].sum(1))
    single = Jacobian(model.float(), x.float()).times({"f.bias": torch.ones(6)}).flatten()
    torch.testing.assert_close(single.double(), found, rtol=1e-3, atol=1e-6 * strength)


def test_products_are_found_in_inference_mode():
    model, x = Model(lambda m, x: m.f(x)), inputs()
    with torch.inference_mode():
        found = Jacobian(model, x).transpose_times(torch.ones(4, 3, dtype=torch.float64))
    torch.testing.assert_close(found["f.bias"], torch.full((3,), 4.0, dtype=torch.float64))


def differentiates(m, x):
    """As MAML's inner step."""
    loss = m.f(x).square().mean(1).sum()
    step = torch.autograd.grad(loss, m.f.weight, create_graph=True)[0]
    return m.g(torch.nn.functional.linear(x, m.f.weight) - 0 * step.sum())


@pytest.mark.parametrize("only", [["g"], "trainable"])
def test_models_that_differentiate_by_parameters_that_are_not_asked_for(only):
    model, x = Model(differentiates, g=nn.Linear(3, 2)), inputs()
    rows = plain_features(model, x)[:, -8:]
    model.f.requires_grad_(False)
    model.order = nn.Parameter(torch.arange(2), requires_grad=False)  # which takes no gradient
    for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with context():
            found = tangent_kernel(model, x, only=only)
        torch.testing.assert_close(found.total, rows @ rows.T)
    assert not model.f.weight.requires_grad
    assert set(layer_feature_matrices(model, x, ["g"])) == {"g"}


def test_every_quantity_takes_the_output_of_a_model_that_returns_several():
    model, x = Model(lambda m, x: {"a": m.f(x), "b": x}), inputs()
    plain = Model(lambda m, x: m.f(x))
    assert tangent_trace(model, x, output="a") == pytest.approx(tangent_trace(plain, x))
    found = tangent_features(model, x, output="a")
    torch.testing.assert_close(found, tangent_features(plain, x))
    values = [
        top_singular_directions(m, x, 2, np.random.default_rng(0), **options).values
        for m, options in ((model, {"output": "a"}), (plain, {}))
    ]
    np.testing.assert_allclose(*values)


def normalised(m, x):
    h = torch.tanh(m.f(x))
    h.register_hook(lambda g: g / g.norm().clamp(min=0.1))
    return m.g(h)


def divided(m, x):
    h = torch.tanh(m.f(x))
    h.register_hook(lambda g: g / len(g))
    return m.g(h)


def centred(m, x):
    h = torch.tanh(m.f(x))
    return m.g(h + h.mean(0) - h.mean(0).detach())


@pytest.mark.parametrize("function", [normalised, divided, centred])
@pytest.mark.parametrize("n", [2, 4, 30])
def test_samples_that_meet_in_gradients_only_have_no_layer_features(function, n):
    model = Model(function, g=nn.Linear(3, 2))
    with pytest.raises(ValueError, match=r"layer 'f': the gradients of a sample depend on"):
        layer_feature_matrices(model, inputs(n))
    assert set(layer_feature_matrices(model, inputs(n), ["g"])) == {"g"}


def test_dependent_samples_without_gradients_are_one_sentence():
    def detached(m, x):
        with torch.no_grad():
            return m.f(x - x.mean(0))

    with pytest.raises(ValueError, match=r"outputs of sample \d depend on the other samples"):
        tangent_kernel(Model(detached), inputs())
