from typing import get_args

import numpy as np
import pytest
import torch

from feature_alignment.data.synthetic import disk_labels, grid
from feature_alignment.determinism import torch_stream
from feature_alignment.kernels.alignment import centre_kernel
from feature_alignment.kernels.eigenfunctions import Eigenfunctions, eigenfunctions, label_energy
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.baratin2021.experiments import disk
from feature_alignment.papers.baratin2021.experiments.disk import (
    _decay,
    rotation_invariance,
    run_seed,
)
from feature_alignment.papers.baratin2021.figures import fig1_fig10
from feature_alignment.papers.baratin2021.parameters import Disk, Init
from feature_alignment.pipeline.figures.figure import Settings
from feature_alignment.pipeline.run import SeedRun


def test_functions_of_the_radius_are_invariant_and_functions_of_the_angle_are_not():
    points = grid(50)
    radius, angle = np.hypot(*points.T), np.arctan2(*points.T)
    step = np.where(radius < 0.8, 1.0, -1.0)  # on a ring's edge
    functions = [step, radius**2, points[:, 0], np.cos(4 * angle), step + np.sqrt(2) * points[:, 0]]
    found = rotation_invariance(points, np.column_stack(functions))
    assert found[0] == pytest.approx(1)
    assert found[1] > 0.99
    assert found[2:4] == pytest.approx(0, abs=0.01)
    # Var = 0.9216 of the step, 1/2 of √2 x, on the unit disk and uncorrelated.
    assert found[4] == pytest.approx(0.9216 / 1.4216, abs=0.02)


def test_both_readings_of_six_layers_are_run_and_only_the_first_is_the_figures():
    section = Disk(linear_layers=4, seeds=3, six_hidden_seeds=2)
    settings = Settings({Disk.experiment: section})
    default, hidden = fig1_fig10.FIGURES[0].points(settings)
    assert (default.parameters.linear_layers, default.parameters.seeds) == (4, 3)
    assert (hidden.parameters.linear_layers, hidden.parameters.seeds) == (5, 2)
    (shared,) = fig1_fig10.FIGURES[1].points(settings)
    assert shared == default
    assert default.parameters == section.but(six_hidden_seeds=5)  # no part of the run


def measured(**changes):
    parameters = Disk(
        samples=20, test_samples=8, grid=8, width=8, linear_layers=3, steps=2, **changes
    )
    result = run_seed(SeedRun(0, parameters, torch.device("cpu")))
    return {row["metric"]: row["value"] for row in result.rows if row["step"] == 0}


def test_the_ratio_of_singular_values_is_the_root_of_that_of_eigenvalues():
    squared, found = measured(), measured(ratio_of="singular_values")
    assert found["eigenvalue_ratio_20"] ** 2 == pytest.approx(squared["eigenvalue_ratio_20"])


def test_without_centring_the_raw_kernel_is_decomposed():
    found = measured(centred=False)
    raw = measured()["eigenvalue_ratio_20_uncentred"]
    assert found["eigenvalue_ratio_20"] == raw == found["eigenvalue_ratio_20_uncentred"]
    assert found["largest_eigenvalue"] > measured()["largest_eigenvalue"]


def test_initial_weights_are_those_asked_for():
    ratios = {measured(init=init)["eigenvalue_ratio_20"] for init in get_args(Init)}
    assert len(ratios) == 3


def test_the_last_step_is_measured_too():
    parameters = Disk(samples=20, test_samples=8, grid=8, width=8, linear_layers=3, steps=2)
    result = run_seed(SeedRun(0, parameters.but(measure_at=[0, 1, 5]), torch.device("cpu")))
    found = {row["step"] for row in result.rows if row["metric"] == "eigenvalue_ratio_20"}
    assert found == {0, 1, 2}


def test_the_20th_eigenvalue_is_compared_with_the_first():
    assert _decay(Eigenfunctions(np.arange(40.0, 10.0, -1), np.eye(30))) == 21 / 40


def test_test_points_are_others_than_those_trained_on(monkeypatch):
    seen = []
    monkeypatch.setattr(disk, "train", lambda *_, **given: seen.append(given) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        measured()
    train, test = (x for x, _ in seen[0]["evaluate_on"].values())
    assert (len(train), len(test)) == (20, 8)
    assert torch.cdist(test.double(), train.double()).min() > 1e-6


def test_the_largest_eigenvalue_does_not_grow_with_the_grid():
    found = []
    for m in (10, 20):
        points, model = grid(m), MLP(2, [8], 1, "relu", True, torch_stream(0, "init"))
        p, labels = Disk(grid=m), disk_labels(points)
        rows = disk._decompose(p, torch.tensor(points), labels, 0, model).rows
        found += [row.value for row in rows if row.metric == "largest_eigenvalue"]
    assert found[1] == pytest.approx(found[0], rel=0.3)


def test_the_first_five_eigenfunctions_of_the_centred_kernel_are_measured_and_drawn_upright():
    points, labels = grid(12), disk_labels(grid(12))
    model = MLP(2, [8, 8], 1, "relu", True, torch_stream(0, "init"), dtype=torch.float64)
    kernel = tangent_kernel(model, torch.tensor(points)).total
    functions = eigenfunctions(centre_kernel(kernel), 20).functions
    measurement = disk._decompose(Disk(grid=12), torch.tensor(points), labels, 0, model)
    found = {row.metric: row.value for row in measurement.rows}
    invariances = rotation_invariance(points, functions[:, :5])
    assert found["rotation_invariance_top5"] == pytest.approx(invariances.max())
    assert found["label_energy_top5"] == pytest.approx(label_energy(functions, labels, 5))
    largest = np.linalg.eigvalsh(centre_kernel(kernel).numpy())[-1]
    assert found["largest_eigenvalue"] == pytest.approx(largest / 144)
    image = measurement.arrays["eigenfunctions"][1]
    column, row = ((points + 1) * 11 / 2).round().astype(int).T  # of x and y
    assert abs(image[row, column]) == pytest.approx(abs(functions[:, 1]), rel=1e-4, abs=1e-5)


def test_plain_descent_has_the_rate_asked_for_and_the_share_inside_is_of_the_points_trained_on():
    parameters = Disk(samples=20, test_samples=8, grid=8, width=8, linear_layers=3, steps=1)
    result = run_seed(SeedRun(0, parameters.but(learning_rate=1e-9), torch.device("cpu")))
    losses = [r["value"] for r in result.rows if (r["metric"], r["split"]) == ("loss", "train")]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    shares = [row["value"] for row in result.rows if row["metric"] == "inside_share"]
    assert shares == [np.mean(result.arrays["y"] > 0)]


def test_the_network_and_its_training_are_those_asked_for(monkeypatch):
    seen, grids = [], []
    monkeypatch.setattr(disk, "train", lambda *given, **o: seen.append((given, o)) or 1 / 0)
    monkeypatch.setattr(disk, "_decompose", lambda p, points, labels, *_: grids.append(points))
    with pytest.raises(ZeroDivisionError):
        measured(learning_rate=0.3)
    (((model, *_), options),) = seen
    assert [layer.out_features for layer in model.layers] == [8, 8, 1]
    own = MLP(2, [8, 8], 1, "relu", True, torch_stream(0, "init"), dtype=torch.float64)
    assert torch.equal(model.layers[0].weight, own.layers[0].weight)
    options["probes"][0](0, model)
    assert torch.equal(grids[0], torch.tensor(grid(8)))
    (group,) = options["optimizer"].param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.3, 0, 0)
    f = torch.tensor([[2.0], [-1.0], [3.0]])
    labels = torch.tensor([[1.0], [-1.0], [-1.0]])
    assert float(options["metrics"]["accuracy"](f, labels)) == pytest.approx(2 / 3)
    log_loss = np.log1p(np.exp([-2.0, -1.0, 3.0])).mean()
    assert float(options["loss"](f, labels)) == pytest.approx(log_loss, rel=1e-6)
