"""Beyond beaglehole2024, Figure 3 (n = d = k, quadratic): C-NFC of one layer for any n/d, k/d."""

from functools import partial

import torch

from feature_alignment.data.synthetic import high_rank_quadratic, unit_deviation
from feature_alignment.free_probability import centred_correlation as correlation
from feature_alignment.free_probability import random_features as features
from feature_alignment.free_probability.dual_kernels import expected_preactivation_kernel
from feature_alignment.free_probability.words import matrix_trace
from feature_alignment.layer_features.feature_matrices import preactivation_tangent_kernel
from feature_alignment.layer_features.preactivation_gradients import preactivation_gradients
from feature_alignment.models.initialisation import draw_normal
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.beaglehole2024.parameters import AspectRatios
from feature_alignment.pipeline.run import SeedResult, SeedRun


def run_seed(run: SeedRun[AspectRatios]) -> SeedResult:
    """Predict and observe ρ for each pair ψ₁ = n/d, ψ₂ = k/d (metrics.yaml)."""
    p, result = run.parameters, SeedResult()
    d, phi, variance = p.dimension, p.activation, p.weight_variance
    for psi1 in p.samples_ratios:
        inputs = run.stream(f"data/{psi1:g}").standard_normal((max(round(psi1 * d), 2), d))
        labels = unit_deviation(high_rank_quadratic(inputs, run.stream("target")))
        x, y = torch.tensor(inputs, **run.to), torch.tensor(labels, **run.to)
        expected = expected_preactivation_kernel(x, phi, 1, variance)
        first_order = correlation.velocity_correlation(x, y, expected)
        trace = matrix_trace(correlation.data_matrices(x, y))
        for psi2 in p.width_ratios:
            add = partial(result.add, step=0, psi1=psi1, psi2=psi2)
            add("predicted_first_order", first_order)
            if phi == "quadratic":
                moments = features.limiting_moments(1 / psi2, features.gaussian_even_moments(4))
                add("predicted", correlation.predicted_correlation(trace, moments))
            generator = run.torch_stream(f"networks/{psi2:g}")
            for network in range(p.networks):
                model = _network(x, max(round(psi2 * d), 1), phi, variance, generator)
                kernel = preactivation_tangent_kernel(preactivation_gradients(model, x)["layers.0"])
                add("observed", correlation.velocity_correlation(x, y, kernel), network=network)
                if phi == "quadratic":
                    moments = features.matrix_moments(_r(model))
                    own = correlation.predicted_correlation(trace, moments)
                    add("predicted_from_own_moments", own, network=network)
    return result


def _network(
    x: torch.Tensor, width: int, phi: str, variance: float, generator: torch.Generator
) -> MLP:
    """f(x) = aᵀφ(Wx) with W ~ N(0, v I/d) and a ~ N(0, v I/k)."""
    model = MLP(x.shape[1], [width], 1, phi, bias=False, generator=generator, dtype=x.dtype)
    for weight in model.parameters():
        draw_normal(weight, (variance / weight.shape[1]) ** 0.5, generator)
    return model.to(x.device)


def _r(model: MLP) -> torch.Tensor:
    """R = Wᵀ diag(a²) W, (d, d), up to a scale that ρ does not depend on."""
    first, readout = (weight.detach() for weight in model.parameters())
    scaled = readout.T * first  # (k, d)
    return scaled.T @ scaled
