from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.adaptive.adaptive_features import AdaptiveTangentFeatures
from feature_alignment.data.canonical import Dataset
from feature_alignment.errors import UserError
from feature_alignment.models.mlp import sequential_mlp
from feature_alignment.models.tangent_models import TangentModel
from feature_alignment.papers.lejeune2024.experiments import low_rank
from feature_alignment.papers.lejeune2024.figures.fig2b import MODELS
from feature_alignment.papers.lejeune2024.parameters import LowRank
from feature_alignment.pipeline.run import SeedResult, SeedRun

PARAMETERS = LowRank(
    classes=[0, 1], samples=24, test_samples=30, dimension=5, width=16, batch_size=8, epochs=40
)


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


def run(dataset, **settings):
    parameters = PARAMETERS.but(**settings)
    result = low_rank.run_seed(SeedRun(0, parameters, torch.device("cpu"), {"dataset": dataset}))
    return pd.DataFrame(result.rows)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["single-index", "digits"])
def test_the_solver_has_the_lower_rank_and_every_model_is_measured(dataset, task):
    frame = run(dataset, task=task)
    ranks = frame[frame["metric"] == "effective_rank"].set_index(["model", "layer"])["value"]
    assert ranks["solver", "all"] < ranks["ridgeless", "all"]
    shares = frame[frame["metric"] == "norm_share"].groupby("model")["value"].sum()
    np.testing.assert_allclose(shares[list(MODELS)], 1)
    further = {"solver-linear", "solver-own"} if task == "digits" else set()
    further = further or {"tail", "tail-noisy"}
    further |= {"ridgeless-noisy", "solver-noisy"}
    assert set(frame.loc[frame["metric"] == "nmse", "model"]) == {*MODELS, *further}
    fitted = frame[frame["metric"] == "train_nmse"].set_index("model")["value"]
    assert fitted["full"] < 1
    if task == "digits":
        errors = frame[frame["metric"] == "sign_error"].set_index("model")["value"]
        assert (errors < 0.3).all()


def test_the_rank_of_all_layers_is_that_of_their_block_diagonal_matrix():
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.randn(shape, generator=generator)
        for name, shape in {"1": (3, 5), "3": (4, 3)}.items()
    }
    task = SimpleNamespace(y_test=torch.tensor([[1.0], [-1.0]]))
    result = SeedResult()
    low_rank._record("solver", task.y_test, weights, task, 1, result)
    found = {(row["metric"], row["layer"]): row["value"] for row in result.rows}
    values = torch.linalg.svdvals(torch.block_diag(*weights.values()).double()).square().numpy()
    shares = values / values.sum()
    shares = shares[shares > 1e-12]
    rank = np.exp(-(shares * np.log(shares)).sum())
    assert found["effective_rank", "all"] == pytest.approx(rank, rel=1e-6)
    assert found["norm_share", "1"] + found["norm_share", "3"] == pytest.approx(1)


def test_a_network_too_narrow_to_interpolate_is_one_sentence(dataset):
    with pytest.raises(
        UserError, match=r"^x: the tangent features of 24 samples .* larger network"
    ):
        run(dataset, width=2)


def test_linear_targets_are_the_last_layers_least_squares_fit():
    generator = torch.Generator().manual_seed(0)
    network = sequential_mlp(4, [6], 1, generator, "kaiming")
    x, x_test = torch.randn(2, 30, 4, generator=generator)
    y, y_test = torch.sign(torch.randn(2, 30, 1, generator=generator))
    found = low_rank._linear_task(low_rank._Task(x, y, x_test, y_test), network)
    z, z_test = (torch.relu(network[1](inputs)).detach() for inputs in (x, x_test))
    torch.testing.assert_close(z.T @ (found.y - y), torch.zeros(6, 1), atol=1e-5, rtol=0)
    # The same weights make both: what is a combination of features in training is one in the test.
    weights = torch.linalg.lstsq(z, found.y, driver="gelsd").solution
    torch.testing.assert_close(z_test @ weights, found.y_test, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_noise_in_the_targets_costs_predictions_and_without_it_nothing_changes(dataset):
    models = ["ridgeless", "solver", "ridgeless-noisy", "solver-noisy"]
    errors = {}
    for noise in (0.0, 1.0):
        frame = run(dataset, noise=noise)
        errors[noise] = frame[frame["metric"] == "nmse"].set_index("model")["value"][models]
    clean, noisy = errors[0.0].to_numpy(), errors[1.0].to_numpy()
    np.testing.assert_array_equal(clean[:2], clean[2:])
    np.testing.assert_array_equal(noisy[:2], clean[:2])
    assert (noisy[2:] > clean[2:]).all()


@pytest.mark.slow
def test_the_solver_fits_linear_targets_by_the_first_layer(dataset):
    """Though the last one alone could fit them, against Section 3.2."""
    frame = run(dataset, task="digits")
    shares = frame[frame["metric"] == "norm_share"].set_index(["model", "layer"])["value"]
    for model in ("solver-linear", "solver-own"):
        assert shares[model].idxmax() == "1"
        assert shares[model, "5"] < 0.1


def test_too_few_digits_are_refused(dataset):
    with pytest.raises(UserError, match=r"samples: found 60, but noise has only 40"):
        run(dataset, task="digits", samples=60)


@pytest.mark.slow
def test_the_penalty_is_the_solvers_alone(dataset):
    errors = [
        frame[frame["metric"] == "nmse"].set_index("model")["value"]
        for frame in (run(dataset, penalty=name, epochs=1) for name in ("square", "absolute"))
    ]
    assert errors[0]["ridgeless"] == pytest.approx(errors[1]["ridgeless"], rel=1e-6)
    assert errors[0]["solver"] != pytest.approx(errors[1]["solver"], rel=1e-3)


@pytest.mark.slow
def test_other_initial_weights_make_another_network(dataset):
    first, second = (
        run(dataset, initialisation=name, epochs=1)["value"] for name in ("kaiming", "pytorch")
    )
    assert not np.allclose(first, second)


def test_weights_are_measured_without_their_biases():
    generator = torch.Generator().manual_seed(0)
    network, result = sequential_mlp(3, [8], 1, generator, "kaiming"), SeedResult()
    x, y = torch.randn(5, 3, generator=generator), torch.randn(5, 1, generator=generator)
    task = low_rank._Task(x, y, x, y)
    low_rank._solve(network, result, task, "solver", structure="none")
    assert {name: len(values) for name, values in result.arrays.items()} == {
        "solver/1": 3,
        "solver/3": 1,
    }


def test_gaussian_inputs_have_norm_one_and_targets_variance_one_of_a_single_index():
    p = PARAMETERS.but(samples=20_000, dimension=5)
    x, y, *_ = low_rank._gaussian(SeedRun(0, p, torch.device("cpu")))
    torch.testing.assert_close(x.T @ x / len(x), torch.eye(5).double() / 5, atol=0.01, rtol=0)
    assert y.mean().item() == pytest.approx(0, abs=0.03)
    assert y.var().item() == pytest.approx(1, abs=0.1)
    second = (x.T @ (y * x)) / len(x) * 5  # E[y xxᵀ] = √2 ββᵀ, of one direction
    values = torch.linalg.eigvalsh(second)
    assert values[-1].item() == pytest.approx(2**0.5, rel=0.1)
    assert values[:-1].abs().max() < 0.1


def test_digits_are_tested_on_test_images(dataset):
    p = PARAMETERS.but(task="digits")
    run = SeedRun(0, p, torch.device("cpu"), {"dataset": dataset})
    x, _, x_test, _ = low_rank._digits(run)
    for split, drawn in (("train", x), ("test", x_test)):
        every, _ = low_rank.two_digits(run, split, 50)
        assert torch.cdist(drawn, every).min(dim=1).values.max() < 1e-6


def test_errors_are_relative_to_that_of_the_mean():
    y = torch.tensor([[7.0], [8.0], [9.0]])
    assert low_rank._nmse(torch.full((3, 1), 8.0), y) == pytest.approx(1)


def test_the_initial_kernel_is_compared_with_the_change_of_the_outputs():
    generator = torch.Generator().manual_seed(0)
    network, result = sequential_mlp(3, [8], 1, generator, "kaiming"), SeedResult()
    x, y = torch.randn(5, 3, generator=generator), torch.randn(5, 1, generator=generator)
    low_rank._solve(network, result, low_rank._Task(x, y, x, y), "solver", structure="none")
    change = (y - network(x)).detach().double()
    kernel = low_rank.tangent_kernel(network, x).total.double()
    expected = change.T @ kernel @ change / kernel.norm() / change.square().sum()
    found = {row["metric"]: row["value"] for row in result.rows}
    assert found["initial_label_similarity"] == pytest.approx(expected.item(), rel=1e-5)


def test_the_trained_network_is_measured_by_its_change():
    generator = torch.Generator().manual_seed(0)
    network, result = sequential_mlp(3, [8], 1, generator, "kaiming"), SeedResult()
    x, y = torch.randn(6, 3, generator=generator), torch.randn(6, 1, generator=generator)
    before = network[1].weight.detach().clone()
    run = SeedRun(0, PARAMETERS.but(epochs=1), torch.device("cpu"))
    low_rank._train(run, network, low_rank._Task(x, y, x, y), "full", result)
    change = (network[1].weight.detach() - before).double()
    assert result.arrays["full/1"] == pytest.approx(torch.linalg.svdvals(change).numpy())


def test_noise_is_drawn_from_a_stream_of_its_own(monkeypatch):
    def recorded(run, name, own=SeedRun.torch_stream):
        names.append(name)
        return own(run, name)

    names = []
    monkeypatch.setattr(SeedRun, "torch_stream", recorded)
    monkeypatch.setattr(low_rank, "_solve", lambda *_, **options: 1.0)
    monkeypatch.setattr(low_rank, "_train", lambda *_: None)
    low_rank.run_seed(SeedRun(0, PARAMETERS, torch.device("cpu")))
    assert names == ["init", "noise"]


def solved(dataset, monkeypatch, **changes):
    """The network and the task that each model of the solver is given, and the noise's costs."""

    def solve(network, result, task, model, **options):
        seen[model] = network, task
        return 3.0 if model.endswith("noisy") else 1.0

    seen = {}
    monkeypatch.setattr(low_rank, "_solve", solve)
    monkeypatch.setattr(low_rank, "_train", lambda *_: None)
    costs = run(dataset, **changes).set_index("model")["value"]
    return seen, costs


def test_models_differ_in_noise_and_in_the_size_of_the_targets(dataset, monkeypatch):
    seen, costs = solved(dataset, monkeypatch, samples=2000, noise=0.25)
    tasks = {model: task for model, (_, task) in seen.items()}
    plain, noisy = tasks["solver"], tasks["solver-noisy"]
    assert (noisy.y - plain.y).std().item() == pytest.approx(0.25, rel=0.1)
    torch.testing.assert_close(noisy.y_test, plain.y_test)
    for model, task in (("tail", plain), ("tail-noisy", noisy)):
        torch.testing.assert_close(tasks[model].y, 10 * task.y)
        torch.testing.assert_close(tasks[model].y_test, 10 * task.y_test)
    assert costs.to_dict() == {"ridgeless": 2.0, "solver": 2.0, "tail": 2.0}


def test_linear_targets_are_of_another_networks_features_or_of_the_own(dataset, monkeypatch):
    seen, _ = solved(dataset, monkeypatch, task="digits")
    network, task = seen["solver"]
    own = low_rank._linear_task(task, network).y
    torch.testing.assert_close(seen["solver-own"][1].y, own)
    assert not torch.allclose(seen["solver-linear"][1].y, own, atol=1e-3)
    assert seen["solver-own"][0] is network is seen["solver-linear"][0]


def small_task():
    generator = torch.Generator().manual_seed(0)
    x, x_test = torch.randn(2, 7, 3, generator=generator)
    y, y_test = torch.randn(2, 7, 1, generator=generator)
    network = sequential_mlp(3, [8], 1, generator, "kaiming")
    return network, low_rank._Task(x, y, x_test, y_test)


def test_the_adapted_kernel_is_compared_with_the_change_of_the_outputs():
    (network, task), result = small_task(), SeedResult()
    low_rank._solve(network, result, task, "solver", structure="layers")
    change = (task.y - network(task.x)).detach().double()
    solver = AdaptiveTangentFeatures(network, structure="layers").fit(task.x, task.y)
    kernel = torch.as_tensor(solver.adapted_kernel(task.x)).double()
    expected = change.T @ kernel @ change / kernel.norm() / change.square().sum()
    found = {row["metric"]: row["value"] for row in result.rows}
    assert found["label_similarity"] == pytest.approx(expected.item(), rel=1e-5)
    assert found["initial_label_similarity"] != pytest.approx(expected.item(), rel=1e-2)


def test_errors_are_those_of_the_trained_factorised_model(monkeypatch):
    def recorded(run, model, *given, own=low_rank.fit, **options):
        models.append(model)
        return own(run, model, *given, **options)

    models = []
    monkeypatch.setattr(low_rank, "fit", recorded)
    (network, task), result = small_task(), SeedResult()
    run = SeedRun(0, PARAMETERS.but(epochs=2), torch.device("cpu"))
    low_rank._train(run, network, task, "factorised", result)
    (model,) = models
    assert model.state_dict().keys() == TangentModel(network, "factorised").state_dict().keys()
    found = {row["metric"]: row["value"] for row in result.rows}
    for metric, x, y in (("train_nmse", task.x, task.y), ("nmse", task.x_test, task.y_test)):
        assert found[metric] == pytest.approx(low_rank._nmse(model(x).detach(), y), rel=1e-5)
    wrong = (model(task.x_test) * task.y_test < 0).double().mean().item()
    assert found["sign_error"] == pytest.approx(wrong)
