"""The C-NFC at initialisation for data on the sphere, in growing dimension.

Source: beaglehole2024, Theorem 9.
"""

from collections.abc import Callable
from math import log
from typing import Any

import torch

from feature_alignment.data.synthetic import uniform_sphere
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.features.feature_matrices import cosine_similarity
from feature_alignment.free_probability.dual_kernels import DUALS
from feature_alignment.models.mlp import ACTIVATIONS
from feature_alignment.pipeline.run import SeedResult

Parameters = dict[str, Any]
BLOCK = 2048
"""Rows of the kernel matrix that are in memory at a time."""
SAMPLE_SIZES: dict[str, Callable[[int], float]] = {
    "d/4": lambda d: d / 4,
    "d": lambda d: d,
    "4d log d": lambda d: 4 * d * log(d),
    "d log³d": lambda d: d * log(d) ** 3,
}
"""Numbers of samples n by their names. The theorem asks for more than d log³d, for l = 1."""
TARGETS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "linear": lambda z: z,
    "non-linear": lambda z: z + z**2 - 1,
    "no linear part": lambda z: z**2 - 1,
}
"""Targets as functions of z = βᵀx with ‖β‖ = 1."""
SMALL_READOUT = 1e-3


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: None, label: str
) -> SeedResult:
    """Measure 1 − ρ with the kernel of infinite width, and with a wide network.

    W has variance 1/d: with variance O(1/k), as the theorem says, the pre-activations vanish as
    k → ∞ and the kernel is trivially of rank one.

    Args:
        seed: of data, target and network.
        parameters: the section `beaglehole2024_theorem9` of the config.
        device: where to compute.
        dataset: none is used.
        label: names the run in its progress lines.

    Returns:
        1 − ρ by dimension, sample size and target; for one dimension 1 − ρ of a network, by how
        its initial outputs are made zero (column `method`).
    """
    result = SeedResult()
    for d in parameters["dimensions"]:
        for size, rule in SAMPLE_SIZES.items():
            n = round(rule(d))
            if n > parameters["most_samples"]:
                continue
            x, z = _sphere(seed, n, d, device)
            targets = {name: target(z) for name, target in TARGETS.items()}
            values = _deviations(x, targets, parameters["activation"])
            for name, value in values.items():
                where = {"step": 0, "dimension": d, "sample_size": size, "target": name}
                result.add("one_minus_correlation", value, **where, samples=n)
    if parameters["activation"] in ACTIVATIONS:
        _add_network(result, seed, parameters, device)
    return result


def _sphere(seed: int, n: int, d: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs x uniform on the sphere of radius √d, and z = x_1: any β is as good as e_1."""
    x = torch.tensor(uniform_sphere(n, d, d**0.5, stream(seed, f"data/{d}")), device=device)
    return x, x[:, 0]


def _deviations(
    x: torch.Tensor, targets: dict[str, torch.Tensor], activation: str
) -> dict[str, float]:
    """1 − ρ(XᵀY𝒦YX, XᵀY𝒦²YX) for each target, without ever holding 𝒦 as a whole."""
    d = x.shape[1]
    weighted = torch.cat([y[:, None] * x for y in targets.values()], dim=1)  # (n, targets·d)
    one = x.new_ones(())
    images = torch.cat(
        [
            DUALS[activation].derivative(one, one, rows @ x.T / d) @ weighted
            for rows in x.split(BLOCK)
        ]
    )
    parts = zip(targets, weighted.split(d, dim=1), images.split(d, dim=1), strict=True)
    return {name: _deviation(part, image) for name, part, image in parts}


def _deviation(weighted: torch.Tensor, image: torch.Tensor) -> float:
    """1 − ρ from YX and 𝒦YX, both (n, d)."""
    return 1 - cosine_similarity(weighted.T @ image, image.T @ image)


def _add_network(
    result: SeedResult, seed: int, parameters: Parameters, device: torch.device
) -> None:
    """1 − ρ of one wide network on a linear target, by how its initial outputs are made zero."""
    d, width = parameters["network_dimension"], parameters["network_width"]
    x, z = _sphere(seed, round(SAMPLE_SIZES["4d log d"](d)), d, device)
    rng = {"generator": torch_stream(seed, "init"), "dtype": x.dtype}
    weight = (torch.randn(width, d, **rng) / d**0.5).to(device)
    readout = (torch.randn(width, **rng) / width**0.5).to(device)
    h = (x @ weight.T).requires_grad_()  # (n, k)
    activations = ACTIVATIONS[parameters["activation"]](h)
    (slopes,) = torch.autograd.grad(activations.sum(), h)
    outputs = activations.detach() @ readout
    # Methods 7 and 8, and neither. The kernel of the second is the first's times ε².
    residuals = {
        "copy subtracted": z,
        "small readout": z - SMALL_READOUT * outputs,
        "neither": z - outputs,
    }
    features = slopes * readout  # ∂f/∂h, (n, k)
    for method, residual in residuals.items():
        weighted = residual[:, None] * x
        value = _deviation(weighted, features @ (features.T @ weighted))
        result.add(
            "one_minus_correlation_of_network",
            value,
            step=0,
            dimension=d,
            sample_size="4d log d",
            target="linear",
            samples=len(x),
            method=method,
        )
