"""Predicted and observed C-NFC at initialisation of one hidden layer, for any n/d and k/d.

Goes beyond beaglehole2024, Figure 3, which has n = d = k and the quadratic activation.
"""

from typing import Any

import torch

from feature_alignment.data.synthetic import chain_monomial, isotropic_gaussian, unit_deviation
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.experiments.run import SeedResult
from feature_alignment.kernels.layer_signals import layer_signals
from feature_alignment.kernels.preactivation import preactivation_tangent_kernel
from feature_alignment.models.initialisation import draw_normal
from feature_alignment.models.mlp import MLP
from feature_alignment.theory.centred_correlation import data_matrices, predicted_correlation
from feature_alignment.theory.dual_kernels import expected_preactivation_kernel
from feature_alignment.theory.first_order_correlation import velocity_correlation
from feature_alignment.theory.free_probability import matrix_trace
from feature_alignment.theory.random_features import gaussian_even_moments, limiting_moments

Parameters = dict[str, Any]


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: None, label: str
) -> SeedResult:
    """Predict and observe ρ for each pair ψ₁ = n/d, ψ₂ = k/d.

    Args:
        seed: of data and networks.
        parameters: the section `beaglehole2024_aspect_ratios` of the config.
        device: where to compute.
        dataset: none is used.
        label: names the run in its progress lines.

    Returns:
        By ψ₁ and ψ₂: ρ observed (column `network`), predicted to first order from the expected
        PTK, and for the quadratic activation predicted by free probability.
    """
    result = SeedResult()
    to = {"dtype": torch.float64, "device": device}
    d, phi = parameters["dimension"], parameters["activation"]
    for samples_ratio in parameters["samples_ratios"]:
        rng = stream(seed, f"data/{samples_ratio}")
        inputs = isotropic_gaussian(max(round(samples_ratio * d), 1), d, rng)
        x = torch.tensor(inputs, **to)
        y = torch.tensor(unit_deviation(chain_monomial(inputs, parameters["rank"])), **to)
        expected = expected_preactivation_kernel(x, phi, 1, 1.0)
        first_order = velocity_correlation(x, y, expected)
        trace = matrix_trace(data_matrices(x, y))
        for width_ratio in parameters["width_ratios"]:
            where = {"step": 0, "psi1": samples_ratio, "psi2": width_ratio}
            result.add("predicted_first_order", first_order, **where)
            if phi == "quadratic":
                moments = limiting_moments(1 / width_ratio, gaussian_even_moments(4))
                result.add("predicted", predicted_correlation(trace, moments), **where)
            generator = torch_stream(seed, f"networks/{width_ratio}")
            for network in range(parameters["networks"]):
                kernel = _kernel(x, max(round(width_ratio * d), 1), phi, generator)
                observed = velocity_correlation(x, y, kernel)
                result.add("observed", observed, **where, network=network)
    return result


def _kernel(x: torch.Tensor, width: int, phi: str, generator: torch.Generator) -> torch.Tensor:
    """PTK of a new network with W ~ N(0, I/d) and a ~ N(0, I/k)."""
    sizes = x.shape[1], [width], 1
    model = MLP(*sizes, phi, bias=False, generator=generator, dtype=x.dtype)
    for layer in model.layers:
        draw_normal(layer.weight, layer.in_features**-0.5, generator)
    return preactivation_tangent_kernel(layer_signals(model.to(x.device), x)["layers.0"].gradients)
