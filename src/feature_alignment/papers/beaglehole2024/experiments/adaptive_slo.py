"""Speed Limited Optimization that always speeds up the layer with the smallest UC-NFC.

Source: beaglehole2024, Figure 12 and Appendix K.
"""

import torch

from feature_alignment.layer_features.correlation import feature_pair
from feature_alignment.layer_features.feature_covariance import layer_feature_matrices
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.beaglehole2024.experiments.chain_task import (
    chain_network,
    chain_task,
    train_on_chain,
)
from feature_alignment.papers.beaglehole2024.experiments.relu_networks import (
    hidden_layers,
    speed_limited,
)
from feature_alignment.papers.beaglehole2024.parameters import AdaptiveSLO
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.schedule import every
from feature_alignment.training.speed_limited import SpeedLimited, adaptive_speeds


def run_seed(run: SeedRun[AdaptiveSLO]) -> SeedResult:
    """Train one network by gradient descent or adaptive SLO.

    Returns:
        Losses, and the measures of `FeatureProbe` in the hidden layers.
    """
    p = run.parameters
    task = chain_task(run)
    x, _ = task["train"]
    inner = p.initial_scale if p.scaled_layers == "all" else 1.0
    readout = 1.0 if p.scaled_layers == "first" else p.initial_scale
    scales = [p.initial_scale, *[inner] * (p.hidden_layers - 1), readout]
    model = chain_network(run, scales)
    probe = FeatureProbe(model, x, layers=hidden_layers(p.hidden_layers))
    measured = every(p.measure_every, p.steps)
    optimizer = _optimizer(model, x, p)
    result = SeedResult()
    result.extend(train_on_chain(run, model, task, optimizer, probe, measured))
    return result


def _optimizer(model: MLP, x: torch.Tensor, p: AdaptiveSLO) -> torch.optim.Optimizer:
    if p.optimizer == "gd":
        return torch.optim.SGD(model.parameters(), lr=p.learning_rate)
    speeds = [1.0] * (p.hidden_layers + 1)
    optimizer = speed_limited(model, p.learning_rate, speeds, p.epsilon, p.relaxation)

    def choose_speeds(optimizer: SpeedLimited, *arguments: object) -> None:
        # The readout of a single output takes part: both of its matrices are multiples of wᵀw, so
        # its UC-NFC is 1 and it never is the least aligned layer.
        correlations = [
            feature_pair(layer.weight_matrix, layer.covariance).correlation()
            for layer in layer_feature_matrices(model, x).values()
        ]
        chosen = adaptive_speeds(correlations, p.speed)
        if p.gradient_norm == "global":
            chosen = [c * f for c, f in zip(chosen, _against_whole(model, p), strict=True)]
        optimizer.set_speeds(chosen)

    optimizer.register_step_pre_hook(choose_speeds)
    return optimizer


def _against_whole(model: MLP, p: AdaptiveSLO) -> list[float]:
    """For each layer what turns SLO's division by its own gradient's norm into one by all's."""
    norms = torch.stack([weight.grad.norm() for weight in model.parameters()])  # pyright: ignore[reportOptionalMemberAccess]: after a backward pass
    added = p.epsilon if p.relaxation == "additive" else 0.0
    return ((norms + added) / (norms.norm() + added)).tolist()
