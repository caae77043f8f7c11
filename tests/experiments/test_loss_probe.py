import pytest
import torch

from feature_alignment.experiments.loss_probe import LossProbe
from feature_alignment.training.losses import mse


def test_the_loss_is_that_of_all_samples():
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(2.0)
    x = torch.tensor([[1.0], [2.0]])
    (row,) = LossProbe(x, torch.zeros(2, 1), mse)(3, model).rows
    assert row == ("all", "test", "loss", pytest.approx((4 + 16) / 2))
