"""beaglehole2024, Figure 1, Section 2.1-2.2, Appendix J: gradient descent on the chain monomial."""

from functools import partial

import numpy as np
import torch

from feature_alignment.data.synthetic import chain_monomial_egop
from feature_alignment.layer_features import feature_matrices as matrices
from feature_alignment.layer_features.feature_covariance import layer_feature_matrices
from feature_alignment.papers.beaglehole2024.experiments import chain_task
from feature_alignment.papers.beaglehole2024.experiments.relu_networks import FIRST_LAYER
from feature_alignment.papers.beaglehole2024.parameters import ChainMonomial
from feature_alignment.pipeline.run import SeedResult, SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe


def run_seed(run: SeedRun[ChainMonomial]) -> SeedResult:
    """Train one network and compare F = WᵀW, G = WᵀKW, WᵀQW and the EGOP at the first layer."""
    p = run.parameters
    task = chain_task.draw_samples(run)
    x, _ = task["train"]
    model = chain_task.new_network(run, [p.first_layer_scale] + [1.0] * p.hidden_layers)
    egop = torch.as_tensor(chain_monomial_egop(p.dimension, p.rank)).to(x)
    probe = FeatureProbe(
        model, x, layers=[FIRST_LAYER], references={"egop": egop}, keep_matrices_at=[p.steps]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=p.learning_rate)
    recorder = chain_task.train_network(run, model, task, optimizer, probe, [p.steps])
    result = SeedResult().extend(recorder)
    add = partial(result.add, step=p.steps, layer=FIRST_LAYER)
    layer = layer_feature_matrices(model, x, [FIRST_LAYER])[FIRST_LAYER]
    weight, covariance = layer.weight_matrix, layer.covariance
    spectrum = np.linalg.eigvalsh(covariance.double().cpu().numpy())
    add("ptk_spectrum_std_over_mean", spectrum.std() / spectrum.mean())
    rng = run.stream("probe/random_conjugates")
    for draw in range(p.random_conjugates):
        conjugate = matrices.spectrum_preserving_rotation(covariance, rng)
        correlation = matrices.feature_pair(weight, conjugate).correlation(p.subtract_mean)
        add("nfc_random_conjugate", correlation, draw=draw)
        if draw == 0:
            agop = matrices.average_gradient_outer_product(weight, conjugate)
            result.arrays["random_conjugate_agop"] = agop.cpu().numpy()
    result.arrays["egop"] = egop.cpu().numpy()
    return result
