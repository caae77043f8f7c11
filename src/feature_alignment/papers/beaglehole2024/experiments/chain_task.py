"""The chain-monomial task and the networks trained on it, for every experiment that uses them."""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import torch
from torch import nn

from feature_alignment.data import synthetic
from feature_alignment.errors import UserError
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.beaglehole2024.experiments import relu_networks
from feature_alignment.papers.beaglehole2024.experiments.relu_networks import Splits
from feature_alignment.papers.beaglehole2024.parameters import ChainParameters
from feature_alignment.pipeline.run import SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.loop import train
from feature_alignment.training.losses import mse
from feature_alignment.training.probes import Measurement, Recorder


def draw_samples(
    run: SeedRun[ChainParameters],
    decay: float | None = None,
    *,
    first: int = 1,
    unit_variance: bool = False,
) -> Splits:
    """Draw training and test samples of the task: inputs (n, d) and labels (n, 1).

    With a decay α the inputs' covariance has eigenvalues 1/(1 + k^α), k from `first`, and random
    eigenvectors, the same for training and test; without one, x ~ N(0, I). With `unit_variance` the
    eigenvalues are scaled to mean 1, like the identity's. Labels are divided by the training
    labels' standard deviation, after subtracting their mean if `centred_labels` is set.

    Source: beaglehole2024, eq. 2; Appendix H (decaying spectra), J (labels of deviation 1).

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
        inputs = rng.standard_normal((total, p.dimension))
    else:
        inputs = synthetic.power_law_gaussian(total, p.dimension, decay, rng, first)
        if unit_variance:
            inputs /= np.sqrt(synthetic.power_law_spectrum(p.dimension, decay, first).mean())
    labels = synthetic.chain_monomial(inputs, p.rank)[:, np.newaxis]
    if p.centred_labels:
        labels -= labels[:n].mean()
    # Training and test labels share one scale, or the test loss would measure another task.
    x, y = (torch.tensor(array, **run.to) for array in (inputs, labels / labels[:n].std()))
    return {"train": (x[:n], y[:n]), "test": (x[n:], y[n:])}


def layer_scales(scale: float, scaled: str, hidden_layers: int) -> list[float]:
    """A factor for each layer, input to readout: `scale` for those of `ScaledLayers`."""
    layers = range(hidden_layers + 1)
    places = {"all": layers, "ends": (0, hidden_layers), "first": (0,), "second": (1,)}
    return [scale if layer in places[scaled] else 1.0 for layer in layers]


def new_network(run: SeedRun[ChainParameters], scales: Sequence[float]) -> MLP:
    """A network of the task's size, see `relu_networks`."""
    p = run.parameters
    return relu_networks.new_network(run, p.dimension, 1, scales, p.initialisation)


def train_network(
    run: SeedRun[ChainParameters],
    model: MLP,
    task: Splits,
    optimizer: torch.optim.Optimizer,
    probe: FeatureProbe,
    measure_at: Iterable[int],
    name: str = "training",
) -> Recorder:
    """Train on all samples at once; the name distinguishes the seed's trainings."""
    p = run.parameters
    return train(
        model,
        *task["train"],
        loss=lambda f, y: mse(f, y) / (1 + p.half_loss),
        optimizer=optimizer,
        **run.training(p.steps, name),
        measure_at=measure_at,
        evaluate_on=task,
        metrics={"loss": mse},
        probes=[partial(_pearson, probe) if p.subtract_mean else probe],
    )


def _pearson(probe: FeatureProbe, step: int, model: nn.Module) -> Measurement:
    """The probe's measurement, with the names of cosines and Pearson's correlations swapped."""
    found = probe(step, model)
    names = {name: f"{name}_mean_subtracted" for name in ("nfc", "centred_nfc")}
    names |= {subtracted: name for name, subtracted in names.items()}
    rows = [row._replace(metric=names.get(row.metric, row.metric)) for row in found.rows]
    return Measurement(rows, found.arrays)
