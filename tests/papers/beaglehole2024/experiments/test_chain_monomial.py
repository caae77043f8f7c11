import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.data.synthetic import chain_monomial_egop
from feature_alignment.layer_features.feature_matrices import (
    cosine_similarity,
    spectrum_preserving_rotation,
)
from feature_alignment.papers.beaglehole2024.experiments import chain_task
from feature_alignment.papers.beaglehole2024.experiments.chain_monomial import run_seed
from feature_alignment.papers.beaglehole2024.parameters import ChainMonomial
from feature_alignment.pipeline.run import SeedRun

PARAMETERS = ChainMonomial(
    samples=50,
    test_samples=20,
    dimension=6,
    rank=5,
    width=8,
    hidden_layers=2,
    first_layer_scale=0.5,
    learning_rate=0.05,
    steps=3,
    random_conjugates=3,
    precision="float64",
)


def trained(run):
    """First weights W and covariance K after gradient descent, written out."""
    x, y = chain_task.draw_samples(run)["train"]
    weights = [layer.weight for layer in chain_task.new_network(run, [0.5, 1, 1]).layers]
    for _ in range(3):
        h = x
        for weight in weights[:-1]:
            h = torch.relu(h @ weight.T)
        loss = (h @ weights[-1].T - y).square().mean()
        gradients = torch.autograd.grad(loss, weights)
        weights = [
            (w - 0.05 * g).detach().requires_grad_()
            for w, g in zip(weights, gradients, strict=True)
        ]
    first, second, last = weights
    h = (x @ first.T).detach().requires_grad_()
    f = torch.relu(torch.relu(h) @ second.T) @ last.T
    (delta,) = torch.autograd.grad(f.sum(), h)
    return first.detach(), delta.T @ delta / len(x)


@pytest.mark.parametrize("subtract_mean", [False, True])
def test_random_conjugates_and_spectrum_are_those_of_the_trained_layer(subtract_mean):
    run = SeedRun(0, PARAMETERS.but(subtract_mean=subtract_mean), torch.device("cpu"))
    result, (w, k) = run_seed(run), trained(run)
    values = pd.DataFrame(result.rows).set_index("metric")["value"]
    spectrum = np.linalg.eigvalsh(k.numpy())
    expected = spectrum.std() / spectrum.mean()
    assert values["ptk_spectrum_std_over_mean"] == pytest.approx(expected, rel=1e-8)
    rng = run.stream("probe/random_conjugates")
    agops = [w.T @ spectrum_preserving_rotation(k, rng) @ w for _ in range(3)]
    expected = [cosine_similarity(w.T @ w, agop, subtract_mean) for agop in agops]
    assert values["nfc_random_conjugate"].tolist() == pytest.approx(expected, rel=1e-8)
    found = result.arrays["random_conjugate_agop"]
    np.testing.assert_allclose(found, agops[0], rtol=1e-8, atol=1e-12)
    egop = chain_monomial_egop(6, 5)
    np.testing.assert_array_equal(result.arrays["egop"], egop)
    assert values["nfm_egop"] == pytest.approx(cosine_similarity(w.T @ w, torch.tensor(egop)))
