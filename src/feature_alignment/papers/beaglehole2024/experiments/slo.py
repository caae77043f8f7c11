"""beaglehole2024, Figures 4 and 11, Section 5, Appendix J: SLO on the chain-monomial task."""

import torch

from feature_alignment.data.synthetic import chain_monomial_egop
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.beaglehole2024.experiments import chain_task, relu_networks
from feature_alignment.papers.beaglehole2024.experiments.relu_networks import FIRST_LAYER
from feature_alignment.papers.beaglehole2024.parameters import SLO
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.schedule import every


def run_seed(run: SeedRun[SLO]) -> SeedResult:
    """Train one network for each initialisation scale (column `scale`), on the same samples."""
    p = run.parameters
    task = chain_task.draw_samples(run)
    x, _ = task["train"]
    references = {
        "egop": torch.as_tensor(chain_monomial_egop(p.dimension, p.rank)).to(x),
        "identity": torch.eye(p.dimension).to(x),
    }
    measured = every(p.measure_every, p.steps)
    result = SeedResult()
    for initialisation in p.initialisations:
        scale = initialisation.first_layer_scale
        scales = [scale, *[1.0] * (p.hidden_layers - 1), p.readout_scale]
        model = chain_task.new_network(run, scales)
        weight = model.get_parameter(f"{FIRST_LAYER}.weight")
        initial_norm = weight.detach().norm()
        probe = FeatureProbe(
            model, x, layers=[FIRST_LAYER], references=references, keep_matrices_at=[p.steps]
        )
        optimizer = _optimizer(model, p, initialisation.learning_rate)
        name = f"scale{scale:g}"
        recorder = chain_task.train_network(run, model, task, optimizer, probe, measured, name)
        result.extend(recorder, prefix=f"{name}/", scale=scale)
        share = initial_norm / weight.detach().norm()
        result.add("initial_over_final_norm", share, step=p.steps, layer=FIRST_LAYER, scale=scale)
    return result


def _optimizer(model: MLP, p: SLO, learning_rate: float) -> torch.optim.Optimizer:
    if p.optimizer == "gd":
        return torch.optim.SGD(model.parameters(), lr=learning_rate)
    return relu_networks.speed_limited(
        model, learning_rate, p.speeds, p.epsilon, p.relaxation, p.gradient_norm
    )
