"""A probe of the share of samples that are classified rightly."""

from collections.abc import Mapping

import torch
from torch import nn

from feature_alignment.training.evaluation import outputs_in_chunks
from feature_alignment.training.probes import WHOLE_NETWORK, Measurement, Row

CHUNK = 500
"""Images that are evaluated at a time, so that a wide convolutional network fits in memory."""


class AccuracyProbe:
    """Share of samples whose largest output is that of their class: metric `accuracy`.

    Args:
        splits: inputs (n, …) and class indices (n,) by split, on the model's device.
    """

    def __init__(self, splits: Mapping[str, tuple[torch.Tensor, torch.Tensor]]) -> None:
        self._splits = dict(splits)

    def __call__(self, step: int, model: nn.Module) -> Measurement:
        """Evaluate all samples of every split."""
        rows = []
        for split, (x, y) in self._splits.items():
            right = outputs_in_chunks(model, x, CHUNK).argmax(dim=1) == y
            rows.append(Row(WHOLE_NETWORK, split, "accuracy", float(right.double().mean())))
        return Measurement(rows=rows)
