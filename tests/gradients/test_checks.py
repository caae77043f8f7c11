"""What is checked of models: outputs and gradients that are those of each sample, and finite."""

import itertools
import math

import pytest
import torch
from torch import nn

import feature_alignment as fa
from feature_alignment.determinism import torch_stream
from feature_alignment.gradients import checks
from feature_alignment.gradients.capture_plan import plan_capture
from feature_alignment.gradients.model_function import ModelFunction
from feature_alignment.gradients.parameter_values import evaluation_point
from feature_alignment.gradients.samples import as_samples
from feature_alignment.layer_features.preactivation_gradients import preactivation_gradients
from feature_alignment.training.errors import GradientsNotFiniteError, TrainingDivergedError
from toys import Toy, linear


def test_small_differences_of_large_terms_may_differ_by_the_terms_rounding():
    """Also where each layer's factor is one of the outputs, which says nothing of their terms."""
    torch.manual_seed(0)  # the signs of a few could by chance cancel
    x = torch.randn(2, 8, dtype=torch.float64)
    model = nn.Sequential(nn.Linear(8, 64, bias=False), nn.ReLU(), nn.Linear(64, 1, bias=False))
    model.double()
    with torch.no_grad():
        hidden = model[:2](x)
        weight = 1000 * torch.randn(64, 1, dtype=torch.float64)
        weight -= torch.linalg.lstsq(hidden, hidden @ weight, driver="gelsd").solution
        model[2].weight.copy_(weight.T)
        f, terms = model(x), (hidden * weight.T).norm(dim=1).max()
    assert f.abs().max() < 1e-9 * terms
    relative = 1e-4
    change = checks._change(
        ModelFunction(model), evaluation_point(model), as_samples(x), f, relative
    )
    assert 0.1 < change / (relative / 100 * terms) < 10
    negative = ModelFunction(Toy(lambda m, x: -m.model(x), model=model))
    values = evaluation_point(negative.model)
    assert checks._change(negative, values, as_samples(x), -f, relative) == change


@pytest.mark.parametrize("stateful", [False, True])  # so that a sample alone seems to depend, too
@pytest.mark.parametrize(
    ("one", "other"), [(6, 7), (6, 10), (15, 0)]
)  # in the same row, or column, of a square of samples, or at its ends
def test_any_two_samples_are_run_apart(one, other, stateful):
    def forward(m, x):
        m.calls += 1
        depends = (x[:, :1] == 8) & (x[:, 0] == 9).any()
        return m.layer(x) + depends * torch.arange(2) + (stateful and m.calls == 2)

    x, model = torch.zeros(16, 3).double(), Toy(forward, layer=linear())
    model.calls = 0
    x[one, 0], x[other, 0] = 8, 9
    with pytest.raises(ValueError, match=f"outputs of sample {one} depend on the other samples"):
        fa.tangent_kernel(model, x)


@pytest.mark.parametrize("n", range(1, 18))
def test_parts_of_a_batch_leave_some_alone_and_put_any_two_apart(n):
    parts = [set(part) for part in checks._companies(n)]
    alone = {i for part in checks._companies(n) if len(part) == 1 for i in part}
    assert {0, n - 1} <= alone
    assert sum(len(part) == 1 for part in checks._companies(n)) == min(n, 4) == len(alone)
    assert max(map(len, parts)) <= max(1, math.ceil(n**0.5))
    assert {i for part in checks._companies(n) if len(part) > 1 for i in part} == set(range(n))
    for i, j in itertools.permutations(range(n), 2):
        assert any(i in part and j not in part for part in parts)


@pytest.mark.parametrize(
    ("own", "within", "outputs", "allowed"),
    [
        (torch.float64, torch.float64, torch.float64, 1e-9),
        (torch.float32, torch.float32, torch.float32, 1e-4),
        (torch.float64, torch.float64, torch.float32, 1e-4),
        (torch.float32, torch.float64, torch.float64, 1e-4),
        (torch.float64, torch.float32, torch.float64, 1e-4),
        (torch.float32, torch.bfloat16, torch.float32, 1e-3),
        (torch.bfloat16, torch.bfloat16, torch.float32, 1e-3),
    ],
)
@pytest.mark.parametrize("times", [0.5, -0.5, 2, -2])
def test_outputs_may_differ_by_what_some_precision_rounds(own, within, outputs, allowed, times):
    """All outputs are 1 but for what batches of more than four samples add, and far smaller noise.

    The integers in the model's parameters have no precision.
    """
    calls = itertools.count()

    def forward(m, x):
        assert m.p.dtype == own
        ones = (x[:, m.first].to(within) * m.p.to(within)).to(outputs)
        noise = 1e-12 * (-1) ** next(calls)
        return (ones + times * allowed * (len(x) > 4) + noise).squeeze()

    model = Toy(forward)
    model.p = nn.Parameter(torch.ones(1, dtype=own))
    model.first = nn.Parameter(torch.tensor([0]), requires_grad=False)
    arguments = ModelFunction(model), evaluation_point(model), as_samples(torch.ones(8, 1))
    if abs(times) < 1:
        checks.checked_outputs(*arguments)
        return
    with pytest.raises(ValueError, match="outputs of sample 0 depend on the other samples"):
        checks.checked_outputs(*arguments)


@pytest.mark.parametrize(
    "function",
    [
        lambda f: f[:, : 2 + (len(f) > 2)],
        lambda f: f[:, : 3 - (len(f) > 2)],
        lambda f: f + torch.tensor(0.0) / (len(f) - 1),  # not a number for a sample alone
    ],
)
def test_outputs_that_are_others_for_a_sample_alone_are_refused(function):
    model = Toy(lambda m, x: function(m.layer(x)), layer=linear(3, 4))
    with pytest.raises(ValueError, match="outputs of sample 0 depend on the other samples"):
        fa.tangent_kernel(model, torch.ones(8, 3).double())


@pytest.mark.parametrize(
    "function", [lambda f, call: f - call, lambda f, call: f[:, : 2 + call % 2]]
)
def test_outputs_that_depend_on_a_count_of_calls_are_refused(function):
    calls = itertools.count()
    model = Toy(lambda m, x: function(m.layer(x), next(calls)), layer=linear(3, 4))
    with pytest.raises(ValueError, match="outputs differ between calls on the same samples"):
        fa.tangent_kernel(model, torch.ones(8, 3).double())


def test_the_first_sample_whose_outputs_are_not_finite_is_named():
    x = torch.arange(12.0).view(4, 3).double()
    model = Toy(lambda m, x: torch.cat([m.layer(x), 1 / (x[:, :1] - 6)], 1), layer=linear())
    with pytest.raises(ValueError, match="outputs of sample 2 are not finite"):
        fa.tangent_kernel(model, x)


def test_gradients_too_large_to_be_checked_in_their_precision_are_refused():
    model, x = Toy(lambda m, x: 1e30 * m.layer(x), layer=nn.Linear(3, 2)), torch.ones(4, 3)
    says = "the gradients by parameter 'layer.bias' are so large .* measure the model in float64"
    with pytest.raises(GradientsNotFiniteError, match=says):
        fa.tangent_features(model, x)
    assert fa.tangent_features(model.double(), x.double()).isfinite().all()


def test_outputs_of_zero_have_a_kernel():
    model, x = nn.Linear(3, 1, bias=False).double(), torch.randn(4, 3, dtype=torch.float64)
    with torch.no_grad():
        model.weight.zero_()
    torch.testing.assert_close(fa.tangent_kernel(model, x).total, x @ x.T)


def test_gradients_of_which_only_the_sum_is_infinite_are_finite():
    checks.refuse_non_finite(torch.full((4,), 2e38), "parameter 'p'")


class Norm(nn.Module):
    """The norm of a linear layer's outputs, which has no derivative at zero."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 4, bias=False), nn.Linear(1, 1)

    def forward(self, x):
        return self.outer(self.inner(x).square().sum(1, keepdim=True).sqrt())


class Root(nn.Module):
    """The root of a bilinear form, whose gradients have no rule."""

    def __init__(self):
        super().__init__()
        self.pair = nn.Bilinear(3, 3, 2, bias=False)

    def forward(self, x):
        return self.pair(x, x).abs().sqrt()


MEASUREMENTS = {
    "kernel": fa.tangent_kernel,
    "trace": fa.tangent_trace,
    "features": fa.tangent_features,
    "average features": lambda m, x: fa.average_tangent_features(
        m, fa.copy_parameters(m), fa.copy_parameters(m), x
    ),
    "covariances": fa.features,
    "preactivations": preactivation_gradients,
    "Jacobian": fa.Jacobian,
}


@pytest.mark.parametrize("place", [0, 7])  # among the samples that models are tried on, or not
@pytest.mark.parametrize("measure", MEASUREMENTS.values(), ids=MEASUREMENTS)
def test_gradients_that_are_not_finite_where_outputs_are_are_refused(measure, place):
    x = torch.randn(20, 3, generator=torch_stream(0, "data"))
    measure(Norm(), x)
    x[place] = 0
    with pytest.raises(TrainingDivergedError, match=r"of some samples by .* are not finite"):
        measure(Norm(), x)


def test_gradients_without_a_rule_that_are_not_finite_are_refused():
    model = nn.Sequential(Root(), nn.Flatten())
    x = torch.randn(20, 3, generator=torch_stream(0, "data"))
    assert plan_capture(model, x).generic
    x[7] = 0
    with pytest.raises(TrainingDivergedError, match=r"'0\.pair\.weight' are not finite"):
        fa.tangent_kernel(model, x)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_plan_does_not_hide_outputs_that_are_not_finite(value):
    model, x = nn.Linear(3, 2), torch.randn(20, 3, generator=torch_stream(0, "data"))
    plan = plan_capture(model, x)
    x[7, 0] = value
    for measure in (fa.tangent_kernel, fa.tangent_trace):
        with pytest.raises(TrainingDivergedError, match="outputs of some samples are not finite"):
            measure(model, x, plan=plan)


def test_a_monitor_refuses_such_gradients_at_the_start_and_notes_them_later():
    x = torch.randn(4, 3, generator=torch_stream(0, "data"))
    with pytest.raises(ValueError, match="are not finite, though the outputs are"):
        fa.Monitor(Norm(), 0 * x, measure="kernel")
    model = Norm()
    monitor = fa.Monitor(model, x, measure="kernel")
    with torch.no_grad():
        model.inner.weight.zero_()
    monitor.step()
    ((step, reason),) = monitor.problems
    assert step == 1
    assert "are not finite" in reason


def test_a_kernel_beyond_its_precision_is_told():
    model = nn.Linear(3, 1)
    kernel = fa.tangent_kernel(model, 1e25 * torch.ones(2, 3))
    with pytest.raises(ValueError, match="the kernel holds values that are not finite"):
        kernel.effective_rank()


class Masked(nn.Module):
    """A layer's outputs times a table that all samples share."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3).double()

    def forward(self, x, table):
        return self.layer(x) @ table


def test_inputs_that_samples_share_are_named_to_every_measurement():
    x = torch.randn(5, 3, dtype=torch.float64, generator=torch_stream(0, "data"))
    pair, options = (x, torch.eye(3, dtype=torch.float64)), {"inputs": [0]}
    model = Masked()
    plain, start = model.layer, fa.copy_parameters(model)
    found = fa.tangent_kernel(model, pair, **options).total
    torch.testing.assert_close(found, fa.tangent_kernel(plain, x).total)
    torch.testing.assert_close(
        fa.tangent_features(model, pair, **options), fa.tangent_features(plain, x)
    )
    torch.testing.assert_close(fa.tangent_kernel(model, pair, inputs=0).total, found)
    assert fa.tangent_trace(model, pair, **options) == pytest.approx(float(found.trace()))
    adapted = fa.adapted_kernel(model, start, start, pair, points=2, **options).total
    torch.testing.assert_close(adapted, found)
    probe = fa.TangentKernelProbe({"train": fa.Batch(pair, torch.arange(5) % 3)}, **options)
    assert probe(0, model).rows


def test_a_model_without_values_is_told_as_such():
    with pytest.raises(ValueError, match=r"parameter 'weight' is on the device 'meta', .*; load"):
        fa.tangent_kernel(nn.Linear(2, 1, device="meta"), torch.ones(3, 2))
    with pytest.raises(ValueError, match=r"parameter 'weight' is on the device 'meta', .*; load"):
        fa.copy_parameters(nn.Linear(2, 1, device="meta"))


@pytest.mark.parametrize(
    "measure",
    [
        *(fa.tangent_kernel, fa.tangent_trace, fa.tangent_features, fa.Jacobian, fa.features),
        lambda model, x: fa.fisher_rao_norm(model, x, torch.zeros(3)),
        lambda model, x: fa.average_tangent_features(model, {}, {}, x),
    ],
)
def test_what_is_no_module_is_told_as_such(measure):
    with pytest.raises(ValueError, match=r"^model: a builtin.*; give a torch\.nn\.Module"):
        measure(torch.tanh, torch.ones(3, 2))


def test_averages_are_taken_in_inference_mode_too():
    model, x = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), torch.ones(3, 2)
    start = fa.copy_parameters(model)
    end = {name: value + 1 for name, value in start.items()}
    expected = fa.adapted_kernel(model, start, end, x, points=3).total
    with torch.inference_mode():
        end = {name: value + 1 for name, value in start.items()}
        found = fa.adapted_kernel(model, start, end, 1 * x, points=3)
    assert torch.equal(found.total, expected)
    assert not any(gram.is_inference() for gram in found.layers.values())


@pytest.mark.parametrize(
    ("model", "x", "says"),
    [
        (nn.Conv2d(1, 2, 2).double(), torch.ones(3, 1, 2, 2), r"give x\.to\(torch\.float64\)"),
        (nn.Conv2d(1, 2, 2), torch.ones(3, 1, 2, 2, dtype=torch.uint8), r"x: torch\.uint8, where"),
        (nn.Linear(2, 1), torch.ones(3, 2, dtype=torch.int64), r"give x\.to\(torch\.float32\)"),
        (
            nn.Linear(2, 1).bfloat16(),
            torch.ones(3, 2),
            r"bfloat16; measure model\.float\(\)",
        ),
        (
            Toy(lambda m, x: torch.einsum("nd,kd->nk", x, m.layer.weight), layer=linear()),
            torch.ones(3, 3),
            r"give x\.to\(torch\.float64\)",
        ),
    ],
)
def test_inputs_of_another_type_are_told_with_the_cure(model, x, says):
    model = nn.Sequential(model, nn.Flatten())
    for measure in (fa.tangent_kernel, fa.features):
        with pytest.raises(ValueError, match=says):
            measure(model, x)


def kept(m):
    if m.table is None:
        m.table = torch.exp(m.w)
    return m.table


@pytest.mark.parametrize(
    ("forward", "stale", "error", "says"),
    [
        (lambda m, x: m.layer(x) * kept(m), torch.ones(5), RuntimeError, "must match the size"),
        (
            lambda m, x: torch.cat([m.layer(x), kept(m).expand(len(x), -1)], 1),
            torch.ones(5),
            ValueError,
            "since modules keep 'table' of earlier calls",
        ),
        (
            lambda m, x: m.layer(x) * kept(m),
            torch.tensor([1.0, 1, 2]),
            ValueError,
            "since modules keep 'table' of earlier calls",
        ),
    ],
)
def test_what_is_kept_from_an_earlier_call_and_does_not_fit_is_told(forward, stale, error, says):
    model, x = Toy(forward, layer=linear(3, 3)), torch.ones(4, 3).double()
    model.w, model.table = nn.Parameter(torch.zeros(3).double()), None
    model.order = nn.Parameter(torch.arange(3), requires_grad=False)
    assert fa.tangent_kernel(model, x).total.any()
    model.table = stale.double()
    with pytest.raises(error, match=says):
        fa.tangent_kernel(model, x)


class TokensAndNumbers(nn.Module):
    """A table's rows for tokens, a layer's outputs for numbers, and a parameter of integers."""

    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(5, 2).double(), linear(3, 2)
        self.order = nn.Parameter(torch.tensor([1, 0]), requires_grad=False)

    def forward(self, tokens, x, scale=None):
        return (self.table(tokens) + self.layer(x))[:, self.order] * (1 if scale is None else scale)


def test_numbers_of_another_precision_are_told_beside_tokens_and_what_samples_share():
    tokens, x, scale = torch.tensor([0, 1, 4]), torch.ones(3, 3), torch.ones(2).double()
    for data, options in (((tokens, x), {}), ((tokens, x, scale), {"inputs": [0, 1]})):
        with pytest.raises(ValueError, match=r"x: torch\.float32, .* give x\.to\(torch\.float64\)"):
            fa.tangent_kernel(TokensAndNumbers(), data, **options)


def in_two_precisions(m, x):
    return m.layer(x).double() + m.other(x.double())


@pytest.mark.parametrize(
    ("model", "x", "says"),
    [
        (Toy(lambda m, x: m.layer(x.double()), layer=linear()), torch.ones(4, 5), "multiplied"),
        (Toy(lambda m, x: m.layer(x.double()), layer=nn.Linear(3, 2)), torch.ones(4, 3), "dtype"),
        (
            Toy(in_two_precisions, layer=nn.Linear(3, 2), other=linear()),
            torch.ones(4, 3).bfloat16(),
            "dtype",
        ),
        (Masked(), (torch.ones(3, 3).double(), torch.ones(3, 3)), "dtype"),
        (TokensAndNumbers(), (torch.ones(3).long(), torch.ones(3, 4).double(), 2.0), "multiplied"),
        (
            Toy(lambda m, x: x.new_ones(1, device="none"), layer=linear()),
            torch.ones(4, 3),
            "device",
        ),
    ],
)
def test_errors_that_another_type_of_inputs_would_not_cure_are_the_models_own(model, x, says):
    with pytest.raises(RuntimeError, match=says):
        fa.tangent_kernel(model, x)


MEASURES = (fa.tangent_kernel, fa.tangent_trace, fa.Jacobian, fa.features)


def scaled_in_place(m, x):
    hidden = torch.sigmoid(m.layer(x))
    outputs = m.last(hidden)
    hidden.mul_(2)
    return outputs


@pytest.mark.parametrize("measure", MEASURES)
def test_what_the_model_overwrites_but_its_gradients_need_is_told(measure):
    model = Toy(scaled_in_place, layer=linear(3, 2), last=linear(2, 2))
    with pytest.raises(ValueError, match=r"overwrites a tensor that its gradients need; write x ="):
        measure(model, torch.ones(4, 3, dtype=torch.float64))


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("n", [5, 20])
def test_a_model_that_takes_only_so_many_samples_is_told_as_such(measure, n):
    model, x = Toy(lambda m, x: m.layer(x).view(n, 2), layer=linear(3, 2)), torch.ones(n, 3)
    with pytest.raises(ValueError, match=rf"runs on {n} samples, but not on 1 \(shape '\[{n}, 2"):
        measure(model, x.double())
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):  # the model's own
        measure(model, torch.ones(n, 4).double())


def test_an_exported_program_needs_a_dynamic_batch_axis():
    layer, x = nn.Linear(3, 2), torch.ones(9, 3)
    fixed = torch.export.export(layer, (x,)).module()
    for measure in (fa.tangent_kernel, fa.features):
        with pytest.raises(
            ValueError, match=r"runs on 9 samples, but not on 1 .* a dynamic batch axis"
        ):
            measure(fixed, x)


@pytest.mark.parametrize(
    ("function", "other"),
    [
        (lambda m, x: m.layer(x).argmax(1, keepdim=True), r"int64; .* such as their logits"),
        (lambda m, x: 1j * m.layer(x), r"complex128; .* their real parts \(torch\.view_as_real\)"),
    ],
)
def test_outputs_that_are_no_real_numbers_are_told_with_the_cure(function, other):
    with pytest.raises(ValueError, match=other):
        fa.tangent_kernel(Toy(function, layer=linear(3, 2)), torch.ones(4, 3).double())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("measure", [fa.tangent_kernel, fa.tangent_trace, fa.tangent_features])
def test_inputs_that_are_not_finite_are_told_though_the_outputs_are(measure, value):
    """Of a sample that is masked, gradients of zero times its inputs are no numbers."""

    def masked(m, x):
        return m.last(torch.where(x.isfinite().all(1, keepdim=True), m.layer(x), 0.0))

    x = torch.randn(12, 64, generator=torch_stream(0, "x"), dtype=torch.float64)
    x[5, 0] = value  # beyond the samples that a plan is made with
    model = Toy(masked, layer=linear(64, 64), last=linear(64, 1))
    with pytest.raises(TrainingDivergedError, match=r"by parameter 'layer\.weight' are not finite"):
        measure(model, x)
