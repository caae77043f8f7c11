import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.data.alignment_reversing import AlignmentReversing as Data
from feature_alignment.determinism import stream
from feature_alignment.free_probability.centred_correlation import (
    data_matrices,
    predicted_correlation,
)
from feature_alignment.free_probability.random_features import matrix_moments
from feature_alignment.free_probability.words import matrix_trace
from feature_alignment.papers.beaglehole2024.experiments.alignment_reversing import (
    _network,
    run_seed,
)
from feature_alignment.papers.beaglehole2024.parameters import AlignmentReversing
from feature_alignment.pipeline.run import SeedRun

PARAMETERS = AlignmentReversing(
    size=96, balances=[0.25, 0.75], delta=1e-2, observed_networks=3, moment_networks=20
)


def run(seed=0, **changes):
    result = run_seed(SeedRun(seed, PARAMETERS.but(**changes), torch.device("cpu")))
    return pd.DataFrame(result.rows)


def test_prediction_is_near_the_observed_mean():
    rows = run()
    observed = rows[rows["metric"] == "observed"].groupby("balance")["value"].mean()
    predicted = rows[rows["metric"] == "predicted"].set_index("balance")["value"]
    assert (abs(observed - predicted) < 0.1).all()


def test_networks_are_the_same_for_all_data():
    first, second = run(0), run(1)
    for metric, same in (("sampled_moment", True), ("observed", False)):
        values = [rows.loc[rows["metric"] == metric, "value"].tolist() for rows in (first, second)]
        assert (values[0] == values[1]) is same


def test_moments_are_near_their_exact_values():
    rows = run(moment_networks=60)
    moments = rows.dropna(subset="power").pivot_table(
        index="power", columns="metric", values="value"
    )
    assert moments.loc[1, "sampled_moment"] == pytest.approx(1, rel=0.1)
    assert moments.loc[2, "sampled_moment"] == pytest.approx(
        moments.loc[2, "exact_moment"], rel=0.15
    )
    assert moments["limiting_moment"].tolist() == pytest.approx([1, 4, 25, 202])


def test_with_all_labels_one_the_term_of_the_agop_alone_is_a_cube():
    rows = run(epsilon2=0.0, label_shift=0.0, balances=[0.5, 1.0])
    found = rows[(rows["metric"] == "unique_term_identity") & (rows["balance"] == 1)]["value"]
    x, _ = Data(96, stream(0, "data"), delta=1e-2, epsilon2=0.0).sample(1.0)
    eigenvalues = np.linalg.svd(x)[1] ** 6  # of (XᵀX)³
    expected = eigenvalues.sum() / np.linalg.norm(eigenvalues) / 96**0.5
    assert found.item() == pytest.approx(expected)


def test_the_nfms_second_derivative_is_compared_with_the_identity():
    rows = run(reading="compact")
    found = rows[rows["metric"] == "nfm_derivative_identity"].set_index("balance")["value"]
    data = Data(96, stream(0, "data"), reading="compact")
    x, y = data.sample(0.25)
    square = np.linalg.matrix_power(x.T @ (y[:, None] * x), 2)
    expected = np.trace(square) / np.linalg.norm(square) / 96**0.5
    assert found[0.25] == pytest.approx(expected)


def test_moments_are_those_of_other_networks_than_the_observed_ones():
    rows = run(moment_networks=1)
    sampled = rows[rows["metric"] == "sampled_moment"].sort_values("power")["value"].tolist()
    assert sampled != pytest.approx(matrix_moments(_network(96, 0, "cpu")), rel=1e-3)
    networks = [_network(96, index, "cpu") for index in (0, 1)]
    assert not torch.allclose(*networks)


def test_the_unique_term_has_the_labels_in_it():
    rows = run()
    found = rows[rows["metric"] == "unique_term_identity"].set_index("balance")["value"]
    x, y = Data(96, stream(0, "data"), delta=1e-2).sample(0.25)
    weighted = x.T @ (y[:, None] * x)
    term = weighted @ x.T @ x @ weighted
    assert found[0.25] == pytest.approx(np.trace(term) / np.linalg.norm(term) / 96**0.5)


def test_the_data_are_compared_with_the_label_weighted_ones():
    """With all labels one, of no weight, they are the same."""
    rows = run(label_shift=0.0, balances=[0.25, 1.0])
    found = rows[rows["metric"] == "data_cosine"].set_index("balance")["value"]
    x, y = Data(96, stream(0, "data"), delta=1e-2, label_shift=0.0).sample(0.25)
    gram, weighted = x.T @ x, x.T @ (y[:, None] * x)
    cosine = np.sum(gram * weighted) / np.linalg.norm(gram) / np.linalg.norm(weighted)
    assert found[0.25] == pytest.approx(cosine)
    assert found[1.0] == pytest.approx(1)


def test_predictions_are_from_the_moments_that_are_recorded():
    rows = run(moment_networks=2)
    trace = matrix_trace(data_matrices(*Data(96, stream(0, "data"), delta=1e-2).sample(0.25)))
    for metric, moments in (
        ("predicted", "sampled_moment"),
        ("predicted_from_limits", "limiting_moment"),
    ):
        given = rows[rows["metric"] == moments].sort_values("power")["value"].tolist()
        found = rows[(rows["metric"] == metric) & (rows["balance"] == 0.25)]["value"].item()
        assert found == pytest.approx(predicted_correlation(trace, given), rel=1e-6)


def test_what_is_unshifted_is_what_data_without_the_shift_would_give():
    shifted, plain = run(label_shift=1e-3), run(label_shift=0.0)
    for metric in ("data_cosine", "observed"):
        rows = [
            frame[(frame["metric"] == name) & ~(frame["network"] > 0)]["value"].to_numpy()
            for frame, name in (
                (shifted, f"{metric}_unshifted"),
                (plain, metric),
                (shifted, metric),
            )
        ]
        assert rows[0] == pytest.approx(rows[1], rel=1e-6)
        assert rows[0] != pytest.approx(rows[2], rel=1e-3)
