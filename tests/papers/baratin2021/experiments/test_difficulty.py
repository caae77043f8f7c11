import numpy as np
import pytest
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.errors import UserError
from feature_alignment.papers.baratin2021.experiments import difficulty as baratin2021_difficulty
from feature_alignment.papers.baratin2021.experiments.difficulty import run_seed

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def bars():
    """Ten classes of 4 × 10 images, each a bright column of its own, under a little noise."""
    return stripes(axis=2)


def stripes(axis):
    rng = np.random.default_rng(axis)
    y = np.arange(400) % 10
    x = rng.integers(0, 60, (400, 10, 10, 1))
    for image, label in zip(x, y, strict=True):
        image.swapaxes(0, axis - 1)[label] += 150
    return Dataset({"x_train": x.astype(np.uint8), "y_train": y}, {"name": "bars"})


@pytest.fixture
def parameters(smoke_config):
    sizes = {"easy_samples": 200, "difficult_samples": 50, "steps": 80, "learning_rate": 0.1}
    return {**smoke_config["experiments"]["baratin2021_difficulty"], **sizes}


def last(result, metric, split):
    return [r["value"] for r in result.rows if (r["metric"], r["split"]) == (metric, split)][-1]


def test_easy_examples_are_learned_and_random_labels_are_not_yet(parameters, bars):
    result = run_seed(0, parameters, CPU, bars, "")
    assert last(result, "accuracy", "easy") > 0.9
    assert last(result, "accuracy", "difficult") < 0.5
    easy, difficult = (last(result, "label_alignment", split) for split in ("easy", "difficult"))
    assert 0 < difficult < easy < 1


def test_same_seed_same_rows(parameters, bars):
    parameters["steps"] = 6
    first, second, other = (run_seed(seed, parameters, CPU, bars, "").rows for seed in (0, 0, 1))
    assert first == second
    assert first != other


def test_a_further_dataset_gives_the_difficult_examples_with_their_labels(parameters, bars):
    rows = stripes(axis=1)
    examples = baratin2021_difficulty._examples(0, parameters, bars, rows)
    brightest = {
        "easy": examples["easy"].x[:, 0].mean(axis=1).argmax(axis=1),
        "difficult": examples["difficult"].x[:, 0].mean(axis=2).argmax(axis=1),
    }
    for split, number in (("easy", 200), ("difficult", 50)):
        assert examples[split].y.tolist() == brightest[split].tolist()
        assert len(examples[split].y) == number


def test_random_labels_are_on_images_that_are_not_among_the_easy_ones(parameters, bars):
    examples = baratin2021_difficulty._examples(0, parameters, bars, None)
    true = examples["difficult"].x[:, 0].mean(axis=1).argmax(axis=1)
    assert np.mean(examples["difficult"].y != true) > 0.7
    easy = {image.tobytes() for image in examples["easy"].x}
    assert not easy & {image.tobytes() for image in examples["difficult"].x}


def test_the_kernel_is_measured_on_examples_that_there_are(parameters, bars):
    parameters["kernel_samples"] = 51
    with pytest.raises(UserError, match=r"kernel_samples: found 51, at most 50"):
        run_seed(0, parameters, CPU, bars, "")
