"""Speed Limited Optimization that always speeds up the layer with the smallest UC-NFC.

Source: beaglehole2024, Figure 12 and Appendix K.
"""

from typing import Any

import torch
from torch import nn

from feature_alignment.features.correlation import feature_pair
from feature_alignment.features.feature_covariance import layer_feature_matrices
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
from feature_alignment.training.schedule import measurement_schedule
from feature_alignment.training.speed_limited import SpeedLimited, adaptive_speeds


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: None, label: str
) -> SeedResult:
    """Train one network by gradient descent or adaptive SLO.

    Args:
        seed: the seed.
        parameters: the section `beaglehole2024_adaptive_slo` of the config.
        device: where to train.
        dataset: none is used.
        label: names the run in its progress lines.

    Returns:
        Losses, and the measures of `FeatureProbe` in the hidden layers.

    Raises:
        UserError: if the task needs more coordinates than the inputs have.
        TrainingDivergedError: if training diverged or left every ReLU dead.
    """
    task = chain_task(seed, parameters, device)
    steps, hidden = parameters["steps"], parameters["hidden_layers"]
    model = chain_network(seed, parameters, _layer_scales(parameters), device)
    measured = [f"layers.{number}" for number in range(hidden)]
    recorder = train(
        model,
        task.x,
        task.y,
        loss=mse,
        optimizer=_optimizer(model, task.x, parameters),
        steps=steps,
        measure_at=measurement_schedule({"every": parameters["measure_every"]}, steps),
        evaluate_on=task.splits,
        probes=[
            FeatureProbe(model, task.x, layers=measured),
        ],
        progress=Progress(steps, label),
    )
    result = SeedResult()
    result.extend(recorder)
    return result


def _layer_scales(parameters: Parameters) -> list[float]:
    scale, hidden = parameters["initial_scale"], parameters["hidden_layers"]
    if parameters["scaled_layers"] == "all":
        return [scale] * (hidden + 1)
    return [scale, *[1.0] * (hidden - 1), scale]


def _optimizer(model: nn.Module, x: torch.Tensor, parameters: Parameters) -> torch.optim.Optimizer:
    rate = parameters["learning_rate"]
    if parameters["optimizer"] == "gd":
        return make_optimizer(model.parameters(), {"name": "gd", "lr": rate})
    settings = {key: parameters[key] for key in ("epsilon", "relaxation")}
    speeds = [1.0] * (parameters["hidden_layers"] + 1)
    optimizer = make_optimizer(
        model.parameters(), {"name": "slo", "lr": rate, "speeds": speeds, **settings}
    )

    def choose_speeds(optimizer: SpeedLimited, *arguments: Any) -> None:
        # The readout of a single output takes part: both of its matrices are multiples of wᵀw, so
        # its UC-NFC is 1 and it never is the least aligned layer.
        correlations = [
            feature_pair(layer.weight_matrix, layer.covariance).correlation()
            for layer in layer_feature_matrices(model, x).values()
        ]
        optimizer.set_speeds(adaptive_speeds(correlations, parameters["speed"]))

    optimizer.register_step_pre_hook(choose_speeds)
    return optimizer
