import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from feature_alignment.complexity import measures
from feature_alignment.complexity.path_norm import path_norm
from feature_alignment.data.canonical import Dataset
from feature_alignment.errors import UserError
from feature_alignment.gradients.capture_plan import plan_capture
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.baratin2021.experiments import complexity
from feature_alignment.papers.baratin2021.experiments.complexity import run_seed
from feature_alignment.papers.baratin2021.parameters import Complexity
from feature_alignment.pipeline.run import SeedRun
from feature_alignment.training.losses import cross_entropy

PARAMETERS = Complexity(
    width=12, check_every=10, loss_goal=0.05, batch_size=20, precision="float64"
)
NETWORK = {
    "train_samples": 40,
    "test_samples": 30,
    "kernel_samples": 8,
    "learning_rate": 0.05,
    "max_steps": 400,
}


@pytest.fixture
def dataset():
    """Ten classes, each a noisy picture of its own."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, size=(10, 32, 32, 1))
    arrays = {}
    for split, n in (("train", 60), ("test", 40)):
        y = np.arange(n) % 10
        noise = rng.integers(-60, 60, size=(n, 32, 32, 1))
        arrays[f"x_{split}"] = np.clip(pictures[y] + noise, 0, 255).astype(np.uint8)
        arrays[f"y_{split}"] = y
    return Dataset(arrays, {"name": "tiny", "description": "ten pictures"})


def measured(dataset, model="mlp", width=12, random_label_share=0.0, **changes):
    own = getattr(PARAMETERS, model).but(**NETWORK | changes)
    settings = {"model": model, model: own, "width": width}
    parameters = PARAMETERS.but(random_label_share=random_label_share, **settings)
    result = run_seed(SeedRun(0, parameters, torch.device("cpu"), {"dataset": dataset}))
    return {(row["split"], row["metric"]): row["value"] for row in result.rows}


def test_training_ends_at_the_goal_and_random_labels_are_more_complex(dataset):
    clean = measured(dataset)
    noisy = measured(dataset, random_label_share=1.0)
    for found in (clean, noisy):
        assert found["train", "goal_reached"] == 1
        assert found["train", "loss"] < 0.05
        assert found["train", "path_complexity"] > 0
        assert found["train", "path_length"] >= found["train", "distance_from_start"] * 0.9
        margin = found["train", "margin"]
        quotient = found["train", "frobenius_product"] / margin
        assert found["train", "frobenius_product_over_margin"] == pytest.approx(quotient)
    assert 0.9 < clean["train", "accuracy"] <= 1
    assert 0 <= clean["test", "accuracy"] <= 1
    gap = clean["train", "accuracy"] - clean["test", "accuracy"]
    assert clean["test", "generalisation_gap"] == pytest.approx(gap)
    assert noisy["test", "generalisation_gap"] > gap + 0.3
    assert noisy["train", "path_complexity"] > clean["train", "path_complexity"]
    assert clean["train", "parameters"] == 12 * 1025 + 10 * 13


def test_a_run_that_is_cut_short_says_so(dataset):
    found = measured(dataset, max_steps=3)
    assert found["train", "goal_reached"] == 0
    assert found["train", "loss"] > 0.05


def test_the_trace_is_measured_on_images_that_there_are(dataset):
    with pytest.raises(
        UserError,
        match=r"^experiments\.baratin2021_complexity\.mlp\.kernel_samples: found 41, at most 40 is "
        r"allowed, the number of training images\.$",
    ):
        measured(dataset, kernel_samples=41)


def test_vgg_has_the_measures_of_deep_networks(dataset):
    found = measured(dataset, model="vgg19", width=1, max_steps=2, kernel_samples=2)
    assert found["train", "path_complexity"] > 0
    assert ("train", "unit_capacity") not in found


def test_the_loss_is_looked_at_every_few_updates(dataset):
    own = PARAMETERS.mlp.but(**NETWORK)
    parameters = PARAMETERS.but(model="mlp", mlp=own, check_every=7)
    result = run_seed(SeedRun(0, parameters, torch.device("cpu"), {"dataset": dataset}))
    steps = {row["step"] for row in result.rows if row["metric"] == "goal_reached"}
    assert len(steps) == 1
    assert 0 < min(steps) < 400
    assert min(steps) % 7 == 0


def test_weights_and_trace_are_compared_with_those_before_training(dataset, monkeypatch):
    def recorded(model, batch, plan, own=complexity._trace):
        assert len(batch) == 8
        traces.append(own(model, batch, plan))
        return traces[-1]

    traces = []
    monkeypatch.setattr(complexity, "_trace", recorded)
    found = measured(dataset, max_steps=20)
    assert found["train", "tangent_trace_ratio"] == pytest.approx(traces[-1] / traces[0])
    assert traces[-1] > 1.01 * traces[0]
    assert 0 < found["train", "distance_from_start"] <= found["train", "path_length"]


def test_measures_are_those_of_the_trained_network_and_of_the_images_it_learnt(
    dataset, monkeypatch
):
    def trained(model, x, y, own=complexity.train, **options):
        kept[:] = copy.deepcopy(model), model, x, y
        return own(model, x, y, **options)

    kept = []
    monkeypatch.setattr(complexity, "train", trained)
    found = {
        metric: value for (split, metric), value in measured(dataset).items() if split == "train"
    }
    before, model, x, y = kept
    initial, weights = (measures.layer_matrices(network) for network in (before, model))
    expected = {
        "fisher_rao_norm": measures.fisher_rao_norm(model, x, y),
        "path_norm": path_norm(model, x.shape[1:]),
        "distance_from_start": measures.distance_from_start(weights, initial),
        "unit_capacity_bound": measures.unit_capacity_bound(weights, initial, x, found["margin"]),
    }
    for name in ("l1_infinity_product", "frobenius_product", "spectral_product"):
        expected[name] = getattr(measures, name)(weights)
    for name in ("spectral_complexity", "pac_bayes_spectral", "unit_capacity"):
        expected[name] = getattr(measures, name)(weights, initial)
    assert {name: found[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize(("init", "moves"), [("pytorch", True), ("kaiming_zero_bias", False)])
def test_initial_weights_are_those_asked_for(dataset, monkeypatch, init, moves):
    seen, parameters = [], PARAMETERS.but(init=init, mlp=PARAMETERS.mlp.but(**NETWORK))
    monkeypatch.setattr(complexity, "train", lambda model, *_, **__: seen.append(model) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_seed(SeedRun(0, parameters, torch.device("cpu"), {"dataset": dataset}))
    assert all(bool(layer.bias.any()) == moves for layer in seen[0].layers)


def test_scores_are_of_all_images_and_the_sums_of_the_path_are_those_of_training(
    dataset, monkeypatch
):
    def trained(model, x, y, own=complexity.train, **options):
        kept[:] = model, x, y, options
        return own(model, x, y, **options)

    kept = []
    monkeypatch.setattr(complexity, "train", trained)
    monkeypatch.setattr(complexity, "CHUNK", 7)
    found = measured(dataset)
    model, x, y, options = kept
    f = model(x).detach()
    assert found["train", "loss"] == pytest.approx(float(cross_entropy(f, y)))
    assert found["train", "accuracy"] == pytest.approx(
        float((f.argmax(dim=1) == y).double().mean())
    )
    assert found["train", "margin"] == pytest.approx(measures.margin_quantile(f, y))
    path = options["after_update"]
    assert found["train", "path_complexity"] == path.complexity
    assert found["train", "path_length"] == path.length
    assert options["batch_size"] == 20
    losses = {"above": 0.0501, "below": 0.0499}
    stops = {
        name: options["stop_when"](0, SimpleNamespace(value=lambda *_, loss=loss: loss))
        for name, loss in losses.items()
    }
    assert stops == {"above": False, "below": True}


@pytest.mark.parametrize("model", [MLP(6, [5], 3, "relu", True, torch.Generator()), "other"])
def test_the_trace_is_that_of_the_kernel(model):
    if model == "other":
        model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    batch = torch.randn(4, 6)
    plan = None if isinstance(model, MLP) else plan_capture(model, batch)
    expected = float(tangent_kernel(model, batch).total.trace())
    assert complexity._trace(model, batch, plan) == pytest.approx(expected, rel=1e-5)
