import pytest
import torch
from torch import nn

from feature_alignment.determinism import torch_stream
from feature_alignment.kernels.average_features import (
    adapted_kernel,
    average_tangent_features,
    copy_parameters,
    label_kernel,
)
from feature_alignment.kernels.tangent import tangent_features, tangent_kernel
from feature_alignment.models.gpt import GPT
from feature_alignment.models.mlp import MLP
from feature_alignment.models.vgg import VGG

X = torch.randn(6, 3, dtype=torch.float64, generator=torch_stream(0, "data"))


def mlp(seed, outputs=2, bias=True):
    return MLP(3, [5], outputs, "erf", bias, torch_stream(seed, "init"), dtype=torch.float64)


def ends():
    return copy_parameters(mlp(1)), copy_parameters(mlp(2))


def test_features_are_the_mean_over_models_on_the_path():
    start, end = ends()
    expected = 0
    for t in (0, 0.25, 0.5, 0.75, 1):
        between = mlp(0)
        between.load_state_dict({name: (1 - t) * start[name] + t * end[name] for name in start})
        expected = expected + tangent_features(between, X).flatten(0, 1) / 5
    found = average_tangent_features(mlp(0), start, end, X, points=5)
    assert list(found) == list(start)
    torch.testing.assert_close(torch.cat(list(found.values()), dim=1), expected)


class Shifted(nn.Module):
    """Adds what all samples share, to the outputs of a network whose own parameters are none."""

    def __init__(self):
        super().__init__()
        self.net = mlp(0)
        for parameter in self.net.parameters():
            nn.init.constant_(parameter, torch.nan)

    def forward(self, x, shared):
        return self.net(x) + shared[0]


def test_the_models_own_parameters_and_what_samples_share_do_not_count():
    start, end = ends()
    expected = average_tangent_features(mlp(0), start, end, X, points=2)
    start, end = ({f"net.{name}": p for name, p in one.items()} for one in (start, end))
    entries = {"x": X, "shared": torch.zeros(2, 2).double()}
    found = average_tangent_features(Shifted(), start, end, entries, points=2, inputs=["x"])
    for name, features in expected.items():
        torch.testing.assert_close(found[f"net.{name}"], features)
    kernel = adapted_kernel(Shifted(), start, end, entries, points=2, inputs=["x"])
    assert list(kernel) == ["net.layers.0", "net.layers.1"]


def test_they_predict_the_change_of_the_outputs_with_an_error_of_order_1_over_points():
    start, end = ends()
    first, last = mlp(1), mlp(2)
    change = (last(X) - first(X)).detach().flatten()
    step = torch.cat([(end[name] - start[name]).flatten() for name in start])
    errors = []
    for points in (40, 80, 160):
        found = average_tangent_features(first, start, end, X, points)
        predicted = torch.cat(list(found.values()), dim=1) @ step
        errors.append((predicted - change).norm().item())
    assert errors[0] < 0.05 * change.norm()
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("bias", [True, False])
def test_adapted_kernel_is_the_gram_matrix_of_the_features(bias):
    start, end = copy_parameters(mlp(1, bias=bias)), copy_parameters(mlp(2, bias=bias))
    features = average_tangent_features(mlp(0, bias=bias), start, end, X, 4)
    kernel = adapted_kernel(mlp(0, bias=bias), start, end, X, 4)
    assert kernel.outputs == 2
    for name, gram in kernel.layers.items():
        own = [phi for parameter, phi in features.items() if parameter.startswith(f"{name}.")]
        torch.testing.assert_close(gram, sum(phi @ phi.T for phi in own))
    all_features = torch.cat(list(features.values()), dim=1)
    torch.testing.assert_close(kernel.total, all_features @ all_features.T)


def test_only_some_parameters_can_be_averaged(explicit_jacobian):
    start, end = ends()
    rows = 0
    for t in (0, 0.5, 1):
        between = mlp(0)
        between.load_state_dict({name: (1 - t) * start[name] + t * end[name] for name in start})
        rows = rows + explicit_jacobian(between, X)[:, -12:] / 3  # of the last layer, 2 · 5 + 2
    found = average_tangent_features(mlp(0), start, end, X, 3, only=["layers.1"])
    assert list(found) == ["layers.1.weight", "layers.1.bias"]
    torch.testing.assert_close(torch.cat(list(found.values()), dim=1), rows)
    kernel = adapted_kernel(mlp(0), start, end, X, 3, only=["layers.1"])
    torch.testing.assert_close(kernel.total, rows @ rows.T)


def vgg(seed):
    return VGG(11, 1, 3, torch_stream(seed, "init"), dtype=torch.float64)


def gpt(seed):
    return GPT(5, 1, 2, 4, 6, torch_stream(seed, "init"), bias=True, dtype=torch.float64)


IMAGES = torch.randn(3, 3, 32, 32, dtype=torch.float64, generator=torch_stream(1, "data"))
TEXTS = torch.tensor([[0, 4, 2], [1, 1, 3]])


@pytest.mark.parametrize(
    ("new", "x", "output"),
    [(vgg, IMAGES, None), (gpt, TEXTS, lambda f: f[:, -1])],
    ids=["convolutions", "attention with a tied weight"],
)
def test_other_networks_than_perceptrons_have_an_adapted_kernel(new, x, output, explicit_jacobian):
    start, end = copy_parameters(new(1)), copy_parameters(new(2))
    rows = 0
    for t in (0, 0.5, 1):
        between = new(0)
        values = {name: (1 - t) * start[name] + t * end[name] for name in start}
        between.load_state_dict(values, strict=False)  # the tied weight has two names
        chosen = between if output is None else nn.Sequential(between, Last())
        rows = rows + explicit_jacobian(chosen, x) / 3
    found = adapted_kernel(new(0), start, end, x, 3, output)
    assert found.outputs == len(rows) // len(x)
    torch.testing.assert_close(found.total, rows @ rows.T, rtol=1e-9, atol=1e-12)


class Last(nn.Module):
    def forward(self, f):
        return f[:, -1]


def test_a_path_of_no_length_gives_the_initial_kernel():
    start, _ = ends()
    found = adapted_kernel(mlp(0), start, start, X)
    torch.testing.assert_close(found.total, tangent_kernel(mlp(1), X).total)


def test_copies_do_not_follow_the_model():
    model = mlp(1)
    copy = copy_parameters(model)
    with torch.no_grad():
        model.layers[0].weight.zero_()
    assert copy["layers.0.weight"].abs().min() > 0
    assert not copy["layers.0.weight"].requires_grad


def test_label_kernel_holds_the_outer_products_of_output_changes():
    change = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    kernel = label_kernel(change)
    for i in range(2):
        for j in range(2):
            block = kernel[2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
            torch.testing.assert_close(block, torch.outer(change[i], change[j]))
    assert torch.equal(label_kernel(change.double().numpy()), kernel.double())
    with pytest.raises(ValueError, match=r"change: shape \(4,\)"):
        label_kernel(change.flatten())


def test_a_path_needs_both_ends():
    start, end = ends()
    with pytest.raises(ValueError, match="points: 1; it must be a whole number of at least 2"):
        average_tangent_features(mlp(0), start, end, X, points=1)


class Mixed(nn.Module):
    """A weight in another precision than its bias, and an order that is a parameter."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        draw = {"generator": torch_stream(0, "init"), "dtype": torch.float64}
        self.bias = nn.Parameter(torch.randn(2, **draw))
        self.weight = nn.Parameter(torch.randn(3, 2, **draw).to(dtype))
        self.order = nn.Parameter(torch.tensor([1, 0]), requires_grad=False)

    def forward(self, x):
        return torch.tanh(x @ self.weight.double() + self.bias)[:, self.order]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_integers_stay_and_precisions_mix(dtype):
    start, model = copy_parameters(Mixed(dtype)), Mixed(dtype)
    end = {n: p + 0.5 if p.is_floating_point() else p for n, p in start.items()}
    rows = 0
    for t in (0, 0.5, 1):
        model.load_state_dict(
            {n: torch.lerp(p, end[n], t) for n, p in start.items() if n[0] != "o"}, strict=False
        )
        wanted = [model.bias, model.weight]
        gradients = [torch.autograd.grad(f, wanted, retain_graph=True) for f in model(X).flatten()]
        rows = (
            rows
            + torch.stack([torch.cat([g.double().flatten() for g in row]) for row in gradients]) / 3
        )
    found = adapted_kernel(Mixed(dtype), start, end, X, points=3)
    assert found.total.dtype == torch.float64
    close = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 1e-2}[dtype]
    torch.testing.assert_close(found.total, rows @ rows.T, rtol=close, atol=close)


def test_other_integers_at_the_end_are_refused():
    start = copy_parameters(Mixed())
    with pytest.raises(ValueError, match="'order' holds other integers"):
        average_tangent_features(Mixed(), start, start | {"order": torch.tensor([0, 1])}, X)


def test_a_state_dict_with_buffers_or_tied_parameters_is_told_as_such():
    normalised = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    for model in (normalised, tied):
        with pytest.raises(ValueError, match=r"'1\.\w+' is a buffer, or a second name of a param"):
            adapted_kernel(model, model.state_dict(), copy_parameters(model), torch.ones(4, 3))
    other = copy_parameters(nn.Linear(3, 3))
    with pytest.raises(ValueError, match="is in only one of the given values and the model"):
        adapted_kernel(tied, other, other, torch.ones(4, 3))


def test_parameters_that_diverged_are_refused():
    model = mlp(0)
    start = copy_parameters(model)
    end = {name: value * float("nan") for name, value in start.items()}
    with pytest.raises(ValueError, match=r"end: .* not finite"):
        adapted_kernel(model, start, end, torch.ones(3, 3, dtype=torch.float64), 5)


@pytest.mark.parametrize("factor", [1e14, 1e25])  # with gradients that are finite, and not
def test_outputs_that_are_not_finite_at_the_end_are_refused(factor):
    model = MLP(3, [5, 5], 2, "relu", True, torch_stream(0, "init"))
    start = copy_parameters(model)
    end = {name: factor * value for name, value in start.items()}
    with pytest.raises(ValueError, match="outputs of some samples are not finite"):
        adapted_kernel(model, start, end, X.float(), 2)


@pytest.mark.parametrize("entry", [float("nan"), float("inf"), 1e25])
def test_a_change_that_is_not_finite_has_no_label_kernel(entry):
    with pytest.raises(ValueError, match="change: it has entries that are not finite"):
        label_kernel(torch.tensor([[1.0], [entry]]))


def test_both_ends_must_be_given():
    model, own = mlp(0), copy_parameters(mlp(0))
    for start, end, named in ((None, own, "start"), (own, None, "end")):
        with pytest.raises(ValueError, match=f"{named}: a NoneType; give parameters by name"):
            adapted_kernel(model, start, end, X)
