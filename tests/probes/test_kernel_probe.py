import copy
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from feature_alignment.models.mlp import MLP
from feature_alignment.probes import kernel_probe
from feature_alignment.probes.kernel_probe import Batch, TangentKernelProbe
from feature_alignment.training.errors import TrainingDivergedError


@pytest.fixture
def setting():
    generator = torch.Generator().manual_seed(0)
    model = MLP(4, [6], 3, "relu", True, generator, dtype=torch.float64)
    x = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    y = nn.functional.one_hot(torch.arange(12) % 3, 3).double()
    return model, Batch(x, y)


def measured(probe, model):
    return {(row.layer, row.split, row.metric): row.value for row in probe(0, model).rows}


@pytest.fixture
def centred_features(explicit_jacobian):
    """Function (model, x) → features (n, c, p) minus their mean over samples."""

    def features(model, x):
        found = explicit_jacobian(model, x).unflatten(0, (len(x), -1))
        return found - found.mean(0, keepdim=True)

    return features


def test_spectrum_and_alignment_are_those_of_the_features(
    setting, centred_features, explicit_jacobian
):
    model, batch = setting
    found = measured(TangentKernelProbe({"train": batch}), model)
    features = centred_features(model, batch.x).flatten(0, 1)
    singular_values = torch.linalg.svdvals(features).numpy() ** 2
    shares = singular_values / singular_values.sum()
    entropy = -sum(share * np.log(share) for share in shares if share > 1e-14)
    kernel = features @ features.T
    raw = explicit_jacobian(model, batch.x)
    raw = raw @ raw.T
    y = (batch.y - batch.y.mean(0)).flatten()
    expected = {
        "largest_eigenvalue": singular_values[0],
        "mean_eigenvalue": singular_values.sum() / 36,
        "median_eigenvalue": np.median(singular_values),  # 3 of 36 are 0
        "effective_rank": np.exp(entropy),
        "trace_ratio_5": shares[:5].sum(),
        "label_alignment": y @ kernel @ y / (kernel.norm() * (y @ y)),
        "label_alignment_uncentred_kernel": y @ raw @ y / (raw.norm() * (y @ y)),
    }
    for metric, value in expected.items():
        assert found["all", "train", metric] == pytest.approx(float(value), rel=1e-9)
    assert ("all", "train", "trace_ratio_40") not in found  # there are 36 eigenvalues


def test_all_eigenvalues_together_have_a_trace_ratio_of_one(setting):
    model, batch = setting
    first = TangentKernelProbe({"train": Batch(batch.x[:10])}, output=lambda f: f[:, :1])
    found = measured(first, model)
    assert found["all", "train", "trace_ratio_10"] == pytest.approx(1)
    assert ("all", "train", "trace_ratio_20") not in found


def test_a_network_can_be_checked_once_as_long_as_it_is_the_same_one(setting, monkeypatch):
    model, batch = setting
    planned = []

    def plan_capture(*given, own=kernel_probe.plan_capture, **options):
        planned.append(given[0])
        return own(*given, **options)

    monkeypatch.setattr(kernel_probe, "plan_capture", plan_capture)
    options = {"layers": True, "only": ["layers.1"], "memory_budget": 2**20}
    always = TangentKernelProbe({"train": batch}, **options)
    once = TangentKernelProbe({"train": batch}, checked_once=True, **options)
    other = copy.deepcopy(model)
    for network in (model, model, other):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.1)
        assert measured(once, network) == measured(always, network)
    assert planned == [model, other]
    for parameter in other.parameters():  # as in an optimiser of one's own
        parameter.data = parameter.data + 0.1
    assert measured(once, other) == measured(always, other)
    assert planned == [model, other, other]


@pytest.mark.parametrize("once", [True, False])
def test_inputs_that_samples_share_are_named_whether_or_not_checked_once(setting, once):
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = setting[0]

        def forward(self, x, shift):
            return self.model(x + shift)

    shift = torch.arange(4).double()
    found = TangentKernelProbe(
        {"train": Batch((setting[1].x, shift), setting[1].y)}, inputs=[0], checked_once=once
    )
    expected = TangentKernelProbe({"train": Batch(setting[1].x + shift, setting[1].y)})
    assert measured(found, Shifted()) == pytest.approx(measured(expected, setting[0]))


def test_unknown_options_are_refused_at_once(setting):
    with pytest.raises(TypeError, match="unexpected keyword argument 'outputs'"):
        TangentKernelProbe({"train": setting[1]}, outputs=1)


def test_a_layer_with_the_name_of_the_whole_network_is_refused(setting):
    model = nn.Sequential(OrderedDict(all=nn.Linear(4, 3, dtype=torch.float64)))
    assert measured(TangentKernelProbe({"train": setting[1]}), model)
    with pytest.raises(ValueError, match=r"layer 'all': .*; rename it"):
        measured(TangentKernelProbe({"train": setting[1]}, layers=True), model)


def test_the_effective_rank_of_raw_features_is_measured_if_asked_for(setting, explicit_jacobian):
    model, batch = setting
    found = measured(TangentKernelProbe({"train": batch}, uncentred=True), model)
    features = explicit_jacobian(model, batch.x).flatten(0, -2)
    shares = torch.linalg.svdvals(features).numpy() ** 2
    shares = shares[shares > 1e-14 * shares.sum()] / shares.sum()
    expected = np.exp(-(shares * np.log(shares)).sum())
    assert found["all", "train", "effective_rank_uncentred"] == pytest.approx(expected, rel=1e-9)
    plain = measured(TangentKernelProbe({"train": batch}), model)
    assert ("all", "train", "effective_rank_uncentred") not in plain


def test_layers_are_aligned_by_their_own_kernels(setting, centred_features):
    model, batch = setting
    found = measured(TangentKernelProbe({"test": batch}, layers=True), model)
    size = model.layers[0].weight.numel() + model.layers[0].bias.numel()
    features = centred_features(model, batch.x)[..., :size].flatten(0, 1)
    kernel = features @ features.T
    y = (batch.y - batch.y.mean(0)).flatten()
    expected = y @ kernel @ y / (kernel.norm() * (y @ y))
    assert found["layers.0", "test", "label_alignment"] == pytest.approx(float(expected), rel=1e-9)
    assert {layer for layer, _, _ in found} == {"all", "layers.0", "layers.1"}
    own = {metric for layer, _, metric in found if layer == "layers.0"}
    assert own == {"label_alignment", "label_alignment_uncentred"}


def test_what_is_not_asked_for_is_not_measured(setting):
    model, batch = setting
    found = measured(TangentKernelProbe({"a": batch, "b": batch}, spectrum=False), model)
    assert {layer for layer, _, _ in found} == {"all"}
    assert {split for _, split, _ in found} == {"a", "b"}
    assert all(metric.startswith("label_alignment") for _, _, metric in found)


def test_a_network_whose_units_died_is_reported_with_step_split_and_layer(setting):
    model, batch = setting
    with torch.no_grad():
        model.layers[0].bias.fill_(-100)
    with pytest.raises(
        TrainingDivergedError,
        match=r"at step 0, layer 'all' on 'train': once centred, the kernel is zero.* died",
    ):
        TangentKernelProbe({"train": batch}, layers=True)(0, model)


def test_alignments_that_dead_units_leave_defined_are_measured(setting):
    model, batch = setting
    with torch.no_grad():
        model.layers[0].bias.fill_(-100)  # only the last bias has a gradient
    found = TangentKernelProbe({"train": batch}, spectrum=False, partial=True)(0, model)
    ones = np.kron(np.ones((12, 12)), np.eye(3))
    y = batch.y.numpy().flatten()
    assert {row.metric: row.value for row in found.rows} == pytest.approx(
        {
            "label_alignment_equation_7_raw": 0,
            "label_alignment_uncentred": y @ ones @ y / np.linalg.norm(ones) / (y @ y),
            "label_alignment_uncentred_kernel": 0,
        }
    )
    assert len(found.problems) == 1


def test_the_kernel_can_be_that_of_a_part_of_the_outputs(setting):
    model, batch = setting
    first = Batch(batch.x, batch.y[:, :1])
    found = measured(TangentKernelProbe({"train": first}, output=lambda f: f[:, :1]), model)
    with torch.no_grad():
        model.layers[-1].weight = nn.Parameter(model.layers[-1].weight[:1])
        model.layers[-1].bias = nn.Parameter(model.layers[-1].bias[:1])
    expected = measured(TangentKernelProbe({"train": first}), model)
    assert found == pytest.approx(expected)


def test_what_becomes_trainable_is_measured_by_a_plan_that_was_made_before():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    model[0].requires_grad_(False)
    x, y = torch.randn(8, 4), torch.arange(8) % 2
    probes = [
        TangentKernelProbe({"train": Batch(x, y)}, only="trainable", checked_once=once)
        for once in (True, False)
    ]
    for step in (0, 1):
        found = [[row.value for row in probe(step, model).rows] for probe in probes]
        assert found[0] == pytest.approx(found[1], rel=1e-4)
        model[0].weight.requires_grad_(True)  # but not its bias
