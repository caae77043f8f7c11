import itertools
import warnings

import pytest
import torch

from feature_alignment.errors import UserError
from feature_alignment.training.optimizers import cosine_rate, warmup_cosine_rate


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
