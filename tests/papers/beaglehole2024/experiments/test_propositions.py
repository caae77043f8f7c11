import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.data.synthetic import uniform_sphere
from feature_alignment.models.mlp import MLP
from feature_alignment.papers.beaglehole2024.checks import identities, statements
from feature_alignment.papers.beaglehole2024.experiments.propositions import run_seed
from feature_alignment.papers.beaglehole2024.parameters import Propositions
from feature_alignment.pipeline.run import SeedRun

PARAMETERS = Propositions(
    samples=9, dimension=5, widths=[1, 6], matrix_size=200, matrix_networks=20
)


@pytest.fixture(scope="module")
def frame():
    return pd.DataFrame(run_seed(SeedRun(0, PARAMETERS, torch.device("cpu"))).rows)


@pytest.fixture(scope="module")
def values(frame):
    return frame.set_index("metric")["value"]


def test_identities_hold_to_rounding(values):
    assert values["proposition_2"] < 1e-14
    assert values["proposition_12"] < 1e-14


def test_second_derivatives_hold_to_the_finite_differences_error(values):
    for statement in ("nfm", "agop", "first_derivatives"):
        assert values[f"proposition_3_{statement}"] < 1e-4


def test_the_kernel_of_the_quadratic_is_four_times_the_printed_one(values):
    assert values["kernel_of_quadratic_corrected"] < 1e-14
    assert values["kernel_of_quadratic_as_printed"] == pytest.approx(0.75)


def test_proposition_16_holds_as_corrected_and_not_as_printed(values):
    for formula in ("nfm", "agop_corrected"):
        assert values[f"proposition_16_{formula}_norm_ratio"].tolist() == pytest.approx(
            [1, 1], abs=0.1
        )
        assert (values[f"proposition_16_{formula}_cosine"] > 0.995).all()
        assert (values[f"proposition_16_{formula}"] < 0.1).all()
    # At k = 1 there are no pairs of units, and nothing is missing.
    one, six = values["proposition_16_agop_as_printed_norm_ratio"]
    assert one == pytest.approx(1, abs=0.1)
    assert six > 3


def test_equations_12_to_15_hold_exactly_and_in_samples(values):
    for equation in range(12, 16):
        assert values[f"equation_{equation}_as_printed"] < 1e-12
        assert 0 < values[f"equation_{equation}_sampled"] < 0.05


def test_equations_20_and_22_hold_as_printed_and_28_if_derived(values):
    for equation in ("20", "22"):
        printed, derived = (values[f"equation_{equation}_{x}"] for x in ("as_printed", "derived"))
        assert printed == pytest.approx(derived, rel=1e-6)
    for equation in ("20", "22", "28"):
        assert values[f"equation_{equation}_derived"] < 0.2  # differences of O(1/N), N = 200
    assert values["equation_28_as_printed"] > values["equation_28_derived"] + 0.1


def table(frame, index):
    rows = frame.dropna(subset=index)
    return rows.pivot(index=index, columns="metric", values="value")


def test_the_sampled_egop_is_as_stated_but_for_a_chain_of_four(frame):
    by_length = table(frame, "rank")
    assert (by_length["egop_diagonal_distance"] < 0.05).all()
    assert by_length["egop_off_diagonal_distance"].tolist() == pytest.approx([0, 1, 0], abs=0.05)
    assert by_length["egop_rank_minus_length"].tolist() == [0, -2, 0]
    assert (by_length["egop_outside_max"] == 0).all()


def test_what_equation_10_leaves_out_vanishes_only_if_corrected(frame):
    by_dimension = table(frame, "dimension")
    assert by_dimension["equation_10_rest_corrected"].is_monotonic_decreasing
    assert by_dimension["equation_10_rest_as_printed"].is_monotonic_increasing


def test_the_mean_of_lemma_13_nears_its_expectation(frame):
    deviations = frame.loc[frame["metric"] == "lemma_13_deviation", "value"]
    assert len(deviations) == 4
    assert deviations.iloc[-1] < 0.8 * deviations.iloc[0]
    with_large_labels = table(frame, "dimension")["lemma_13_deviation_as_printed"]
    assert with_large_labels.iloc[-1] > 1.5 * with_large_labels.iloc[0] > 1.5


def threshold(d: int) -> float:
    """The c with P(|x₁| > c) = 1/log d on the sphere of radius √d, by integrating the density."""
    grid = np.linspace(0, d**0.5, 200_001)
    density = (1 - grid**2 / d) ** ((d - 3) / 2)
    return float(grid[np.searchsorted(np.cumsum(density), (1 - 1 / np.log(d)) * density.sum())])


def test_identities_hold_and_their_misprints_do_not(values):
    for exact in ("equation_4", "equation_7", "projection", "proposition_12_gradient"):
        assert values[exact] < 1e-12
    assert values["homogeneity_positive"] < 1e-12
    assert values["proposition_3_velocity"] < 1e-4
    # The sign of Ẇ: a relative difference of 2.
    assert values["proposition_3_velocity_as_printed"] == pytest.approx(2, abs=1e-3)
    for misprint in (
        "homogeneity_any",
        "proposition_3_proof_as_printed",
        "proposition_12_gradient_as_printed",
        "glossary_agop_as_printed",
    ):
        assert values[misprint] > 0.1


def test_freeness_holds_in_large_matrices(values):
    for number in range(12, 16):
        assert values[f"equation_{number}_as_printed"] < 0.1  # of O(1/N), N = 200


def test_theorem_9s_data_have_identity_covariance_on_the_larger_sphere_alone(frame):
    by_dimension = table(frame, "dimension")
    printed = by_dimension["theorem9_covariance_as_printed"]
    assert printed.is_monotonic_increasing
    assert printed.iloc[-1] == pytest.approx(1, abs=0.02)
    assert by_dimension["theorem9_covariance_corrected"].iloc[-1] < 0.3


def test_the_fourth_trace_of_theorem_9s_proof_grows_with_the_dimension(frame):
    by_dimension = table(frame, "dimension")
    printed = by_dimension["theorem9_fourth_trace_as_printed"]
    assert printed.iloc[-1] > 4 * printed.iloc[0]  # eight times the dimension
    corrected = by_dimension["theorem9_fourth_trace_corrected"]
    assert corrected.max() < 2 * corrected.min()


def network(widths=(3,)):
    """A network of three inputs, inputs and labels."""
    generator = torch.Generator().manual_seed(0)
    model = MLP(3, [*widths], 1, "erf", bias=False, generator=generator, dtype=torch.float64)
    x, y = (torch.randn(4, n, generator=generator, dtype=torch.float64) for n in (3, 1))
    return model, x, y


def test_the_layer_with_the_largest_error_counts(monkeypatch):
    errors = iter([0.5, 2.0, 1.0])
    monkeypatch.setattr(identities, "_second_derivative_errors", lambda *_: {"a": next(errors)})
    assert identities.identity_errors(*network([3, 3]))["a"] == 2.0


def test_the_glossarys_agop_is_compared_at_layers_with_as_many_outputs_as_inputs():
    """At which it is right where the weights are the identity."""
    model, x, y = network()
    with torch.no_grad():
        model.layers[0].weight.copy_(torch.eye(3))
    assert identities.identity_errors(model, x, y)["glossary_agop_as_printed"] < 1e-12


def test_the_proof_of_proposition_3_squares_the_kernel():
    """That of one linear layer is all ones, and its square n times that."""
    model, x, y = network([])
    found = identities.identity_errors(model, x, y)["proposition_3_proof_as_printed"]
    assert found == pytest.approx(1 - 1 / len(x), rel=1e-4)


def test_the_kernel_of_the_projection_is_one_of_half_the_samples(monkeypatch):
    seen, (_, x, y) = [], network()
    monkeypatch.setattr(identities, "velocity_correlation", lambda *given: seen.append(given) or 1)
    identities.projection_error(x, y, torch.Generator().manual_seed(0))
    ((_, _, kernel),) = seen
    assert torch.linalg.matrix_rank(kernel) == len(x) // 2
    torch.testing.assert_close(kernel @ kernel, 3 * kernel)


def test_means_over_networks_count_those_of_a_batch_that_is_not_full():
    _, x, y = network()
    networks = statements.BATCH + 100
    generator = torch.Generator().manual_seed(0)
    found = statements.proposition_16(x, y[:, 0], 20, networks, generator)
    assert found["proposition_16_nfm_norm_ratio"] == pytest.approx(1, abs=0.1)


def test_lemma_13_is_about_the_first_coordinate():
    found = statements.sphere_statements(20, 3, np.random.default_rng(0))
    x = uniform_sphere(20, 3, 3**0.5, np.random.default_rng(0))
    expected = np.linalg.norm(x.T @ x[:, 0] / 20 - [1, 0, 0])
    assert found["lemma_13_deviation"] == pytest.approx(expected)
    large = np.abs(x[:, 0]) > threshold(3)
    expected = np.linalg.norm(3 * large @ x / 20)
    assert found["lemma_13_deviation_as_printed"] == pytest.approx(expected)
