"""Predicted and observed C-NFC at initialisation on the alignment reversing data set.

Source: beaglehole2024, Figure 3, Section 4.4 and Appendices F and G.
"""

from functools import cache
from typing import Any

import numpy as np
import torch

from feature_alignment.data.alignment_reversing import AlignmentReversing
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.free_probability.centred_correlation import (
    data_matrices,
    observed_correlation,
    predicted_correlation,
)
from feature_alignment.free_probability.random_features import (
    gaussian_even_moments,
    limiting_moments,
    matrix_moments,
    sample_r,
    second_moment_at_finite_size,
)
from feature_alignment.free_probability.words import matrix_trace
from feature_alignment.pipeline.run import SeedResult

Parameters = dict[str, Any]
NETWORK_SEED = 0
"""The networks are the same for every data seed, as in the paper."""


def run_seed(
    seed: int, parameters: Parameters, device: torch.device, dataset: None, label: str
) -> SeedResult:
    """Predict and observe the correlation at every balance, for one draw of the data.

    All in float64: the data's singular values span six orders of magnitude, A and B their powers.

    Args:
        seed: of the data; the networks do not depend on it.
        parameters: the section `beaglehole2024_alignment_reversing` of the config.
        device: where to compute.
        dataset: none is used.
        label: names the run in its progress lines.

    Returns:
        By balance: ρ observed with each network (column `network`), predicted from the moments of
        R averaged over sampled networks, and predicted from their limits; the similarity of
        XᵀYX·XᵀX·XᵀYX to the identity. The moments themselves (column `power`).
    """
    n, k = parameters["size"], parameters["size"]
    networks = [_network(n, k, i, str(device)) for i in range(parameters["observed_networks"])]
    sampled = _average_moments(n, k, parameters["moment_networks"], str(device))
    limit = limiting_moments(n / k, gaussian_even_moments(4))
    data = AlignmentReversing(
        n,
        stream(seed, "data"),
        reading=parameters["reading"],
        epsilon1=parameters["epsilon1"],
        epsilon2=parameters["epsilon2"],
        delta=parameters["delta"],
        label_shift=parameters["label_shift"],
    )
    result = SeedResult()
    for gamma in parameters["balances"]:
        x, y = (torch.tensor(array, device=device) for array in data.sample(gamma))
        matrices = data_matrices(x, y)
        where = {"step": 0, "balance": gamma}
        for index, r in enumerate(networks):
            result.add("observed", observed_correlation(matrices, r), **where, network=index)
        trace = matrix_trace(matrices)
        result.add("predicted", predicted_correlation(trace, sampled), **where)
        result.add("predicted_from_limits", predicted_correlation(trace, limit), **where)
        label_weighted = x.T @ (y[:, None] * x)
        unique = label_weighted @ matrices["B"] @ label_weighted
        result.add("unique_term_identity", _similarity_to_identity(unique), **where)
    for power, (mean, limiting) in enumerate(zip(sampled, limit, strict=True), start=1):
        result.add("sampled_moment", mean, step=0, power=power)
        result.add("limiting_moment", limiting, step=0, power=power)
    exact = second_moment_at_finite_size(n, k, gaussian_even_moments(2))
    result.add("exact_moment", exact, step=0, power=2)
    return result


@cache
def _network(d: int, k: int, index: int, device: str) -> torch.Tensor:
    """R of one network, kept for the other data seeds."""
    return sample_r(d, k, torch_stream(NETWORK_SEED, f"network/{index}"), device)


@cache
def _average_moments(d: int, k: int, networks: int, device: str) -> list[float]:
    """The moments of R averaged over networks of their own, as the paper does."""
    generator = torch_stream(NETWORK_SEED, "moments")
    moments = [matrix_moments(sample_r(d, k, generator, device)) for _ in range(networks)]
    return np.mean(moments, axis=0).tolist()


def _similarity_to_identity(matrix: torch.Tensor) -> float:
    """ρ(M, I) = Tr M / (‖M‖ √d)."""
    return float(matrix.diagonal().sum() / torch.linalg.matrix_norm(matrix)) / len(matrix) ** 0.5
