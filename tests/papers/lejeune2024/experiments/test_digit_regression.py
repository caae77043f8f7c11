import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.errors import UserError
from feature_alignment.papers.lejeune2024.experiments.digit_regression import run_seed
from feature_alignment.papers.lejeune2024.parameters import DigitRegression
from feature_alignment.pipeline.run import SeedRun

PARAMETERS = DigitRegression(
    train_samples=40,
    kernel_samples=20,
    width=8,
    batch_size=10,
    epochs=30,
    target_epochs=30,
    path_points=5,
)


@pytest.fixture(scope="module")
def dataset():
    generator = np.random.default_rng(0)
    labels = np.arange(120) % 3 + 1
    images = (
        generator.integers(0, 120, (120, 6, 6, 1))
        + 40 * (labels == 3)[:, None, None, None] * (np.arange(6) < 3)[:, None, None]
    )
    return Dataset(
        {"x_train": images.astype(np.uint8), "y_train": labels}, {"description": "noise"}
    )


def run(dataset, **settings):
    parameters = PARAMETERS.but(**settings)
    return run_seed(SeedRun(0, parameters, torch.device("cpu"), {"dataset": dataset}))


def values(result):
    frame = pd.DataFrame(result.rows)
    return frame[frame["layer"] == "all"].set_index("metric")["value"]


def test_kernels_and_measures_fit_together(dataset):
    result = run(dataset)
    kernels = {
        name: torch.as_tensor(result.arrays[f"kernel/{name}"]).double().flatten()
        for name in ("initial", "adapted", "label")
    }
    found = values(result)
    for metric, pair in {
        "label_similarity": ("adapted", "label"),
        "initial_label_similarity": ("initial", "label"),
        "average_initial_cosine": ("adapted", "initial"),
    }.items():
        first, second = (kernels[name] for name in pair)
        cosine = first @ second / (first.norm() * second.norm())
        assert found[metric] == pytest.approx(float(cosine), rel=1e-5)
    assert (np.diff(result.arrays["target"]) >= 0).all()
    assert found["mixture_residual"] < np.sqrt(1 - found["average_initial_cosine"] ** 2)
    frame = pd.DataFrame(result.rows)
    shares = frame.loc[frame["metric"] == "label_change_share", "value"]
    assert len(shares) == 3
    assert shares.sum() == pytest.approx(1)


def test_flipped_labels_are_harder_to_fit_and_leave_the_linear_targets_alone(dataset):
    plain, flipped = run(dataset), run(dataset, label_flips=0.25)
    assert values(flipped)["loss"] > values(plain)["loss"]
    assert values(flipped)["target_accuracy"] == values(plain)["target_accuracy"]
    np.testing.assert_array_equal(flipped.arrays["target"], plain.arrays["target"])


def test_more_hidden_layers_give_more_layers(dataset):
    rows = pd.DataFrame(run(dataset, hidden_layers=1, epochs=2).rows)
    assert rows.loc[rows["metric"] == "label_change_share", "layer"].nunique() == 2


def test_too_few_images_are_refused(dataset):
    with pytest.raises(UserError, match=r"train_samples: found 100, but noise has only 80"):
        run(dataset, train_samples=100)
