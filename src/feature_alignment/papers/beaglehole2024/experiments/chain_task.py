"""The chain-monomial task and the networks trained on it, for every experiment that uses them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from feature_alignment.data.synthetic import (
    chain_monomial,
    isotropic_gaussian,
    power_law_gaussian,
)
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.errors import UserError
from feature_alignment.models.mlp import MLP
from feature_alignment.pipeline.run import precision

Parameters = dict[str, Any]


@dataclass(frozen=True)
class ChainTask:
    """Samples of the chain-monomial task; labels are divided by the training labels' deviation.

    Attributes:
        x: training inputs (n, d).
        y: training labels (n, 1).
        x_test: test inputs (m, d).
        y_test: test labels (m, 1).
    """

    x: torch.Tensor
    y: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor

    @property
    def splits(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Inputs and labels by split."""
        return {"train": (self.x, self.y), "test": (self.x_test, self.y_test)}


def chain_task(
    seed: int, parameters: Parameters, device: torch.device, decay: float | None = None
) -> ChainTask:
    """Draw training and test samples of the task.

    Source: beaglehole2024, eq. 2; Appendix H (decaying spectra), J (labels of deviation 1).

    Args:
        seed: the seed.
        parameters: `samples`, `test_samples`, `dimension`, `rank` and `precision` are used.
        device: where the samples go.
        decay: α of the inputs' covariance, with eigenvalues 1/(1 + k^α) and random eigenvectors,
            the same for training and test; None for x ~ N(0, I).

    Raises:
        UserError: if the task needs more coordinates than the inputs have.
    """
    n, m, d, r = (parameters[key] for key in ("samples", "test_samples", "dimension", "rank"))
    if r > d:
        raise UserError(
            f"rank: found {r}, above the dimension {d}; lower the rank or raise the dimension."
        )
    rng = stream(seed, "data")
    if decay is None:
        inputs = isotropic_gaussian(n + m, d, rng)
    else:
        inputs = power_law_gaussian(n + m, d, decay, rng)
    labels = chain_monomial(inputs, r)[:, np.newaxis]
    # Training and test labels share one scale, or the test loss would measure another task.
    labels = labels / labels[:n].std()
    x, y = (
        torch.tensor(array, dtype=precision(parameters), device=device)
        for array in (inputs, labels)
    )
    return ChainTask(x[:n], y[:n], x[n:], y[n:])


def chain_network(
    seed: int, parameters: Parameters, layer_scales: Sequence[float], device: torch.device
) -> MLP:
    """ReLU network without biases, one output, each layer's initial weights times a factor.

    Source: beaglehole2024, eq. 1 and Appendix J.

    Args:
        seed: the seed.
        parameters: `dimension`, `width`, `hidden_layers` and `precision` are used.
        layer_scales: factors on PyTorch's default initialisation, input to readout.
        device: where the network goes.
    """
    return MLP(
        parameters["dimension"],
        [parameters["width"]] * parameters["hidden_layers"],
        1,
        "relu",
        bias=False,
        generator=torch_stream(seed, "init"),
        layer_scales=layer_scales,
        dtype=precision(parameters),
    ).to(device)
