import numpy as np
import pytest
import torch

from feature_alignment.errors import UserError
from feature_alignment.papers.beaglehole2024.experiments.chain_task import (
    draw_samples,
    layer_scales,
    new_network,
    train_network,
)
from feature_alignment.papers.beaglehole2024.parameters import ChainParameters
from feature_alignment.pipeline.run import SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe

PARAMETERS = ChainParameters(samples=200, test_samples=3000, dimension=6, width=7, hidden_layers=2)


def seed_run(seed=0, **changes):
    return SeedRun(seed, PARAMETERS.but(**changes), torch.device("cpu"))


@pytest.mark.parametrize("decay", [None, 2.0])
def test_labels_are_the_chain_in_units_of_the_training_deviation(decay):
    task = draw_samples(seed_run(), decay)
    x, y = task["train"]
    x_test, y_test = task["test"]

    def raw(x):
        return sum(x[:, k] * x[:, (k + 1) % 5] for k in range(5))

    assert y.std(correction=0).item() == pytest.approx(1)
    scale = raw(x).std(correction=0)
    torch.testing.assert_close(y[:, 0], raw(x) / scale)
    torch.testing.assert_close(y_test[:, 0], raw(x_test) / scale)


def test_training_and_test_inputs_share_the_decaying_spectrum_and_its_eigenvectors():
    task = draw_samples(seed_run(1, samples=3000), 2.0)
    covariances = [(x.T @ x / len(x)).numpy() for x, _ in task.values()]
    assert np.abs(covariances[0] - covariances[1]).max() < 0.06
    eigenvalues = np.linalg.eigvalsh(sum(covariances) / 2)[::-1]
    assert eigenvalues == pytest.approx(1 / (1 + np.arange(1, 7) ** 2.0), rel=0.12)


def test_too_high_a_rank_is_named():
    with pytest.raises(UserError, match="rank: found 5, above the dimension 4"):
        draw_samples(seed_run(dimension=4))


def test_each_layer_of_the_network_has_its_scale():
    ones, scaled = (new_network(seed_run(3), scales) for scales in ([1, 1, 1], [0.1, 1, 0.01]))
    for layer, other, scale in zip(ones.layers, scaled.layers, (0.1, 1, 0.01), strict=True):
        torch.testing.assert_close(layer.weight * scale, other.weight)


def test_eigenvalues_of_mean_one_give_inputs_the_trace_of_isotropic_ones():
    run = SeedRun(0, PARAMETERS.but(samples=4000), torch.device("cpu"))
    (scaled, labels), (plain, same) = (
        draw_samples(run, 2.0, unit_variance=unit)["train"] for unit in (True, False)
    )
    assert scaled.square().mean().item() == pytest.approx(1, rel=0.05)
    from_0, _ = draw_samples(run, 2.0, first=0, unit_variance=True)["train"]
    assert from_0.square().mean().item() == pytest.approx(1, rel=0.05)
    torch.testing.assert_close(scaled / scaled.norm(), plain / plain.norm())
    torch.testing.assert_close(labels, same)  # of degree two, and divided by their deviation


def test_centred_labels_have_mean_zero_and_deviation_one():
    _, y = draw_samples(seed_run(centred_labels=True), 2.0)["train"]
    assert y.mean().item() == pytest.approx(0, abs=1e-12)
    assert y.std(correction=0).item() == pytest.approx(1)
    assert abs(draw_samples(seed_run(), 2.0)["train"][1].mean()) > 1e-3


@pytest.mark.parametrize(
    ("scaled", "factors"),
    [
        ("first", [0.1, 1, 1, 1]),
        ("second", [1, 0.1, 1, 1]),
        ("ends", [0.1, 1, 1, 0.1]),
        ("all", [0.1] * 4),
    ],
)
def test_scaled_layers(scaled, factors):
    assert layer_scales(0.1, scaled, 3) == factors


@pytest.mark.parametrize(("name", "variance"), [("pytorch", 1 / 3), ("kaiming", 2)])
def test_initial_weights_have_the_variance_of_their_distribution(name, variance):
    run = seed_run(initialisation=name, width=200)
    second = new_network(run, [1, 1, 1]).get_parameter("layers.1.weight")
    assert second.var().item() * 200 == pytest.approx(variance, rel=0.05)


def trained(rate, **changes):
    """The record of one step, and the network after it."""
    run = seed_run(steps=1, **changes)
    task, model = draw_samples(run), new_network(run, [1, 1, 1])
    probe = FeatureProbe(model, task["train"][0])
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    frame = train_network(run, model, task, optimizer, probe, [1]).frame()
    return frame.set_index(["layer", "split", "metric"])["value"], model


def test_half_the_loss_is_half_the_step_and_the_whole_one_is_recorded():
    (half, half_model), (whole, model) = trained(0.2, half_loss=True), trained(0.1)
    for one, other in zip(half_model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert half["all", "train", "loss"] == pytest.approx(whole["all", "train", "loss"])


def test_matrices_are_kept_whatever_the_correlation_is_called():
    run = seed_run(steps=1, subtract_mean=True)
    task, model = draw_samples(run), new_network(run, [1, 1, 1])
    probe = FeatureProbe(model, task["train"][0], keep_matrices_at=[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    arrays = train_network(run, model, task, optimizer, probe, [1]).arrays
    assert {name.partition("/")[0] for name in arrays} == {"nfm", "agop"}


def test_pearsons_correlation_takes_the_cosines_name():
    (cosine, _), (pearson, _) = trained(0.1), trained(0.1, subtract_mean=True)
    for name in ("nfc", "centred_nfc"):
        one, other = (("layers.0", "train", name + suffix) for suffix in ("", "_mean_subtracted"))
        assert (pearson[one], pearson[other]) == (cosine[other], cosine[one])
        assert pearson[one] != cosine[one]
    rest = [key for key in cosine.index if "nfc" not in key[2]]
    assert (pearson[rest] == cosine[rest]).all()
