import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients.capture_plan import plan_capture
from feature_alignment.kernels import tangent_trace as trace_module
from feature_alignment.kernels.average_features import copy_parameters
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.kernels.tangent_trace import (
    tangent_trace,
)
from feature_alignment.models.gpt import GPT
from feature_alignment.models.mlp import MLP
from feature_alignment.models.resnet import ResNet18
from feature_alignment.models.vgg import VGG
from toys import draw

DOUBLE = torch.float64


def stream(name="init"):
    return torch_stream(0, name)


def tokens(n=3, length=6):
    return torch.randint(5, (n, length), generator=stream("tokens"))


def jittered(model):
    """The model with every parameter moved off values like 0 and 1 that hide mistakes."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(
                parameter.shape, dtype=DOUBLE, generator=stream(f"{parameter.shape}")
            )
    return model.eval()


class Everything(nn.Module):
    """Every special case: two calls, sharing, groups, odd paddings, parameters used directly."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))
        self.plain = nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2))
        self.grouped = nn.Conv2d(4, 6, 3, groups=2, padding=1)
        self.mirror = nn.Conv2d(6, 6, 3, padding=1, padding_mode="reflect")
        self.same = nn.Conv2d(6, 6, 3, padding="same", bias=False)
        self.norm = nn.GroupNorm(2, 6)
        self.twice = nn.Linear(6, 6)
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
        self.second.weight = self.first.weight
        self.borrowed = nn.Linear(6, 6)
        self.bounded = nn.Linear(6, 6)
        parametrize.register_parametrization(self.bounded, "weight", nn.Tanh())
        self.unused = nn.Linear(3, 3)
        self.unused_norm = nn.LayerNorm(3)
        self.readout = nn.Linear(6, 3)

    def forward(self, x):
        h = torch.tanh(self.plain(x))
        h = torch.tanh(self.same(self.mirror(self.grouped(h))))
        h = self.norm(h).mean(3).transpose(1, 2) * self.scale  # (n, P, 6)
        h = torch.relu_(self.twice(torch.tanh(self.twice(h))))
        h = self.second(torch.tanh(self.first(h)))
        h = torch.tanh(self.borrowed(h)) @ self.borrowed.weight
        return self.readout(self.bounded(h).sum(1))


class Twice(nn.Module):
    """A convolution, wide enough not to form its gradients, and its norm, both called twice."""

    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv1d(12, 12, 3, padding=1), nn.GroupNorm(1, 12)
        self.readout = nn.Linear(12 * 4, 3)

    def forward(self, x):
        for _ in range(2):
            x = torch.tanh(self.norm(self.convolution(x)))
        return self.readout(x.flatten(1))


CASES = {
    "mlp": lambda: (MLP(4, [6, 5], 3, "erf", True, stream(), dtype=DOUBLE), draw(5, 4)),
    "everything": lambda: (Everything().double(), draw(4, 2, 7, 8)),
    "twice": lambda: (Twice().double(), draw(3, 12, 4)),
    "wide groups": lambda: (
        nn.Sequential(nn.Conv1d(8, 8, 3, groups=2), nn.Tanh(), nn.Flatten()).double(),
        draw(4, 8, 3),
    ),
    "gpt": lambda: (GPT(5, 2, 2, 4, 6, stream(), init="pytorch", dtype=DOUBLE), tokens()),
    "gpt, long and untied": lambda: (
        GPT(5, 1, 1, 2, 9, stream(), bias=True, outputs="last_position", tie_weights=False,
            init="pytorch", dtype=DOUBLE),
        tokens(2, 9),
    ),
    "vgg": lambda: (VGG(11, 1, 2, stream(), init="kaiming", dtype=DOUBLE), draw(2, 3, 32, 32)),
    "vgg, batch norm": lambda: (
        VGG(11, 1, 2, stream(), batch_norm=True, init="kaiming", head="two_hidden", dtype=DOUBLE),
        draw(2, 3, 32, 32),
    ),
    "resnet": lambda: (ResNet18(1, 2, stream(), dtype=DOUBLE), draw(2, 3, 32, 32)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_traces_are_those_of_the_explicit_kernel(case, explicit_kernel):
    model, x = CASES[case]()
    jittered(model)
    expected = {name: gram.trace().item() for name, gram in explicit_kernel(model, x).items()}
    assert tangent_trace(model, x) == pytest.approx(sum(expected.values()), rel=1e-10)
    first = {id(p): name for name, p in reversed(list(model.named_parameters()))}
    for layer, trace in expected.items():
        own = [name for name in first.values() if name.rpartition(".")[0] == layer]
        assert tangent_trace(model, x, only=own) == pytest.approx(trace, rel=1e-10)


def test_memory_changes_nothing_and_float32_little():
    model, x = CASES["everything"]()
    jittered(model)
    whole = tangent_trace(model, x)
    plan = plan_capture(model, x)
    for samples in (1, 3):
        budget = samples * (plan.held_bytes + plan.passing_bytes)
        assert tangent_trace(model, x, budget) == pytest.approx(whole, rel=1e-12)
    with pytest.raises(ValueError, match=f"need {plan.held_bytes + plan.passing_bytes}"):
        tangent_trace(model, x, plan.held_bytes + plan.passing_bytes - 1)
    assert tangent_trace(model.float(), x.float()) == pytest.approx(whole, rel=1e-5)


def test_as_many_samples_are_held_at_a_time_as_the_budget_allows(monkeypatch):
    capture, taken = trace_module.capture_gradients, []

    def noted(plan, samples, workspace):
        taken.append((len(samples), workspace / plan.passing_bytes))
        return capture(plan, samples, workspace)

    monkeypatch.setattr(trace_module, "capture_gradients", noted)
    model, x = nn.Linear(4, 5), torch.ones(7, 4)
    plan = plan_capture(model, x)
    tangent_trace(model, x, 3 * (plan.held_bytes + plan.passing_bytes))
    assert taken == [(3, 3), (3, 3), (1, 3)]


@pytest.mark.parametrize("scale", [1e25, 1e-25])
@pytest.mark.parametrize("width", [2, 40])  # gradients formed, and by pairs of positions
def test_squares_beyond_single_precision_count(scale, width):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, width, bias=False), nn.Flatten())
    x = torch.randn(3, 2, width)
    expected = scale**2 * tangent_trace(model, x)
    assert tangent_trace(model, scale * x) == pytest.approx(expected, rel=1e-5, abs=0)


def test_a_plan_serves_while_parameters_change_in_place():
    model, x = CASES["mlp"]()
    plan = plan_capture(model, x)
    jittered(model)
    assert tangent_trace(model, x, plan=plan) == tangent_trace(model, x)
    for x2 in (None, x[:2]):
        found, expected = (tangent_kernel(model, x, x2, plan=p).total for p in (plan, None))
        assert torch.equal(found, expected)


def test_a_plan_that_does_not_fit_is_refused():
    (model, x), (other, _) = CASES["mlp"](), CASES["mlp"]()
    plan = plan_capture(model, x)
    with pytest.raises(ValueError, match="plan: made for another model"):
        tangent_trace(other, x, plan=plan)
    with pytest.raises(ValueError, match="only: the plan was made with its own"):
        tangent_trace(model, x, plan=plan, only=["0"])
    with pytest.raises(ValueError, match="parameters, only: the plan was made with its own"):
        tangent_kernel(model, x, parameters=copy_parameters(model), only=["0"], plan=plan)
    name, weight = next(iter(model.named_parameters()))
    owner, _, own = name.rpartition(".")
    setattr(model.get_submodule(owner), own, nn.Parameter(2 * weight.detach()))
    with pytest.raises(ValueError, match="or parameters have been replaced"):
        tangent_trace(model, x, plan=plan)


def test_a_plan_serves_where_the_forward_pass_begins_to_change_parameters():
    torch.manual_seed(0)
    table = nn.Embedding(7, 4, max_norm=1.0)
    nn.init.constant_(table.weight, 0.1)  # shorter than what the forward pass shortens
    model, x = (
        nn.Sequential(table, nn.Flatten(), nn.Tanh(), nn.Linear(12, 2)).double(),
        tokens(2, 3),
    )
    plan = plan_capture(model, x)
    with torch.no_grad():
        table.weight.copy_(torch.randn(7, 4))
    before = table.weight.detach().clone()
    found = tangent_trace(model, x, plan=plan)
    assert torch.equal(table.weight, before)
    assert found == pytest.approx(tangent_trace(model, x), rel=1e-12)


class HookedWeight(nn.Linear):
    """A weight made from another parameter before each call, as old hooks on layers do."""

    def __init__(self):
        super().__init__(4, 3)
        self.exponent = nn.Parameter(self.weight.detach().clone())
        del self.weight
        self.weight = self.exponent.exp()
        self.register_forward_pre_hook(HookedWeight._remake)

    def _remake(self, arguments):
        self.weight = self.exponent.exp()


def test_weights_made_by_hooks_are_measured_by_their_parameters(explicit_kernel):
    layer = HookedWeight().double()
    layer.__class__ = nn.Linear  # what the type alone would say
    x = draw(5, 4)
    expected = sum(explicit_kernel(layer, x).values()).trace().item()
    assert tangent_trace(layer, x) == pytest.approx(expected, rel=1e-10)


def test_frozen_parameters_count_and_the_model_is_left_as_it_was():
    model, x = CASES["everything"]()
    whole = tangent_trace(model, x)
    assert tangent_trace(model.requires_grad_(False), x) == whole
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout()), "'1' .Dropout. is in training mode"),
        (
            nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)).eval(),
            "'1' .BatchNorm1d. has no running statistics",
        ),
        (nn.Sequential(nn.Linear(4, 4), nn.Flatten(0)), r"shape \(12,\) for 3 samples"),
        (nn.ReLU(), "the model has no parameters"),
    ],
)
def test_models_without_a_kernel_are_refused(model, message):
    with pytest.raises(ValueError, match=message):
        tangent_trace(model, torch.ones(3, 4))


def test_sizes_below_one_are_refused():
    with pytest.raises(ValueError, match="memory_budget: 0; give a number of bytes"):
        tangent_trace(nn.Linear(2, 1), torch.ones(3, 2), 0)
    with pytest.raises(ValueError, match=r"memory_budget: 1 bytes; the gradients of one sample ne"):
        tangent_trace(nn.Linear(2, 1), torch.ones(3, 2), 1)


@pytest.mark.parametrize(("most", "fits"), [(10**5, True), (1, False)])
def test_by_default_a_sample_may_take_more_than_the_usual_share(monkeypatch, most, fits):
    model, x = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)), torch.ones(3, 4)
    expected = tangent_trace(model, x)
    monkeypatch.setattr(trace_module, "_CHUNK", 1)
    monkeypatch.setattr(trace_module, "DEFAULT_BUDGET", most)
    if fits:
        assert tangent_trace(model, x) == pytest.approx(expected, rel=1e-6)
    else:
        with pytest.raises(ValueError, match="memory_budget: 1 bytes"):
            tangent_trace(model, x)
