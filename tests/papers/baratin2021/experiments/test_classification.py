import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from feature_alignment.data.canonical import Dataset
from feature_alignment.determinism import stream, torch_stream
from feature_alignment.errors import UserError
from feature_alignment.papers.baratin2021.experiments import classification
from feature_alignment.papers.baratin2021.experiments.classification import build_network, run_seed
from feature_alignment.papers.baratin2021.parameters import Classification
from feature_alignment.pipeline.labelled_images import labelled_images
from feature_alignment.pipeline.run import SeedRun

PARAMETERS = Classification(
    model="mlp",
    learning_rate=0.02,
    train_samples=60,
    kernel_samples=30,
    base_width=2,
    width=16,
    linear_layers=3,
    batch_size=20,
    steps=12,
    measure_at={"first": 5, "ratio": 1.5},
)
SHAPE = (3, 32, 32)


@pytest.fixture(scope="module")
def dataset():
    """Classes that differ in the brightness of one of ten bars."""
    rng = stream(0, "tests/classification")
    arrays = {}
    for split, n in (("train", 80), ("test", 40)):
        y = np.arange(n) % 10
        x = rng.integers(0, 100, (n, 32, 32, 3))
        for i, label in enumerate(y):
            x[i, 3 * label : 3 * label + 3] += 150
        arrays |= {f"x_{split}": x.astype(np.uint8), f"y_{split}": y}
    return Dataset(arrays, {"name": "bars", "description": "bars"})


def seed_run(dataset=None, seed=0, **changes):
    return SeedRun(seed, PARAMETERS.but(**changes), torch.device("cpu"), {"dataset": dataset})


def run(dataset, seed=0, **changes):
    return run_seed(seed_run(dataset, seed, **changes))


def values(result, metric, split="train", layer="all"):
    frame = pd.DataFrame(result.rows)
    chosen = frame[(frame[["metric", "split", "layer"]] == [metric, split, layer]).all(axis=1)]
    return chosen.set_index("step")["value"]


def test_an_easy_task_is_learned_and_the_kernel_aligns_with_its_labels(dataset):
    result = run(dataset, steps=60)
    accuracy = values(result, "accuracy", "test")
    alignment = values(result, "label_alignment", "test")
    assert list(accuracy.index[:4]) == [0, 5, 7, 11]
    assert accuracy.iloc[-1] > 0.9
    assert alignment.iloc[-1] > 1.5 * alignment.iloc[0]
    assert values(result, "effective_rank").iloc[-1] < values(result, "effective_rank").iloc[0]


def test_the_share_of_random_labels_is_exact_and_test_labels_stay_true(dataset):
    clean, noisy = run(dataset), run(dataset, random_label_share=0.5)
    assert values(clean, "wrong_label_share")[0] == 0
    # 30 of 60 labels are random, and some of those are right by chance.
    assert 0.25 < values(noisy, "wrong_label_share")[0] < 0.5
    # Before the first update only labels differ, and only those of the training batch.
    for metric in ("accuracy", "label_alignment"):
        assert values(clean, metric, "test")[0] == values(noisy, metric, "test")[0]
    assert values(clean, "label_alignment")[0] != values(noisy, "label_alignment")[0]
    assert values(clean, "effective_rank")[0] == values(noisy, "effective_rank")[0]


def test_the_same_seed_gives_the_same_numbers_and_another_one_others(dataset):
    first, again, other = (run(dataset, seed=seed, augmentation=True) for seed in (0, 0, 1))
    assert first.rows == again.rows
    assert first.rows != other.rows
    assert first.rows != run(dataset).rows


def test_the_kernel_is_measured_on_images_that_there_are(dataset):
    with pytest.raises(
        UserError,
        match=r"^experiments\.baratin2021_classification\.kernel_samples: found 41, at most 40 is "
        r"allowed, the number of test images\.$",
    ):
        run(dataset, kernel_samples=41)


def test_every_layer_is_measured_from_input_to_output(dataset):
    layers = pd.DataFrame(run(dataset).rows)["layer"].unique()
    assert [layer for layer in layers if layer != "all"] == ["layers.0", "layers.1", "layers.2"]


@pytest.mark.parametrize("model", ["vgg11", "vgg19", "resnet18", "mlp"])
@pytest.mark.parametrize("norms", [[], ["vgg", "resnet18"]])
def test_networks_have_batch_norm_where_they_are_asked_to(model, norms):
    network = build_network(seed_run(model=model, batch_norm=norms), SHAPE)
    has = any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    assert has == (bool(norms) and model != "mlp")
    assert network(torch.ones(2, *SHAPE)).shape == (2, 10)


@pytest.mark.parametrize(("key", "least"), [("steps", 10), ("kernel_samples", 16)])
def test_what_the_figures_need_is_the_least_allowed(key, least):
    assert Classification().but(**{key: least})
    with pytest.raises(UserError, match=f"{key}: found {least - 1}, at least {least} is needed"):
        Classification().but(**{key: least - 1})


def test_training_and_evaluation_have_the_settings_asked_for(dataset, monkeypatch):
    seen = []
    monkeypatch.setattr(classification, "train", lambda *_, **given: seen.append(given) or 1 / 0)
    settings = {"learning_rate": 0.03, "momentum": 0.7, "weight_decay": 0.5}
    with pytest.raises(ZeroDivisionError):
        run(dataset, evaluation_samples=25, steps=13, **settings)
    (given,) = seen
    (group,) = given["optimizer"].param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.03, 0.7, 0.5)
    sizes = {split: (len(x), len(y)) for split, (x, y) in given["evaluate_on"].items()}
    assert sizes == {"train": (25, 25), "test": (25, 25)}
    assert given["measure_at"] >= {0, 13}


@pytest.mark.parametrize(("init", "moves"), [("pytorch", True), ("kaiming_zero_bias", False)])
@pytest.mark.parametrize("model", ["mlp", "vgg11"])
def test_initial_weights_are_those_asked_for(model, init, moves):
    network = build_network(seed_run(model=model, init=init), SHAPE)
    biases = [value for name, value in network.named_parameters() if name.endswith("bias")]
    assert all(bool(bias.any()) == moves for bias in biases)


@pytest.mark.slow
def test_networks_with_batch_norm_are_measured_with_their_running_statistics(dataset):
    """In training mode a batch of 16 and a batch of 30 would normalise the images differently."""
    options = {"model": "vgg11", "batch_norm": ["vgg"], "steps": 10, "measure_at": [2]}
    many, few = (run(dataset, kernel_samples=number, **options) for number in (30, 16))
    assert values(many, "accuracy", "test")[2] == values(few, "accuracy", "test")[2]
    trained = build_network(seed_run(**options), SHAPE)
    assert trained.training  # so it is the measurement that changes the mode, see `undisturbed`


def test_the_network_trains_on_the_noisy_labels_and_is_measured_on_the_first_images(
    dataset, monkeypatch
):
    seen, batches = [], []
    monkeypatch.setattr(classification, "TangentKernelProbe", lambda b, **_: batches.append(b))
    monkeypatch.setattr(
        classification, "train", lambda *given, **options: seen.append((given, options)) or 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        run(dataset, random_label_share=0.5, augmentation=True)
    (((_, x, y), options),) = seen
    splits, _ = labelled_images(seed_run(dataset), 60, PARAMETERS.test_samples, 0.5)
    assert torch.equal(x, splits["train"][0])
    assert torch.equal(y, splits["train"][1])
    for split, (inputs, labels) in splits.items():
        assert torch.equal(batches[0][split].x, inputs[:30])
        assert batches[0][split].y.argmax(dim=1).tolist() == labels[:30].tolist()
    drawn = options["augment"].state_dict()["generator"]
    assert torch.equal(drawn, torch_stream(0, "augmentation").get_state())
    assert options["batch_size"] == 20


def test_convolutions_have_the_width_asked_for():
    network = build_network(seed_run(model="vgg11", base_width=3), SHAPE)
    assert next(network.parameters()).shape[0] == 3
