import copy
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_alignment.kernels.average_features import copy_parameters
from feature_alignment.models.mlp import MLP
from feature_alignment.training.errors import TrainingDivergedError
from feature_alignment.training.speed_limited import (
    SpeedLimited,
    adaptive_speeds,
    groups_by_layer,
)


def parameter(values):
    return torch.nn.Parameter(torch.tensor(values, dtype=torch.float64))


def with_gradient(values, gradient, dtype=torch.float64):
    w = torch.nn.Parameter(torch.tensor(values, dtype=dtype))
    w.grad = torch.tensor(gradient, dtype=dtype)
    return w


@settings(deadline=None, derandomize=True)
@given(size=st.floats(1e-8, 1e8), speed=st.floats(1e-3, 1e3))
def test_a_layer_moves_by_its_speed_whatever_its_gradients_size(size, speed):
    w = with_gradient([0.0, 0.0], [0.6 * size, 0.8 * size])
    SpeedLimited([{"params": [w], "speed": speed}], lr=0.1).step()
    assert w.tolist() == pytest.approx([-0.06 * speed, -0.08 * speed])


def test_additive_relaxation_follows_its_formula_and_slows_down_near_a_minimum():
    large, small = with_gradient([0.0], [5.0]), with_gradient([0.0], [1e-3])
    SpeedLimited([{"params": [large]}, {"params": [small]}], lr=0.2, speed=3.0, epsilon=0.1).step()
    assert large.item() == pytest.approx(-0.2 * 3 * 5 / 5.1)
    assert small.item() == pytest.approx(-0.2 * 3 * 1e-3 / 0.101)


def test_multiplicative_relaxation_only_multiplies_the_speed():
    w, v = with_gradient([1.0, 2.0], [3.0, -4.0]), with_gradient([1.0, 2.0], [3.0, -4.0])
    SpeedLimited([w], lr=0.05, epsilon=0.01, relaxation="multiplicative").step()
    SpeedLimited([v], lr=0.05, speed=100.0).step()
    assert w.tolist() == pytest.approx(v.tolist())


def test_the_norm_is_that_of_the_whole_layer():
    weight, bias = with_gradient([0.0], [3.0]), with_gradient([0.0], [4.0])
    SpeedLimited([{"params": [weight, bias]}], lr=1.0).step()
    assert (weight.item(), bias.item()) == pytest.approx((-0.6, -0.8))


@pytest.mark.parametrize(
    ("dtype", "entry"),
    [
        (torch.float16, 6e4),
        (torch.float16, 6e-8),
        (torch.bfloat16, 1e30),
        (torch.bfloat16, 1e-30),
        (torch.float32, 3e38),
        (torch.float32, 1e-45),
        (torch.float64, 1e300),
        (torch.float64, 1e-320),
    ],
)
def test_no_size_that_a_gradient_can_have_overflows_or_vanishes(dtype, entry):
    w = with_gradient([0.0] * 100, [entry] * 100, dtype)
    SpeedLimited([w], lr=0.5).step()
    assert w.tolist() == pytest.approx([-0.05] * 100, rel=torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_steps_in_half_precision_are_rounded_once(dtype):
    gradient = torch.randn(500, generator=torch.Generator().manual_seed(0)).to(dtype)
    w = torch.nn.Parameter(torch.zeros(500, dtype=dtype))
    w.grad = gradient.clone()
    SpeedLimited([w], lr=70.0, epsilon=0.3).step()
    exact = -70 * gradient.double() / (gradient.double().norm() + 0.3)
    error = (w.detach().double() / exact - 1).abs().max()
    assert error < 0.51 * torch.finfo(dtype).eps


def test_a_vanished_gradient_makes_no_step_and_is_told_once(recwarn):
    zero, unused = with_gradient([1.0], [1e-9], torch.float16), parameter([1.0])
    still, moving = with_gradient([1.0], [0.0]), with_gradient([1.0], [1.0])
    optimizer = SpeedLimited(
        [
            {"params": [zero], "layer": "first"},
            {"params": [unused]},
            {"params": [still], "speed": 0.0},
            {"params": [moving]},
        ],
        lr=1.0,
    )
    warnings.simplefilter("always")  # the default tells the same only once
    optimizer.step()
    for _ in range(2):
        optimizer.step()
        optimizer = copy.deepcopy(optimizer)  # of which the parameters have no gradients
    (warning,) = recwarn
    assert "the gradient of layer 'first' is zero" in str(warning.message)
    assert (zero.item(), unused.item(), still.item(), moving.item()) == (1.0, 1.0, 1.0, -1.0)


@pytest.mark.parametrize("entry", [float("nan"), float("inf"), float("-inf")])
def test_a_gradient_that_is_not_finite_is_an_error_and_moves_nothing(entry):
    good, bad = with_gradient([1.0], [1.0]), with_gradient([1.0, 1.0], [1.0, entry])
    groups = [{"params": [w]} for w in (good, parameter([1.0]), bad)]
    with pytest.raises(TrainingDivergedError, match="the gradient of layer 2 is not finite"):
        SpeedLimited(groups, lr=1.0).step()
    assert good.item() == 1.0
    assert bad.tolist() == [1.0, 1.0]


def test_a_parameter_without_entries_has_no_part_in_a_layer():
    empty, w = with_gradient([], []), with_gradient([0.0], [2.0])
    SpeedLimited([{"params": [empty, w]}, {"params": [with_gradient([], [])]}], lr=0.5).step()
    assert w.item() == -0.5


def test_new_speeds_count_from_the_next_step():
    first, second = with_gradient([0.0], [2.0]), with_gradient([0.0], [-2.0])
    optimizer = SpeedLimited([{"params": [first]}, {"params": [second]}], lr=0.1)
    optimizer.step()
    optimizer.set_speeds([10.0, 0.0])
    optimizer.step()
    assert (first.item(), second.item()) == pytest.approx((-1.1, 0.1))


def test_one_speed_on_one_layer_is_normalised_gradient_descent_to_the_minimum():
    w = parameter([3.0, -2.0])
    optimizer = SpeedLimited([w], lr=0.1, epsilon=0.5)
    for _ in range(200):
        optimizer.zero_grad()
        (w**2).sum().backward()
        optimizer.step()
    assert w.abs().max() < 1e-6


def test_a_closure_is_evaluated_with_gradients():
    w = parameter([1.0])
    optimizer = SpeedLimited([w], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = (w**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 1.0
    assert w.item() == pytest.approx(0.5)


def test_every_layer_of_a_network_moves_at_its_own_speed():
    model = MLP(3, [4, 4], 1, "relu", False, torch.Generator().manual_seed(0), dtype=torch.float64)
    before = copy_parameters(model)
    speeds = {"layers.0": 5.0, "layers.1": 0.2}
    optimizer = SpeedLimited(groups_by_layer(model, speeds), lr=0.01, speed=0.3)
    model(torch.ones(2, 3, dtype=torch.float64)).sum().backward()
    optimizer.step()
    after = copy_parameters(model)
    moved = [float((after[name] - before[name]).norm()) for name in before]
    assert moved == pytest.approx([0.05, 0.002, 0.003])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "lr: 0.0 is out of range"),
        ({"lr": "0.1"}, "lr: '0.1' is not a number"),
        ({"lr": 0.1, "speed": None}, "speed: None is not a number"),
        ({"lr": 0.1, "speed": -1.0}, "speed: -1.0"),
        ({"lr": 0.1, "epsilon": -1.0}, "epsilon: -1.0"),
        ({"lr": 0.1, "epsilon": float("inf")}, "epsilon: inf"),
        ({"lr": 0.1, "relaxation": "multiplicative"}, "epsilon: 0.0"),
        ({"lr": 0.1, "relaxation": "aditive"}, "'aditive' is unknown; did you mean 'add"),
    ],
)
def test_wrong_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        SpeedLimited([parameter([1.0])], **options)


def test_wrong_settings_of_a_layer_added_later_are_named_and_it_is_not_added():
    optimizer = SpeedLimited([parameter([1.0])], lr=0.1)
    with pytest.raises(ValueError, match=r"speed: -1.0 is out of range; it must be finite"):
        optimizer.add_param_group({"params": [parameter([1.0])], "speed": -1.0})
    with pytest.raises(ValueError, match="lr: inf is out of range"):
        optimizer.add_param_group({"params": [parameter([1.0])], "lr": float("inf")})
    assert len(optimizer.param_groups) == 1


def test_speeds_are_set_all_or_none():
    optimizer = SpeedLimited([{"params": [parameter([1.0])]}, {"params": [parameter([1.0])]}], 0.1)
    with pytest.raises(ValueError, match="1 for 2 layers"):
        optimizer.set_speeds([1.0])
    with pytest.raises(ValueError, match=r"speed: -1.0 is"):
        optimizer.set_speeds([2.0, -1.0])
    assert [group["speed"] for group in optimizer.param_groups] == [1.0, 1.0]
    optimizer.set_speeds(iter([3.0, 4.0]))
    assert [group["speed"] for group in optimizer.param_groups] == [3.0, 4.0]
    optimizer.param_groups[0]["lr"] = 0.0  # as a scheduler's warm-up begins
    optimizer.set_speeds([2.0, 3.0])
    assert [group["speed"] for group in optimizer.param_groups] == [2.0, 3.0]


def test_complex_and_real_parameters_make_one_layer():
    real, other = parameter([3.0]), torch.nn.Parameter(torch.tensor([4j]))
    optimizer = SpeedLimited([real, other], lr=1.0)
    (real.sum() * 3 + (other * torch.tensor([-4j])).real.sum()).backward()
    before, gradients = (real.item(), other.item()), (real.grad.item(), other.grad.item())
    optimizer.step()
    size = sum(abs(gradient) ** 2 for gradient in gradients) ** 0.5
    assert real.item() == pytest.approx(before[0] - gradients[0] / size)
    assert other.item() == pytest.approx(before[1] - gradients[1] / size)


def test_a_layer_is_a_module_with_parameters_and_shared_ones_count_once():
    tied = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
    tied["b"].weight = tied["a"].weight
    tied.register_parameter("own", parameter([1.0]))
    groups = groups_by_layer(tied, 3.0)
    assert [(g["layer"], len(g["params"]), g["speed"]) for g in groups] == [
        ("", 1, 3.0),
        ("a", 2, 3.0),
        ("b", 1, 3.0),
    ]
    SpeedLimited(groups, lr=0.1)
    with pytest.raises(ValueError, match=r"speeds: 'c' has no parameters; allowed: , a, b"):
        groups_by_layer(tied, {"c": 1.0})


def test_speeds_are_several():
    optimizer = SpeedLimited(torch.nn.Linear(2, 1).parameters(), lr=0.1)
    with pytest.raises(
        ValueError, match="speeds: a float; give one speed for each parameter group"
    ):
        optimizer.set_speeds(2.0)


def test_adaptive_speeds_favour_the_first_of_the_least_aligned_layers():
    assert adaptive_speeds([0.5, 0.2, 0.2], 4.0) == [0.25, 4.0, 0.25]
    with pytest.raises(ValueError, match="there must be a layer"):
        adaptive_speeds([], 4.0)
    with pytest.raises(ValueError, match=r"correlations \[nan, 0.5\]"):
        adaptive_speeds([float("nan"), 0.5], 4.0)
    assert adaptive_speeds(torch.tensor([0.5, 0.2]), 4.0) == [0.25, 4.0]
    for s in (0.0, float("inf")):
        with pytest.raises(ValueError, match=f"s = {s}"):
            adaptive_speeds([1.0], s)
