import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.errors import UserError
from feature_alignment.papers.beaglehole2024.experiments import slo
from feature_alignment.papers.beaglehole2024.experiments.chain_task import (
    draw_samples,
    new_network,
)
from feature_alignment.papers.beaglehole2024.experiments.slo import _optimizer, run_seed
from feature_alignment.papers.beaglehole2024.parameters import SLO
from feature_alignment.pipeline.run import SeedRun

PARAMETERS = SLO(
    samples=64,
    test_samples=50,
    dimension=8,
    rank=3,
    width=32,
    initialisations=[
        {"first_layer_scale": 1.0, "learning_rate": 0.03},
        {"first_layer_scale": 0.1, "learning_rate": 0.1},
    ],
    optimizer="slo",
    steps=60,
    measure_every=30,
)


def seed_run(**changes):
    return SeedRun(0, PARAMETERS.but(**changes), torch.device("cpu"))


def run(**changes):
    return run_seed(seed_run(**changes))


def last(result, metric, scale):
    rows = pd.DataFrame(result.rows)
    chosen = rows[(rows["metric"] == metric) & (rows["scale"] == scale) & (rows["step"] == 60)]
    return chosen["value"].item()


def test_slo_moves_the_first_layer_far_and_gradient_descent_hardly():
    slo, descent = run(), run(optimizer="gd")
    for metric in ("centred_uncentred_ratio", "weight_change"):
        assert last(slo, metric, 1.0) > 0.5
        assert last(descent, metric, 1.0) < 0.1


@pytest.mark.parametrize("optimizer", ["slo", "gd"])
def test_the_initial_norm_is_compared_with_the_last(optimizer):
    result = run(optimizer=optimizer)
    final = float(np.trace(result.arrays["scale1/nfm/step60"])) ** 0.5  # ‖W‖² = Tr WᵀW
    initial = new_network(seed_run(), [1.0, 1.0, 0.01])
    norm = initial.get_submodule("layers.0").weight.norm().item()
    assert last(result, "initial_over_final_norm", 1.0) == pytest.approx(norm / final)


def test_the_last_matrices_are_kept_for_each_scale():
    arrays = run().arrays
    assert set(arrays) == {
        f"scale{scale}/{name}/step60" for scale in ("1", "0.1") for name in ("nfm", "agop")
    }
    assert all(matrix.shape == (8, 8) for matrix in arrays.values())


def test_there_must_be_a_speed_for_every_layer():
    with pytest.raises(UserError, match="speeds: 2 for 3 layers"):
        run(speeds=[500.0, 0.002])


@pytest.mark.parametrize("relaxation", ["additive", "multiplicative"])
def test_the_whole_gradients_norm_stands_below_every_layers_gradient(relaxation):
    model = new_network(seed_run(), [1.0, 1.0, 1.0])
    parameters = PARAMETERS.but(
        gradient_norm="global", speeds=[5.0, 2.0, 1.0], epsilon=0.5, relaxation=relaxation
    )
    optimizer = _optimizer(model, parameters, 0.1)
    before = [weight.detach().clone() for weight in model.parameters()]
    for number, weight in enumerate(model.parameters(), start=1):
        weight.grad = torch.full_like(weight, number)
    whole = torch.stack([weight.grad.norm() for weight in model.parameters()]).norm()
    optimizer.step()
    below = 0.5 + whole if relaxation == "additive" else 0.5 * whole
    for old, new, speed in zip(before, model.parameters(), parameters.speeds, strict=True):
        torch.testing.assert_close(old - new, 0.1 * speed * new.grad / below)


def test_the_readout_has_its_scale():
    result = run(readout_scale=1e-6, steps=1)
    _, y = draw_samples(seed_run())["train"]
    rows = [row for row in result.rows if row["metric"] == "loss" and row["step"] == 0]
    losses = [row["value"] for row in rows if row["split"] == "train"]
    assert losses == pytest.approx([y.square().mean().item()] * 2, rel=1e-4)  # of outputs near 0


def test_each_initialisation_has_its_learning_rate(monkeypatch):
    def recorded(model, p, rate, *, own=slo._optimizer):
        rates.append(rate)
        return own(model, p, rate)

    rates = []
    monkeypatch.setattr(slo, "_optimizer", recorded)
    run(steps=1)
    assert rates == [0.03, 0.1]


def test_the_nfm_is_compared_with_the_identity():
    result = run()
    nfm = result.arrays["scale1/nfm/step60"]
    expected = np.trace(nfm) / np.linalg.norm(nfm) / 8**0.5
    assert last(result, "nfm_identity", 1.0) == pytest.approx(expected, rel=1e-6)
