import pytest
import torch
from torch import nn
from torch.nn import functional as F

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients.capture_plan import capture_gradients, plan_capture
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.kernels.tangent_trace import tangent_trace
from toys import Toy, linear, overwrites_its_input, unused

X = torch.randn(4, 3, dtype=torch.float64, generator=torch_stream(0, "data"))


def bypassed():
    """Calls its layer, and uses the layer's weight once more behind its back."""
    return Toy(lambda m, x: F.linear(torch.tanh(m.layer(x)), m.layer.weight), layer=linear(3, 3))


def reordered():
    """Sends the samples through its layer in the opposite order."""
    return Toy(lambda m, x: torch.tanh(m.layer(x.flip(0))).flip(0), layer=linear())


def time_first():
    """Puts the samples on the second axis before its layer sees them."""
    return Toy(lambda m, x: torch.tanh(m.layer(x.T[:, :, None])).sum(0), layer=linear(1, 2))


def merged():
    """Merges samples and tokens into one axis."""

    def forward(m, x):
        return torch.tanh(m.layer(x.reshape(-1, 1))).view(len(x), -1, 2).sum(1)

    return Toy(forward, layer=linear(1, 2))


class Doubled(nn.Linear):
    """A linear layer by its type's name only."""

    def forward(self, x):
        return 2 * super().forward(x) ** 2


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
        (bypassed, ("layer.weight",)),
        (reordered, ("layer.weight", "layer.bias")),
        (time_first, ("layer.weight", "layer.bias")),
        (merged, ("layer.weight", "layer.bias")),
        (lambda: Doubled(3, 2).double(), ("weight", "bias")),
        (unused, ("spare.weight", "spare.bias")),
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
        model, x = time_first(), X[:n]
        assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)


def attention():
    """The softmax does not see the key's bias, whose gradient is zero up to rounding."""

    def forward(m, x):
        q, k, v = (layer(x[:, :, None]) for layer in (m.q, m.k, m.v))
        return ((q @ k.transpose(1, 2)).softmax(-1) @ v).mean(1) ** 2

    return Toy(forward, q=linear(1, 4), k=linear(1, 4), v=linear(1, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_of_rounding_errors_does_not_look_like_a_rule_that_fails(dtype):
    x = torch.randn(2, 50, dtype=dtype, generator=torch_stream(0, "data"))
    assert plan_capture(attention().to(dtype), x).generic == ()


def mixing():
    return Toy(lambda m, x: m.layer(x) - m.layer(x).mean(0), layer=linear())


def routed():
    """Calls its second layer where a sample's first entry is positive only."""

    def forward(m, x):
        f = m.first(x)
        return f + m.second(x) if (x[:, 0] > 0).all() else f

    return Toy(forward, first=linear(), second=linear())


def in_order(x, layer):
    """The layer's outputs of the samples sorted by their first entries, and put back."""
    order = x[:, 0].argsort()
    return torch.tanh(layer(x[order]))[order.argsort()]


def sorting():
    return Toy(lambda m, x: in_order(x, m.layer), layer=linear())


def sometimes_bypassed():
    """Uses its layer's weight behind its back unless all first entries are positive."""

    def forward(m, x):
        h = torch.tanh(m.layer(x))
        return h if (x[:, 0] > 0).all() else h + F.linear(x, m.layer.weight)

    return Toy(forward, layer=linear(3, 3))


def increasing(n=4):
    x = X[:n].abs()
    return x[x[:, 0].argsort()]


def test_samples_that_the_model_sorts_are_not_confused(explicit_kernel, assert_same_kernel):
    model, x = sorting(), increasing()
    # In order, as the first two samples are in the second case, nothing is moved.
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)
    with pytest.raises(ValueError, match="'layer' does not get the samples in the order"):
        tangent_kernel(model, x[[0, 2, 1, 3]])
    assert_same_kernel(tangent_kernel(model, x.flip(0)), explicit_kernel(model, x.flip(0)), 1e-10)


def test_every_output_is_watched_for_samples_in_another_order():
    model = Toy(
        lambda m, x: torch.cat([m.others(x), in_order(x, m.last)], dim=1),
        others=linear(3, 2),
        last=linear(3, 1),
    )
    x = torch.randn(30, 3, dtype=X.dtype, generator=torch_stream(1, "data"))
    x[:2] = x[:2][x[:2, 0].argsort()]  # in order where the model is tried
    with pytest.raises(ValueError, match="'last' does not get the samples in the order"):
        tangent_kernel(model, x)


def test_a_trace_is_the_same_in_any_order():
    x = increasing()
    expected = tangent_kernel(sorting(), x).total.trace().item()
    assert tangent_trace(sorting(), x[[0, 2, 1, 3]]) == pytest.approx(expected)


@pytest.mark.parametrize("compute", [tangent_kernel, tangent_trace])
def test_a_bypass_that_only_some_samples_take_is_refused(compute):
    x = increasing() * torch.tensor([[1.0], [1], [1], [-1]])
    with pytest.raises(ValueError, match=r"'layer\.weight' enters 2 operations for some"):
        compute(sometimes_bypassed(), x)
    assert compute(sometimes_bypassed(), x[:3]) is not None


def test_gradients_that_the_model_stops_are_zero(explicit_kernel, assert_same_kernel):
    model = Toy(
        lambda m, x: m.second(torch.tanh(m.first(x)).detach()),
        first=linear(3, 4),
        second=linear(4, 2),
    )
    found = tangent_kernel(model, X)
    assert not found.layers["first"].any()
    assert_same_kernel(found, explicit_kernel(model, X), 1e-10)


def test_every_entry_of_the_outputs_is_an_output(explicit_kernel, assert_same_kernel):
    model = Toy(lambda m, x: torch.tanh(m.layer(x)).view(-1, 3, 2) * m.scale, layer=linear(3, 6))
    model.scale = nn.Parameter(torch.ones(2, dtype=X.dtype))
    found = tangent_kernel(model, X)
    assert found.outputs == 6
    assert_same_kernel(found, explicit_kernel(model, X), 1e-10)


def test_what_automatic_differentiation_refuses_is_refused():
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        tangent_kernel(overwrites_its_input(), X)


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
        (mixing(), X, "outputs of one sample depend on the other samples"),
        (routed(), X.abs() * torch.tensor([[1.0], [1], [-1], [1]]), "'second' is called diff"),
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
