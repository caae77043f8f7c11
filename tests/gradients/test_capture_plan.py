import pytest
import torch
from torch import nn
from torch.nn import functional as F

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients.capture_plan import capture_gradients, plan_capture
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.kernels.tangent_trace import tangent_trace

X = torch.randn(4, 3, dtype=torch.float64, generator=torch_stream(0, "data"))


def linear(d=3, k=2):
    torch.manual_seed(0)
    return nn.Linear(d, k).double()


class Bypassed(nn.Module):
    """Calls its layer, and uses the layer's weight once more behind its back."""

    def __init__(self):
        super().__init__()
        self.layer = linear(3, 3)

    def forward(self, x):
        return F.linear(torch.tanh(self.layer(x)), self.layer.weight)


class Reordered(nn.Module):
    """Sends the samples through its layer in the opposite order."""

    def __init__(self):
        super().__init__()
        self.layer = linear()

    def forward(self, x):
        return torch.tanh(self.layer(x.flip(0))).flip(0)


class TimeFirst(nn.Module):
    """Puts the samples on the second axis before its layer sees them."""

    def __init__(self):
        super().__init__()
        self.layer = linear(1, 2)

    def forward(self, x):
        return torch.tanh(self.layer(x.T[:, :, None])).sum(0)


class Merged(nn.Module):
    """Merges samples and tokens into one axis."""

    def __init__(self):
        super().__init__()
        self.layer = linear(1, 2)

    def forward(self, x):
        return torch.tanh(self.layer(x.reshape(-1, 1))).view(len(x), -1, 2).sum(1)


class Doubled(nn.Linear):
    """A linear layer by its type's name only."""

    def forward(self, x):
        return 2 * super().forward(x) ** 2


class OverwritesItsInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = linear(3, 4), linear(4, 2)

    def forward(self, x):
        a = F.softplus(self.first(x))
        f = self.second(a)
        a.zero_()
        return f


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare = linear(), linear()

    def forward(self, x):
        return self.used(x)


def hooked():
    layer = linear()
    layer.register_forward_hook(lambda module, arguments, output: output**2)
    return layer


def old_weight_norm():
    with pytest.warns(FutureWarning):
        return nn.utils.weight_norm(linear())


@pytest.mark.parametrize(
    ("build", "generic"),
    [
        (Bypassed, ("layer.weight",)),
        (Reordered, ("layer.weight", "layer.bias")),
        (TimeFirst, ("layer.weight", "layer.bias")),
        (Merged, ("layer.weight", "layer.bias")),
        (lambda: Doubled(3, 2).double(), ("weight", "bias")),
        (Unused, ("spare.weight", "spare.bias")),
        (hooked, ()),
        (old_weight_norm, ("bias", "weight_g", "weight_v")),
    ],
)
def test_parameters_used_in_unusual_ways_are_not_silently_wrong(
    build, generic, explicit_kernel, assert_same_kernel
):
    model = build()
    assert plan_capture(model, X).generic == generic
    assert_same_kernel(tangent_kernel(model, X), explicit_kernel(model, X), 1e-10)


def test_samples_like_positions_in_number_are_not_confused(explicit_kernel, assert_same_kernel):
    for n in (1, 2, 3):
        model, x = TimeFirst(), X[:n]
        assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)


class Attention(nn.Module):
    """The softmax does not see the key's bias, whose gradient is zero up to rounding."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = linear(1, 4), linear(1, 4), linear(1, 4)

    def forward(self, x):
        q, k, v = (layer(x[:, :, None]) for layer in (self.q, self.k, self.v))
        return ((q @ k.transpose(1, 2)).softmax(-1) @ v).mean(1) ** 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_of_rounding_errors_does_not_look_like_a_rule_that_fails(dtype):
    x = torch.randn(2, 50, dtype=dtype, generator=torch_stream(0, "data"))
    assert plan_capture(Attention().to(dtype), x).generic == ()


def test_unused_layers_have_a_kernel_of_zeros():
    assert not tangent_kernel(Unused(), X).layers["spare"].any()


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = linear()

    def forward(self, x):
        h = self.layer(x)
        return h - h.mean(0)


class Routed(nn.Module):
    """Calls its second layer where a sample's first entry is positive only."""

    def __init__(self):
        super().__init__()
        self.first, self.second = linear(), linear()

    def forward(self, x):
        f = self.first(x)
        return f + self.second(x) if (x[:, 0] > 0).all() else f


class Sorted(nn.Module):
    """Sorts the samples by their first entries before its layer, and back afterwards."""

    def __init__(self):
        super().__init__()
        self.layer = linear()

    def forward(self, x):
        order = x[:, 0].argsort()
        return torch.tanh(self.layer(x[order]))[order.argsort()]


class SometimesBypassed(nn.Module):
    """Uses its layer's weight behind its back unless all first entries are positive."""

    def __init__(self):
        super().__init__()
        self.layer = linear(3, 3)

    def forward(self, x):
        h = torch.tanh(self.layer(x))
        return h if (x[:, 0] > 0).all() else h + F.linear(x, self.layer.weight)


def increasing(n=4):
    x = X[:n].abs()
    return x[x[:, 0].argsort()]


def test_samples_that_the_model_sorts_are_not_confused(explicit_kernel, assert_same_kernel):
    model, x = Sorted(), increasing()
    # In order, as the first two samples are in the second case, nothing is moved.
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)
    with pytest.raises(ValueError, match="'layer' does not get the samples in the order"):
        tangent_kernel(model, x[[0, 2, 1, 3]])
    assert_same_kernel(tangent_kernel(model, x.flip(0)), explicit_kernel(model, x.flip(0)), 1e-10)


class LastOutputSorted(nn.Module):
    """The last of three outputs comes from samples in another order."""

    def __init__(self):
        super().__init__()
        self.others, self.last = linear(3, 2), linear(3, 1)

    def forward(self, x):
        order = x[:, 0].argsort()
        last = torch.tanh(self.last(x[order]))[order.argsort()]
        return torch.cat([self.others(x), last], dim=1)


def test_every_output_is_watched_for_samples_in_another_order():
    x = torch.randn(30, 3, dtype=X.dtype, generator=torch_stream(1, "data"))
    x[:2] = x[:2][x[:2, 0].argsort()]  # in order where the model is tried
    with pytest.raises(ValueError, match="'last' does not get the samples in the order"):
        tangent_kernel(LastOutputSorted(), x)


def test_a_trace_is_the_same_in_any_order():
    x = increasing()
    expected = tangent_kernel(Sorted(), x).total.trace().item()
    assert tangent_trace(Sorted(), x[[0, 2, 1, 3]]) == pytest.approx(expected)


@pytest.mark.parametrize("compute", [tangent_kernel, tangent_trace])
def test_a_bypass_that_only_some_samples_take_is_refused(compute):
    x = increasing() * torch.tensor([[1.0], [1], [1], [-1]])
    with pytest.raises(ValueError, match=r"'layer\.weight' enters 2 operations for some"):
        compute(SometimesBypassed(), x)
    assert compute(SometimesBypassed(), x[:3]) is not None


class Frozen(nn.Module):
    """Stops the gradients of its first layer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = linear(3, 4), linear(4, 2)

    def forward(self, x):
        with torch.no_grad():
            h = torch.tanh(self.first(x))
        return self.second(h)


def test_gradients_that_the_model_stops_are_zero(explicit_kernel, assert_same_kernel):
    found = tangent_kernel(Frozen(), X)
    assert not found.layers["first"].any()
    assert_same_kernel(found, explicit_kernel(Frozen(), X), 1e-10)


class Grid(nn.Module):
    """Outputs with several axes."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = linear(3, 6), nn.Parameter(torch.ones(2, dtype=X.dtype))

    def forward(self, x):
        return torch.tanh(self.layer(x)).view(-1, 3, 2) * self.scale


def test_every_entry_of_the_outputs_is_an_output(explicit_kernel, assert_same_kernel):
    flat = nn.Sequential(Grid(), nn.Flatten())
    found = tangent_kernel(Grid(), X)
    assert found.outputs == 6
    torch.testing.assert_close(found.total, sum(explicit_kernel(flat, X).values()))


def test_what_automatic_differentiation_refuses_is_refused():
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        tangent_kernel(OverwritesItsInput(), X)


@pytest.mark.parametrize(
    ("model", "x", "message"),
    [
        (nn.Sequential(linear(), nn.Dropout()), X, r"module '1' \(Dropout\) is in training mode"),
        (
            nn.Sequential(linear(), nn.BatchNorm1d(2).double()),
            X,
            r"module '1' \(BatchNorm1d\) is in training mode.*call model.eval\(\) first",
        ),
        (
            nn.Sequential(linear(), nn.BatchNorm1d(2, track_running_stats=False).double()).eval(),
            X,
            r"module '1' \(BatchNorm1d\) has no running statistics",
        ),
        (Mixing(), X, "outputs of one sample depend on the other samples"),
        (Routed(), X.abs() * torch.tensor([[1.0], [1], [-1], [1]]), "'second' is called diff"),
        (
            nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)).double(),
            X,
            r"outputs have shape \(1,\) for 1 samples; they must be \(n, c\)",
        ),
        (linear(), X / 0, "must be finite, in float32 or float64"),
        (linear().half(), X.half(), "outputs are torch.float16"),
        (nn.ReLU(), X, "the model has no parameters"),
        (linear(), X[:0], "x: no samples"),
    ],
    ids=[
        "dropout",
        "batch norm",
        "statistics",
        "mixing",
        "routed",
        "vector",
        "half",
        "infinite",
        "none",
        "empty",
    ],
)
def test_what_has_no_tangent_kernel_is_refused(model, x, message):
    with pytest.raises(ValueError, match=message):
        tangent_kernel(model, x)


def test_other_parameters_are_looked_at_without_touching_the_model():
    model, other = linear(), linear()
    with torch.no_grad():
        other.weight.mul_(3)
    values = dict(other.named_parameters())
    plan = plan_capture(
        nn.Sequential(model, nn.Tanh()), X, {f"0.{k}": v for k, v in values.items()}
    )
    found = capture_gradients(plan, X, 10**6)["0.bias"][0].features()[:, 0, 0]
    torch.testing.assert_close(found, (1 - torch.tanh(other(X)) ** 2)[:, 0].detach())
    with pytest.raises(ValueError, match="parameters: 'bias' is in only one"):
        tangent_kernel(model, X, parameters={"weight": model.weight})
