import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from feature_alignment.data.canonical import Dataset
from feature_alignment.papers.baratin2021.experiments import perturbation
from feature_alignment.papers.baratin2021.experiments.perturbation import perturb, run_seed
from feature_alignment.papers.baratin2021.parameters import Perturbation
from feature_alignment.pipeline.run import SeedResult, SeedRun

SPLITS = ("train", "test")


def seed_run(seed=0, datasets=None, **parameters):
    return SeedRun(seed, Perturbation(**parameters), torch.device("cpu"), datasets or {})


def noise_run(**changes):
    """A run on images of noise."""
    rng = np.random.default_rng(0)
    arrays = {f"x_{split}": rng.integers(0, 256, (40, 32, 32, 3), np.uint8) for split in SPLITS}
    arrays |= {f"y_{split}": np.arange(40) % 10 for split in SPLITS}
    sizes = {"train_samples": 40, "test_samples": 6, "base_width": 4, "directions": 2}
    datasets = {"dataset": Dataset(arrays, {"name": "noise"})}
    return seed_run(datasets=datasets, **sizes | {"batch_size": 20, "epochs": 1} | changes)


def values(result, metric, **where):
    return [
        row["value"]
        for row in result.rows
        if row["metric"] == metric and all(row.get(k) == v for k, v in where.items())
    ]


def test_a_linear_model_changes_by_the_singular_values_of_its_inputs():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 5, generator=generator, dtype=torch.float64)
    model = nn.Linear(5, 2, bias=False).double()
    result = SeedResult()
    run = seed_run(directions=4, perturbation=0.01)
    perturb(run, model, {"test": x, "fresh": 3 * x}, 0, result)
    size = 0.01 * float(model.weight.detach().norm())
    # Each singular value of the inputs counts once for each of the two outputs.
    singular = torch.linalg.svdvals(x).repeat_interleave(2)[:4].numpy()
    expected = size * singular / np.sqrt(8)
    found = values(result, "output_change", direction="singular", split="test")
    assert found == pytest.approx(expected, rel=1e-6)
    assert values(result, "linear_change") == pytest.approx(expected, rel=1e-6)
    fresh = values(result, "output_change", direction="singular", split="fresh")
    assert fresh == pytest.approx(3 * expected, rel=1e-6)
    random = values(result, "output_change", direction="random", split="test")
    ratio = expected[0] / np.sqrt(np.mean(np.square(random)))
    assert values(result, "singular_1_over_random", split="test") == [pytest.approx(ratio)]
    # Eight images leave more outputs, 16, than there are parameters, 10.
    assert values(result, "isotropic_floor") == pytest.approx([1])


def test_each_rank_is_compared_with_random_directions():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 30, generator=generator, dtype=torch.float64)
    model, result = nn.Linear(30, 2, bias=False).double(), SeedResult()
    perturb(seed_run(directions=12, perturbation=0.01), model, {"test": x}, 0, result)
    changes = {
        kind: values(result, "output_change", direction=kind) for kind in ("singular", "random")
    }
    typical = np.sqrt(np.mean(np.square(changes["random"])))
    for rank in (1, 10):
        expected = changes["singular"][rank - 1] / typical
        assert values(result, f"singular_{rank}_over_random") == [pytest.approx(expected)]
    assert not values(result, "singular_50_over_random")


def test_the_mean_square_change_along_random_directions_is_the_trace_over_parameters():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    model = nn.Linear(3, 2, bias=False).double()
    result = SeedResult()
    for seed in range(30):
        perturb(seed_run(seed, directions=4, perturbation=0.1), model, {"test": x}, 0, result)
    size = 0.1 * float(model.weight.detach().norm())
    # E‖Jv‖² = ‖J‖²/p for v uniform on the sphere, J = x ⊗ I with p = 6.
    expected = size**2 * 2 * float(x.square().sum()) / 6 / 20
    found = np.mean(np.square(values(result, "output_change", direction="random")))
    assert found == pytest.approx(expected, rel=0.2)


def test_no_jacobian_has_a_smaller_ratio_than_an_isotropic_one():
    """Orthonormal inputs: all singular values are the same, and the ratio is √(P/(nc))."""
    x = torch.eye(40, dtype=torch.float64)[:2]
    model = nn.Linear(40, 3, bias=False).double()
    result = SeedResult()
    perturb(seed_run(directions=5, perturbation=0.1), model, {"test": x}, 0, result)
    (floor,) = values(result, "isotropic_floor")
    assert floor == pytest.approx((3 * 40 / (2 * 3)) ** 0.5)
    # Not √20 exactly: the ratio is to five random directions.
    assert values(result, "singular_1_over_random") == [pytest.approx(floor, rel=0.3)]


def test_the_network_is_perturbed_before_and_after_training():
    result = run_seed(noise_run())
    for step in (0, 2):
        assert values(result, "singular_1_over_random", step=step, split="test")[0] > 1
        assert len(values(result, "output_change", step=step, split="fresh")) == 4
    assert len(values(result, "accuracy", step=2)) == 3
    assert {row["split"] for row in result.rows if row["metric"] == "output_change"} == {
        "test",
        "fresh",
    }


def test_fresh_images_are_others_than_those_on_which_directions_are_found(monkeypatch):
    seen = []
    monkeypatch.setattr(perturbation, "perturb", lambda run, model, images, *_: seen.append(images))
    run_seed(noise_run())
    for images in seen:
        test, fresh = (images[split].flatten(1) for split in ("test", "fresh"))
        assert (len(test), len(fresh)) == (6, 6)
        assert torch.cdist(test, fresh).min() > 1


def test_random_directions_are_the_same_at_every_step():
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model, result = nn.Linear(5, 2, bias=False).double(), SeedResult()
    for step in (0, 7):
        perturb(seed_run(directions=3, perturbation=0.01), model, {"test": x}, step, result)
    first, last = (values(result, "output_change", direction="random", step=t) for t in (0, 7))
    assert first == last


def test_training_is_by_batches_for_as_many_epochs_and_at_the_rate_asked_for(monkeypatch):
    seen = []
    monkeypatch.setattr(perturbation, "perturb", lambda *_: None)
    monkeypatch.setattr(perturbation, "train", lambda *_, **given: seen.append(given) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_seed(noise_run(batch_size=16, epochs=3, learning_rate=0.3, momentum=0.5))
    assert (seen[0]["batch_size"], seen[0]["steps"]) == (16, 9)
    (group,) = seen[0]["optimizer"].param_groups
    assert (group["lr"], group["momentum"]) == (0.3, 0.5)


def test_it_is_the_trained_network_that_is_perturbed_after_training(monkeypatch):
    seen = []
    monkeypatch.setattr(
        perturbation,
        "perturb",
        lambda run, model, images, step, _: seen.append(
            (step, parameters_to_vector(model.parameters()))
        ),
    )
    run_seed(noise_run())
    (first, before), (last, after) = seen
    assert (first, last) == (0, 2)
    assert not torch.equal(before, after)


def test_the_network_and_its_accuracy_are_those_asked_for(monkeypatch):
    seen = []
    monkeypatch.setattr(perturbation, "perturb", lambda *_: None)
    monkeypatch.setattr(
        perturbation, "train", lambda model, *_, **o: seen.append((model, o)) or 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        run_seed(noise_run())
    ((model, options),) = seen
    assert next(model.parameters()).shape[0] == 4
    assert not any(w.any() for name, w in model.named_parameters() if name.endswith("bias"))
    f, labels = torch.eye(4), torch.tensor([0, 1, 2, 0])
    assert float(options["metrics"]["accuracy"](f, labels)) == 0.75


def test_random_directions_are_uniform_on_the_sphere():
    v = perturbation._random_direction(nn.Linear(50, 40), torch.Generator().manual_seed(0))
    v = torch.cat([part.flatten() for part in v.values()])
    assert float(v.norm()) == pytest.approx(1)
    assert abs(float(v.sum())) < 4  # Σ v_i has deviation 1
    assert float((v**4).sum()) * len(v) == pytest.approx(3, rel=0.3)  # as of normal numbers
