import numpy as np
import pytest
import torch

from feature_alignment.errors import UserError
from feature_alignment.papers.beaglehole2024.experiments.chain_task import chain_network, chain_task

PARAMETERS = {
    "samples": 200,
    "test_samples": 3000,
    "dimension": 6,
    "rank": 5,
    "width": 7,
    "hidden_layers": 2,
    "precision": "float64",
}
CPU = torch.device("cpu")


@pytest.mark.parametrize("decay", [None, 2.0])
def test_labels_are_the_chain_in_units_of_the_training_deviation(decay):
    task = chain_task(0, PARAMETERS, CPU, decay)

    def raw(x):
        return sum(x[:, k] * x[:, (k + 1) % 5] for k in range(5))

    assert task.y.std(correction=0).item() == pytest.approx(1)
    scale = raw(task.x).std(correction=0)
    torch.testing.assert_close(task.y[:, 0], raw(task.x) / scale)
    torch.testing.assert_close(task.y_test[:, 0], raw(task.x_test) / scale)


def test_training_and_test_inputs_share_the_decaying_spectrum_and_its_eigenvectors():
    many = {**PARAMETERS, "samples": 3000}
    task = chain_task(1, many, CPU, 2.0)
    covariances = [(x.T @ x / len(x)).numpy() for x in (task.x, task.x_test)]
    assert np.abs(covariances[0] - covariances[1]).max() < 0.06
    eigenvalues = np.linalg.eigvalsh(sum(covariances) / 2)[::-1]
    assert eigenvalues == pytest.approx(1 / (1 + np.arange(1, 7) ** 2.0), rel=0.12)


def test_too_high_a_rank_is_named():
    with pytest.raises(UserError, match="rank: found 5, above the dimension 4"):
        chain_task(0, {**PARAMETERS, "dimension": 4}, CPU)


def test_each_layer_of_the_network_has_its_scale():
    ones, scaled = (
        chain_network(3, PARAMETERS, scales, CPU) for scales in ([1, 1, 1], [0.1, 1, 0.01])
    )
    for layer, other, scale in zip(ones.layers, scaled.layers, (0.1, 1, 0.01), strict=True):
        torch.testing.assert_close(layer.weight * scale, other.weight)
