"""What is checked of models: outputs and gradients that are those of each sample, and finite."""

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
from feature_alignment.training.errors import TrainingDivergedError
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


@pytest.mark.parametrize("other", [7, 10])  # in the same row, or column, of a square of samples
def test_any_two_samples_are_run_apart(other):
    def forward(m, x):
        return m.layer(x) + ((x[:, :1] == 8) & (x[:, 0] == 9).any())

    x = torch.zeros(16, 3).double()
    x[6, 0], x[other, 0] = 8, 9
    with pytest.raises(ValueError, match="outputs of sample 6 depend on the other samples"):
        fa.tangent_kernel(Toy(forward, layer=linear()), x)


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


def test_a_plan_does_not_hide_outputs_that_are_not_finite():
    model, x = nn.Linear(3, 2), torch.randn(20, 3, generator=torch_stream(0, "data"))
    plan = plan_capture(model, x)
    x[7] = torch.nan
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
    ],
)
def test_inputs_of_another_type_are_told_with_the_cure(model, x, says):
    model = nn.Sequential(model, nn.Flatten())
    for measure in (fa.tangent_kernel, fa.features):
        with pytest.raises(ValueError, match=says):
            measure(model, x)


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
    layer, x = nn.Linear(3, 2), torch.ones(5, 3)
    fixed = torch.export.export(layer, (x,)).module()
    with pytest.raises(
        ValueError, match=r"runs on 5 samples, but not on 1 .* a dynamic batch axis"
    ):
        fa.tangent_kernel(fixed, x)


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
