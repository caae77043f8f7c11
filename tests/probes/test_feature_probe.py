import numpy as np
import pytest
import torch
from torch import nn

from feature_alignment.kernels.average_features import copy_parameters
from feature_alignment.layer_features.feature_covariance import features
from feature_alignment.models.mlp import MLP
from feature_alignment.probes.feature_probe import FeatureProbe
from feature_alignment.training.errors import TrainingDivergedError


def network(outputs=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return MLP(4, [6, 5], outputs, "relu", False, generator, dtype=torch.float64)


@pytest.fixture
def x():
    return torch.randn(9, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def trained(model, seed=2):
    """The model after a change of all weights."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            change = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.3 * change)
    return model


def measured(probe, model, step=1):
    return {(row.layer, row.metric): row.value for row in probe(step, model).rows}


def tangents(model, x):
    """δ (n·c, k) of each layer, from one sample and output after the other."""
    found = [[] for _ in model.layers]
    for sample in x:
        a, preactivations = sample, []
        for layer in model.layers:
            h = (layer.weight.detach() @ a.detach()).requires_grad_()
            preactivations.append(h)
            a = torch.relu(h)
        for number, h in enumerate(preactivations):
            a = h
            for layer in model.layers[number + 1 :]:
                a = layer.weight.detach() @ torch.relu(a)
            for output in a:
                (gradient,) = torch.autograd.grad(output, h, retain_graph=True)
                found[number].append(gradient)
    return [torch.stack(rows) for rows in found]


def rho(a, b):
    return float(torch.trace(a.T @ b) / (torch.trace(a.T @ a) * torch.trace(b.T @ b)).sqrt())


def test_references_may_be_arrays(x):
    found = measured(FeatureProbe(network(), x, references={"a": np.eye(4)}), network())
    expected = measured(FeatureProbe(network(), x, references={"a": torch.eye(4)}), network())
    assert found == expected


def test_a_reference_of_zeros_is_refused(x):
    with pytest.raises(ValueError, match="references: 'a' is zero"):
        FeatureProbe(network(), x, references={"a": torch.zeros(4, 4)})


@pytest.mark.parametrize("outputs", [1, 3])
def test_all_measures_follow_their_definitions(x, outputs):
    model = network(outputs)
    first_weights = [layer.weight.detach().clone() for layer in model.layers]
    first_tangents = tangents(model, x)
    probe = FeatureProbe(model, x, centre_tangents=True)
    found = measured(probe, trained(model))
    for number, (w0, d0, d) in enumerate(
        zip(first_weights, first_tangents, tangents(model, x), strict=True)
    ):
        w = model.layers[number].weight.detach()
        c, k, kc = w - w0, d.T @ d, (d - d0).T @ (d - d0)
        unnormalised = torch.trace(c.T @ c @ c.T @ k @ c)
        expected = {
            "nfc": rho(w.T @ w, w.T @ k @ w),
            "centred_nfc": rho(c.T @ c, c.T @ k @ c),
            "centred_uncentred_ratio": unnormalised / torch.trace(w.T @ w @ w.T @ k @ w),
            "weight_change": c.norm() / w.norm(),
            "double_centred_nfc": rho(c.T @ c, c.T @ kc @ c),
            "double_centred_ratio": torch.trace(c.T @ c @ c.T @ kc @ c) / unnormalised,
            "ptk_centred_nfc": rho(w0.T @ w0, w0.T @ kc @ w0),
        }
        for metric, value in expected.items():
            if number == 2 and metric in ("double_centred_nfc", "ptk_centred_nfc"):
                continue  # the readout's δ never changes
            if number == 2 and metric == "double_centred_ratio":
                assert (f"layers.{number}", metric) not in found
                continue
            assert found[f"layers.{number}", metric] == pytest.approx(float(value), rel=1e-9)


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_centred_tangents_of_any_size_have_the_same_correlations(x, scale):
    def found(size, dtype):
        model = network().to(dtype)
        with torch.no_grad():
            model.layers[-1].weight.mul_(size)
        probe = FeatureProbe(model, x.to(dtype), layers=["layers.1"], centre_tangents=True)
        return measured(probe, trained(model), 1)

    def trained(model):
        with torch.no_grad():
            model.layers[1].weight.mul_(torch.linspace(0.5, 1.5, 6).to(model.layers[1].weight))
        return model

    expected, values = found(1, torch.float64), found(scale, torch.float32)
    assert values == {key: pytest.approx(value, abs=1e-4) for key, value in expected.items()}


def test_the_way_without_tangent_changes_gives_the_same(x):
    model = network(3)
    both = [FeatureProbe(model, x, centre_tangents=choice) for choice in (False, True)]
    few, more = (measured(probe, trained(network(3))) for probe in both)
    assert set(few) < set(more)
    for key, value in few.items():
        assert more[key] == pytest.approx(value, rel=1e-9)


def test_mean_subtracted_is_the_correlation_of_the_entries(x):
    model = network()
    found = measured(FeatureProbe(model, x, layers=["layers.0"]), trained(model))
    w, (d, *_) = model.layers[0].weight.detach(), tangents(model, x)
    entries = torch.stack([(w.T @ w).flatten(), (w.T @ d.T @ d @ w).flatten()])
    expected = float(torch.corrcoef(entries)[0, 1])
    assert found["layers.0", "nfc_mean_subtracted"] == pytest.approx(expected, rel=1e-9)


def test_at_the_start_nothing_has_changed(x):
    model = network()
    found = measured(FeatureProbe(model, x, centre_tangents=True), model, step=0)
    assert {metric for _, metric in found} == {
        "nfc",
        "nfc_mean_subtracted",
        "centred_uncentred_ratio",
        "weight_change",
    }
    assert found["layers.1", "centred_uncentred_ratio"] == 0
    assert found["layers.1", "weight_change"] == 0


def test_the_first_layer_is_compared_with_references_and_kept_when_asked_for(x):
    model = network()
    references = {"identity": torch.eye(4, dtype=torch.float64)}
    probe = FeatureProbe(model, x, references=references, keep_matrices_at=[7])
    assert not probe(6, trained(model)).arrays
    measurement = probe(7, model)
    nfm = torch.from_numpy(measurement.arrays["nfm"])
    w = model.layers[0].weight.detach()
    torch.testing.assert_close(nfm, w.T @ w)
    values = {(row.layer, row.metric): row.value for row in measurement.rows}
    expected = float(torch.trace(nfm) / (nfm.norm() * 2))
    assert values["layers.0", "nfm_identity"] == pytest.approx(expected)
    assert ("layers.1", "nfm_identity") not in values


def test_convolutions_and_random_backward_passes_are_measured():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))
    x = torch.randn(5, 2, 4, 4)
    generator = torch.Generator().manual_seed(3)
    probe = FeatureProbe(model, x, layers=["0"], output_samples=2, generator=generator)
    with torch.no_grad():
        model[0].weight.add_(0.1 * torch.randn(3, 2, 3, 3))
    found = measured(probe, model)
    assert 0 < found["0", "nfc"] <= 1
    assert 0 < found["0", "centred_nfc"] <= 1


def test_tangent_changes_of_convolutions_are_measured():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 1)).double()
    x, start = torch.randn(5, 2, 4, 4).double(), copy_parameters(model)
    probe = FeatureProbe(model, x, centre_tangents=True)
    found = measured(probe, trained(model))
    expected = features(model, x, start).frame()
    assert len(found) == expected.count().sum()
    for (layer, metric), value in found.items():
        assert value == pytest.approx(expected.loc[layer, metric], rel=1e-9)


def test_tangent_changes_can_be_those_of_one_output(x):
    model = network(3)
    probe = FeatureProbe(model, x, centre_tangents=True, output=lambda f: f[:, :1])
    before = tangents(model, x)[0][::3]
    w0 = model.layers[0].weight.detach().clone()
    found = measured(probe, trained(model))
    w, d = model.layers[0].weight.detach(), tangents(model, x)[0][::3]  # of the first output
    assert found["layers.0", "nfc"] == pytest.approx(rho(w.T @ w, w.T @ d.T @ d @ w), rel=1e-9)
    change = (d - before).T @ (d - before)
    expected = rho(w0.T @ w0, w0.T @ change @ w0)
    assert found["layers.0", "ptk_centred_nfc"] == pytest.approx(expected, rel=1e-9)


def test_random_signs_go_on_where_they_were(x):
    model = network(3)
    generator = torch.Generator().manual_seed(3)
    probe = FeatureProbe(model, x, output_samples=1, generator=generator)
    state = probe.state_dict()
    first, second = measured(probe, model, 0), measured(probe, model, 0)
    probe.load_state_dict(state)
    assert measured(probe, model, 0) == first != second


def test_a_dead_network_is_reported(x):
    model = network()
    probe = FeatureProbe(model, x)
    with torch.no_grad():
        model.layers[1].weight.copy_(-model.layers[1].weight.abs())
    with pytest.raises(TrainingDivergedError, match=r"step 4 no gradient reaches layers\.0"):
        probe(4, model)


@pytest.mark.parametrize("outputs", [1, 3])
def test_centred_tangents_of_other_networks_are_measured_alike(x, outputs):
    mlp = network(outputs)
    other = nn.Sequential(*[part for layer in mlp.layers for part in (layer, nn.ReLU())][:-1])
    probes = [FeatureProbe(model, x, centre_tangents=True) for model in (mlp, other)]
    trained(mlp)  # and with it the other, which has the same layers
    first, second = (
        list(measured(probe, model).values())
        for probe, model in zip(probes, (mlp, other), strict=True)
    )
    assert second == pytest.approx(first, rel=1e-9)


def test_options_of_a_measurement_are_checked_with_centred_tangents_too(x):
    model = network()
    with pytest.raises(ValueError, match="chunk_size"):
        FeatureProbe(model, x, centre_tangents=True, chunk_size=0)(1, trained(model))


def test_a_layer_called_as_the_whole_network_is_refused(x):
    model = nn.Sequential()
    model.add_module("all", nn.Linear(4, 1).double())
    with pytest.raises(ValueError, match="layer 'all': this name is reserved"):
        FeatureProbe(model, x)(0, model)
