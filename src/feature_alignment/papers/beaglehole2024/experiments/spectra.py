"""beaglehole2024, Figures 5, 6, 8-10, Appendices D, H, J: initialisation scales and spectra."""

import torch

from feature_alignment.papers.beaglehole2024.experiments import chain_task, relu_networks
from feature_alignment.papers.beaglehole2024.parameters import Spectra
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.schedule import every


def run_seed(run: SeedRun[Spectra]) -> SeedResult:
    """Train one network for each initialisation scale (column `scale`), on the same samples."""
    p = run.parameters
    task = chain_task.draw_samples(run, p.decay, first=p.first_index, unit_variance=p.unit_variance)
    x, _ = task["train"]
    layers, measured = relu_networks.hidden_layers(p.hidden_layers), every(p.measure_every, p.steps)
    result = SeedResult()
    for scale in p.first_layer_scales:
        scales = chain_task.layer_scales(scale, p.scaled_layers, p.hidden_layers)
        model = chain_task.new_network(run, scales)
        probe = FeatureProbe(model, x, layers=layers, centre_tangents=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=p.learning_rate)
        name = f"scale{scale:g}"
        recorder = chain_task.train_network(run, model, task, optimizer, probe, measured, name)
        result.extend(recorder, prefix=f"{name}/", scale=scale)
    return result
