import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.data.canonical import Dataset
from feature_alignment.errors import UserError
from feature_alignment.papers.beaglehole2024.experiments import relu_networks
from feature_alignment.papers.beaglehole2024.experiments.celeba import _balanced, run_seed, shrunk
from feature_alignment.papers.beaglehole2024.parameters import CelebA
from feature_alignment.pipeline.run import SeedRun

PARAMETERS = CelebA(
    samples=40,
    test_samples=20,
    shrink=2,
    width=16,
    learning_rate=0.003,
    epochs=150,
    random_conjugates=3,
    precision="float64",
)


@pytest.fixture(scope="module")
def faces():
    """Noise, with a bright square where "glasses" are."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, n in (("train", 60), ("test", 40)):
        labels = np.arange(n) % 2
        images = rng.integers(0, 100, (n, 8, 8, 1))
        images[:, 2:4, 2:6] += 150 * labels[:, None, None, None]
        arrays |= {f"x_{split}": images.astype(np.uint8), f"y_{split}": labels}
    return Dataset(arrays, {"name": "celeba", "description": "toy"})


def run(faces, **changes):
    return run_seed(SeedRun(0, PARAMETERS.but(**changes), torch.device("cpu"), {"dataset": faces}))


def test_nfm_and_agop_look_at_the_glasses_and_random_matrices_less(faces):
    result = run(faces)
    rows = pd.DataFrame(result.rows)
    held = rows[(rows["metric"] == "accuracy") & (rows["split"] == "test")].set_index("step")
    assert held["value"].iloc[-1] > 0.9
    own = rows[rows["metric"] == "diagonal_correlation"]["value"].item()
    random = rows[rows["metric"] == "diagonal_correlation_random"]["value"]
    assert len(random) == 3
    assert own > random.mean()
    assert set(result.arrays) == {"nfm_diagonal", "agop_diagonal", "random_conjugate_diagonal"}
    nfm = result.arrays["nfm_diagonal"]
    assert nfm.shape == (4, 4, 1)
    outside = np.delete(nfm.reshape(4, 4), 1, axis=0)
    assert nfm[1, 1:3].mean() > outside.mean()


def test_the_recorded_correlation_is_that_of_the_recorded_images(faces):
    result = run(faces, batch_size=20, epochs=5)
    diagonals = [result.arrays[f"{name}_diagonal"].ravel() for name in ("nfm", "agop")]
    found = next(row for row in result.rows if row["metric"] == "diagonal_correlation")
    assert found["value"] == pytest.approx(np.corrcoef(*diagonals)[0, 1], abs=1e-10)
    assert found["step"] == 5 * 2  # of 40 images two batches


def test_too_few_faces_and_sides_that_do_not_divide_are_refused(faces):
    with pytest.raises(UserError, match=r"beaglehole2024_celeba\.samples: 50 train images of each"):
        run(faces, samples=100)
    with pytest.raises(UserError, match="shrink: 3 does not divide the images' 8x8 pixels"):
        run(faces, shrink=3)


def test_shrinking_averages_squares():
    images = np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1)
    expected = np.array([[2.5, 4.5], [10.5, 12.5]]) / 255
    assert shrunk(images, 2)[0, :, :, 0] == pytest.approx(expected)


def test_faces_of_both_classes_are_drawn_at_random(faces):
    drawn = [
        _balanced(faces, "train", 10, np.random.default_rng(seed), "samples") for seed in (0, 0, 1)
    ]
    for images, classes in drawn:
        assert classes.tolist() == [0] * 5 + [1] * 5
        there = {image.tobytes(): label for image, label in zip(*faces.split("train"), strict=True)}
        assert [there[image.tobytes()] for image in images] == classes.tolist()
    assert np.array_equal(drawn[0][0], drawn[1][0])
    assert not np.array_equal(drawn[0][0], drawn[2][0])


def test_the_first_layer_alone_has_a_scale(faces, monkeypatch):
    seen = []
    monkeypatch.setattr(relu_networks, "new_network", lambda _, *sizes: seen.append(sizes) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(faces, first_layer_scale=0.5)
    assert seen == [(16, 1, [0.5, 1.0, 1.0])]
