"""beaglehole2024, Figure 7, Appendices E and J: the C-NFC at initialisation with two layers."""

from functools import partial

import numpy as np
import torch

from feature_alignment.data import synthetic
from feature_alignment.free_probability.centred_correlation import velocity_correlation
from feature_alignment.free_probability.dual_kernels import expected_preactivation_kernel
from feature_alignment.layer_features import feature_matrices as matrices
from feature_alignment.layer_features.preactivation_gradients import preactivation_gradients
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.beaglehole2024.parameters import DepthPrediction
from feature_alignment.pipeline.run import SeedResult, SeedRun

VARIANCES = {"pytorch": 1 / 3, "kaiming": 2.0, "kaiming_zero_bias": 2.0, "lecun": 1.0}
"""Variance of the weights times fan_in (PyTorch's are uniform on ±1/√fan_in). Only for erf does it
matter to ρ: the other activations are homogeneous."""


def run_seed(run: SeedRun[DepthPrediction]) -> SeedResult:
    """Predict and observe ρ of the first layer for each decay rate (metrics.yaml)."""
    p, result = run.parameters, SeedResult()
    variance = VARIANCES[p.initialisation]
    for alpha in p.decay_rates:
        rng = run.stream("data")
        inputs = synthetic.power_law_gaussian(p.samples, p.dimension, alpha, rng, p.first_index)
        x, y = torch.tensor(inputs, **run.to), torch.tensor(_labels(run, inputs), **run.to)
        expected = expected_preactivation_kernel(x, p.activation, p.hidden_layers, variance)
        add = partial(result.add, step=0, layer="layers.0", decay_rate=alpha)
        add("predicted", velocity_correlation(x, y, expected))
        if p.activation == "relu":  # the quadratic's φ′ is linear
            kernel = expected_preactivation_kernel(x, "relu_linearised", p.hidden_layers, variance)
            add("predicted_linearised", velocity_correlation(x, y, kernel))
        add("expected_kernel_rank", expected.trace() ** 2 / expected.square().sum())
        add("expected_kernel_projection", matrices.cosine_similarity(expected, expected @ expected))
        for width in p.widths:
            squares = []
            generator = run.torch_stream(f"networks of width {width}")
            # The scatter of 𝒦² falls with the width: smaller networks take more for the same error.
            for network in range(p.networks * max(p.widths) // width):
                model = _network(x, width, p, generator)
                gradients = preactivation_gradients(model, x)["layers.0"]
                kernel = matrices.preactivation_tangent_kernel(gradients)
                squares.append(kernel @ kernel)
                if network >= p.networks:
                    continue
                residuals = y if p.residuals == "labels" else y - model(x).detach()[:, 0]
                observed = velocity_correlation(x, residuals, kernel)
                add("observed", observed, width=width, network=network)
            if p.networks > 1:
                second_order = velocity_correlation(x, y, expected, torch.stack(squares))
                add("predicted_with_mean_square", second_order, width=width)
    return result


def _labels(run: SeedRun[DepthPrediction], x: np.ndarray) -> np.ndarray:
    p, rng = run.parameters, run.stream("target")
    low = p.target == "low_rank"
    y = synthetic.chain_monomial(x, p.rank) if low else synthetic.high_rank_quadratic(x, rng)
    return synthetic.unit_deviation(y - y.mean() if p.centred_labels else y)


def _network(x: torch.Tensor, width: int, p: DepthPrediction, generator: torch.Generator) -> MLP:
    sizes = x.shape[1], [width] * p.hidden_layers, 1
    model = MLP(*sizes, p.activation, False, generator, p.initialisation, dtype=x.dtype)
    return model.to(x.device)
