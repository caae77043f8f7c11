"""beaglehole2024, Figure 3, Section 4.4, Appendices F and G: the alignment reversing data set."""

from functools import cache, partial

import numpy as np
import torch

from feature_alignment.data.alignment_reversing import AlignmentReversing as Data
from feature_alignment.determinism import torch_stream
from feature_alignment.free_probability import centred_correlation as correlation
from feature_alignment.free_probability import random_features as features
from feature_alignment.free_probability.words import matrix_trace
from feature_alignment.layer_features.feature_matrices import cosine_similarity
from feature_alignment.papers.beaglehole2024.parameters import AlignmentReversing
from feature_alignment.pipeline.run import SeedResult, SeedRun

NETWORK_SEED = 0  # the networks are the same for every data seed, as in the paper


def run_seed(run: SeedRun[AlignmentReversing]) -> SeedResult:
    """Predict and observe the correlation at every balance, for one draw of the data.

    All in float64: the data's singular values span six orders of magnitude, A and B their powers.
    """
    p, device = run.parameters, str(run.device)
    networks = [_network(p.size, index, device) for index in range(p.observed_networks)]
    sampled = _average_moments(p.size, p.moment_networks, device)
    limit = features.limiting_moments(1.0, features.gaussian_even_moments(4))
    options = p.model_dump(include={"reading", "epsilon1", "epsilon2", "delta", "label_shift"})
    data = Data(p.size, run.stream("data"), **options)
    result = SeedResult()
    for gamma in p.balances:
        x, y = (torch.tensor(array, device=run.device) for array in data.sample(gamma))
        matrices = correlation.data_matrices(x, y)
        add = partial(result.add, step=0, balance=gamma)
        for index, r in enumerate(networks):
            add("observed", correlation.observed_correlation(matrices, r), network=index)
        trace = matrix_trace(matrices)
        add("predicted", correlation.predicted_correlation(trace, sampled))
        add("predicted_from_limits", correlation.predicted_correlation(trace, limit))
        label_weighted = x.T @ (y[:, None] * x)
        unique = label_weighted @ matrices["B"] @ label_weighted
        add("data_cosine", cosine_similarity(x.T @ x, label_weighted))
        unshifted = y - p.label_shift  # as if step 5 of Appendix G were left out
        label_weighted = x.T @ (unshifted[:, None] * x)
        add("data_cosine_unshifted", cosine_similarity(x.T @ x, label_weighted))
        plain = correlation.data_matrices(x, unshifted)
        add("observed_unshifted", correlation.observed_correlation(plain, networks[0]))
        add("unique_term_identity", _similarity_to_identity(unique))
        add("nfm_derivative_identity", _similarity_to_identity(matrices["A"]))
    for power, (mean, limiting) in enumerate(zip(sampled, limit, strict=True), start=1):
        result.add("sampled_moment", mean, step=0, power=power)
        result.add("limiting_moment", limiting, step=0, power=power)
    exact = features.second_moment_at_finite_size(p.size, p.size, features.gaussian_even_moments(2))
    result.add("exact_moment", exact, step=0, power=2)
    return result


@cache
def _network(size: int, index: int, device: str) -> torch.Tensor:
    """R of one network, cached for the other data seeds."""
    return features.sample_r(size, size, torch_stream(NETWORK_SEED, f"network/{index}"), device)


@cache
def _average_moments(size: int, networks: int, device: str) -> list[float]:
    """The moments of R averaged over separate networks, as in the paper."""
    generator = torch_stream(NETWORK_SEED, "moments")
    sampled = (features.sample_r(size, size, generator, device) for _ in range(networks))
    return np.mean([features.matrix_moments(r) for r in sampled], axis=0).tolist()


def _similarity_to_identity(matrix: torch.Tensor) -> float:
    """ρ(M, I) = Tr M / (‖M‖ √d)."""
    return float(matrix.diagonal().sum() / torch.linalg.matrix_norm(matrix)) / len(matrix) ** 0.5
