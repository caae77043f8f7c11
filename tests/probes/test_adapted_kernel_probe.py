import pytest
import torch
from torch import nn

from feature_alignment.determinism import torch_stream
from feature_alignment.kernels.average_features import copy_parameters
from feature_alignment.models.mlp import MLP
from feature_alignment.probes.kernel_probe import AdaptedKernelProbe, Batch
from feature_alignment.training.errors import TrainingDivergedError

N, C = 5, 3
Y = torch.eye(C, dtype=torch.float64)[torch.tensor([0, 1, 2, 1, 0])]


def mlp(seed):
    return MLP(4, [6], C, "relu", True, torch_stream(seed, "init"), dtype=torch.float64)


def convnet(seed):
    layers = nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, C)
    model = nn.Sequential(*layers).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4, generator=torch_stream(seed, "init"))
    return model


def inputs(*shape):
    return torch.randn(N, *shape, dtype=torch.float64, generator=torch_stream(0, "data"))


NETWORKS = {"mlp": (mlp, inputs(4)), "convnet": (convnet, inputs(2, 6, 6))}


def slow_gram(new, x, start, end, points, explicit_jacobian):
    """The Gram matrix of the mean Jacobian over the path, each sample and output alone."""
    rows = 0
    for point in range(points):
        t = point / (points - 1)
        model = new(0)
        model.load_state_dict({name: (1 - t) * start[name] + t * end[name] for name in start})
        rows = rows + explicit_jacobian(model, x) / points
    return rows @ rows.T


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("points", [2, 4])
def test_it_measures_the_kernel_of_the_average_features(name, points, explicit_jacobian):
    new, x = NETWORKS[name]
    model, later = new(1), new(2)
    probe = AdaptedKernelProbe(model, Batch(x, Y), points=points)
    model.load_state_dict(later.state_dict())  # as training does, in place
    found = {row.metric: row.value for row in probe(7, model).rows}

    start, end = copy_parameters(new(1)), copy_parameters(later)
    gram = slow_gram(new, x, start, end, points, explicit_jacobian)
    centring = torch.kron(torch.eye(N) - 1 / N, torch.eye(C)).double()
    centred, labels = centring @ gram @ centring, (centring @ Y.flatten())
    alignment = labels @ centred @ labels / (labels @ labels) / centred.norm()
    initial = explicit_jacobian(new(1), x)
    initial = initial @ initial.T
    change = (gram * initial).sum() / gram.norm() / initial.norm()
    assert found["adapted_kernel_alignment"] == pytest.approx(float(alignment), rel=1e-9)
    assert found["adapted_kernel_change"] == pytest.approx(float(change), rel=1e-9)
    assert change < 0.99


def test_before_the_first_update_nothing_has_changed():
    model = mlp(1)
    rows = AdaptedKernelProbe(model, Batch(inputs(4), Y), points=3)(0, model).rows
    assert {(row.layer, row.split) for row in rows} == {("all", "train")}
    assert rows[1].value == pytest.approx(1)


def test_the_initial_kernel_is_of_the_same_outputs():
    probe = AdaptedKernelProbe(mlp(1), Batch(inputs(4)), points=2, output=lambda f: f[:, :1])
    (row,) = probe(0, mlp(1)).rows
    assert (row.metric, row.value) == ("adapted_kernel_change", pytest.approx(1))


@pytest.mark.parametrize("points", [1, 2.5])
def test_a_path_of_fewer_than_two_points_is_refused_at_once(points):
    with pytest.raises(ValueError, match=rf"points: {points}; it must be a whole number"):
        AdaptedKernelProbe(mlp(1), Batch(inputs(4)), points=points)


def test_a_dead_network_is_told():
    model = mlp(1)
    probe = AdaptedKernelProbe(model, Batch(inputs(4), Y), points=2)
    with torch.no_grad():
        for start, now in zip(probe._start.values(), model.parameters(), strict=True):
            start.zero_()
            now.zero_()
    with pytest.raises(
        TrainingDivergedError, match="at step 3, adapted kernel: once centred, the kernel is"
    ):
        probe(3, model)


def test_what_neither_quantity_is_defined_for_is_one_problem():
    model = mlp(1)
    with torch.no_grad():
        model.layers[-1].weight.zero_()
    probe = AdaptedKernelProbe(model, Batch(inputs(4), Y), partial=True, only=["layers.0"])
    measurement = probe(3, model)
    assert not measurement.rows
    (problem,) = measurement.problems
    assert problem.startswith("at step 3, adapted kernel: the kernel is zero")


def test_a_model_that_is_not_supported_is_refused_at_once():
    model = nn.Sequential(mlp(1), nn.Dropout())
    with pytest.raises(ValueError, match="is in training mode"):
        AdaptedKernelProbe(model, Batch(inputs(4), Y))


def test_statistics_of_batch_norm_are_those_of_now_in_both_kernels():
    """Where no parameter has moved, nothing has changed, whatever the running statistics."""
    layers = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, C)
    model = nn.Sequential(*layers).double().eval()
    probe = AdaptedKernelProbe(model, Batch(inputs(4), Y))
    model[1].running_mean += 0.5
    model[1].running_var *= 3
    found = {row.metric: row.value for row in probe(7, model).rows}
    assert found["adapted_kernel_change"] == pytest.approx(1)
