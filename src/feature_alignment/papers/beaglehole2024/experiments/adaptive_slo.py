"""beaglehole2024, Figure 12, Appendix K: SLO that always speeds up the least aligned layer."""

import torch

from feature_alignment.layer_features import feature_matrices as matrices
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.beaglehole2024.experiments import chain_task, relu_networks
from feature_alignment.papers.beaglehole2024.parameters import AdaptiveSLO
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.errors import TrainingDivergedError
from feature_alignment.training.schedule import every
from feature_alignment.training.speed_limited import SpeedLimited, adaptive_speeds


def run_seed(run: SeedRun[AdaptiveSLO]) -> SeedResult:
    """Train one network by gradient descent or adaptive SLO; record loss and hidden-layer NFCs."""
    p = run.parameters
    task = chain_task.draw_samples(run)
    x, _ = task["train"]
    scales = chain_task.layer_scales(p.initial_scale, p.scaled_layers, p.hidden_layers)
    model = chain_task.new_network(run, scales)
    probe = FeatureProbe(model, x, layers=relu_networks.hidden_layers(p.hidden_layers))
    optimizer, measured = _optimizer(model, x, p), every(p.measure_every, p.steps)
    recorder = chain_task.train_network(run, model, task, optimizer, probe, measured)
    return SeedResult().extend(recorder)


def _optimizer(model: MLP, x: torch.Tensor, p: AdaptiveSLO) -> torch.optim.Optimizer:
    if p.optimizer == "gd":
        return torch.optim.SGD(model.parameters(), lr=p.learning_rate)
    speeds = [1.0] * (p.hidden_layers + 1)
    optimizer = relu_networks.speed_limited(model, p.learning_rate, speeds, p.epsilon, p.relaxation)

    def choose_speeds(optimizer: SpeedLimited, *arguments: object) -> None:
        # The readout takes part but is never the least aligned layer: with a single output, both of
        # its matrices are multiples of wᵀw, so its UC-NFC is 1.
        with torch.enable_grad():  # at every step, so without the probe's checks
            signals = model.preactivations(x)
            gradients = torch.autograd.grad(signals[-1].sum(), signals)  # of a single output
        if not all(delta.any() for delta in gradients):
            raise TrainingDivergedError("training killed the network: a layer gets no gradient.")
        covariances = (
            matrices.preactivation_feature_covariance(delta[:, None]) for delta in gradients
        )
        correlations = [
            matrices.feature_pair(weight, covariance).correlation(p.subtract_mean)
            for weight, covariance in zip(model.parameters(), covariances, strict=True)
        ]
        chosen = adaptive_speeds(correlations, p.speed)
        if p.gradient_norm == "global":
            relu_networks.limit_whole(optimizer, chosen)
        else:
            optimizer.set_speeds(chosen)

    optimizer.register_step_pre_hook(choose_speeds)
    return optimizer
