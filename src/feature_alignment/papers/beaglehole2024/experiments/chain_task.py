"""The chain-monomial task and the networks trained on it, for every experiment that uses them."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from feature_alignment.data.synthetic import (
    chain_monomial,
    isotropic_gaussian,
    power_law_gaussian,
    power_law_spectrum,
)
from feature_alignment.errors import UserError
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.beaglehole2024.experiments.relu_networks import Splits, relu_network
from feature_alignment.papers.beaglehole2024.parameters import ChainParameters
from feature_alignment.pipeline.run import SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.loop import train
from feature_alignment.training.losses import mse
from feature_alignment.training.probes import Recorder


def chain_task(
    run: SeedRun[ChainParameters], decay: float | None = None, *, unit_variance: bool = False
) -> Splits:
    """Draw training and test samples of the task: inputs (n, d) and labels (n, 1).

    Labels are divided by the training labels' deviation.

    Source: beaglehole2024, eq. 2; Appendix H (decaying spectra), J (labels of deviation 1).

    With a decay α the inputs' covariance has eigenvalues 1/(1 + k^α) and random eigenvectors, the
    same for training and test; without one, x ~ N(0, I). With `unit_variance` the eigenvalues are
    scaled to have mean 1, as those of the identity.

    Raises:
        UserError: if the task needs more coordinates than the inputs have.
    """
    p = run.parameters
    if p.rank > p.dimension:
        raise UserError(
            f"rank: found {p.rank}, above the dimension {p.dimension}; lower the rank or raise "
            "the dimension."
        )
    n, total, rng = p.samples, p.samples + p.test_samples, run.stream("data")
    if decay is None:
        inputs = isotropic_gaussian(total, p.dimension, rng)
    else:
        inputs = power_law_gaussian(total, p.dimension, decay, rng)
        if unit_variance:
            inputs /= np.sqrt(power_law_spectrum(p.dimension, decay).mean())
    labels = chain_monomial(inputs, p.rank)[:, np.newaxis]
    # Training and test labels share one scale, or the test loss would measure another task.
    x, y = (torch.tensor(array, **run.to) for array in (inputs, labels / labels[:n].std()))
    return {"train": (x[:n], y[:n]), "test": (x[n:], y[n:])}


def chain_network(run: SeedRun[ChainParameters], layer_scales: Sequence[float]) -> MLP:
    """A network of the task's size, see `relu_network`."""
    p = run.parameters
    return relu_network(run, [p.dimension, *[p.width] * p.hidden_layers, 1], layer_scales)


def train_on_chain(
    run: SeedRun[ChainParameters],
    model: MLP,
    task: Splits,
    optimizer: torch.optim.Optimizer,
    probe: FeatureProbe,
    measure_at: Iterable[int],
    name: str = "training",
) -> Recorder:
    """Train on all samples at once, and measure losses and what the probe measures.

    The name tells the training from the seed's others.
    """
    return train(
        model,
        *task["train"],
        loss=mse,
        optimizer=optimizer,
        steps=run.parameters.steps,
        measure_at=measure_at,
        evaluate_on=task,
        probes=[probe],
        progress=run.progress(run.parameters.steps),
        checkpoint=run.checkpoint(name),
    )
