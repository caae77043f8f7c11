import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.papers.beaglehole2024.experiments import relu_networks
from feature_alignment.papers.beaglehole2024.experiments.svhn_slo import _standardised, run_seed
from feature_alignment.papers.beaglehole2024.parameters import SVHNSLO
from feature_alignment.pipeline.run import SeedRun

PARAMETERS = SVHNSLO(
    samples=40,
    test_samples=20,
    width=12,
    hidden_layers=2,
    optimizer="slo",
    learning_rate=0.3,
    epsilon=0.0,
    epochs=1,
    measure_every=1,
    precision="float64",
)


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    arrays = {}
    for split, n in (("train", 60), ("test", 30)):
        labels = np.arange(n) % 3
        images = rng.integers(0, 60, (n, 4, 4, 3)) + 60 * labels[:, None, None, None]
        images[:, 0, 0] = 7  # pixels that never change
        arrays |= {f"x_{split}": images.astype(np.uint8), f"y_{split}": labels}
    return Dataset(arrays, {"name": "toy", "description": "toy", "class_names": ["a", "b", "c"]})


def run(dataset, **changes):
    result = run_seed(
        SeedRun(0, PARAMETERS.but(**changes), torch.device("cpu"), {"dataset": dataset})
    )
    return result, pd.DataFrame(result.rows)


def test_slo_moves_the_first_layer_by_its_speed(dataset):
    _, rows = run(dataset)
    change = rows[(rows["metric"] == "weight_change") & (rows["step"] == 1)]
    change = change.set_index("layer")["value"]
    # ‖W − W₀‖ is rate · speed = 0.75; ‖W₀‖² is about k·d·(1/3d) = 4.
    assert change["layers.0"] == pytest.approx(0.75 / np.sqrt(4 + 0.75**2), rel=0.15)
    assert change["layers.1"] < change["layers.0"] / 4


def test_training_learns_the_classes_and_diagonals_are_images(dataset):
    result, rows = run(dataset, optimizer="gd", learning_rate=0.5, epochs=150, measure_every=75)
    last = rows[rows["step"] == 150]
    accuracy = last[(last["metric"] == "accuracy") & (last["split"] == "test")]["value"].item()
    assert accuracy > 0.9
    assert set(result.arrays) == {"nfm_diagonal", "agop_diagonal"}
    for name, diagonal in result.arrays.items():
        assert diagonal.shape == (4, 4, 3)
        contrast = last[last["metric"] == f"{name}_contrast"]["value"].item()
        assert contrast == pytest.approx(diagonal.std() / diagonal.mean())


def test_first_outputs_are_small_since_pixels_are_standardised(dataset):
    _, rows = run(dataset, samples=60, optimizer="gd", learning_rate=1e-9)
    # Outputs are small at first, so the loss is about the targets' variance, (1 − 1/3)/3.
    start = rows[(rows["metric"] == "loss") & (rows["split"] == "train") & (rows["step"] == 0)]
    assert start["value"].item() == pytest.approx(2 / 9, rel=0.35)


def test_every_layer_has_the_initial_scale(dataset, monkeypatch):
    def recorded(run, inputs, outputs, scales, init, *, own=relu_networks.new_network):
        seen.append((inputs, outputs, scales, init))
        return own(run, inputs, outputs, scales, init)

    seen = []
    monkeypatch.setattr(relu_networks, "new_network", recorded)
    run(dataset, initial_scale=0.5, initialisation="kaiming")
    assert seen == [(48, 3, [0.5] * 3, "kaiming")]


def test_a_large_epsilon_slows_every_layer_down(dataset):
    _, rows = run(dataset, epsilon=1e6)
    changes = rows[(rows["metric"] == "weight_change") & (rows["step"] == 1)]["value"]
    assert changes.max() < 1e-4


def values(rows, metric, split="train"):
    rows = rows[(rows["metric"] == metric) & (rows["split"] == split)]
    return rows.set_index(["layer", "step"])["value"]


def test_steps_count_epochs_of_as_many_batches_as_the_images_fill(dataset):
    settings = {"optimizer": "gd", "learning_rate": 1e-4, "epochs": 2}
    whole, batches = (
        values(run(dataset, batch_size=size, **settings)[1], "weight_change") for size in (None, 9)
    )
    assert sorted({*batches.index.get_level_values("step")}) == [0, 1, 2]
    # 40 images are five batches; at this rate each update is nearly that of all images at once.
    for epoch in (1, 2):
        assert batches["layers.0", epoch] == pytest.approx(5 * whole["layers.0", epoch], rel=0.3)


def test_one_norm_of_all_layers_makes_every_step_smaller(dataset):
    own, whole = (
        values(run(dataset, gradient_norm=norm)[1], "weight_change") for norm in ("layer", "global")
    )
    for layer in ("layers.0", "layers.1"):
        assert 0 < whole[layer, 1] < 0.9 * own[layer, 1]


def test_losses_of_outputs_near_zero(dataset):
    settings = {"samples": 60, "optimizer": "gd", "learning_rate": 1e-9, "initial_scale": 1e-3}
    # One-hot targets of three classes, less their mean or not, and log 3 nats.
    expected = {
        "mse": 2 / 9,
        "mse_one_hot": 1 / 3,
        "squared_error": 2 / 3,
        "cross_entropy": np.log(3),
    }
    for loss, at_zero in expected.items():
        _, rows = run(dataset, loss=loss, **settings)
        for split in ("train", "test"):
            assert values(rows, "loss", split)["all", 0] == pytest.approx(at_zero, rel=1e-3)


def test_a_loss_with_larger_gradients_gives_slo_more_speed(dataset):
    settings = {"epsilon": 0.2, "learning_rate": 1e-3}
    small, large = (
        values(run(dataset, loss=loss, **settings)[1], "weight_change")["layers.0", 1]
        for loss in ("mse", "squared_error")
    )
    assert 1.2 * small < large < 3 * small


def test_the_first_layer_has_a_speed_and_all_others_another(dataset, monkeypatch):
    def recorded(model, *given, **options):
        seen.append((*given, options))
        return torch.optim.SGD(model.parameters(), 0.1)

    seen = []
    monkeypatch.setattr(relu_networks, "speed_limited", recorded)
    run(dataset, first_speed=2.5, other_speed=0.4, epsilon=0.2, hidden_layers=3)
    assert seen == [(0.3, [2.5, 0.4, 0.4, 0.4], 0.2, {"gradient_norm": "layer"})]


def test_test_pixels_are_measured_by_training_pixels(dataset):
    train, test = (dataset.split(split)[0] for split in ("train", "test"))
    found = _standardised(train, test)
    flat = [images.reshape(len(images), -1).astype(float) for images in (train, test)]
    mean, deviation = flat[0].mean(axis=0), flat[0].std(axis=0)
    for given, pixels in zip(flat, found, strict=True):
        np.testing.assert_allclose(pixels * deviation, given - mean, atol=1e-9)
    changing = deviation > 0
    assert found[0][:, changing].std(axis=0) == pytest.approx(1)


def test_the_recorded_correlation_is_pearsons_of_the_recorded_images(dataset):
    result, rows = run(dataset)
    diagonals = [result.arrays[f"{name}_diagonal"].ravel() for name in ("nfm", "agop")]
    found = values(rows, "diagonal_correlation")["layers.0", 1]
    assert found == pytest.approx(np.corrcoef(*diagonals)[0, 1], abs=1e-10)
