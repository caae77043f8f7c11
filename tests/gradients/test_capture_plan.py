import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients import capture_plan, parameter_gradients
from feature_alignment.gradients.capture_plan import capture_gradients, plan_capture
from feature_alignment.gradients.graph import Graph, is_selection
from feature_alignment.gradients.parameter_gradients import MatrixGradients, joined_deltas
from feature_alignment.gradients.samples import as_samples
from feature_alignment.kernels.tangent import tangent_features, tangent_kernel
from feature_alignment.kernels.tangent_trace import tangent_trace
from toys import Toy, draw, linear, overwrites_its_input, unused

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
        (bypassed, ()),
        (reordered, ("layer.weight", "layer.bias")),
        (time_first, ()),
        (merged, ()),
        (lambda: Doubled(3, 2).double(), ()),
        (unused, ()),
        (hooked, ()),
        (old_weight_norm, ()),
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


def test_recurrent_layers_have_rules_in_single_precision_too():
    """In which PyTorch would run all steps as one operation."""
    model = Toy(lambda m, x: m.layer(x)[0][:, -1], layer=nn.LSTM(3, 2, batch_first=True))
    x = torch.randn(4, 5, 3, generator=torch_stream(0, "data"))
    assert plan_capture(model.eval(), x).generic == ()


def mixing():
    return Toy(lambda m, x: m.layer(x) - m.layer(x).mean(0), layer=linear())


def routed():
    """Adds its second layer's outputs where a sample's first entry is positive only."""

    def forward(m, x):
        chosen = (x[:, 0] > 0).nonzero()[:, 0]
        f = m.first(x)
        return f.index_add(0, chosen, m.second(x[chosen])) if len(chosen) else f

    return Toy(forward, first=linear(), second=linear())


def in_order(x, layer):
    """The layer's outputs of the samples sorted by their first entries, and put back."""
    order = x[:, 0].argsort()
    return torch.tanh(layer(x[order]))[order.argsort()]


def sorting():
    return Toy(lambda m, x: in_order(x, m.layer), layer=linear())


def increasing(n=4):
    x = X[:n].abs()
    return x[x[:, 0].argsort()]


def test_samples_that_the_model_sorts_are_not_confused(explicit_kernel, assert_same_kernel, caplog):
    model, x = sorting(), increasing()
    # In order, as the first three samples are in the second case, nothing is moved.
    for order in ([0, 1, 2, 3], [0, 1, 3, 2], [3, 2, 1, 0]):
        assert_same_kernel(tangent_kernel(model, x[order]), explicit_kernel(model, x[order]), 1e-10)
        assert ("one by one" in caplog.text) == (order == [0, 1, 3, 2])
        caplog.clear()


def test_samples_that_are_moved_among_those_of_a_trial_have_no_rule():
    assert plan_capture(sorting(), increasing()[[0, 2, 1]]).generic == (
        "layer.weight",
        "layer.bias",
    )


def test_gradients_one_by_one_are_held_for_every_output():
    model = Toy(lambda m, x: in_order(x, m.layer), layer=linear(3, 40))
    needed = 2 * 8 * 40 * (3 * 40 + 40)  # bytes, of two samples
    with pytest.raises(ValueError, match=r"memory_budget: .* of two samples need") as told:
        tangent_kernel(model, increasing()[[0, 1, 3, 2]], memory_budget=0.7 * needed)
    assert int(str(told.value).split()[-1].rstrip(".")) > needed


def test_what_the_graph_saves_counts_as_memory_of_a_pass():
    few, many = (nn.Sequential(linear(3, 2), *[nn.Tanh()] * number) for number in (1, 101))
    more = plan_capture(many, X).passing_bytes - plan_capture(few, X).passing_bytes
    assert more == pytest.approx(100 * 2 * 8, rel=0.1)  # the tangents' numbers of one sample


def test_every_output_is_watched_for_samples_in_another_order(
    explicit_kernel, assert_same_kernel, caplog
):
    model = Toy(
        lambda m, x: torch.cat([m.others(x), in_order(x, m.last)], dim=1),
        others=linear(3, 2),
        last=linear(3, 1),
    )
    x = torch.randn(30, 3, dtype=X.dtype, generator=torch_stream(1, "data"))
    x[:3] = x[:3][x[:3, 0].argsort()]  # in order where the model is tried
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)
    assert "one by one" in caplog.text


def test_a_trace_is_the_same_in_any_order():
    x = increasing()
    expected = tangent_kernel(sorting(), x).total.trace().item()
    assert tangent_trace(sorting(), x[[0, 2, 1, 3]]) == pytest.approx(expected)


@pytest.mark.parametrize("signs", [[1, 1, 1, -1], [-1, -1, -1, 1], [-1, -1, -1, -1]])
def test_a_path_that_only_some_samples_take_is_followed(signs, explicit_kernel, assert_same_kernel):
    x = increasing() * torch.tensor(signs)[:, None]
    found = tangent_kernel(routed(), x)
    assert_same_kernel(found, explicit_kernel(routed(), x), 1e-10)
    assert tangent_trace(routed(), x) == pytest.approx(found.total.trace().item())


def by_sample(m, x):
    """Samples one by one, each by one of two layers."""
    return torch.stack([torch.tanh(m.a(row) if row[0] > 0 else m.b(row)) for row in x])


@pytest.mark.parametrize("only", [None, ["b"]])
def test_a_layer_that_late_samples_alone_use_is_not_left_out(only, explicit_kernel):
    """Where the trial's samples do not use it, and no rule holds that would tell another path."""
    model = Toy(by_sample, a=linear(), b=linear())
    x = increasing(4) * torch.tensor([1, 1, 1, -1])[:, None]
    expected = explicit_kernel(model, x)
    found = tangent_kernel(model, x, only=only)
    for layer, gram in found.layers.items():
        torch.testing.assert_close(gram, expected[layer])
    trace = sum(gram.trace().item() for gram in found.layers.values())
    assert tangent_trace(model, x, only=only) == pytest.approx(trace)


@pytest.mark.slow
def test_a_backward_pass_that_stops_by_the_whole_batch_is_seen_among_few_samples(
    explicit_kernel, assert_same_kernel
):
    """As those that solve the equation of an implicit layer, to some precision."""

    def forward(m, x):
        def solved(gradient):
            total = last = gradient
            while last.norm() > 1e-4 * total.norm():
                last = last * torch.sigmoid(3 * x[:, :1])
                total = total + last
            return total

        h = m.first(x)
        if h.requires_grad:
            h.register_hook(solved)
        return m.second(torch.tanh(h))

    model = Toy(forward, first=linear(3, 4), second=linear(4, 2))
    assert_same_kernel(tangent_kernel(model, X), explicit_kernel(model, X), 1e-10)


class Stopped(torch.autograd.Function):
    """What passes nothing on, not even zeros."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return None


def test_gradients_that_a_function_does_not_pass_on_are_zero(explicit_kernel, assert_same_kernel):
    model = Toy(
        lambda m, x: m.second(Stopped.apply(m.first(x))), first=linear(3, 4), second=linear(4, 2)
    )
    assert_same_kernel(tangent_kernel(model, X), explicit_kernel(model, X), 1e-10)


def test_gradients_that_the_model_stops_are_zero(explicit_kernel, assert_same_kernel):
    model = Toy(
        lambda m, x: m.second(torch.tanh(m.first(x)).detach()),
        first=linear(3, 4),
        second=linear(4, 2),
    )
    found = tangent_kernel(model, X)
    assert not found.layers["first"].any()
    assert_same_kernel(found, explicit_kernel(model, X), 1e-10)
    assert not tangent_kernel(model, X, only=["first"]).total.any()


def test_gradients_that_hooks_of_parameters_change_are_followed():
    def forward(m, x):
        for parameter, factor in ((m.layer.weight, 3), (m.layer.bias, 2)):
            if parameter.requires_grad:
                parameter.register_hook(lambda gradient, factor=factor: factor * gradient)
        return m.layer(x)

    found = tangent_kernel(Toy(forward, layer=linear(3, 1)), X).total
    torch.testing.assert_close(found, 9 * X @ X.T + 4)


def test_every_entry_of_the_outputs_is_an_output(explicit_kernel, assert_same_kernel):
    model = Toy(lambda m, x: torch.tanh(m.layer(x)).view(-1, 3, 2) * m.scale, layer=linear(3, 6))
    model.scale = nn.Parameter(torch.ones(2, dtype=X.dtype))
    found = tangent_kernel(model, X)
    assert found.outputs == 6
    assert_same_kernel(found, explicit_kernel(model, X), 1e-10)


def test_dropout_that_drops_nothing_may_be_in_training_mode():
    layer = linear()
    expected = tangent_kernel(layer, X).total
    torch.testing.assert_close(
        tangent_kernel(nn.Sequential(layer, nn.Dropout(0)), X).total, expected
    )


def test_what_automatic_differentiation_refuses_is_refused():
    with pytest.raises(ValueError, match="overwrites a tensor that its gradients need"):
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
        (
            nn.Sequential(nn.Embedding(3, 2, scale_grad_by_freq=True), nn.Flatten()),
            X.long().abs(),
            r"module '0' \(Embedding\) divides its gradients",
        ),
        (
            nn.EmbeddingBag(3, 2, mode="sum", scale_grad_by_freq=True),
            X.long().abs(),
            r"module 'the model itself' \(EmbeddingBag\) divides its gradients",
        ),
        (mixing(), X, "outputs of sample 0 depend on the other samples"),
        (nn.Sequential(linear(), nn.Flatten(0)), X, r"outputs have shape \(8,\) for 4 samples"),
        (Toy(lambda m, x: m.layer(x).sum(), layer=linear()), X, r"shape \(\) for 4 samples"),
        (linear(), X.log(), "outputs of sample 0 are not finite"),
        (linear().half(), X.half(), "outputs are torch.float16"),
        (nn.ReLU(), X, "the model has no parameters"),
        (nn.ReLU(), X.numpy(), "the model has no parameters"),
        (nn.ReLU(), X.long().numpy(), "the model has no parameters"),
        (linear(), X[:0], "x: there are no samples"),
        (Toy(lambda m, x: m.layer(x)[:, :0], layer=linear()), X, r"outputs have shape \(4, 0\)"),
    ],
)
def test_what_has_no_tangent_kernel_is_refused(model, x, message):
    with pytest.raises(ValueError, match=message):
        tangent_kernel(model, x)


def test_rounding_errors_of_large_numbers_do_not_look_like_dependence():
    def shifted(by):
        layer, start = linear().float(), linear().float()
        start = [parameter.detach() for parameter in start.parameters()]
        return Toy(lambda m, x: 1e3 * (m.layer(x) - F.linear(x, *start)) + by * len(x), layer=layer)

    x = X.float()
    expected = 1e6 * tangent_kernel(linear().float(), x).total
    torch.testing.assert_close(tangent_kernel(shifted(1e-4), x).total, expected)
    with pytest.raises(ValueError, match="depend on the other samples"):
        tangent_kernel(shifted(1.0), x)


def test_other_parameters_are_looked_at_without_touching_the_model():
    model, other = linear(), linear()
    with torch.no_grad():
        other.weight.mul_(3)
    values = dict(other.named_parameters())
    plan = plan_capture(
        nn.Sequential(model, nn.Tanh()), X, {f"0.{k}": v for k, v in values.items()}
    )
    samples = as_samples(X)
    found = capture_gradients(plan, samples, 10**6)["0.bias"][0].features(2)[:, 0, 0]
    torch.testing.assert_close(found, (1 - torch.tanh(other(X)) ** 2)[:, 0].detach())
    with pytest.raises(ValueError, match="parameters: 'bias' is in only one"):
        tangent_kernel(model, X, parameters={"weight": model.weight})


def holding(kind):
    """Reaches its two weights by references that it keeps beside them."""
    layers = {"first": linear(3, 4), "second": linear(4, 2)}
    first, second = (layer.weight for layer in layers.values())
    model = Toy(lambda m, x: torch.tanh(F.linear(x, m.kept[0])) @ m.kept[1].T, **layers)
    if kind == "closure":
        model.function = lambda m, x: torch.tanh(F.linear(x, first)) @ second.T
    model.kept = {0: first, 1: second} if kind == "dictionary" else [first, second]
    return model


@pytest.mark.parametrize("kind", ["list", "dictionary"])
def test_parameters_in_containers_are_followed_and_put_back(
    kind, explicit_kernel, assert_same_kernel
):
    model = holding(kind)
    assert_same_kernel(tangent_kernel(model, X), explicit_kernel(model, X), 1e-10)
    assert model.kept[0] is model.first.weight


@pytest.mark.parametrize("trainable", [True, False])
def test_parameters_that_a_closure_hides_are_refused(trainable):
    model = holding("closure").requires_grad_(trainable)
    with pytest.raises(
        ValueError, match=r"'second.weight' by a reference of its own, such as a closure"
    ):
        tangent_kernel(model, X)
    assert all(p.requires_grad == trainable for p in model.parameters())
    found = tangent_kernel(holding("closure"), X, only=["second.bias"])
    assert not found.total.any()
    others = {name: 2 * value.detach() for name, value in model.named_parameters()}
    with pytest.raises(ValueError, match="by a reference of its own"):  # to other values
        tangent_kernel(model, X, only=["second.bias"], parameters=others)


def held(function, *shape, **modules):
    """A model with a parameter p of this shape."""
    model = Toy(function, **modules)
    model.p = nn.Parameter(torch.randn(shape, dtype=X.dtype, generator=torch_stream(1, "data")))
    return model


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (held(lambda m, x: m.layer(x)[:, 0] + m.p, layer=linear()), X),
        (held(lambda m, x: m.layer(x)[:, 0] + m.p, 1, layer=linear()), X),
        (held(lambda m, x: m.p[x[:, 0], x[:, 1]], 5, 5, 2), (4 * X).long().abs() % 5),
        (held(lambda m, x: torch.addmm(m.p, x, x.new_ones(3, 2))), X),
        (held(lambda m, x: x * m.p.expand(len(x), 3).unbind(0)[0], 3), X),
    ],
)
def test_unusual_shapes_and_lookups_are_right(model, x, explicit_kernel, assert_same_kernel):
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)


def test_nothing_used_is_a_kernel_of_zeros():
    model = held(lambda m, x: m.layer(x), 3, layer=linear())
    assert not tangent_kernel(model, X, X[:2], only="p").total.any()
    assert tangent_trace(held(lambda m, x: x, 3), X) == 0
    constant = held(lambda m, x: m.layer(x).detach(), 3, layer=linear())
    constant.whole = nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False)
    assert not tangent_kernel(constant, X, only="p").total.any()


@pytest.mark.parametrize("held_as", ["factors", "gradients"])
def test_gradients_are_as_precise_as_their_parameter(held_as, explicit_kernel, assert_same_kernel):
    """Where the outputs, or a use beside another, are in single precision, with numbers exact."""

    def forward(m, x):
        if held_as == "gradients":
            return (torch.tanh(x) * m.p).sum(2).float()
        return F.linear(x.float(), m.p.float()).double() + torch.tanh(F.linear(x, m.p))

    model = held(forward, *((3,) if held_as == "gradients" else (20, 20)))
    x = draw(4, 5, 3) if held_as == "gradients" else (3 * draw(4, 20)).round()
    assert ("p" in plan_capture(model, x).formed) is (held_as == "gradients")
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-13)


def test_parameters_of_two_precisions_in_one_module(explicit_kernel, assert_same_kernel):
    def forward(m, x):
        without_a_rule = torch.hypot(x.float(), m.q).double().sum(2)
        return F.linear(x.float(), m.w).double().sum(2) * m.p + without_a_rule

    model = held(forward, 1)
    model.w, model.q = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(3))
    x = torch.randn(6, 4, 3, dtype=X.dtype, generator=torch_stream(0, "data"))
    assert plan_capture(model, x).generic == ("q",)
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-6)


def test_parameters_may_be_rounded_to_lower_precision():
    model = held(lambda m, x: torch.tanh(F.linear(x.float(), m.p.float())).sum(1), 2, 3)
    assert plan_capture(model, lengths(6, 40)).generic == ()


@pytest.mark.parametrize("layer", [linear(), nn.Conv1d(3, 2, 1)], ids=["linear", "convolution"])
def test_gradients_in_half_precision_are_summed_in_single(layer):
    convolution, layer = isinstance(layer, nn.Conv1d), layer.half()
    model = Toy(lambda m, x: m.layer(x.mT if convolution else x).float(), layer=layer)
    x = torch.randn(4, 50, 3, generator=torch_stream(0, "data")).half()
    sums = x.float().sum(1)
    expected = torch.kron(sums @ sums.T + 50**2, torch.eye(2))
    found = tangent_kernel(model, x, output=lambda f: f.sum(2 if convolution else 1)).total
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


def test_factors_in_half_precision_are_summed_in_single():
    model = held(lambda m, x: (x * m.p).float().sum(1), 3).half()
    x = torch.randn(4, 50, 3, generator=torch_stream(0, "data")).half()
    sums = x.float().sum(1)
    expected = torch.einsum("iy,jy,yz->iyjz", sums, sums, torch.eye(3)).reshape(12, 12)
    torch.testing.assert_close(tangent_kernel(model, x).total, expected, rtol=1e-5, atol=0)


def test_a_selection_of_entries_may_change_with_the_parameters(explicit_kernel):
    model = held(lambda m, x: (x * F.relu(m.p)).sum(1), 3)
    model.p.data.abs_()
    plan = plan_capture(model, X)
    model.p.data[1:].neg_()
    expected = explicit_kernel(model, X)[""].trace().item()
    assert tangent_trace(model, X, plan=plan) == pytest.approx(expected)


def test_entries_of_large_parameters_are_told_apart():
    p = torch.zeros(2**24 + 8, requires_grad=True)
    order = torch.arange(len(p))
    for first, other in ((0, 0), (0, 1), (-2, -1)):  # float32 counts up to 2²⁴
        entries = order.clone()
        entries[[first, other]] = order[[other, first]]
        graph = Graph(p[entries].sum()[None], {"p": p})
        (number,) = (i for i, name in enumerate(graph.names) if name.startswith("Index"))
        assert is_selection(graph, (number, 0), p, None, None) is (first == other)


def mapped_among(number, found):
    """The identity, but for what `torch.func.vmap` makes of it among so many samples."""

    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, gradient):
            return gradient

        @staticmethod
        def vmap(info, in_dims, x):
            return (found(x) if info.batch_size == number else x.clone()), in_dims[0]

    return held(lambda m, x: torch.hypot(Identity.apply(x)[:, None], m.p), 2, 3)


def refused_by_vmap(x):
    raise ValueError


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("found", [lambda x: 2 * x, refused_by_vmap])
def test_what_vmap_gets_wrong_is_differentiated_sample_by_sample(number, found, explicit_jacobian):
    right, wrong, filters = mapped_among(0, found), mapped_among(number, found), warnings.filters[:]
    assert plan_capture(right, X).batched
    assert not plan_capture(wrong, X).batched
    for model in (right, wrong):
        for n in (1, 2, 3, 4):
            features = tangent_features(model, X[:n]).flatten(0, 1)
            torch.testing.assert_close(features, explicit_jacobian(model, X[:n]))
    assert warnings.filters == filters


def test_a_parameter_without_a_rule_beside_what_samples_share():
    model = Toy(None)
    model.p, model.forward = nn.Parameter(draw(3)), lambda x, table: torch.hypot(x, model.p) @ table
    table = draw(3, 2, seed=1)
    plain = held(lambda m, x: torch.hypot(x, m.p) @ table, 3)
    plain.p = model.p
    found = tangent_kernel(model, (X, table), inputs=[0]).total
    torch.testing.assert_close(found, tangent_kernel(plain, X).total)
    plan = plan_capture(model, (X, table), inputs=[0])
    torch.testing.assert_close(
        tangent_kernel(model, (X, table), inputs=[0], plan=plan).total, found
    )


def lengths(n, length):
    return torch.randn(n, length, 3, dtype=X.dtype, generator=torch_stream(n, "data"))


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: torch.tanh(x * m.p[x.shape[1]]).mean(1),
        lambda m, x: torch.tanh(x + m.p[: x.shape[1]]).mean(1),
    ],
)
def test_a_selection_of_entries_may_change_with_the_length(function, explicit_kernel):
    model, x, x2 = held(function, 9, 3), lengths(5, 4), lengths(4, 5)
    found = tangent_kernel(model, x, x2).total
    torch.testing.assert_close(found, explicit_kernel(model, x, x2)[""])


def test_positions_per_sample_may_change_with_the_length(explicit_kernel):
    model, x, x2 = merged(), draw(4, 5), draw(5, 4)  # of as many positions in all
    found = tangent_kernel(model, x, x2).total
    torch.testing.assert_close(found, explicit_kernel(model, x, x2)["layer"])


def test_samples_are_found_among_positions_most_of_which_are_not_used(
    explicit_kernel, assert_same_kernel, caplog
):
    def first_only(m, x):
        return torch.tanh(m.layer(x.reshape(-1, 1))).view(len(x), -1, 2)[:, 0]

    model, x = Toy(first_only, layer=linear(1, 2)), draw(4, 4)
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)
    assert not caplog.text


def test_chunks_may_have_other_lengths(explicit_kernel, assert_same_kernel):
    def cut(m, x):
        tokens = x[:, : int((x > 0).sum(1).max())]
        return m.head(torch.tanh(m.table(tokens)).mul(tokens[..., None] > 0).sum(1))

    x = torch.randint(1, 5, (6, 4), generator=torch_stream(0, "data"))
    for short in (x[:3, 2:], x[5, 1:]):
        short.zero_()
    head = linear(3, 2)
    model = Toy(cut, table=nn.Embedding(5, 3).double(), head=head)
    found = tangent_kernel(model, x, memory_budget=4000)
    assert_same_kernel(found, explicit_kernel(model, x), 1e-10)


def test_a_trace_of_a_sorted_and_an_unsorted_use(explicit_kernel):
    model = Toy(lambda m, x: in_order(x, m.layer) + m.layer(x) ** 2, layer=linear())
    x = increasing()[[0, 1, 3, 2]]
    expected = explicit_kernel(model, x)["layer"].trace().item()
    assert tangent_trace(model, x) == pytest.approx(expected)


def test_a_single_pair_out_of_order_is_seen(explicit_kernel, assert_same_kernel, caplog):
    x = torch.randn(30, 3, dtype=X.dtype, generator=torch_stream(1, "data"))
    x, model = x[x[:, 0].argsort()], sorting()
    x[[4, 15]] = x[[15, 4]]  # which once had the same weight by chance
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)
    assert "one by one" in caplog.text


@pytest.mark.parametrize("sign", [1, -1])
def test_gradients_may_all_have_one_sign(sign, caplog):
    tangent_kernel(Toy(lambda m, x: sign * torch.tanh(m.layer(x)).sum(1), layer=linear()), X)
    assert not caplog.text


def test_many_samples_in_order_are_not_taken_for_others(caplog):
    model, x = linear(1, 2), torch.linspace(-1, 1, 200, dtype=X.dtype)[:, None]
    expected = torch.kron(x @ x.T + 1, torch.eye(2).double())
    torch.testing.assert_close(tangent_kernel(model, x).total, expected)
    half = Toy(lambda m, x: m.layer(x.half()).float(), layer=linear(1, 2).half())
    found = tangent_kernel(half, x.float()).total
    torch.testing.assert_close(found, expected.float(), rtol=0, atol=1e-2)
    assert not caplog.text


@pytest.mark.parametrize("workspace", [1, 10**9])
def test_the_steps_of_a_recurrence_are_one_use_without_a_copy(
    workspace, explicit_kernel, assert_same_kernel, monkeypatch
):
    def forward(m, x):
        h = m.layer(torch.tanh(m.first(x[:, :, None])))  # three positions, then one, then two
        h = m.layer(torch.tanh(h.sum(1)))
        return m.last(torch.tanh(m.layer(torch.stack([h, h**2], 1))).sum(1))

    copied = []

    def spied(deltas):
        joined = joined_deltas(deltas)
        copied.append(joined.data_ptr() not in [delta.data_ptr() for delta in deltas])
        alone = torch.cat([delta.transpose(1, 2).clone() for delta in deltas], 1).transpose(1, 2)
        assert torch.equal(joined, alone)
        return joined

    monkeypatch.setattr(parameter_gradients, "joined_deltas", spied)
    model = Toy(forward, first=linear(1, 20), layer=linear(20, 20), last=linear(20, 2))
    plan = plan_capture(model, X)
    capture_gradients(plan, as_samples(X, like=X), workspace)
    assert copied == [False]
    assert_same_kernel(tangent_kernel(model, X), explicit_kernel(model, X), 1e-12)


def test_gradients_that_are_not_adjacent_in_memory_are_copied():
    whole = torch.arange(72.0).view(2, 2, 6, 3)
    first, second, third = whole.split(2, dim=2)
    elsewhere = (whole + 100).split(2, dim=2)[1]
    swapped = whole.as_strided(second.shape, (18, 36, 3, 1), second.storage_offset())
    for other in (second, third, elsewhere, swapped):
        assert torch.equal(joined_deltas([first, other]), torch.cat([first, other], dim=2))


def test_complex_factors_are_conjugated(explicit_kernel, assert_same_kernel):
    def spectral(m, x):
        h = torch.fft.rfft(x, dim=1)
        h = torch.einsum("nfd,dk->nfk", h, torch.view_as_complex(m.p))
        return torch.fft.irfft(h, n=4, dim=1).tanh().mean(1)

    model, x = held(spectral, 3, 3, 2), lengths(5, 4)
    x[0] = 0  # which shows no difference where the model is tried
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)


def test_parts_of_one_matrix_are_held_apart(explicit_kernel, assert_same_kernel):
    def forward(m, x):
        return m.head(torch.tanh(F.linear(x, m.p[:20])) * F.linear(x**2, m.p[20:]))

    model, x = held(forward, 40, 20, head=linear(20, 2)), torch.randn(4, 20, dtype=X.dtype)
    plan = plan_capture(model, x)
    assert not plan.formed.union(plan.generic)
    expected = explicit_kernel(model, x)
    assert_same_kernel(tangent_kernel(model, x), expected, 1e-10)
    traces = [gram.trace().item() for gram in expected.values()]
    assert tangent_trace(model, x) == pytest.approx(sum(traces))


@pytest.mark.parametrize("bias", [lambda p: torch.exp(p[0]), lambda p: p[0] * p[1]])
def test_a_bias_that_is_computed_beside_a_weight_that_is_held(
    bias, explicit_kernel, assert_same_kernel
):
    model = held(lambda m, x: F.linear(x, m.a.weight, bias(m.p)).tanh(), 2, 20, a=linear(20, 20))
    assert "a.weight" not in plan_capture(model, draw(4, 20)).formed
    expected = explicit_kernel(model, draw(4, 20))
    assert_same_kernel(tangent_kernel(model, draw(4, 20)), expected, 1e-10)


def by_either(m, x):
    """Scaled where a sample's first entry is positive, in a batch with one by another parameter."""
    positive = (x[:, 0] > 0).any()
    scale = m.scale(m, m.first if positive else m.other)
    both = m.first + m.other if m.both_anyway else 1
    return m.layer(x) + x * both + x[:, :1].relu() * scale


@pytest.mark.parametrize("both_anyway", [True, False])
@pytest.mark.parametrize(
    "scale", [lambda m, p: p, lambda m, p: p.exp(), lambda m, p: m.common * p.exp()]
)
def test_a_plan_knows_of_what_a_factor_is_computed(both_anyway, scale, explicit_kernel, caplog):
    model = Toy(by_either, layer=linear(3, 3))
    model.both_anyway, model.scale = both_anyway, scale
    for name in ("first", "other", "common"):
        setattr(model, name, nn.Parameter(draw(3)))
    x, other = X.abs(), -X.abs()
    plan = plan_capture(model, x)
    for data, same in ((x, True), (other, False)):
        expected = explicit_trace(explicit_kernel(model, data))
        assert tangent_trace(model, data, plan=plan) == pytest.approx(expected)
        assert ("one by one" in caplog.text) is not same


@pytest.mark.parametrize("parts", [(slice(30), slice(10, None)), (slice(None), slice(20))])
def test_overlapping_parts_of_one_matrix_are_added(parts, explicit_kernel, assert_same_kernel):
    def forward(m, x):
        first, other = (m.p if part == slice(None) else m.p[part] for part in parts)
        return F.linear(x, first).tanh()[:, :20] + F.linear(x**2, other)[:, :20]

    model, x = held(forward, 40, 20), torch.randn(4, 20, dtype=X.dtype)
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)


@pytest.mark.parametrize("rest", [0, 5])  # of the parameter's channels, which are one kernel
def test_one_parameter_may_be_two_kernels(rest, explicit_kernel, assert_same_kernel):
    def two(m, x):
        p = m.p[:5] if rest else m.p
        a = torch.tanh(F.conv1d(x, p)).mean(2)
        a = a + torch.tanh(F.conv1d(x[:, :4], p.view(5, 4, 6))).mean(2)
        return a * torch.tanh(F.conv1d(x, m.p[5:])).mean(2) if rest else a

    x = torch.randn(3, 6, 9, dtype=X.dtype, generator=torch_stream(0, "data"))
    model = held(two, 5 + rest, 6, 4)
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)


def test_a_parameter_without_a_rule_leaves_one_that_it_is_added_to_its_own(
    explicit_kernel, assert_same_kernel
):
    """Though the sum is the bias of a layer whose weight is held by its factors."""

    def forward(m, x):
        positive = torch.exp(m.b)
        h = F.linear(torch.tanh(F.linear(x, m.p, m.a + positive)), m.p, m.a)
        return F.linear(h, m.p, m.a + positive) + torch.hypot(x, m.a)

    model, x = held(forward, 20, 20), draw(4, 20)
    model.a, model.b = (nn.Parameter(draw(20, seed=seed)) for seed in (1, 2))
    plan = plan_capture(model, x)
    assert plan.generic == ("a",)
    assert "b" in plan.formed
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)


def gated(m, x):
    gate = (x[:, :1] > 0) * m.scale
    return m.layer(x) + gate * torch.hypot(x, m.layer.bias * m.scale)


def called_again(m, x):
    """For as many samples among the first two as among the first three."""
    f, chosen = m.layer(x), x[:, 0] > 0
    return f + torch.eye(len(x)).to(x)[:, chosen] @ m.layer(torch.tanh(f[chosen]) * m.scale)


@pytest.mark.parametrize("function", [gated, called_again])
def test_a_use_without_a_rule_counts_where_the_first_sample_has_none(
    function, explicit_kernel, assert_same_kernel
):
    model, x = Toy(function, layer=linear(3, 3)), X.abs()
    model.scale = nn.Parameter(draw(3))
    x[[0, 2]] *= -1
    plan = plan_capture(model, x)
    assert {"scale", "layer.bias"} <= set(plan.generic)
    assert plan.formed.isdisjoint(plan.generic)
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)


class Cubed(torch.autograd.Function):
    """What PyTorch cannot differentiate for several samples at a time."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradient if gradient.isfinite().all() else gradient


def test_a_function_of_a_parameter_may_have_its_own_backward_pass(
    explicit_kernel, assert_same_kernel
):
    model = held(lambda m, x: torch.tanh(F.linear(x, Cubed.apply(m.p))), 2, 3)
    assert plan_capture(model, X).formed == {"p"}
    assert_same_kernel(tangent_kernel(model, X), explicit_kernel(model, X), 1e-10)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_outputs_may_be_squeezed(n, explicit_kernel, assert_same_kernel):
    model, plain = (Toy(f, layer=linear(3, 1)) for f in (squeezed, lambda m, x: m.layer(x)))
    assert_same_kernel(tangent_kernel(model, X[:n]), explicit_kernel(plain, X[:n]), 1e-10)


def squeezed(m, x):
    return m.layer(x).squeeze()


def test_a_sample_that_a_round_leaves_over_takes_the_path_of_several():
    model, x = Toy(squeezed, layer=linear(3, 2)), as_samples(X[:3], like=X)
    found, expected = (capture_gradients(plan_capture(model, x), x, w) for w in (1, 10**9))
    for name, size in (("layer.weight", 6), ("layer.bias", 2)):
        (part,), (other,) = found[name], expected[name]
        torch.testing.assert_close(part.features(size), other.features(size))


def test_shapes_that_only_broadcast_are_refused():
    model, x = held(lambda m, x: torch.tanh(x * m.p).sum(2), 3), lengths(4, 5)
    with pytest.raises(ValueError, match="x2: the model has 1 outputs for it, and 5 for x"):
        tangent_kernel(model, x, x[:, :1])
    values = {"weight": torch.ones(2, 3).double(), "bias": torch.ones(1).double()}
    with pytest.raises(ValueError, match=r"'bias' has shape \(1,\); the model's is \(2,\)"):
        tangent_kernel(linear(), X, parameters=values)
    values = {"weight": torch.ones(3, 2).double(), "bias": torch.ones(2).double()}
    with pytest.raises(ValueError, match=r"'weight' has shape \(3, 2\); the model's is \(2, 3\)"):
        tangent_kernel(linear(), X, parameters=values)
    with pytest.raises(ValueError, match="two sets of samples has no centring"):
        _ = tangent_kernel(linear(3, 1), 1e-6 * X, 1e-6 * X.flip(0), only=["weight"]).centred


@pytest.mark.parametrize(("n", "sizes"), [(9, [3, 3, 3]), (10, [4, 4, 2])])
def test_rounds_of_passes_are_of_equal_size(n, sizes, monkeypatch):
    taken, recorded = [], capture_plan._recorded_as_planned

    def noted(plan, samples, span):
        taken.append(span.stop - span.start)
        return recorded(plan, samples, span)

    monkeypatch.setattr(capture_plan, "_recorded_as_planned", noted)
    x = as_samples(X[[0, 1, 2, 3, 0] * 2][:n], like=X)
    plan = plan_capture(linear(), x)
    capture_gradients(plan, x, 4 * plan.passing_bytes)  # four at a time would leave one of nine
    assert taken == sizes


def of_every_kind():
    """Weights held as factors, one with a bias, one formed by a rule, and one without a rule."""

    def forward(m, x):
        h = torch.tanh(m.first(x)) * m.p
        return m.second(h + torch.tanh(m.second(h))) + m.pair(x, x)

    pair = nn.Bilinear(10, 10, 20, bias=False).double()
    return held(forward, 20, first=linear(10, 20), second=linear(20, 20), pair=pair)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_several_rounds_of_passes_give_what_one_does(n):
    model, x = of_every_kind(), as_samples(draw(n, 10))
    plan = plan_capture(model, x)
    assert plan.held
    assert plan.formed == {"p"}
    assert plan.generic == ("pair.weight",)
    one, several = (capture_gradients(plan, x, workspace) for workspace in (10**9, 1))
    assert set(one) == set(several) == set(plan.names)
    for name, parts in one.items():
        size = plan.values[name].numel()
        for part, other in zip(parts, several[name], strict=True):
            torch.testing.assert_close(part.features(size), other.features(size))


@pytest.mark.parametrize("n", [1, 5])
def test_what_a_sample_takes_is_what_is_held(n):
    model, x = of_every_kind(), as_samples(draw(n, 10))
    plan = plan_capture(model, x)
    uses = [
        use
        for parts in capture_gradients(plan, x, 10**9).values()
        for part in parts
        for use in part.uses
    ]
    tensors = [getattr(use, "deltas", getattr(use, "values", None)) for use in uses]
    tensors += [use.inputs.values for use in uses if isinstance(use, MatrixGradients)]
    distinct = {t.data_ptr(): t for t in tensors}.values()  # a bias shares its weight's factors
    assert n * plan.held_bytes == sum(t.numel() * t.element_size() for t in distinct)


@pytest.mark.parametrize(("calls", "formed"), [(1, False), (2, False), (3, True)])
def test_a_weight_is_formed_where_the_factors_of_its_uses_are_larger(calls, formed):
    def forward(m, x):
        for _ in range(calls):
            x = torch.tanh(m.layer(x))
        return x

    plan = plan_capture(Toy(forward, layer=linear(3, 3)), X)
    assert ("layer.weight" in plan.formed) is formed
    assert "weight" in plan_capture(linear(1, 10), X[:, :1]).formed  # for each of ten outputs
    assert "weight" in plan_capture(linear(3, 1), X).formed  # since inputs count, too


@pytest.mark.parametrize("stride", [1, 2])
def test_a_transposed_convolution_that_is_used_twice_is_held(
    stride, explicit_kernel, assert_same_kernel
):
    """Its signals have no axis of positions, by which those of a matrix are put side by side."""

    def twice(m, x):
        one, other = m.up(x[:, 0]), F.conv_transpose1d(x[:, 1], m.up.weight, stride=stride)
        return torch.tanh(one).mean(2) * torch.tanh(other).mean(2)

    model = Toy(twice, up=nn.ConvTranspose1d(16, 4, 3).double())
    x = torch.randn(4, 2, 16, 2, dtype=X.dtype, generator=torch_stream(0, "data"))
    assert "up.weight" not in plan_capture(model, x).formed
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)
    assert tangent_trace(model, x) == pytest.approx(explicit_trace(explicit_kernel(model, x)))


def explicit_trace(grams):
    return sum(float(gram.trace()) for gram in grams.values())


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: m.head(torch.tanh(m.table(x[:, :2])).sum(1) + m.table(x[:, 2:]).sum(1)),
        lambda m, x: m.head(m.table.weight[x].sum(1) + m.table.weight[x[:, 2:]].sum(1)),
    ],
)
def test_lookups_of_nothing_add_nothing(function, explicit_kernel, assert_same_kernel):
    model = Toy(function, table=nn.Embedding(7, 5).double(), head=linear(5, 3))
    x = torch.randint(7, (4, 2), generator=torch_stream(0, "data"))
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)
    assert tangent_trace(model, x) == pytest.approx(explicit_trace(explicit_kernel(model, x)))


def bilinear_outputs(m, x):
    return (m.layer(x) + m.pair(x, x))[..., 0]


@pytest.mark.parametrize(
    "function",
    [lambda m, x: m.layer(x)[..., 0], bilinear_outputs, lambda m, x: m.pair(x, x)[..., 0]],
)
def test_a_plan_for_other_outputs_is_refused(function):
    model = Toy(function, layer=linear(3, 1), pair=nn.Bilinear(3, 3, 1, False).double())
    plan = plan_capture(model, lengths(3, 4))
    for length in (8, 2):
        x = lengths(3, length)
        for call in (tangent_kernel, tangent_trace):
            with pytest.raises(ValueError, match=f"{length} outputs for it, the plan is for 4;"):
                call(model, x, plan=plan)


class Tabled(nn.Module):
    """Keeps a table of a parameter from its first call on."""

    def __init__(self):
        super().__init__()
        self.layer, self.t, self.table = linear(3, 3), nn.Parameter(torch.ones(3).double()), None

    def forward(self, x):
        if self.table is None:
            self.table = torch.exp(self.t)
        return torch.tanh(self.layer(x)) * self.table


def test_a_table_that_is_filled_after_the_plan_is_seen(explicit_kernel):
    model = Tabled()
    expected = explicit_trace(explicit_kernel(model, X))
    model.table = None
    plan = plan_capture(model, X)
    with torch.no_grad():
        model(X)
    assert tangent_trace(model, X, plan=plan) == pytest.approx(expected)
    assert tangent_kernel(model, X, plan=plan).total.trace() == pytest.approx(expected)
    with torch.no_grad():
        model.t += 1
    with pytest.raises(ValueError, match="since modules keep 'table'"):
        tangent_trace(model, X, plan=plan)


class Attention(nn.Module):
    """Puts the samples on the second axis within its layer."""

    def __init__(self):
        super().__init__()
        self.body = nn.MultiheadAttention(4, 2, batch_first=True)
        self.readout = nn.Linear(4, 2)

    def forward(self, x):
        return self.readout(self.body(x, x, x, need_weights=False)[0].mean(1))


def test_a_plan_made_where_the_readout_is_zero_knows_where_samples_are(explicit_kernel, caplog):
    torch.manual_seed(0)
    model, x = Attention().double().eval(), torch.randn(5, 3, 4).double()
    readout = model.readout.weight.detach().clone()
    with torch.no_grad():
        model.readout.weight.zero_()
    plan = plan_capture(model, x)
    with torch.no_grad():
        model.readout.weight.copy_(readout)
    found = tangent_trace(model, x, plan=plan)
    assert found == pytest.approx(explicit_trace(explicit_kernel(model, x)))
    assert "one by one" not in caplog.text


@pytest.mark.parametrize(
    "inner",
    [
        lambda h, free: h + (0.01 - free).sqrt(),
        lambda h, free: h @ torch.linalg.cholesky(torch.eye(3).double() * (0.01 - free)),
        lambda h, free: torch.tanh(h) if free else h,
    ],
    ids=["not finite", "fails", "another path"],
)
def test_a_model_may_be_another_where_its_readout_is_not_zero(
    inner, explicit_kernel, assert_same_kernel, caplog
):
    def forward(m, x):
        return m.readout(inner(m.first(x), m.readout.weight.square().sum()))

    model = Toy(forward, first=linear(3, 3), readout=nn.Linear(3, 2, bias=False).double())
    nn.init.zeros_(model.readout.weight)
    assert_same_kernel(tangent_kernel(model, X), explicit_kernel(model, X), 1e-10)
    assert plan_capture(model, X).generic == ()
    assert not caplog.text


def test_what_has_no_rule_is_seen_where_the_readout_is_zero():
    def forward(m, x):
        return m.readout(torch.tanh(m.layer(x.flip(0))).flip(0))

    model = Toy(forward, layer=linear(1, 3), readout=linear(3, 2))
    nn.init.zeros_(model.readout.weight)
    plan = plan_capture(model, X[:, :1])
    assert plan.generic == ("layer.weight", "layer.bias")
    assert plan.formed.isdisjoint(plan.generic)


@pytest.mark.parametrize("trained", [lambda f: 2 * f, lambda f: f[:, :1], lambda f: f * torch.nan])
def test_outputs_that_change_where_parameters_require_gradients_are_refused(trained):
    def forward(m, x):
        f = m.layer(x).expand(-1, 2)
        return trained(f) if m.layer.weight.requires_grad else f

    model = Toy(forward, layer=linear(3, 1))
    values = {name: 2 * value.detach() for name, value in model.named_parameters()}
    with pytest.raises(ValueError, match=r"differ between two runs .* call model\.eval\(\) first"):
        tangent_kernel(model, X, parameters=values)


def test_a_plan_does_not_let_samples_depend_on_each_other():
    model = nn.Sequential(linear(3, 3), nn.BatchNorm1d(3), linear(3, 2)).double().eval()
    plan = plan_capture(model, X)
    model.train()
    for call in (tangent_kernel, tangent_trace):
        with pytest.raises(ValueError, match="BatchNorm1d"):
            call(model, X, plan=plan)


def test_outputs_some_of_which_change_with_parameters_that_no_gradient_reaches():
    partly = Toy(lambda m, x: torch.cat([x[:, :1], m.layer(x).detach()], 1), layer=linear())
    with pytest.raises(ValueError, match="no gradient of the outputs reaches the parameters"):
        plan_capture(partly, X)


def test_factors_are_held_in_the_largest_precision():
    def mixed(dtype):
        layers = {"first": linear(3, 3).to(dtype), "second": linear(3, 2)}
        return Toy(lambda m, x: m.second(m.first(x.to(dtype)).double()), **layers)

    x = torch.ones(3, 3).double()
    held = [plan_capture(mixed(dtype), x).held_bytes for dtype in (torch.float32, torch.float64)]
    assert held[0] == held[1] > 0


def test_generic_gradients_are_taken_in_chunks_for_all_outputs(monkeypatch):
    chunks, whole = [], capture_plan.batched_gradients

    def told(*given):
        chunks.append(given[-1])
        return whole(*given)

    x = torch.rand(6, 4).double()
    own = Toy(lambda m, x: torch.hypot(x[:, :, None], m.layer.weight).sum(1), layer=linear(2, 4))
    plan = plan_capture(own, x)
    monkeypatch.setattr(capture_plan, "batched_gradients", told)
    capture_gradients(plan, as_samples(x), 4 * plan.passing_bytes * plan.outputs)
    assert chunks == [4]
