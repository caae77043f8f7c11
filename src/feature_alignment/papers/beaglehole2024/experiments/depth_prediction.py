"""First-order predictions of the C-NFC at initialisation, and observed values, with two layers.

Source: beaglehole2024, Figure 7 and Appendices E and J.
"""

from typing import Any

import numpy as np
import torch

from feature_alignment.data.synthetic import (
    chain_monomial,
    high_rank_quadratic,
    power_law_gaussian,
    unit_deviation,
)
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.features.layer_signals import layer_signals
from feature_alignment.features.preactivation import preactivation_tangent_kernel
from feature_alignment.free_probability.dual_kernels import expected_preactivation_kernel
from feature_alignment.free_probability.first_order_correlation import velocity_correlation
from feature_alignment.models.mlp import MLP
from feature_alignment.pipeline.run import SeedResult

Parameters = dict[str, Any]
PYTORCH_VARIANCE = 1 / 3
"""Variance of PyTorch's default weights, uniform on ±1/√fan_in, times fan_in."""


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: None, label: str
) -> SeedResult:
    """Predict and observe ρ of the first layer for each decay rate of the data's spectrum.

    Args:
        seed: of data and networks.
        parameters: the section `beaglehole2024_depth_prediction` of the config.
        device: where to compute.
        dataset: none is used.
        label: names the run in its progress lines.

    Returns:
        By decay rate: ρ from the expected PTK at infinite width, and by width ρ observed with
        each network (column `network`) and predicted with E[𝒦²], averaged over the networks, in
        place of E[𝒦]².
    """
    result = SeedResult()
    to = {"dtype": torch.float64, "device": device}
    n, d = parameters["samples"], parameters["dimension"]
    for alpha in parameters["decay_rates"]:
        inputs = power_law_gaussian(n, d, alpha, stream(seed, "data"))
        x, y = torch.tensor(inputs, **to), torch.tensor(_labels(inputs, seed, parameters), **to)
        expected = expected_preactivation_kernel(
            x, parameters["activation"], parameters["hidden_layers"], PYTORCH_VARIANCE
        )
        where = {"step": 0, "layer": "layers.0", "decay_rate": alpha}
        result.add("predicted", velocity_correlation(x, y, expected), **where)
        for width in parameters["widths"]:
            where["width"] = width
            square = torch.zeros_like(expected)
            generator = torch_stream(seed, f"networks of width {width}")
            for network in range(parameters["networks"]):
                kernel = _kernel(x, width, parameters, generator)
                square += kernel @ kernel / parameters["networks"]
                observed = velocity_correlation(x, y, kernel)
                result.add("observed", observed, **where, network=network)
            second_order = velocity_correlation(x, y, expected, square)
            result.add("predicted_with_mean_square", second_order, **where)
    return result


def _labels(x: np.ndarray, seed: int, parameters: Parameters) -> np.ndarray:
    if parameters["target"] == "low_rank":
        return unit_deviation(chain_monomial(x, parameters["rank"]))
    return unit_deviation(high_rank_quadratic(x, stream(seed, "target")))


def _kernel(
    x: torch.Tensor, width: int, parameters: Parameters, generator: torch.Generator
) -> torch.Tensor:
    """PTK of the first layer of a new network."""
    model = MLP(
        x.shape[1],
        [width] * parameters["hidden_layers"],
        1,
        parameters["activation"],
        bias=False,
        generator=generator,
        dtype=x.dtype,
    ).to(x.device)
    return preactivation_tangent_kernel(layer_signals(model, x)["layers.0"].gradients)
