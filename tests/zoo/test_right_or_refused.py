"""What may be refused, but never be wrong: one sentence that names the culprit and a cure."""

import copy
import threading
import time
from functools import cached_property

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint
from torchvision.ops import StochasticDepth

from feature_alignment.kernels.jacobian import Jacobian
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.layer_features.feature_covariance import layer_feature_matrices
from feature_alignment.layer_features.preactivation_gradients import preactivation_gradients
from zoo.layers import LAYERS, USAGES, D, Own, T, layer, parameter, sequences, tokens, vectors
from zoo.oracle import assert_grams, assert_unchanged, fingerprint, grams, jacobian, prepared

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True:UserWarning"),
]


def made(build, data=vectors, n=4):
    """Inputs, and a function that makes the model, the same one each time."""
    x = data(n, 0)

    def make():
        torch.manual_seed(0)
        model = build().double()
        model(x.clone())  # lazy layers take their sizes
        return prepared(lambda: model)

    return make, x


def assert_says(error, *words):
    """Whether a message is one line and has one of each group of words."""
    message = str(error)
    assert "\n" not in message
    for group in words:
        group = (group,) if isinstance(group, str) else group
        assert any(word in message for word in group), f"{message!r} has none of {group}"


def right_or_refused(expected, words, model, *arguments, tolerance=1e-9, **options):
    """Measure a model, which must give the expected kernel or the words; whether it was right."""
    try:
        found = tangent_kernel(model, *arguments, **options)
    except ValueError as error:
        assert_says(error, *words)
        return False
    assert_grams(found, expected, tolerance)
    return True


CHANCE = {
    "stochastic depth by row": lambda: layer(StochasticDepth(0.5, "row")),
    "stochastic depth by batch": lambda: layer(StochasticDepth(0.5, "batch")),
    "random slopes": lambda: layer(nn.RReLU()),
    "dropout": lambda: layer(nn.Dropout(0.2)),
    "dropout of features": lambda: layer(nn.FeatureAlphaDropout()),
    "dropout in an LSTM": lambda: tokens(
        lambda m, h: m.layer(h)[0], layer=nn.LSTM(D, D, 2, batch_first=True, dropout=0.5)
    ),
    "dropout in attention": lambda: tokens(
        lambda m, h: m.layer(h, h, h)[0], layer=nn.MultiheadAttention(D, 2, 0.5, batch_first=True)
    ),
    "batch norm": lambda: tokens(
        lambda m, h: m.layer(h.transpose(1, 2)).transpose(1, 2), layer=nn.BatchNorm1d(D)
    ),
}


@pytest.mark.parametrize("name", CHANCE)
def test_modules_in_training_mode_are_refused_by_name_for_every_seed(name):
    make, x = made(CHANCE[name], sequences)
    model = make()
    model.layer.train()
    for seed in range(20):
        torch.manual_seed(seed)
        with pytest.raises(ValueError, match="'layer'") as error:
            tangent_kernel(model, x)
        assert_says(error.value, "eval()")


FUNCTIONAL_CHANCE = {
    "dropout": lambda m, h: F.dropout(m.f(h), 0.3),
    "noise": lambda m, h: m.f(h) + 1e-3 * torch.randn_like(h),
    "noise on the last sample": lambda m, h: torch.cat([m.f(h[:-1]), m.f(h[-1:]) * torch.rand(())]),
    "rows dropped at once": lambda m, h: m.f(h) * (torch.rand(()) < 0.5),
}


@pytest.mark.parametrize("name", FUNCTIONAL_CHANCE)
def test_chance_outside_modules_is_refused_for_every_seed(name):
    make, x = made(lambda: tokens(FUNCTIONAL_CHANCE[name], f=nn.Linear(D, D)), sequences)
    model = make()
    for seed in range(20):
        torch.manual_seed(seed)
        with pytest.raises(ValueError, match=r"chance|random") as error:
            tangent_kernel(model, x)
        assert_says(error.value)


def causal(m, h):
    """Attention over the samples before, by a missing `batch_first`."""
    n = len(h)
    mask = torch.ones(n, n, dtype=torch.bool).triu(1)
    return m.f(h, h, h, attn_mask=mask, need_weights=False)[0]


def passed_on(m, h):
    """The third sample gets something of the first one, whatever their number."""
    out = m.f(h)
    return torch.cat([out[:2], out[2:] + out[:1]]) if len(h) > 2 else out


def by_gradient(m, h):
    """Only gradients depend on other samples."""
    out = m.f(h)
    return out + out.mean(0) - out.mean(0).detach()


COUPLED = {
    "LSTM without batch_first": (lambda m, h: m.f(h)[0], lambda: nn.LSTM(D, D)),
    "causal attention over samples": (causal, lambda: nn.MultiheadAttention(D, 2)),
    "sum over past samples": (lambda m, h: m.f(h).cumsum(0), lambda: nn.Linear(D, D)),
    "sum over later samples": (
        lambda m, h: m.f(h).flip(0).cumsum(0).flip(0),
        lambda: nn.Linear(D, D),
    ),
    "less the mean": (lambda m, h: m.f(h) - m.f(h).mean(0), lambda: nn.Linear(D, D)),
    "standardised": (
        lambda m, h: (
            F.batch_norm(m.f(h).transpose(1, 2), None, None, training=len(h) > 1)
            if len(h) > 1
            else m.f(h).transpose(1, 2)
        ),
        lambda: nn.Linear(D, D),
    ),
    "batch norm without statistics": (
        lambda m, h: m.f(h.transpose(1, 2)).transpose(1, 2),
        lambda: nn.BatchNorm1d(D, track_running_stats=False),
    ),
    "by the largest": (lambda m, h: m.f(h) / m.f(h).abs().max(), lambda: nn.Linear(D, D)),
    "sorted": (lambda m, h: m.f(h.sort(0).values), lambda: nn.Linear(D, D)),
    "samples reordered": (lambda m, h: m.f(h[h[:, 0, 0].argsort()]), lambda: nn.Linear(D, D)),
    "samples rolled": (lambda m, h: m.f(h.roll(1, 0)), lambda: nn.Linear(D, D)),
    "rolled from the second on": (
        lambda m, h: m.f(torch.cat([h[:1], h[1:].roll(1, 0)])),
        lambda: nn.Linear(D, D),
    ),
    "a later one from the first": (passed_on, lambda: nn.Linear(D, D)),
    "by gradient": (by_gradient, lambda: nn.Linear(D, D)),
}


@pytest.mark.parametrize("name", COUPLED)
@pytest.mark.parametrize("against", [None, 2])
def test_samples_that_depend_on_others_are_refused(name, against):
    function, module = COUPLED[name]
    make, x = made(lambda: tokens(function, f=module()), sequences)
    x2 = None if against is None else sequences(against, 1)
    rows = jacobian(make(), x)
    columns = None if x2 is None else jacobian(make(), x2)
    words = (("sample", "batch"),)
    right_or_refused(grams(rows, columns), words, make(), x, x2)


class Cached(nn.Module):
    """A table made of another module's parameter once, as in LeViT, beside the parameter itself."""

    def __init__(self, way):
        super().__init__()
        self.inner, self.index = Own(None, table=parameter(T)), torch.arange(T)
        self.way, self.scale = way, torch.tensor(0.5)
        self.forget()

    def forget(self):
        self.__dict__.pop("as_property", None)
        self.cache = {"a dictionary": {}, "a list": []}.get(self.way)
        if self.way == "an attribute made late":
            del self.cache

    def made(self):
        return torch.exp(self.inner.table[self.index])

    as_property = cached_property(made)

    def kept(self):
        if self.way == "a property":
            return self.as_property
        if self.way == "a dictionary":
            return self.cache.setdefault("cpu", self.made())
        if self.way == "a list":
            self.cache = self.cache or [self.made()]
        elif self.way == "a tuple":
            self.cache = self.cache or (self.made(),)
        elif self.way == "an attribute":
            self.cache = self.made()[None] if self.cache is None else self.cache
        elif not hasattr(self, "cache"):
            self.cache = self.made()[None]
        return self.cache[0]

    def forward(self, h):
        return self.scale * h * self.kept()[:, None] + self.inner.table[:, None]


KEPT = ["a dictionary", "a list", "a tuple", "an attribute", "an attribute made late", "a property"]


@pytest.mark.parametrize("before", ["nothing", "no gradients", "gradients", "other parameters"])
@pytest.mark.parametrize("way", KEPT)
def test_a_table_kept_from_an_earlier_call_is_made_anew_or_refused(way, before):
    make, x = made(lambda: layer(Cached(way)), sequences)  # where it has been called
    model = make()
    stale = dict(vars(model.layer))
    model.layer.forget()
    expected = grams(jacobian(model, x))
    model.layer.forget()
    if before == "other parameters":
        vars(model.layer).update(stale)
    elif before != "nothing":
        with torch.set_grad_enabled(before == "gradients"):
            model(x)
    state = fingerprint(model)
    if before == "other parameters":  # it may as well be meant to stay what it was at the start
        for measure in (tangent_kernel, Jacobian, layer_feature_matrices):
            with pytest.raises(ValueError, match=r"since modules keep .* of earlier calls"):
                measure(model, x)
    else:
        assert right_or_refused(expected, (), model, x)
        assert_by_products(expected, model, x)
    assert_unchanged(state, model)


def assert_by_products(expected, model, x):
    """Whether the products with the Jacobian are those of the expected kernel."""
    product = Jacobian(model, x)
    u = torch.randn(product.f.shape, generator=torch.Generator().manual_seed(0)).to(x)
    found = product.times(product.transpose_times(u)).flatten()
    torch.testing.assert_close(found, sum(expected.values()) @ u.flatten())


def test_a_table_that_is_not_made_anew_is_refused_beside_its_unused_parameter():
    def use(m, h):
        if not m.ready:
            m.ready, m.kept = True, torch.exp(m.w.detach())
        return h * m.kept

    make, x = made(lambda: tokens(use, w=parameter(D), ready=False), sequences)
    for measure in (tangent_kernel, Jacobian):
        with pytest.raises(ValueError, match=r"'w'.* keeps 'kept'") as error:
            measure(make(), x)
        assert_says(error.value, "computed anew")


@pytest.mark.parametrize("before", ["nothing", "no gradients", "gradients"])
def test_weights_cached_by_parametrisations_are_made_anew(before):
    make, x = made(*USAGES["weight norm"])
    expected = grams(jacobian(make(), x))
    with parametrize.cached():
        if before != "nothing":
            with torch.set_grad_enabled(before == "gradients"):
                make()(x)
        assert right_or_refused(expected, (), make(), x)
        assert_by_products(expected, make(), x)
        assert parametrize._cache_enabled == 1


def clamped(m):
    with torch.no_grad():
        m.w.clamp_(-0.1, 0.2)


def behind_autograd(m):
    m.w.data.renorm_(2, 0, 0.5)


def replaced(m):
    m.w.data = torch.renorm(m.w.data, 2, 0, 0.5)


def teacher(m):
    with torch.no_grad():
        m.spare.lerp_(m.w, 0.1)


IN_PLACE = [clamped, behind_autograd, replaced, teacher]


def changing(change):
    """A model with parameters that each forward pass changes in place."""

    def use(m, h):
        change(m)
        return torch.tanh(h @ m.w)

    return lambda: tokens(use, w=parameter(D, D), spare=parameter(D, D))


@pytest.mark.parametrize("change", IN_PLACE)
def test_parameters_that_the_forward_pass_changes_are_as_before(change):
    make, x = made(changing(change), sequences)
    model = make()
    with torch.no_grad():
        model.w.add_(1)
        expected = grams(jacobian(copy.deepcopy(model), x))
    before = fingerprint(model)
    measured = [
        lambda: right_or_refused(expected, (), model, x),
        lambda: assert_by_products(expected, model, x),
        lambda: layer_feature_matrices(model, x, ["head"]),
        lambda: preactivation_gradients(model, x, ["head"]),
        lambda: tangent_kernel(model, x, sequences(2, 1)),
    ]
    for measure in measured:
        measure()
        assert_unchanged(before, model)
    if change is not teacher:
        with pytest.raises(ValueError, match="changes 'w' in place"):
            layer_feature_matrices(model, x)


def clamped_in_vain(m):
    with torch.no_grad():
        m.w.clamp_(-1000, 1000)


def counted_behind_autograd(m):
    m.spare.data.add_(1)


@pytest.mark.parametrize("change", [clamped_in_vain, counted_behind_autograd])
def test_parameters_that_only_some_samples_change_are_as_before(change):
    """So much so that a backward pass through the model's own parameters is still possible."""

    def use(m, h):
        if h[:, 0, 0].sum() > 0:
            change(m)
        return torch.tanh(h @ m.w)

    make, x = made(lambda: tokens(use, w=parameter(D, D), spare=parameter(D, D)), sequences)
    model, x = make(), x.abs()
    loss = model(x).sum()
    before = fingerprint(model)
    for columns in (None, -x):
        tangent_kernel(model, x, columns)
        assert_unchanged(before, model)
    loss.backward()


@pytest.mark.parametrize("late", [False, True])
def test_parameters_that_move_the_outputs_from_call_to_call_are_refused(late):
    def use(m, h):
        if not late:
            m.w.data.mul_(0.99)
        out = torch.tanh(h @ m.w)
        if late:
            m.w.data.clamp_(-0.1, 0.2)
        return out

    make, x = made(lambda: tokens(use, w=parameter(D, D)), sequences)
    model = make()
    with torch.no_grad():
        model.w.add_(1)
    before = fingerprint(model)
    for measure in (tangent_kernel, Jacobian, layer_feature_matrices, preactivation_gradients):
        with pytest.raises(ValueError, match="changes parameter 'w' in place") as error:
            measure(model, x)
        assert_says(error.value, "forward()")
        assert_unchanged(before, model)


def test_complex_parameters_are_refused_by_name():
    model = Own(
        lambda m, x: torch.view_as_real(x.to(m.w.dtype) @ m.w).flatten(1),
        w=nn.Parameter(torch.randn(D, 2, dtype=torch.complex128)),
    )
    with pytest.raises(ValueError, match="'w'") as error:
        tangent_kernel(model, vectors(3, 0))
    assert_says(error.value, "complex", ("real", "imag"))


@pytest.mark.parametrize("influence", [1e-2, 3e-4])
def test_a_weight_that_also_bypasses_its_module_in_single_precision(influence):
    def use(m, h):
        return m.f(h) + influence * h @ m.f.weight.T

    make, x = made(lambda: tokens(use, f=nn.Linear(D, D)), sequences)
    expected = grams(jacobian(make(), x))
    words = ("'f.weight'",)
    right_or_refused(expected, words, make().float(), x.float(), tolerance=3e-5)


def test_a_later_sample_that_is_not_a_number():
    make, x = made(lambda: layer(nn.Linear(D, D)), sequences)
    x[3, 1, 2] = torch.nan
    try:
        found = tangent_kernel(make(), x).total
    except ValueError as error:
        assert_says(error, ("finite", "NaN", "nan"), ("sample", "x"))
    else:
        expected = sum(grams(jacobian(make(), x)).values())
        torch.testing.assert_close(found, expected, equal_nan=True)


def test_two_threads_may_measure_one_model_at_once():
    def slow(m, h):
        time.sleep(0.01)  # so that the passes of the two are mixed
        return m.f(h)

    make, x = made(lambda: tokens(slow, f=nn.Linear(D, D)), sequences)
    model = make()
    inputs = [x, sequences(3, 1)]
    expected = [grams(jacobian(make(), data)) for data in inputs]
    before, found = fingerprint(model), {}

    def measure(k):
        try:
            found[k] = tangent_kernel(model, inputs[k])
        except Exception as error:
            found[k] = error

    threads = [threading.Thread(target=measure, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, kernel in enumerate(expected):
        assert not isinstance(found[k], Exception), found[k]
        assert_grams(found[k], kernel)
    assert_unchanged(before, model)


class Stateful(nn.Module):
    """A layer that notes what passes it, in one of several ways."""

    def __init__(self, way):
        super().__init__()
        self.f, self.way = nn.Linear(D, D), way
        self.calls, self.history, self.last = 0, [], None
        self.register_buffer("ema", torch.zeros(D))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, h):
        out = self.f(h)
        mean = out.detach().flatten(0, -2).mean(0)
        if self.way == "a buffer replaced":
            self.ema = 0.9 * self.ema + 0.1 * mean
        elif self.way == "a buffer changed in place":
            self.ema.mul_(0.9).add_(mean, alpha=0.1)
            self.count += 1
        elif self.way == "a counter":
            self.calls += 1
        elif self.way == "a list":
            self.history.append(mean)
        elif self.way == "an attribute with its graph":
            self.last = out
        return out


WAYS = [
    "a buffer replaced",
    "a buffer changed in place",
    "a counter",
    "a list",
    "an attribute with its graph",
]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_model_notes_in_its_forward_pass_is_as_before(way):
    make, x = made(lambda: layer(Stateful(way)), sequences)
    model = make()
    expected, before = grams(jacobian(make(), x)), fingerprint(model)
    right_or_refused(expected, ("'layer'",), model, x)
    assert_unchanged(before, model)
    model(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_instance_norm_that_updates_its_statistics_is_refused_or_left_as_it_was():
    def build():
        norm = nn.InstanceNorm1d(D, affine=True, track_running_stats=True)
        return tokens(lambda m, h: m.f(h.transpose(1, 2)).transpose(1, 2), f=norm)

    def training():
        model = make()
        model.f.train()
        return model

    make, x = made(build, sequences)
    model, expected = training(), grams(jacobian(training(), x))
    before = fingerprint(model)
    right_or_refused(expected, ("'f'", "eval()"), model, x)
    assert_unchanged(before, model)


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad])
def test_contexts_without_gradients_do_not_matter(context):
    make, x = made(lambda: layer(nn.Linear(D, D)), sequences)
    model, expected = make(), grams(jacobian(make(), x))
    with context():
        found = tangent_kernel(model, x)
        again = tangent_kernel(model, x.clone())  # made in inference mode
    assert_grams(found, expected)
    assert_grams(again, expected)
    model(x).sum().backward()


def test_autocast():
    make, x = made(lambda: layer(nn.Linear(D, D)), sequences)
    expected = grams(jacobian(make(), x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        right_or_refused(expected, ("autocast",), make().float(), x.float(), tolerance=0.1)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_autocast_on_any_device_is_refused(device):
    torch.set_autocast_enabled(device, True)
    try:
        with pytest.raises(ValueError, match=r"^autocast is on, .* enabled=False\)\.$"):
            tangent_kernel(nn.Linear(D, 2), vectors(3, 0).float())
    finally:
        torch.set_autocast_enabled(device, False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_models_in_half_precision(dtype):
    make, x = made(lambda: layer(nn.Linear(D, D)), sequences)
    expected = grams(jacobian(make(), x))
    words = (str(dtype).removeprefix("torch."), ("float32", ".float()"))
    right_or_refused(expected, words, make().to(dtype), x.to(dtype), tolerance=0.1)


def test_integer_and_empty_parameters():
    def use(m, h):
        return m.f(h)[..., m.order] + m.none.sum()

    def build():
        order = nn.Parameter(torch.arange(D).flip(0), requires_grad=False)
        return tokens(use, f=nn.Linear(D, D), order=order, none=nn.Parameter(torch.empty(0, 3)))

    make, x = made(build, sequences)
    expected = grams(jacobian(make(), x))
    try:
        found = tangent_kernel(make(), x)
    except ValueError as error:
        assert_says(error, ("'order'", "'none'"))
        return
    torch.testing.assert_close(found.total, sum(expected.values()))
    for name in ("first", "f", "head"):
        torch.testing.assert_close(found.layers[name], expected[name])


def normalised_by(*statistics):
    """Frozen running statistics, as parameters or as buffers."""

    def use(m, h):
        return F.batch_norm(m.f(h).transpose(1, 2), m.mean, m.var).transpose(1, 2)

    return tokens(use, f=nn.Linear(D, D), mean=statistics[0], var=statistics[1])


def test_a_parameter_where_there_is_no_gradient_is_refused_unless_it_is_left_out():
    def frozen(value):
        return nn.Parameter(value, requires_grad=False)

    make, x = made(lambda: normalised_by(frozen(torch.zeros(D)), frozen(torch.ones(D))), sequences)
    model = make()
    for measure in (tangent_kernel, Jacobian):
        with pytest.raises(ValueError, match="'running_mean'") as error:
            measure(model, x)
        assert_says(error.value, "buffer", "`only`")
    statistics = [nn.Buffer(value.detach()) for value in (model.mean, model.var)]
    other = normalised_by(*statistics).double()
    other(x)  # its last layer takes its size
    other.load_state_dict(model.state_dict())
    found = tangent_kernel(model, x, only="trainable")
    assert_grams(found, grams(jacobian(other, x)))


def test_recurrent_layers_where_pytorch_has_fixed_its_flags(monkeypatch):
    """As its `disable_global_flags` does, which its own test utilities call."""
    make, x = made(*LAYERS["LSTM, two layers"], n=3)
    expected = grams(jacobian(make(), x))
    flags = torch.backends.disable_global_flags.__globals__
    monkeypatch.setitem(flags, "__allow_nonbracketed_mutation_flag", False)
    assert_grams(tangent_kernel(make(), x), expected)


def test_a_scripted_module():
    make, x = made(lambda: nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, 3)))
    with pytest.raises(ValueError, match=r"by TorchScript, .*; give the module that it was made"):
        tangent_kernel(torch.jit.script(make()), x)


def test_data_parallel():
    make, x = made(lambda: layer(nn.Linear(D, D)), sequences)
    rows = {f"module.{name}": value for name, value in jacobian(make(), x).items()}
    right_or_refused(grams(rows), ("DataParallel",), nn.DataParallel(make()), x)


@pytest.mark.filterwarnings("ignore:Unable to resolve hostname")  # the loopback serves then
def test_distributed_data_parallel_is_refused_and_its_next_backward_pass_is_whole(tmp_path):
    make, x = made(lambda: layer(nn.Linear(D, D)), sequences)
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(make(), find_unused_parameters=True)
        loss = model(x).square().sum()
        with pytest.raises(ValueError, match=r"DistributedDataParallel.* give model.module itself"):
            tangent_kernel(model, x)
        loss.backward()
    finally:
        torch.distributed.destroy_process_group()
    alone = make()
    alone(x).square().sum().backward()
    for name, weight in alone.named_parameters():
        torch.testing.assert_close(model.module.get_parameter(name).grad, weight.grad)


def test_a_compiled_module_is_measured_as_the_module_it_wraps():
    make, x = made(lambda: layer(nn.Linear(D, D)), sequences)
    rows = {f"_orig_mod.{name}": value for name, value in jacobian(make(), x).items()}
    model = torch.compile(make(), backend="eager")
    right_or_refused(grams(rows), (("compile", "OptimizedModule"),), model, x)


def experts(m, h):
    """Each token goes to one of two layers."""
    chosen, out = h[..., 0] > 0, torch.zeros_like(h)
    out[chosen] = m.a(h[chosen])
    out[~chosen] = m.b(h[~chosen])
    return out


def branches(m, h):
    """Each sample takes one of two paths."""
    return torch.stack([m.a(sample) if sample.sum() > 0 else m.b(sample) for sample in h])


@pytest.mark.parametrize("function", [experts, branches])
def test_samples_that_take_different_paths(function):
    make, x = made(lambda: tokens(function, a=nn.Linear(D, D), b=nn.Linear(D, D)), sequences)
    right_or_refused(grams(jacobian(make(), x)), (("'a'", "'b'"), "path"), make(), x)


def checkpointed(reentrant):
    """A checkpoint around two layers, and a parameter outside."""
    return tokens(
        lambda m, h: checkpoint(m.f, h, use_reentrant=reentrant) * m.b,
        f=nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D)),
        b=parameter(D),
    )


@pytest.mark.parametrize("elsewhere", [False, True])
def test_reentrant_checkpoints(elsewhere):
    make, x = made(lambda: checkpointed(True), sequences)
    model, expected = make(), grams(jacobian(make(), x))
    options = {}
    if elsewhere:
        options["parameters"] = {name: p.detach().clone() for name, p in model.named_parameters()}
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(0.5)
    right_or_refused(expected, ("use_reentrant=False",), model, x, **options)


ELSEWHERE = {
    "checkpoint": (lambda: checkpointed(False), sequences),
    **{
        name: (LAYERS | USAGES)[name]
        for name in (
            "linear",
            "LSTM, two layers",
            "encoder",
            "tied embedding and readout",
            "weight norm",
            "old weight norm",
            "one module under two names",
            "batch norm",
            "list of parameters",
        )
    },
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_kernels_at_other_parameters(name):
    make, x = made(*ELSEWHERE[name], n=3)
    model, other = make(), make()
    values = {
        key: value + 0.3 * torch.sin(torch.arange(value.numel()).view(value.shape))
        for key, value in model.state_dict().items()
        if key in dict(model.named_parameters())
    }
    other.load_state_dict(values, strict=False)
    before = fingerprint(model)
    found = tangent_kernel(model, x, parameters=values)
    assert_grams(found, grams(jacobian(other, x)))
    assert_unchanged(before, model)


PRECISIONS = {
    "a product in double precision": lambda m, h: (h.double() @ m.w.double()).to(h),
    "a layer norm in double precision": lambda m, h: F.layer_norm(
        h.double(), (D,), m.w[0].double()
    ).to(h),
    "a product in half precision": lambda m, h: (h.bfloat16() @ m.w.bfloat16()).to(h),
    "a sparse weight": lambda m, h: torch.sparse.mm(m.w.to_sparse(), h.flatten(0, 1).T).T.reshape(
        h.shape
    ),
}


@pytest.mark.parametrize("name", PRECISIONS)
def test_other_precisions_inside_a_model_in_single_precision(name):
    make, x = made(lambda: tokens(PRECISIONS[name], w=parameter(D, D)), sequences)
    tolerance = 0.02 if "half" in name else 1e-4
    expected = grams(jacobian(make(), x))
    right_or_refused(expected, ("'w'",), make().float(), x.float(), tolerance=tolerance)


@pytest.mark.parametrize("strength", [1e-2, 1e-3])
def test_a_weak_dependence_on_other_samples_in_single_precision(strength):
    def use(m, h):
        return m.f(h) + strength * torch.sin(1e3 * h.detach().sum())

    make, x = made(lambda: tokens(use, f=nn.Linear(D, D)), sequences)
    expected = grams(jacobian(make(), x))
    right_or_refused(expected, ("sample",), make().float(), x.float(), tolerance=1e-3)
