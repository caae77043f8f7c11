import numpy as np
import pytest
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.errors import UserError
from feature_alignment.papers.baratin2021.experiments.difficulty import draw_examples, run_seed
from feature_alignment.papers.baratin2021.parameters import Difficulty
from feature_alignment.pipeline.run import SeedRun

PARAMETERS = Difficulty(
    easy_samples=200,
    difficult_samples=50,
    kernel_samples=20,
    width=16,
    linear_layers=3,
    learning_rate=0.1,
    batch_size=20,
    steps=80,
)


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


def seed_run(bars, seed=0, rows=None, **changes):
    datasets = {"dataset": bars, "difficult_dataset": rows}
    return SeedRun(seed, PARAMETERS.but(**changes), torch.device("cpu"), datasets)


def last(result, metric, split):
    return [r["value"] for r in result.rows if (r["metric"], r["split"]) == (metric, split)][-1]


def test_easy_examples_are_learned_and_random_labels_are_not_yet(bars):
    result = run_seed(seed_run(bars))
    assert last(result, "accuracy", "easy") > 0.9
    assert last(result, "accuracy", "difficult") < 0.5
    easy, difficult = (last(result, "label_alignment", split) for split in ("easy", "difficult"))
    assert 0 < difficult < easy < 1


def test_same_seed_same_rows(bars):
    first, second, other = (run_seed(seed_run(bars, seed, steps=6)).rows for seed in (0, 0, 1))
    assert first == second
    assert first != other


def test_a_further_dataset_gives_the_difficult_examples_with_their_labels(bars):
    rows = stripes(axis=1)
    examples = draw_examples(seed_run(bars, rows=rows, difficult_dataset="kmnist"))
    for split, axis, number in (("easy", 1, 200), ("difficult", 2, 50)):
        x, y = examples[split]
        assert y.tolist() == x[:, 0].mean(axis=axis).argmax(axis=1).tolist()
        assert len(y) == number


def test_random_labels_are_on_images_that_are_not_among_the_easy_ones(bars):
    examples = draw_examples(seed_run(bars))
    x, y = (part.numpy() for part in examples["difficult"])
    assert np.mean(y != x[:, 0].mean(axis=1).argmax(axis=1)) > 0.7
    easy = {image.tobytes() for image in examples["easy"][0].numpy()}
    assert not easy & {image.tobytes() for image in x}


def test_the_kernel_is_measured_on_examples_that_there_are(bars):
    with pytest.raises(UserError, match=r"kernel_samples: found 51, at most 50"):
        run_seed(seed_run(bars, kernel_samples=51))
