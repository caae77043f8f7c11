"""Gradient descent on the chain-monomial task, and its first-layer feature matrices.

Source: beaglehole2024, Figure 1, Section 2.1-2.2 and Appendix J.
"""

from typing import Any

import numpy as np
import torch

from feature_alignment.data.synthetic import chain_monomial_egop
from feature_alignment.determinism import stream
from feature_alignment.features.feature_covariance import layer_feature_matrices
from feature_alignment.features.feature_matrices import (
    average_gradient_outer_product,
    neural_feature_correlation,
    spectrum_preserving_rotation,
)
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.beaglehole2024.experiments.chain_task import (
    Parameters,
    chain_network,
    chain_task,
)
from feature_alignment.pipeline.run import SeedResult
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.loop import train
from feature_alignment.training.losses import mse
from feature_alignment.training.optimizers import make_optimizer
from feature_alignment.training.progress import Progress

FIRST_LAYER = "layers.0"


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: None, label: str
) -> SeedResult:
    """Train one network and compare F = WᵀW, G = WᵀKW, WᵀQW and the EGOP at the first layer.

    Args:
        seed: the seed.
        parameters: the section `beaglehole2024_chain_monomial` of the config.
        device: where to train.
        dataset: none is used.
        label: names the run in its progress lines.

    Returns:
        The losses, the similarities, and the four matrices, each (d, d).

    Raises:
        UserError: if the task needs more coordinates than the inputs have.
        TrainingDivergedError: if training diverged or left every ReLU dead.
    """
    task = chain_task(seed, parameters, device)
    steps, hidden = parameters["steps"], parameters["hidden_layers"]
    scales = [parameters["first_layer_scale"]] + [1.0] * hidden
    model = chain_network(seed, parameters, scales, device)
    egop = torch.as_tensor(chain_monomial_egop(task.x.shape[1], parameters["rank"])).to(task.x)
    recorder = train(
        model,
        task.x,
        task.y,
        loss=mse,
        optimizer=make_optimizer(
            model.parameters(), {"name": "gd", "lr": parameters["learning_rate"]}
        ),
        steps=steps,
        measure_at=[steps],
        evaluate_on=task.splits,
        probes=[
            FeatureProbe(
                model,
                task.x,
                layers=[FIRST_LAYER],
                references={"egop": egop},
                keep_matrices_at=[steps],
            ),
        ],
        progress=Progress(steps, label),
    )
    result = SeedResult()
    result.extend(recorder)
    where = {"step": steps, "layer": FIRST_LAYER}
    _randomise(model, task.x, seed, parameters["random_conjugates"], where, result)
    result.arrays["egop"] = egop.cpu().numpy()
    return result


def _randomise(
    model: MLP,
    x: torch.Tensor,
    seed: int,
    conjugates: int,
    where: dict[str, Any],
    result: SeedResult,
) -> None:
    """The spectrum of K, and the correlation with matrices Q of that spectrum in its place."""
    layer = layer_feature_matrices(model, x, [FIRST_LAYER])[FIRST_LAYER]
    weight, covariance = layer.weight_matrix, layer.covariance
    spectrum = np.linalg.eigvalsh(covariance.double().cpu().numpy())
    result.add("ptk_spectrum_std_over_mean", spectrum.std() / spectrum.mean(), **where)
    rng = stream(seed, "probe/random_conjugates")
    for draw in range(conjugates):
        conjugate = spectrum_preserving_rotation(covariance, rng)
        value = neural_feature_correlation(weight, conjugate)
        result.add("nfc_random_conjugate", value, **where, draw=draw)
        if draw == 0:
            agop = average_gradient_outer_product(weight, conjugate)
            result.arrays["random_conjugate_agop"] = agop.cpu().numpy()
