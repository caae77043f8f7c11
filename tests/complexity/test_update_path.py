import copy
import itertools
import math

import pytest
import torch
from torch import nn

import feature_alignment as fa
from emulated_gpu import GPU
from feature_alignment.complexity.update_path import PathProbe, UpdatePath
from feature_alignment.determinism import torch_stream
from feature_alignment.kernels.tangent_trace import one_hidden_layer_trace
from feature_alignment.models.mlp import MLP
from feature_alignment.training.errors import TrainingDivergedError
from feature_alignment.training.loop import train
from feature_alignment.training.losses import mse

X = torch.randn(12, 3, dtype=torch.float64, generator=torch_stream(0, "data"))
Y = X[:, :1] * X[:, 1:2]


def new_model():
    return MLP(3, [6], 1, "relu", True, torch_stream(0, "init"), dtype=torch.float64)


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def trained(after_update=None, model=None, steps=7):
    model = model or new_model()
    train(
        model,
        X,
        Y,
        loss=mse,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        steps=steps,
        batch_size=5,
        batches=torch_stream(0, "batches"),
        measure_at=[0, 4],
        after_update=after_update,
    )
    return model


def test_the_sums_are_those_over_every_update():
    model = new_model()

    def trace(network):
        assert not network.training
        return one_hidden_layer_trace(*network.layers, X)

    path = UpdatePath(model, trace)
    model.eval()
    seen = [(flat(model), trace(model))]
    model.train()

    def after_update(step, network):
        path(step, network)
        assert network.training
        assert step == len(seen)
        seen.append((flat(network), trace(network.eval())))
        network.train()

    trained(after_update, model)
    lengths = [float((b[0] - a[0]).norm()) for a, b in itertools.pairwise(seen)]
    # The features of an update are those before it.
    terms = [length * math.sqrt(t) for length, (_, t) in zip(lengths, seen, strict=False)]
    assert len(lengths) == 7
    assert path.length == pytest.approx(sum(lengths), rel=1e-12)
    assert path.complexity == pytest.approx(sum(terms), rel=1e-12)
    assert path.length > float((seen[-1][0] - seen[0][0]).norm())


@pytest.mark.parametrize("every", [1, 3])
def test_a_path_goes_on_from_its_state(every):
    def trace(network):
        return one_hidden_layer_trace(*network.layers, X)

    def moved(model, path, steps):
        for step in steps:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.1 * step)
            path(step, model)
        return path.length, path.complexity

    model = new_model()
    path = UpdatePath(model, trace, every)
    moved(model, path, [1, 2])
    again = UpdatePath(new_model(), trace, every)
    again.load_state_dict(copy.deepcopy(path.state_dict()))
    other = copy.deepcopy(model)
    assert moved(other, again, [3, 4]) == moved(model, path, [3, 4])


def test_a_path_of_the_cpu_goes_on_on_the_gpu(emulation):
    layer = nn.Linear(1, 1, bias=False)
    state = UpdatePath(layer, lambda model: 1.0).state_dict()
    with emulation():
        layer.to(GPU)
        path = UpdatePath(layer, lambda model: 1.0)
        path.load_state_dict(state)
        with torch.no_grad():
            layer.weight.add_(2)
        path(1, layer)
    assert path.length == pytest.approx(2, rel=1e-6)


def test_watching_the_path_does_not_change_training():
    watched = new_model()
    path = UpdatePath(watched, lambda network: one_hidden_layer_trace(*network.layers, X))
    trained(path, watched)
    assert torch.equal(flat(watched), flat(trained()))


def test_a_network_at_rest_adds_nothing():
    layer = nn.Linear(2, 2)
    path = UpdatePath(layer, lambda network: 4.0)
    path(1, layer)
    assert (path.length, path.complexity) == (0, 0)


def test_traces_can_be_taken_at_some_updates_only():
    model = nn.Linear(1, 1, bias=False)
    traces = iter([1.0, 4.0, 9.0])
    path = UpdatePath(model, lambda network: next(traces), every=3)
    for step in range(1, 8):
        with torch.no_grad():
            model.weight.add_(1)
        path(step, model)
    # Before updates 1 to 3 it is 1, before 4 to 6 it is 4, before 7 it is 9.
    assert path.complexity == pytest.approx(3 * 1 + 3 * 2 + 3, rel=1e-6)


@pytest.mark.parametrize("every", [0, 1.5])
def test_updates_between_traces_are_counted(every):
    with pytest.raises(ValueError, match=f"every: {every}; it must be a whole number"):
        UpdatePath(nn.Linear(1, 1), lambda network: 1.0, every=every)


def test_what_is_no_trace_of_a_kernel_is_refused():
    with pytest.raises(ValueError, match=r"trace: -1\.0; that of a kernel is not negative"):
        UpdatePath(nn.Linear(1, 1), lambda network: -1.0)


@pytest.mark.parametrize("trace", [float("nan"), float("inf")])
def test_a_trace_that_is_not_finite_is_a_training_that_diverged(trace):
    with pytest.raises(TrainingDivergedError, match=f"the tangent kernel is {trace}"):
        UpdatePath(nn.Linear(1, 1), lambda network: trace)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_update_that_is_not_finite_is_a_training_that_diverged(value):
    layer = nn.Linear(2, 1)
    path = UpdatePath(layer, lambda network: 1.0, every=5)
    with torch.no_grad():
        layer.weight[0, 0] = value
    with pytest.raises(TrainingDivergedError, match="update 3 is not finite"):
        path(3, layer)


@pytest.mark.parametrize(("start", "end"), [(0, 1e-4), (0, 300), (-40_000, 40_000)])
def test_updates_of_half_precision_are_taken_in_double(start, end):
    layer = nn.Linear(1, 1, bias=False).half()
    nn.init.constant_(layer.weight, start)
    path = UpdatePath(layer, lambda model: 1.0)
    nn.init.constant_(layer.weight, end)
    path(1, layer)
    assert path.length == pytest.approx(end - start, rel=1e-3)


def test_a_trace_that_is_no_function_is_refused():
    with pytest.raises(ValueError, match="trace: a float; give a function of the model"):
        UpdatePath(nn.Linear(1, 1), 3.0)


def test_an_earlier_checkpoint_does_not_change_the_path():
    model = nn.Linear(2, 1, bias=False)
    monitor = fa.Monitor(model, torch.eye(2), measure="path", every=100)
    start = {name: value.clone() for name, value in model.state_dict().items()}

    def update(step):
        with torch.no_grad():
            model.weight += 1
        monitor.step(step)

    for step in (1, 2, 3):
        update(step)
    late = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(start)
    monitor.measure(2)
    model.load_state_dict(late)
    update(4)
    monitor.measure(4)
    rows = monitor.frame().query("metric == 'path_length'").set_index("step")["value"]
    assert rows.index.tolist() == [0, 4]
    assert rows[4] == pytest.approx(4 * 2**0.5)
    what = "the path at step 2 is not known once later updates have been reported"
    assert monitor.problems == [(2, what)]


def test_a_parameter_of_another_shape_has_no_path():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1, bias=False))
    path = UpdatePath(model, lambda model: 1.0)
    state = path.state_dict()
    model[1] = nn.Linear(1, 2, bias=False)
    with pytest.raises(ValueError, match=r"'1.weight' has the shape \(2, 1\), and had \(1, 2\)"):
        path.add(model)
    with pytest.raises(ValueError, match=r"'1.weight' has the shape \(1, 2\), and had \(2, 1\)"):
        UpdatePath(model, lambda model: 1.0).load_state_dict(state)
    path = UpdatePath(model[1], lambda model: 1.0)
    path.length = 5.0
    with pytest.raises(ValueError, match="state: of a path of 3 parameters; the model has 1"):
        path.load_state_dict(state)
    assert path.length == 5


@pytest.mark.parametrize("state", [{}, None, {"length": 1.0}])
@pytest.mark.parametrize("kind", [UpdatePath, PathProbe])
def test_what_is_no_state_of_a_path_is_refused(kind, state):
    path = kind(nn.Linear(2, 1), (lambda model: 1.0) if kind is UpdatePath else torch.ones(3, 2))
    with pytest.raises(ValueError, match=f"^state: not a result of `{kind.__name__}.state_dict`"):
        path.load_state_dict(state)


@pytest.mark.parametrize("trace", [0, torch.zeros(1), torch.zeros(())])
def test_features_of_size_0_weigh_nothing(trace):
    layer = nn.Linear(1, 1, bias=False)
    path = UpdatePath(layer, lambda model: trace)
    nn.init.constant_(layer.weight, 5)
    path(1, layer)
    assert path.length > 0
    assert path.complexity == 0


def test_two_updates_told_as_one_are_a_problem_that_is_told_once():
    layer = nn.Linear(1, 1, bias=False)
    probe = PathProbe(layer, torch.ones(3, 1))
    probe.after_update(1, layer)
    probe.after_update(3, layer)
    for step, problems in ((4, 1), (5, 0), (7, 0)):
        found = probe(step, layer)
        assert len(found.problems) == problems
        assert {row.split for row in found.rows} == {"train"}


@pytest.mark.parametrize("value", [None, torch.ones(2), "1"])
def test_a_trace_is_a_number(value):
    with pytest.raises(
        ValueError, match=r"trace: it returned: a .*; give a function that returns a"
    ):
        UpdatePath(nn.Linear(2, 1), lambda model: value)


def test_a_gap_is_told_after_a_restart_and_only_once():
    layer = nn.Linear(1, 1, bias=False)
    probe = PathProbe(layer, torch.ones(1, 1))
    probe.after_update(1, layer)
    probe.after_update(5, layer)
    state = probe.state_dict()  # saved before the gap is told
    again = PathProbe(layer, torch.ones(1, 1))
    again.load_state_dict(state)
    assert len(again(5, layer).problems) == 1
    third = PathProbe(layer, torch.ones(1, 1))
    third.load_state_dict(again.state_dict())
    assert not third(6, layer).problems
