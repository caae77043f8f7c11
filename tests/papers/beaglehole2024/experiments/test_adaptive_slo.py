import pandas as pd
import pytest
import torch

from feature_alignment.layer_features.feature_covariance import layer_feature_matrices
from feature_alignment.layer_features.feature_matrices import feature_pair
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.beaglehole2024.experiments.adaptive_slo import _optimizer, run_seed
from feature_alignment.papers.beaglehole2024.parameters import AdaptiveSLO
from feature_alignment.pipeline.run import SeedRun
from feature_alignment.training.errors import TrainingDivergedError
from feature_alignment.training.speed_limited import adaptive_speeds

PARAMETERS = AdaptiveSLO(
    samples=64,
    test_samples=50,
    dimension=8,
    width=32,
    optimizer="slo",
    learning_rate=0.05,
    steps=1,
    measure_every=1,
)


def run(**changes):
    result = run_seed(SeedRun(0, PARAMETERS.but(**changes), torch.device("cpu")))
    return pd.DataFrame(result.rows)


def values(rows, metric, step):
    chosen = rows[(rows["metric"] == metric) & (rows["step"] == step)]
    return chosen.set_index("layer")["value"]


def test_the_layer_with_the_smallest_uc_nfc_moves_400_times_as_far():
    # Weight changes are relative to weights of different sizes; the ratio of 400 dwarfs that.
    rows = run(epsilon=0.0)
    smallest = values(rows, "nfc", 0).idxmin()
    changes = values(rows, "weight_change", 1)
    assert changes.idxmax() == smallest
    assert changes[smallest] > 20 * changes.drop(smallest).max()


@pytest.mark.parametrize("reading", ["ends", "all"])
def test_smallest_uc_nfc_ends_above_that_of_gradient_descent(reading):
    settings = {"scaled_layers": reading, "steps": 60, "measure_every": 60}
    slo = run(**settings)
    descent = run(**settings, optimizer="gd", learning_rate=0.25)
    assert values(slo, "nfc", 60).min() > values(descent, "nfc", 60).min() + 0.1


def test_the_readings_differ_in_the_inner_layers_only():
    ends, everything = (run(scaled_layers=reading, optimizer="gd") for reading in ("ends", "all"))
    # A network that is linear in each layer's scale: same correlations at first, smaller outputs.
    assert values(ends, "nfc", 0).tolist() == pytest.approx(values(everything, "nfc", 0).tolist())
    losses = [
        rows[(rows["metric"] == "loss") & (rows["split"] == "train") & (rows["step"] == 0)]
        for rows in (ends, everything)
    ]
    assert losses[0]["value"].item() != losses[1]["value"].item()


def test_the_first_layer_alone_can_have_the_scale():
    first, ends = (run(scaled_layers=reading, optimizer="gd") for reading in ("first", "ends"))
    assert values(first, "nfc", 0).tolist() == pytest.approx(values(ends, "nfc", 0).tolist())
    # Ten times the readout, ten times the gradient in the layers below.
    moved = [values(rows, "weight_change", 1)["layers.1"] for rows in (first, ends)]
    assert moved[0] > 5 * moved[1]


@pytest.mark.parametrize("subtract_mean", [False, True])
def test_speeds_are_those_by_what_the_library_measures(subtract_mean):
    p, chosen = PARAMETERS.but(subtract_mean=subtract_mean), set()
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        scales = [1.0, 1.0 + seed, 1.0, 1.0]
        model = MLP(8, [12] * 3, 1, "relu", False, generator, "pytorch", scales, torch.float64)
        x = torch.randn(20, 8, dtype=torch.float64, generator=generator)
        optimizer = _optimizer(model, x, p)
        for _ in range(3):
            expected = adaptive_speeds(
                [
                    feature_pair(layer.weight_matrix, layer.covariance).correlation(subtract_mean)
                    for layer in layer_feature_matrices(model, x).values()
                ],
                p.speed,
            )
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            assert [group["speed"] for group in optimizer.param_groups] == expected
            chosen.add(expected.index(p.speed))
    assert len(chosen) > 1


def test_steps_can_be_divided_by_the_norm_of_the_whole_gradient():
    p = PARAMETERS.but(gradient_norm="global", epsilon=0.5, learning_rate=0.1, speed=4.0)
    model = MLP(3, [5] * 3, 1, "relu", False, torch.Generator().manual_seed(0))
    optimizer = _optimizer(model, torch.eye(3), p)
    before = [weight.detach().clone() for weight in model.parameters()]
    gradients = [
        torch.full_like(weight, size) for weight, size in zip(before, (1, 2, 3, 4), strict=True)
    ]
    for weight, gradient in zip(model.parameters(), gradients, strict=True):
        weight.grad = gradient.clone()
    optimizer.step()
    whole = sum(float(gradient.square().sum()) for gradient in gradients) ** 0.5
    speeds = sorted(
        float((old - new.detach()).mean() / gradient.mean() * (0.5 + whole) / 0.1)
        for old, new, gradient in zip(before, model.parameters(), gradients, strict=True)
    )
    assert speeds == pytest.approx([0.25, 0.25, 0.25, 4.0], rel=1e-4)


def test_a_network_without_gradients_is_told_as_a_training_that_failed():
    with pytest.raises(TrainingDivergedError, match="a layer gets no gradient"):
        run(relaxation="multiplicative", initialisation="kaiming", steps=30, measure_every=30)
