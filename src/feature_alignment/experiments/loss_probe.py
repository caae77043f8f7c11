"""A probe of the loss on samples that are not trained on."""

import torch
from torch import nn

from feature_alignment.training.evaluation import loss_value
from feature_alignment.training.losses import Loss
from feature_alignment.training.probes import WHOLE_NETWORK, Measurement, Row


class LossProbe:
    """Records the loss over all samples of one split as the metric `loss`.

    The training loop records the split "train" by itself.

    Args:
        x: inputs (n, …), on the model's device.
        y: targets, as `loss` wants them.
        loss: a function of outputs and targets.
        split: name of the split.
    """

    def __init__(self, x: torch.Tensor, y: torch.Tensor, loss: Loss, split: str = "test") -> None:
        self._x = x
        self._y = y
        self._loss = loss
        self._split = split

    def __call__(self, step: int, model: nn.Module) -> Measurement:
        """Measure the loss."""
        value = loss_value(model, self._x, self._y, self._loss)
        return Measurement(rows=[Row(WHOLE_NETWORK, self._split, "loss", value)])
