import random

import numpy as np
import pytest
import torch
from torch import nn

from feature_alignment.training.evaluation import (
    evaluate,
    evaluation_mode,
    outputs_in_chunks,
    undisturbed,
)
from feature_alignment.training.losses import accuracy, mse


def test_evaluation_mode_puts_back_each_modules_own_mode():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.BatchNorm1d(2))
    model[2].eval()

    def fail_inside():
        with evaluation_mode(model):
            assert not any(module.training for module in model.modules())
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert [module.training for module in model.modules()] == [True, True, True, False]


def test_a_train_of_the_models_own_is_not_called():
    class Merging(nn.Linear):
        """As layers of LoRA, which add B·A to their weight for evaluation."""

        def train(self, mode=True):
            self.weight.data.add_(1)
            return super().train(mode)

    model = nn.Sequential(Merging(2, 2))
    before = model[0].weight.clone()
    with evaluation_mode(model):
        assert not model[0].training
    assert model[0].training
    assert torch.equal(model[0].weight, before)


def test_undisturbed_clears_gradients_and_restores_the_global_generators():
    model = nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    state, python, legacy = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    with undisturbed(model):
        assert model.weight.grad is None
        torch.rand(5), random.random(), np.random.rand()  # noqa: NPY002
        model(torch.ones(1, 2)).sum().backward()
    assert model.weight.grad is None
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == python
    assert np.array_equal(np.random.get_state()[1], legacy[1])  # noqa: NPY002


def test_chunks_change_nothing():
    model = nn.Linear(3, 2).double()
    x = torch.randn(10, 3, dtype=torch.float64)
    outputs = outputs_in_chunks(model, x, chunk=4)
    torch.testing.assert_close(outputs, model(x).detach())
    assert not outputs.requires_grad


def test_metrics_are_those_of_all_samples():
    model = nn.Linear(3, 2).double()
    x, y = torch.randn(2000, 3, dtype=torch.float64), torch.randn(2000, 2, dtype=torch.float64)
    found = evaluate(model, x, y, {"loss": mse, "accuracy": accuracy})
    difference = model(x) - y
    assert found["loss"] == pytest.approx((difference**2).mean().item())
    right = model(x)[:, 0].gt(model(x)[:, 1]) == y[:, 0].gt(y[:, 1])
    assert found["accuracy"] == pytest.approx(right.double().mean().item())
