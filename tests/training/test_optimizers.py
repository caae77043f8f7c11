import itertools
import math
import warnings

import pytest
import torch

from feature_alignment.errors import UserError
from feature_alignment.training.optimizers import (
    cosine_rate,
    make_optimizer,
    warmup_cosine_rate,
)


def run(settings, steps=4):
    """Minimise ½w² from w = 1, where the gradient is w."""
    w = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = make_optimizer([w], settings)
    path = []
    for _ in range(steps):
        optimizer.zero_grad()
        (0.5 * w**2).sum().backward()
        optimizer.step()
        path.append(w.item())
    return path


@pytest.mark.parametrize("name", ["gd", "sgd"])
def test_gradient_descent_follows_its_formula(name):
    assert run({"name": name, "lr": 0.1}) == pytest.approx([0.9, 0.81, 0.729, 0.6561])


def test_momentum_follows_its_formula():
    w, v, expected = 1.0, 0.0, []
    for _ in range(4):
        v = 0.9 * v + w
        w -= 0.1 * v
        expected.append(w)
    assert run({"name": "momentum", "lr": 0.1, "momentum": 0.9}) == pytest.approx(expected)


def test_weight_decay_adds_to_the_gradient():
    assert run({"name": "sgd", "lr": 0.1, "weight_decay": 1.0}, 1) == pytest.approx([0.8])


def test_adam_follows_its_formula():
    w, m, v, expected = 1.0, 0.0, 0.0, []
    for t in range(1, 5):
        m, v = 0.8 * m + 0.2 * w, 0.99 * v + 0.01 * w * w
        w -= 0.1 * (m / (1 - 0.8**t)) / (math.sqrt(v / (1 - 0.99**t)) + 1e-8)
        expected.append(w)
    settings = {"name": "adam", "lr": 0.1, "betas": [0.8, 0.99]}
    assert run(settings) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 0.1}, "optimizer.name: None is not an optimizer"),
        ({"name": "adm", "lr": 0.1}, "'adm' is not an optimizer; did you mean 'adam'"),
        ({"name": "sgd"}, "optimizer.lr: sgd needs it"),
        ({"name": "momentum", "lr": 0.1}, "optimizer.momentum: momentum needs it"),
        ({"name": "sgd", "lr": 0.1, "momentum": 0.9}, "optimizer.momentum: not a setting of sgd"),
        ({"name": "sgd", "lr": 0.0}, "optimizer.lr: 0.0 is out of range"),
        ({"name": "momentum", "lr": 0.1, "momentum": 1.0}, "optimizer.momentum: 1.0 is out of"),
        ({"name": "gd", "lr": 0.1, "weight_decay": -1}, "optimizer.weight_decay: -1 is out of"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(UserError, match=message):
        make_optimizer([torch.nn.Parameter(torch.ones(1))], settings)


def test_cosine_per_epoch_is_pytorchs_schedule_stepped_once_per_epoch():
    epochs, per_epoch = 5, 3
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    ours = cosine_rate(epochs * per_epoch, per_epoch)
    for t in range(epochs * per_epoch):
        assert ours(t) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-12)
        if t % per_epoch == per_epoch - 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # no optimizer.step() is needed here
                theirs.step()


def test_cosine_falls_from_1_to_0():
    rate = cosine_rate(10)
    values = [rate(t) for t in range(11)]
    assert values[0] == 1
    assert values[5] == pytest.approx(0.5)
    assert values[10] == pytest.approx(0, abs=1e-15)
    assert values == sorted(values, reverse=True)


def test_warmup_rises_to_1_and_falls_to_the_floor():
    rate = warmup_cosine_rate(steps=110, warmup=10, floor=0.1)
    factors = [rate(t) for t in range(111)]
    assert factors[:11] == pytest.approx([(t + 1) / 11 for t in range(11)])
    assert factors[10] == pytest.approx(1)
    assert all(a > b for a, b in itertools.pairwise(factors[10:]))
    assert factors[60] == pytest.approx(0.55)
    assert factors[110] == pytest.approx(0.1)
    with pytest.raises(UserError, match="warmup_steps: 5 of 5 steps"):
        warmup_cosine_rate(steps=5, warmup=5, floor=0.1)


def test_a_cosine_needs_updates():
    with pytest.raises(ValueError, match="both must be positive"):
        cosine_rate(0)
