import math
import pickle
import warnings
from contextlib import suppress
from types import MethodType

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import scipy.optimize
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from emulated_gpu import GPU
from feature_alignment.adaptive import adaptive_features, penalised_interpolation
from feature_alignment.adaptive.adaptive_features import PENALTIES, AdaptiveTangentFeatures
from feature_alignment.adaptive.adaptive_scales import adaptive_scales
from feature_alignment.adaptive.feature_structures import Diagonal, LayerStructure
from feature_alignment.adaptive.parameter_matrices import inner, matrix_layout
from feature_alignment.adaptive.penalised_interpolation import Interpolation
from feature_alignment.adaptive.penalties import effective_penalty, rigid_penalty
from feature_alignment.kernels.tangent import tangent_features
from feature_alignment.models.mlp import MLP


def mlp():
    generator = torch.Generator().manual_seed(1)
    return MLP(3, [4, 5], 2, "erf", True, generator, dtype=torch.float64)


def cnn():
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(3, 4, 3, stride=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(16, 2),
    ).double()


def data(network, n=6):
    generator = torch.Generator().manual_seed(3)
    shape = (n, 3) if isinstance(network, MLP) else (n, 2, 5, 5)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return x, 3 * torch.randn(n, 2, generator=generator, dtype=torch.float64)


def problem(build=mlp, n=6):
    network = build()
    return network, *data(network, n)


def features(network, x, power=0, transformation=None):
    """J M^power explicitly, (n·c, p) in the order of the joined matrices."""
    layout = matrix_layout(network)
    rows = []
    for row in tangent_features(network, x).flatten(0, 1):
        sizes = [p.numel() for p in network.parameters()]
        named = {
            name: part.view(p.shape)
            for (name, p), part in zip(network.named_parameters(), row.split(sizes), strict=True)
        }
        matrices = layout.join(named)
        if transformation is not None:
            matrices = transformation.apply(matrices, power)
        rows.append(torch.cat([matrix.flatten() for matrix in matrices.values()]))
    return torch.stack(rows)


def generic_minimum(network, x, y, penalty, starts):
    """Ω̃ by a quasi-Newton method over interpolating coefficients, from several starts."""
    j = features(network, x).numpy()
    with torch.no_grad():
        r = (y - network(x)).flatten().numpy()
    particular, null = np.linalg.pinv(j) @ r, scipy.linalg.null_space(j)
    layout = matrix_layout(network)
    shapes = [m.shape for m in layout.join(dict(network.named_parameters())).values()]
    sizes = np.cumsum([k * d for k, d in shapes])[:-1]

    def objective(free):
        value, slope = 0.0, []
        parts = np.split(particular + null @ free, sizes)
        for number, (part, shape) in enumerate(zip(parts, shapes, strict=True)):
            u, d, vt = np.linalg.svd(part.reshape(shape), full_matrices=False)
            output = rigid_penalty if number == len(shapes) - 1 else penalty
            found = adaptive_scales(penalty, output, d)
            value += found.penalty.sum()
            slope.append(((u * (2 * d / (found.first * found.second) ** 2)) @ vt).ravel())
        return value, null.T @ np.concatenate(slope)

    generator = np.random.default_rng(0)
    values = []
    for number in range(starts):
        start = (number > 0) * generator.standard_normal(null.shape[1])
        found = scipy.optimize.minimize(
            objective,
            start,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 3000, "ftol": 1e-15, "gtol": 1e-9},
        )
        values.append(found.fun)
    return min(values)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "n", "penalty", "starts"),
    [
        pytest.param(mlp, 6, "square", 4, marks=pytest.mark.exhaustive),
        (mlp, 6, "logarithmic", 4),
        (cnn, 4, "square", 2),
    ],
)
def test_layers_reach_the_minimum_of_a_generic_optimiser(build, n, penalty, starts):
    network, x, y = problem(build, n)
    model = AdaptiveTangentFeatures(
        network, penalty=penalty, starts=starts // 2 + 1, tolerance=1e-12, max_iter=2000
    ).fit(x, y)
    best = generic_minimum(network, x, y, PENALTIES[penalty], starts)
    assert model.converged_
    assert model.objective_ == pytest.approx(best, rel=1e-6)


def test_both_sides_have_their_own_penalties():
    network, x, y = problem()
    penalties = {"penalty": "square", "output_penalty": "logarithmic"}
    model = AdaptiveTangentFeatures(network, **penalties, tolerance=0.1).fit(x, y)
    readout = list(model.coefficients_)[-1]
    least = LayerStructure(PENALTIES["square"], PENALTIES["logarithmic"], readout)
    assert model.objective_ == pytest.approx(least.adapt(model.coefficients_).penalty, rel=1e-6)
    same = LayerStructure(PENALTIES["square"], PENALTIES["square"], readout)
    assert model.objective_ != pytest.approx(same.adapt(model.coefficients_).penalty, rel=1e-3)


@pytest.mark.parametrize("structure", ["layers", "diagonal", "none"])
@pytest.mark.parametrize("build", [mlp, cnn])
def test_the_solution_interpolates_and_the_objective_never_rises(build, structure):
    network, x, y = problem(build)
    model = AdaptiveTangentFeatures(network, structure=structure, penalty="absolute").fit(x, y)
    np.testing.assert_allclose(model.predict(x), y, atol=1e-11)
    assert (np.diff(model.objectives_) <= 0).all()
    assert model.objectives_[-1] == model.objective_ == model.transformation_.penalty


@pytest.mark.parametrize("structure", ["layers", "diagonal", "none"])
@pytest.mark.parametrize("build", [mlp, cnn])
def test_the_adapted_kernel_is_the_gram_matrix_of_transformed_features(build, structure):
    network, x, y = problem(build)
    model = AdaptiveTangentFeatures(network, structure=structure).fit(x, y)
    other, _ = data(network, n=9)
    rows, columns = (features(network, z, 1, model.transformation_).numpy() for z in (x, other))
    state = torch.get_rng_state()
    np.testing.assert_allclose(model.adapted_kernel(x), rows @ rows.T, rtol=1e-10, atol=1e-12)
    found = model.adapted_kernel(x, other)
    np.testing.assert_allclose(found, rows @ columns.T, rtol=1e-10, atol=1e-12)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("structure", ["layers", "diagonal", "none"])
def test_a_network_on_the_gpu_is_fitted_there(structure, emulation):
    network, x, y = problem()
    options = {"structure": structure, "starts": 2, "tolerance": 1e-2}
    expected = AdaptiveTangentFeatures(network, **options).fit(x, y)
    with emulation():
        model = AdaptiveTangentFeatures(network.to(GPU), **options).fit(x.to(GPU), y)
        np.testing.assert_allclose(model.predict(2 * x), expected.predict(2 * x), rtol=1e-6)
        np.testing.assert_allclose(model.adapted_kernel(x), expected.adapted_kernel(x), rtol=1e-6)


def test_coefficients_are_the_minimum_norm_interpolation_of_the_adapted_kernel():
    network, x, y = problem()
    model = AdaptiveTangentFeatures(network, tolerance=1e-11, max_iter=500).fit(x, y)
    with torch.no_grad():
        residual = (y - network(x)).flatten().numpy()
    weights = np.linalg.solve(model.adapted_kernel(x), residual)
    expected = features(network, x, 2, model.transformation_).numpy().T @ weights
    found = torch.cat([b.flatten() for b in model.coefficients_.values()])
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


def test_without_structure_it_is_ridgeless_regression_with_the_tangent_kernel():
    network, x, y = problem()
    model = AdaptiveTangentFeatures(network, structure="none").fit(x, y)
    other, _ = data(network, n=9)
    j, j_other = features(network, x).numpy(), features(network, other).numpy()
    with torch.no_grad():
        residual, f = (y - network(x)).flatten().numpy(), network(other).numpy()
    beta = np.linalg.pinv(j) @ residual
    np.testing.assert_allclose(
        model.predict(other), f + (j_other @ beta).reshape(-1, 2), atol=1e-10
    )
    norm = np.linalg.norm(beta)
    s = adaptive_scales(PENALTIES["square"], rigid_penalty, np.array(norm)).first
    change = np.outer(j @ beta, j @ beta) * (s**2 - 1) / norm**2
    np.testing.assert_allclose(model.adapted_kernel(x), j @ j.T + change, rtol=1e-9)


def attention():
    torch.manual_seed(2)
    layers = nn.TransformerEncoderLayer(4, 2, 6, batch_first=True)
    return nn.Sequential(layers, nn.Flatten(), nn.Linear(12, 2)).double().eval()


def hard_gates():
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(12, 8), nn.Hardswish(), nn.Hardsigmoid(), nn.Linear(8, 2)
    ).double()


@pytest.mark.parametrize("structure", ["layers", "none"])
@pytest.mark.parametrize("build", [attention, hard_gates])
def test_networks_whose_operations_have_no_second_derivative_interpolate(build, structure):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(5, 3, 4, generator=generator, dtype=torch.float64)
    y = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    model = AdaptiveTangentFeatures(build(), structure=structure).fit(x, y)
    np.testing.assert_allclose(model.predict(x), y, atol=1e-7)


def test_restarts_never_end_higher():
    network, x, y = problem()
    few = {"penalty": "absolute", "max_iter": 20, "tolerance": 1e-2}
    once = AdaptiveTangentFeatures(network, **few).fit(x, y)
    often = AdaptiveTangentFeatures(network, **few, starts=3).fit(x, y)
    assert often.objective_ <= once.objective_


def test_restarts_begin_in_other_directions_as_far_as_the_best_solution(monkeypatch):
    def recorded(*problem, minimise=adaptive_features.minimise_penalty):
        starts.extend(problem[4:])
        return minimise(*problem)

    starts, (network, x, y) = [], problem()
    monkeypatch.setattr(adaptive_features, "minimise_penalty", recorded)
    model = AdaptiveTangentFeatures(network, structure="none", starts=3).fit(x, y)
    first, second = starts
    assert first.scale == pytest.approx(model.transformation_.scale, rel=1e-6)
    assert second.scale == pytest.approx(model.transformation_.scale, rel=1e-6)
    assert abs(inner(first.direction, second.direction)) < 0.9


def test_a_restart_begins_elsewhere_than_the_first_start(monkeypatch):
    def recorded(*problem, minimise=adaptive_features.minimise_penalty):
        solutions.append(minimise(*problem))
        return solutions[-1]

    solutions, (network, x, y) = [], problem()
    monkeypatch.setattr(adaptive_features, "minimise_penalty", recorded)
    AdaptiveTangentFeatures(network, starts=2, tolerance=1e-2).fit(x, y)
    first, second = (solution.objectives[0] for solution in solutions)
    assert second != pytest.approx(first, rel=0.1)  # which is that of the least norm


def test_networks_are_taken_in_evaluation_mode():
    network, x, y = problem()
    dropping = nn.Sequential(*network.layers[:1], nn.Tanh(), nn.Dropout(), nn.Linear(4, 2)).train()
    model = AdaptiveTangentFeatures(dropping, structure="none").fit(x, y)
    np.testing.assert_allclose(model.predict(x), y, atol=1e-9)
    assert dropping.training


def test_the_conventions_of_estimators():
    network = MLP(3, [4], 1, "relu", True, torch.Generator().manual_seed(0))
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((8, 3)), generator.standard_normal(8)
    before = [p.clone() for p in network.parameters()]
    model = clone(AdaptiveTangentFeatures(network, penalty="absolute", starts=2))
    assert model.get_params()["penalty"] == "absolute"
    assert model.fit(x, y).predict(x).shape == (8,)
    assert model.score(x, y) == pytest.approx(1)
    assert all(torch.equal(p, old) for p, old in zip(network.parameters(), before, strict=True))
    again = clone(model).fit(x, y)
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"structure": "layer"}, "structure: 'layer' is unknown"),
        ({"penalty": "cube"}, "penalty: 'cube' is unknown"),
        ({"output_penalty": "cube"}, "output_penalty: 'cube' is unknown"),
        ({"structure": "none", "output_penalty": "square"}, "only the structure 'layers' has"),
        ({"penalty": ["square"]}, r"penalty: \['square'\] is unknown"),
        ({"penalty": lambda v: 1.0}, "gives 1.0 for one number in an array"),
        ({"starts": 0}, "starts: 0; it must be a whole number of at least 1"),
        ({"starts": 1.5}, "starts: 1.5; it must be a whole number"),
        ({"starts": "2"}, "starts: '2'; it must be a whole number"),
        ({"max_iter": -3}, "max_iter: -3; it must be a whole number of at least 1"),
        ({"seed": "a"}, "seed: 'a'; it must be a whole number"),
        ({"seed": -1}, "seed: -1; it must be a whole number of at least 0"),
        ({"tolerance": -1.0}, "tolerance: -1.0; a number of at least 0 is needed"),
        ({"tolerance": float("nan")}, "tolerance: nan; a number"),
        ({"tolerance": True}, "tolerance: True; a number"),
    ],
)
def test_unknown_settings_are_refused(settings, message):
    network = mlp()
    with pytest.raises(ValueError, match=message):
        AdaptiveTangentFeatures(network, **settings).fit(*data(network))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_outputs_of_any_shape_are_predicted_sample_by_sample(shape):
    generator = torch.Generator().manual_seed(0)
    network = MLP(3, [4], 1, "relu", True, generator, dtype=torch.float64)
    x, y = torch.randn(2, 7, 3, generator=generator, dtype=torch.float64)
    reshaped = nn.Sequential(network, nn.Unflatten(1, shape) if shape else nn.Flatten(0))
    model = AdaptiveTangentFeatures(reshaped).fit(x, y[:, 0])
    np.testing.assert_allclose(model.predict(x), y[:, 0], atol=1e-9)


@pytest.mark.parametrize("structure", ["layers", "diagonal", "none"])
def test_targets_that_the_network_meets_already_need_no_features(structure):
    network, x, _ = problem()
    y = network(x).detach()
    model = AdaptiveTangentFeatures(network, structure=structure).fit(x, y)
    np.testing.assert_allclose(model.predict(x), y, rtol=1e-12)
    assert model.converged_
    assert model.objective_ == pytest.approx(0, abs=1e-20)


def test_targets_that_cannot_be_interpolated_are_refused():
    network, x, y = problem()
    with pytest.raises(ValueError, match="are linearly dependent"):
        AdaptiveTangentFeatures(network).fit(torch.cat([x, x]), torch.cat([y, y]))
    with pytest.raises(ValueError, match=r"y: shape \(6, 1\); the network's outputs have"):
        AdaptiveTangentFeatures(network).fit(x, y[:, :1])
    with pytest.raises(ValueError, match=r"y: shape \(12, 1\)"):  # the plainer of two mistakes
        AdaptiveTangentFeatures(network).fit(torch.cat([x, x]), torch.cat([y, y])[:, :1])


def test_layers_that_cannot_be_transformed_have_no_adapted_kernel():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 2)).double()
    x, y = data(mlp())
    model = AdaptiveTangentFeatures(network).fit(x, y)
    with pytest.raises(ValueError, match=r"layer '1' \(LayerNorm\): the kernel adapted by layers"):
        model.adapted_kernel(x)


class Twice(nn.Module):
    """One layer under two names, or two layers with one weight."""

    def __init__(self, tied):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.c = nn.Linear(3, 3), nn.Linear(3, 2)
        self.b = nn.Linear(3, 3) if tied else self.a
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))


def test_a_layer_under_two_names_is_transformed_in_both_places():
    network = Twice(tied=False).double()
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).double()
    y = x[:, :2] ** 2
    model = AdaptiveTangentFeatures(network).fit(x, y)
    rows = features(network, x, 1, model.transformation_).numpy()
    np.testing.assert_allclose(model.adapted_kernel(x), rows @ rows.T, rtol=1e-10, atol=1e-12)
    model = AdaptiveTangentFeatures(Twice(tied=True).double()).fit(x, y)
    with pytest.raises(ValueError, match="layer 'b': it shares a parameter"):
        model.adapted_kernel(x)


def test_a_parameter_without_entries_has_no_features():
    network, x, y = problem()
    expected = AdaptiveTangentFeatures(network, structure="diagonal").fit(x, y).adapted_kernel(x)
    network.register_parameter("none", torch.nn.Parameter(torch.zeros(0, dtype=torch.float64)))
    found = AdaptiveTangentFeatures(network, structure="diagonal").fit(x, y).adapted_kernel(x)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_samples_may_be_of_any_precision_and_have_a_gradient():
    network, x, y = problem()
    x = x.bfloat16()
    expected = AdaptiveTangentFeatures(network, structure="none").fit(x.double(), y)
    model = AdaptiveTangentFeatures(network, structure="none").fit(x.requires_grad_(), y)
    np.testing.assert_array_equal(model.predict(2 * x), expected.predict(2 * x.double()))


def test_samples_may_stand_in_reverse():
    network, x, y = problem()
    model = AdaptiveTangentFeatures(network).fit(x.numpy()[::-1], y.numpy()[::-1])
    np.testing.assert_allclose(model.predict(x.numpy()[::-1]), y.numpy()[::-1], atol=1e-10)


def test_what_is_asked_before_fitting_is_refused():
    network, x, _ = problem()
    model = AdaptiveTangentFeatures(network)
    for ask in (model.predict, model.adapted_kernel):
        with pytest.raises(NotFittedError, match="AdaptiveTangentFeatures instance is not fitted"):
            ask(x)


@pytest.mark.parametrize("structure", ["layers", "diagonal"])
def test_a_search_that_stalls_is_not_called_converged(structure):
    """With targets this large conjugate gradients end long before the minimum."""
    network, x, y = problem()
    model = AdaptiveTangentFeatures(network, structure=structure)
    assert model.fit(x, y).converged_
    with pytest.warns(ConvergenceWarning, match=r"stalled above its minimum .* of unit size"):
        model.fit(x, 1e7 * y)
    assert not model.converged_


def test_targets_of_a_bad_scale_are_named_where_they_are_not_interpolated(monkeypatch):
    """Whether conjugate gradients miss targets this large depends on the processor."""
    network, x, y = problem()
    monkeypatch.setattr(penalised_interpolation, "_INTERPOLATES", -1)
    with pytest.raises(ValueError, match=r"the targets too large: .* give targets of unit size"):
        AdaptiveTangentFeatures(network).fit(x, 1e10 * y)


def test_a_search_that_gains_little_goes_on_until_it_is_near_the_minimum(monkeypatch):
    """When it gains little for the first time depends on the processor."""
    network, x, y = problem()
    near = AdaptiveTangentFeatures(network).fit(x, y)
    far, gap = iter([math.inf] * 3), penalised_interpolation._gap
    monkeypatch.setattr(penalised_interpolation, "_gap", lambda *a: next(far, None) or gap(*a))
    model = AdaptiveTangentFeatures(network).fit(x, y)
    assert model.converged_
    assert model.n_iter_ >= near.n_iter_ + 3
    assert model.objective_ <= near.objective_
    monkeypatch.setattr(penalised_interpolation, "_gap", lambda *_: math.inf)
    with pytest.warns(ConvergenceWarning, match="stalled above its minimum"):
        assert not model.fit(x, y).converged_
    assert len(model.objectives_) - 2 - np.flatnonzero(gained(model))[-1] == 9


def gained(model):
    """Whether each iteration gained more than the tolerance."""
    objectives = np.array(model.objectives_)
    return -np.diff(objectives) > model.tolerance * objectives[:-1]


def test_a_search_near_the_minimum_ends_with_the_first_iteration_that_gains_little(monkeypatch):
    monkeypatch.setattr(penalised_interpolation, "_gap", lambda *_: 0.0)
    network, x, y = problem()
    model = AdaptiveTangentFeatures(network, tolerance=1e-2).fit(x, 10 * y)
    assert model.n_iter_ > 1
    assert gained(model).tolist() == [True] * (model.n_iter_ - 1) + [False]


@pytest.mark.parametrize(("tolerance", "largest"), [(1e-6, 1e-4), (1e-9, 1e-6), (0, 1e-6)])
def test_the_gap_of_a_converged_search_is_small(tolerance, largest, monkeypatch):
    network, x, y = problem()
    model = AdaptiveTangentFeatures(network, structure="none", tolerance=tolerance)
    for share in (0.99, 1.01):
        gap = share * largest
        monkeypatch.setattr(penalised_interpolation, "_gap", lambda i, b, m, g=gap: g * m.penalty)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            assert model.fit(x, y).converged_ == (share < 1)


def test_conjugate_gradients_reach_the_least_norm(monkeypatch):
    monkeypatch.setattr(penalised_interpolation, "_ENOUGH", 0.0)
    network, x, y = problem()
    interpolation = Interpolation(network, x, y)
    start = interpolation.minimum_norm(interpolation.residual)
    adapted = Diagonal(PENALTIES["square"]).adapt(start)
    found = penalised_interpolation._reweighted(interpolation, start, adapted, 0.0)
    j, squared = (features(network, x, power, adapted) for power in (1, 2))
    expected = squared.T @ torch.linalg.solve(j @ j.T, interpolation.residual.flatten())
    torch.testing.assert_close(torch.cat([b.flatten() for b in found.values()]), expected)


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8, 0.0])
def test_an_extrapolation_of_an_affine_map_is_its_fixed_point(size):
    """That of b ↦ b/2 + size is 2 size."""
    before = [torch.tensor([[b * size]], dtype=torch.float64) for b in (0.0, 1.0)]
    recent = [({"layer": b}, {"layer": b / 2 + size}) for b in before]
    found = penalised_interpolation._settled(recent)["layer"]
    assert found.item() == pytest.approx(2 * size, rel=1e-9)


def test_coefficients_interpolate_to_a_thousandth_of_the_residual():
    interpolation = Interpolation(*problem())
    b = interpolation.minimum_norm(interpolation.residual)
    interpolation.check({layer: (1 - 0.9e-3) * matrix for layer, matrix in b.items()})
    with pytest.raises(ValueError, match="is left; remove nearly equal samples"):
        interpolation.check({layer: (1 - 1.1e-3) * matrix for layer, matrix in b.items()})


def test_what_is_found_is_checked(monkeypatch):
    checked = []
    monkeypatch.setattr(Interpolation, "check", lambda self, matrices: checked.append(matrices))
    network, x, y = problem()
    model = AdaptiveTangentFeatures(network, tolerance=0.1).fit(x, y)
    assert checked[-1] is model.coefficients_


def test_iterations_that_do_not_suffice_are_told():
    network = mlp()
    with pytest.warns(ConvergenceWarning, match=r"minimum to 1e-06 of itself in iteration 1, the"):
        model = AdaptiveTangentFeatures(network, max_iter=1).fit(*data(network))
    assert not model.converged_
    assert model.n_iter_ == 1


def test_inputs_of_another_width_are_refused():
    network, x, y = problem()
    model = AdaptiveTangentFeatures(network, structure="none")
    message = r"{}: the network does not take inputs of shape \(6, 2\), samples first: "
    with pytest.raises(ValueError, match=message.format("X")):
        model.fit(x[:, :2], y)
    model.fit(x, y)
    with pytest.raises(ValueError, match=r"^X has 2 features, but Adaptive\w+ is expecting 3"):
        model.predict(x[:, :2])
    with pytest.raises(ValueError, match=r"^X2: X has 2 features"):
        model.adapted_kernel(x, x[:, :2])
    network, x, y = problem(cnn)
    with pytest.raises(
        ValueError, match=r"X: samples of shape \(2, 5, 2\); `fit` was given \(2, 5, 5"
    ):
        AdaptiveTangentFeatures(network, structure="none").fit(x, y).predict(x[:, :, :, :2])


def test_samples_with_an_axis_more_are_refused():
    """Of which a linear network would predict several outputs each."""
    network, x, y = problem()
    model = AdaptiveTangentFeatures(network, structure="none").fit(x, y)
    with pytest.raises(ValueError, match=r"X: samples of shape \(3, 3\); `fit` was given \(3,\)"):
        model.predict(np.ones((2, 3, 3)))
    with pytest.raises(ValueError, match=r"X2: X: samples of shape \(3, 3\)"):
        model.adapted_kernel(x, np.ones((2, 3, 3)))


def test_a_network_that_draws_is_refused_and_leaves_the_random_numbers():
    class Noisy(nn.Linear):
        def forward(self, x):
            return nn.functional.dropout(super().forward(x))

    _, x, y = problem()
    network, before = Noisy(3, 2), torch.get_rng_state()
    with pytest.raises(ValueError, match="draws random numbers"):
        AdaptiveTangentFeatures(network).fit(x, y)
    assert torch.equal(torch.get_rng_state(), before)


def test_networks_that_return_no_tensor_are_refused():
    _, x, y = problem()
    model = AdaptiveTangentFeatures(nn.LSTM(3, 1), structure="none")
    with pytest.raises(ValueError, match="network: it returns a tuple; let it return a tensor"):
        model.fit(x, y)


REPEATED = "a flower is measured twice: with dependent features no targets are interpolated"
DISTANT = "samples near (100, 100) lie on one side of every ReLU, where the network is affine"


@parametrize_with_checks(
    [AdaptiveTangentFeatures(tolerance=1e-2)],
    expected_failed_checks=lambda estimator: {
        "check_positive_only_tag_during_fit": REPEATED,
        "check_non_transformer_estimators_n_iter": REPEATED,
        "check_fit_idempotent": DISTANT,
        "check_fit_check_is_fitted": DISTANT,
        "check_n_features_in": DISTANT,
    },
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("structure", ["layers", "none"])
def test_what_scikit_learns_data_cannot_check_holds_for_other_data(structure):
    x, y = data(mlp())
    model = AdaptiveTangentFeatures(structure=structure, tolerance=1e-2)
    with pytest.raises(ValueError, match="are linearly dependent"):
        model.fit(torch.cat([x, x]), torch.cat([y, y]))
    with pytest.raises(NotFittedError):
        model.predict(x)
    predictions = model.fit(x, y).predict(2 * x)
    assert (model.n_features_in_, model.n_iter_ >= 1) == (3, True)
    np.testing.assert_array_equal(model.fit(x, y).predict(2 * x), predictions)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(2 * x), predictions)


def test_without_structure_the_absolute_penalty_is_not_convex_yet_has_one_minimiser():
    effective = effective_penalty(PENALTIES["absolute"])(np.array([2.0, 3.0, 4.0]))
    assert effective[1] > (effective[0] + effective[2]) / 2
    network, x, y = problem()
    fits = [
        AdaptiveTangentFeatures(network, structure="none", penalty=penalty, starts=2).fit(x, y)
        for penalty in ("square", "absolute")
    ]
    np.testing.assert_allclose(fits[0].predict(2 * x), fits[1].predict(2 * x), rtol=1e-10)


@pytest.mark.parametrize(
    ("penalty", "convex"), [("square", 1), ("logarithmic", 1), ("absolute", 0)]
)
def test_which_effective_penalties_are_convex(penalty, convex):
    bends = np.diff(effective_penalty(PENALTIES[penalty])(np.linspace(0, 6, 121)), 2)
    assert (bends > -1e-9).all() == convex


def test_columns_of_a_table_are_checked_by_name():
    x, y = data(mlp())
    table = pd.DataFrame(x.numpy(), columns=["a", "b", "c"])
    model = AdaptiveTangentFeatures(mlp(), structure="none").fit(table, pd.DataFrame(y.numpy()))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    expected = AdaptiveTangentFeatures(mlp(), structure="none").fit(x, y).predict(x.numpy())
    np.testing.assert_array_equal(model.predict(table), expected)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(table[["b", "a", "c"]])


@pytest.mark.parametrize(
    "convert", [torch.Tensor.numpy, torch.Tensor.int, torch.Tensor.byte, pd.DataFrame]
)
def test_tokens_are_learnt_as_their_one_hot_codes_are(convert):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Tanh(), nn.Linear(12, 1))
    coded = nn.Sequential(nn.Linear(7, 4, bias=False), *network[1:])
    coded[0].weight.data = network[0].weight.detach().T
    tokens, y = torch.randint(0, 7, (9, 3)), torch.randn(9)
    codes = nn.functional.one_hot(tokens, 7)
    model = AdaptiveTangentFeatures(network, structure="none").fit(convert(tokens), y)
    expected = AdaptiveTangentFeatures(coded, structure="none").fit(codes, y).predict(codes)
    np.testing.assert_allclose(model.predict(convert(tokens)), expected, atol=1e-10)
    np.testing.assert_allclose(expected, y, atol=1e-6)
    tokens[-1] = 7
    with pytest.raises(ValueError, match=r"inputs of shape \(9, 3\), .*; as tokens: index out of"):
        model.predict(convert(tokens))


def test_a_network_is_built_from_the_width_of_the_data():
    def build(inputs, outputs, generator):
        return MLP(inputs, [8], outputs, "erf", True, generator, "kaiming")

    x, y = data(cnn())
    model = clone(AdaptiveTangentFeatures(build)).fit(x, y)
    assert [tuple(b.shape) for b in model.coefficients_.values()] == [(8, 51), (2, 9)]
    again, other = (AdaptiveTangentFeatures(build, seed=seed).fit(x, y) for seed in (0, 1))
    np.testing.assert_array_equal(again.predict(2 * x), model.predict(2 * x))
    assert (other.predict(2 * x) != model.predict(2 * x)).all()
    assert AdaptiveTangentFeatures(build).fit(x, y[:, 0]).predict(x).shape == (6,)
    for wrong in ("mlp", lambda *sizes: sizes):
        with pytest.raises(ValueError, match=r"network: .*; give a module, or a function"):
            AdaptiveTangentFeatures(wrong).fit(x, y)


def test_the_default_network_has_512_rectified_units_of_he_s_size():
    x, y = data(mlp())
    network = AdaptiveTangentFeatures(structure="none").fit(x, y).network_
    assert [tuple(layer.weight.shape) for layer in network.layers] == [(512, 3), (2, 512)]
    assert network.activation == "relu"
    assert network.layers[1].weight.std().item() == pytest.approx((2 / 512) ** 0.5, rel=0.1)


def test_other_seeds_begin_restarts_elsewhere(monkeypatch):
    def recorded(*problem, minimise=adaptive_features.minimise_penalty):
        starts.extend(problem[4:])
        return minimise(*problem)

    starts, (network, x, y) = [], problem()
    monkeypatch.setattr(adaptive_features, "minimise_penalty", recorded)
    for seed in (0, 1):
        AdaptiveTangentFeatures(network, structure="none", starts=2, seed=seed).fit(x, y)
    first, second = starts
    assert abs(inner(first.direction, second.direction)) < 0.9


def test_what_the_network_becomes_later_does_not_change_predictions():
    network, x, y = problem()
    model = AdaptiveTangentFeatures(network).fit(x, y)
    nn.init.zeros_(network.layers[0].weight)
    np.testing.assert_allclose(model.predict(x), y, atol=1e-11)


class ReadoutFirst(nn.Module):
    """The readout is registered first, and a layer that is not used last."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.readout, self.hidden, self.spare = nn.Linear(5, 2), nn.Linear(3, 5), nn.Linear(3, 2)

    def forward(self, x):
        return self.readout(torch.tanh(self.hidden(x)))


def test_rounding_does_not_decide_whether_features_are_dependent():
    """Any two samples of one feature are, whether the second pivot is above 0 or not."""
    network = nn.Linear(1, 1, bias=False)
    for x in np.random.default_rng(0).normal(size=(20, 2, 1)):
        with pytest.raises(ValueError, match=r"are linearly dependent \(from row 2 of 2"):
            AdaptiveTangentFeatures(network).fit(x, 3 * x)


def test_the_readout_is_the_layer_that_gives_the_outputs():
    x, y = data(mlp())
    first = ReadoutFirst().double()
    ordered = nn.Sequential(first.hidden, nn.Tanh(), first.readout)
    expected = AdaptiveTangentFeatures(ordered).fit(x, y)
    found = AdaptiveTangentFeatures(first).fit(x, y)
    assert found.objective_ == pytest.approx(expected.objective_, rel=1e-9)
    sides = found.transformation_.dense("readout")
    torch.testing.assert_close(sides[1], torch.eye(2, dtype=torch.float64))
    torch.testing.assert_close(sides, expected.transformation_.dense("2"))


@pytest.mark.parametrize(
    ("function", "readout"),
    [
        (lambda m, x: x @ (m.a.weight + m.b.weight).T, "b"),
        (lambda m, x: x @ (m.b.weight + m.a.weight).T, "b"),
        (lambda m, x: m.a(x) + m.b(x), "a"),
        (lambda m, x: m.b(x) + m.a(x), "b"),
    ],
)
def test_one_of_several_readouts_counts(function, readout):
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x):
            return function(self, x)

    x, y = data(mlp(), n=2)
    assert Interpolation(Sum().double(), x, y).readout == readout


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 1e-6])
def test_samples_that_cannot_all_be_interpolated_are_never_called_converged(gap):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(10, 3)), rng.normal(size=10)
        x[9] = x[0] + gap
        generator = torch.Generator().manual_seed(seed)
        network = MLP(3, [30], 1, "relu", True, generator, dtype=torch.float64)
        refused = pytest.raises(ValueError, match="linearly dependent")
        with refused if gap == 0 else suppress(ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = AdaptiveTangentFeatures(network).fit(x, y)
            assert np.abs(fitted.predict(x) - y).max() < 1e-3 * np.linalg.norm(y)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Gain(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.gain = nn.Parameter(torch.full((self.out_features,), 3.0))

    def forward(self, x):
        return super().forward(x) * self.gain


def hooked():
    layer = nn.Linear(3, 8)
    layer.register_forward_hook(lambda module, given, found: 2 * found)
    return layer


def hooked_before():
    layer = nn.Linear(3, 8)
    layer.register_forward_pre_hook(lambda module, given: (2 * given[0],))
    return layer


def hooked_backward():
    layer = nn.Linear(3, 8)
    layer.register_full_backward_hook(lambda module, inward, outward: None)
    return layer


def replaced():
    layer = nn.Linear(3, 8)
    layer.forward = MethodType(lambda self, a: 2 * nn.Linear.forward(self, a), layer)
    return layer


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize(
    "layer",
    [
        replaced,
        lambda: Doubled(3, 8),
        lambda: Gain(3, 8),
        hooked,
        hooked_before,
        hooked_backward,
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 8)),
    ],
)
def test_a_layer_that_does_more_than_its_matrix_has_no_adapted_kernel(layer):
    torch.manual_seed(0)
    network = nn.Sequential(layer(), nn.Tanh(), nn.Linear(8, 1))
    x = np.random.default_rng(0).standard_normal((4, 3))
    solver = AdaptiveTangentFeatures(network).fit(x, np.arange(4.0))
    with pytest.raises(ValueError, match="the kernel adapted by layers needs"):
        solver.adapted_kernel(x)


def convolution(**options):
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 4, 2, **options)
    size = layer(torch.zeros(1, 2, 5, 5)).numel()
    return nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.Linear(size, 2)).double()


@pytest.mark.parametrize("options", [{"groups": 2}, {"padding": 1, "padding_mode": "reflect"}])
def test_convolutions_in_groups_or_with_other_padding_have_no_adapted_kernel(options):
    network = convolution(**options)
    x, y = data(network)
    solver = AdaptiveTangentFeatures(network).fit(x, y)
    with pytest.raises(ValueError, match="without groups and padded by zeros"):
        solver.adapted_kernel(x)


def test_a_convolution_that_does_more_than_its_matrix_has_no_adapted_kernel():
    class Halved(nn.Conv2d):
        def forward(self, x):
            return super().forward(x) / 2

    network = nn.Sequential(Halved(2, 4, 5), nn.Flatten(), nn.Tanh(), nn.Linear(4, 2)).double()
    x, y = data(network)
    solver = AdaptiveTangentFeatures(network).fit(x, y)
    with pytest.raises(ValueError, match=r"layer '0' \(Halved\): the kernel adapted by layers"):
        solver.adapted_kernel(x)


def test_a_single_layer_has_an_adapted_kernel():
    network = nn.Linear(3, 2).double()
    x, y = data(mlp(), n=3)
    solver = AdaptiveTangentFeatures(network).fit(x, y)
    rows = features(network, x, 1, solver.transformation_).numpy()
    np.testing.assert_allclose(solver.adapted_kernel(x), rows @ rows.T, rtol=1e-10, atol=1e-12)


def test_dilated_convolutions_have_an_adapted_kernel():
    network = convolution(dilation=2, stride=(1, 2), bias=False)
    x, y = data(network)
    solver = AdaptiveTangentFeatures(network).fit(x, y)
    rows = features(network, x, 1, solver.transformation_).numpy()
    np.testing.assert_allclose(solver.adapted_kernel(x), rows @ rows.T, rtol=1e-10, atol=1e-12)


def test_both_sides_of_a_square_layer_are_told_apart():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 2)).double()
    x, y = data(mlp())
    solver = AdaptiveTangentFeatures(network).fit(x, y)
    rows = features(network, x, 1, solver.transformation_).numpy()
    np.testing.assert_allclose(solver.adapted_kernel(x), rows @ rows.T, rtol=1e-10, atol=1e-12)


def test_a_weight_that_is_read_by_itself_has_no_adapted_kernel():
    class Direct(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 1)

        def forward(self, x):
            return self.last(torch.tanh(nn.functional.linear(x, self.first.weight)))

    x = np.random.default_rng(0).standard_normal((4, 3))
    solver = AdaptiveTangentFeatures(Direct()).fit(x, np.arange(4.0))
    with pytest.raises(ValueError, match="reads the weight of a layer by itself"):
        solver.adapted_kernel(x)


def test_parameters_without_a_gradient_are_left_out():
    network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    network.empty = nn.Parameter(torch.empty(0))
    network.count = nn.Parameter(torch.ones(1, dtype=torch.long), requires_grad=False)
    x = np.random.default_rng(0).standard_normal((4, 3))
    solver = AdaptiveTangentFeatures(network).fit(x, np.arange(4.0))
    assert np.abs(solver.predict(x) - np.arange(4.0)).max() < 1e-3
