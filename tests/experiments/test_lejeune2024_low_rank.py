import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.errors import UserError
from feature_alignment.experiments.lejeune2024_low_rank import MODELS, run_seed

PARAMETERS = {
    "classes": [0, 1],
    "samples": 24,
    "test_samples": 30,
    "dimension": 5,
    "width": 16,
    "hidden_layers": 2,
    "learning_rate": 0.05,
    "batch_size": 8,
    "epochs": 40,
}


@pytest.fixture(scope="module")
def dataset():
    generator = np.random.default_rng(0)
    arrays = {}
    for split, number in (("train", 40), ("test", 50)):
        labels = np.arange(number) % 2
        images = generator.integers(0, 100, (number, 4, 4, 1))
        images[labels == 1, :2] += 100
        arrays |= {f"x_{split}": images.astype(np.uint8), f"y_{split}": labels}
    return Dataset(arrays, {"description": "noise"})


@pytest.mark.parametrize("task", ["single-index", "digits"])
def test_the_solver_has_the_lower_rank_and_every_model_is_measured(dataset, task):
    result = run_seed(0, {**PARAMETERS, "task": task}, torch.device("cpu"), dataset, "test")
    frame = pd.DataFrame(result.rows)
    ranks = frame[frame["metric"] == "effective_rank"].set_index(["model", "layer"])["value"]
    assert ranks["solver", "1"] < ranks["ridgeless", "1"]
    shares = frame[frame["metric"] == "norm_share"].groupby("model")["value"].sum()
    np.testing.assert_allclose(shares[list(MODELS)], 1)
    assert set(frame.loc[frame["metric"] == "nmse", "model"]) == set(MODELS)
    fitted = frame[frame["metric"] == "train_nmse"].set_index("model")["value"]
    assert fitted["full"] < 1
    if task == "digits":
        errors = frame[frame["metric"] == "sign_error"].set_index("model")["value"]
        assert (errors < 0.3).all()


def test_too_few_digits_are_refused(dataset):
    with pytest.raises(UserError, match=r"samples: found 60, but noise has only 40"):
        run_seed(
            0,
            {**PARAMETERS, "task": "digits", "samples": 60},
            torch.device("cpu"),
            dataset,
            "test",
        )
