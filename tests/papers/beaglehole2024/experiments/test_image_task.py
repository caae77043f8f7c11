import contextlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from feature_alignment.data.canonical import Dataset
from feature_alignment.determinism import stream
from feature_alignment.papers.beaglehole2024.experiments import image_mlp, image_task, image_vgg
from feature_alignment.papers.beaglehole2024.experiments.image_task import draw_samples
from feature_alignment.papers.beaglehole2024.parameters import ImageMLP, ImageVGG
from feature_alignment.pipeline.run import SeedRun
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.checkpoint import Checkpoints
from feature_alignment.training.errors import TrainingDivergedError

TRAINING = {"samples": 30, "test_samples": 20, "learning_rate": 0.02, "batch_size": 8}
TRAINING |= {"epochs": 3, "measure_every": 2, "probe_samples": 6, "precision": "float64"}
MLP = ImageMLP(**TRAINING, width=12, hidden_layers=2)


@pytest.fixture(scope="module")
def dataset():
    """Images of ten classes, told apart by their brightness, in the files' order of classes."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, n in (("train", 40), ("test", 20)):
        labels = np.sort(np.arange(n) % 10)
        images = rng.integers(0, 20, (n, 32, 32, 3)) + 20 * labels[:, None, None, None]
        arrays |= {f"x_{split}": images.astype(np.uint8), f"y_{split}": labels}
    return Dataset(arrays, {"name": "cifar10", "description": "toy"})


def seed_run(dataset, parameters):
    return SeedRun(0, parameters, torch.device("cpu"), {"dataset": dataset})


def run_mlp(dataset, **changes):
    return pd.DataFrame(image_mlp.run_seed(seed_run(dataset, MLP.but(**changes))).rows)


def test_channels_are_standardised_and_targets_centred(dataset):
    task = draw_samples(seed_run(dataset, MLP))
    x, y = task["train"]
    assert x.shape == (30, 3, 32, 32)
    assert x.mean(dim=(0, 2, 3)).abs().max() < 1e-5
    assert (x.std(dim=(0, 2, 3), correction=0) - 1).abs().max() < 1e-5
    assert y.sum(dim=1).abs().max() < 1e-12
    assert y.unique().tolist() == pytest.approx([-0.1, 0.9])
    rng = stream(0, "data")
    for split, (_, targets) in task.items():
        _, classes = dataset.draw(split, len(targets), rng)
        assert targets.argmax(dim=1).tolist() == classes.tolist()


def test_pixels_can_stay_between_0_and_1(dataset):
    (x, _), (standardised, _) = (
        draw_samples(seed_run(dataset, MLP.but(pixels=pixels)))["train"]
        for pixels in ("unit", "standardised")
    )
    assert 0 <= x.min() < 0.1 < 0.6 < x.max() <= 1
    deviation = x.std(dim=(0, 2, 3), correction=0, keepdim=True)
    expected = (x - x.mean(dim=(0, 2, 3), keepdim=True)) / deviation
    torch.testing.assert_close(standardised, expected, atol=1e-4, rtol=1e-4)


def test_a_small_dataset_gives_all_it_has_and_says_so(dataset, caplog):
    task = draw_samples(seed_run(dataset, MLP.but(samples=1000, test_samples=1000)))
    assert [len(x) for x, _ in task.values()] == [40, 20]
    told, _ = (record.getMessage() for record in caplog.records)
    assert told.endswith("toy has 40 train images where 1000 are asked for; all are used")


def test_steps_of_the_rows_are_epochs_and_the_first_is_always_there(dataset):
    rows = run_mlp(dataset)
    assert sorted(rows["step"].unique()) == [0, 1, 2, 3]
    assert set(rows["layer"]) == {"all", "layers.0", "layers.1"}
    assert {"accuracy", "loss", "nfc", "centred_nfc", "weight_change"} <= set(rows["metric"])


def test_the_slow_epoch_comes_before_the_others_and_hardly_moves_the_weights(dataset):
    slow = run_mlp(dataset, first_epoch_rate=1e-4)
    assert slow["step"].max() == 4
    change = slow[(slow["metric"] == "weight_change") & (slow["layer"] == "layers.0")]
    change = change.set_index("step")["value"]
    assert 0 < change[1] < 0.01 * change[4]


def test_a_first_epoch_at_the_same_rate_is_an_epoch_like_the_others(dataset):
    same = run_mlp(dataset, first_epoch_rate=MLP.learning_rate, epochs=1)
    pd.testing.assert_frame_equal(same, run_mlp(dataset, epochs=2))


def test_vgg_measures_its_convolutions_and_hidden_linear_layers(dataset):
    run = seed_run(dataset, ImageVGG(**TRAINING | {"epochs": 1}, base_width=1))
    rows, again = (pd.DataFrame(image_vgg.run_seed(run).rows) for _ in range(2))
    layers = set(rows["layer"]) - {"all"}
    assert sum(name.startswith("features.") for name in layers) == 8
    assert {name for name in layers if name.startswith("head.")} == {"head.0", "head.3"}
    pd.testing.assert_frame_equal(rows, again)  # dropout's masks are the seed's


def test_a_network_that_diverges_later_is_kept_up_to_there_and_marked(dataset):
    whole = run_mlp(dataset, first_epoch_rate=1e-4)
    rows = run_mlp(dataset, first_epoch_rate=1e-4, learning_rate=1e200)
    marks = rows[rows["metric"] == "diverged_after"]
    assert marks[["step", "layer", "value"]].to_numpy().tolist() == [[1, "all", 1.0]]
    assert "diverged_after" not in set(whole["metric"])
    kept = whole[whole["step"] <= 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(rows.drop(marks.index), kept)


def test_a_network_that_diverges_in_its_first_epoch_is_an_error(dataset):
    with pytest.raises(TrainingDivergedError, match=r"learning rate 1e\+200; use a smaller"):
        run_mlp(dataset, learning_rate=1e200)


def test_what_was_measured_before_a_run_was_killed_is_kept_too(dataset, tmp_path):
    run = seed_run(dataset, MLP.but(first_epoch_rate=1e-4, learning_rate=1e200, epochs=1))
    ended = []
    for _ in range(8):  # updates, each in a start of its own; measured after none, 4 and 8
        checkpoints = Checkpoints(tmp_path, "toy", interval=0.0)
        checkpoints.end_soon()
        with contextlib.suppress(KeyboardInterrupt):
            ended.append(image_mlp.run_seed(replace(run, checkpoints=checkpoints)))
    (found,) = ended
    assert found.rows == image_mlp.run_seed(run).rows


def test_a_network_without_gradients_from_the_start_is_an_error(dataset, monkeypatch):
    def dead(step, model):
        raise TrainingDivergedError(f"after step {step} no gradient reaches a layer")

    monkeypatch.setattr(image_task, "FeatureProbe", lambda *_, **__: dead)
    with pytest.raises(TrainingDivergedError, match="after step 0 no gradient"):
        run_mlp(dataset)


def test_the_vgg_has_no_biases_and_all_but_its_readout_is_measured(dataset, monkeypatch):
    seen = []
    monkeypatch.setattr(image_task, "train_network", lambda *given: seen.extend(given))
    parameters = ImageVGG(**TRAINING, base_width=1, dropout=0.25)
    image_vgg.run_seed(seed_run(dataset, parameters))
    _, model, _, layers = seen
    assert not any(name.endswith("bias") for name, _ in model.named_parameters())
    assert {part.p for part in model.modules() if isinstance(part, nn.Dropout)} == {0.25}
    names = [name for name, _ in model.named_parameters()]  # a weight for each layer
    assert [f"{layer}.weight" for layer in layers] == names[:-1]
    assert len(layers) == 8 + 2


def test_layers_are_measured_on_the_first_training_images(dataset, monkeypatch):
    def recorded(model, x, **options):
        seen.append(x)
        return FeatureProbe(model, x, **options)

    seen = []
    monkeypatch.setattr(image_task, "FeatureProbe", recorded)
    run_mlp(dataset, epochs=1)
    x, _ = draw_samples(seed_run(dataset, MLP))["train"]
    assert torch.equal(seen[0], x[:6])


def test_descent_has_the_rate_the_momentum_and_the_batches_asked_for(dataset, monkeypatch):
    seen = []
    monkeypatch.setattr(image_task, "train", lambda *_, **given: seen.append(given) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_mlp(dataset, momentum=0.4)
    (group,) = seen[0]["optimizer"].param_groups
    assert (group["lr"], group["momentum"]) == (0.02, 0.4)
    assert (seen[0]["batch_size"], seen[0]["steps"]) == (8, 3 * 4)
