import numpy as np
import pandas as pd
import pytest
import torch

from feature_alignment.data.synthetic import expected_loss, noisy_regression
from feature_alignment.papers.baratin2021.checks.supernat import Flow, supernat
from feature_alignment.papers.baratin2021.experiments.supernat import _log10_eigenvalues, run_seed
from feature_alignment.papers.baratin2021.parameters import Supernat
from feature_alignment.pipeline.run import SeedRun

STEPS = 120
KAPPAS = ("max", "fixed", "literal", "trace", "lambda_max")
DRAWN = {"gd", *KAPPAS, "gd_decayed"}
METHODS = {*DRAWN, *(f"gd_decayed_{kappa}" for kappa in KAPPAS[1:])}


def run(steps=STEPS, **changes):
    parameters = Supernat(learning_rates=[0.5, 0.1], steps=steps).but(**changes)
    return run_seed(SeedRun(0, parameters, torch.device("cpu"))).rows


@pytest.fixture(scope="module")
def frame():
    return pd.DataFrame(run())


def value(frame, metric, method, rate=0.5):
    rows = frame[(frame["metric"] == metric) & (frame["method"] == method)]
    (found,) = rows.loc[rows["learning_rate"] == rate, "value"]
    return found


def test_shrinking_features_keep_the_noise_out_and_growing_ones_do_not(frame):
    gd = value(frame, "final_loss", "gd")
    assert value(frame, "final_loss", "max") < 0.6 * gd
    difference = value(frame, "final_loss", "max") - gd
    assert value(frame, "loss_minus_gd", "max") == pytest.approx(difference)
    for method in ("trace", "lambda_max"):
        assert value(frame, "loss_minus_gd", method) >= -1e-3
        assert value(frame, "noise_fit", method) > 0.95
    assert value(frame, "noise_fit", "max") < 0.6


@pytest.mark.parametrize("kappa", ["max", "fixed", "literal"])
def test_the_control_shrinks_its_steps_as_the_kernel_of_supernat_shrinks(frame, kappa):
    """Written out with plain gradient descent and the trace of the kernel from the eigenvalues."""
    problem = noisy_regression(
        50, 10, 0.1, SeedRun(0, Supernat(), torch.device("cpu")).stream("data")
    )
    features, y = problem.features, problem.y
    trace = np.exp(supernat(features, y, 0.5, STEPS, kappa).log_eigenvalues).sum(axis=1)
    w = np.zeros(11)
    for size in trace[:-1] / trace[0]:
        w = w - 0.5 * size * features.T @ (features @ w - y) / 50
    control = "gd_decayed" if kappa == "max" else f"gd_decayed_{kappa}"
    found = value(frame, "final_loss", control)
    assert found == pytest.approx((w[0] - 1) ** 2 + (w[1:] ** 2).sum() / 10)
    assert trace[-1] < 0.5 * trace[0]


def test_what_is_learnt_late_is_a_share_of_what_is_left(frame):
    half = pd.DataFrame(run(steps=STEPS // 2))
    for method in ("gd", "max"):
        before, after = (value(rows, "noise_fit", method) for rows in (half, frame))
        expected = abs(after - before) / (1 - before)
        assert value(frame, "late_noise_share", method) == pytest.approx(expected)
    # Gradient descent hardly moves any more, and still is not frozen: it learns what is left.
    assert value(frame, "late_noise_share", "gd") > 0.5


def test_where_all_noise_is_learnt_there_is_no_share_of_what_is_left():
    rows = pd.DataFrame(run(steps=800))
    rows = rows[rows["learning_rate"] == 0.5]
    assert set(rows.loc[rows["metric"] == "noise_fit", "method"]) == METHODS
    with_share = set(rows.loc[rows["metric"] == "late_noise_share", "method"])
    assert "max" in with_share
    assert not with_share & {"gd", "trace", "gd_decayed_trace"}


def test_gradient_descent_leaves_the_features_alone(frame):
    assert value(frame, "log10_stretch_noise_mean", "gd") == 0
    assert value(frame, "log10_stretch_noise_mean", "max") > 0
    for noise in ("noise_mean", "noise_max"):
        ratios = [
            value(rows, "log10_eigenvalue_signal", "max")
            - value(rows, f"log10_eigenvalue_{noise}", "max")
            for rows in (frame[frame["step"] == 0], frame[frame["step"] == 1])
        ]
        first = value(frame, f"log10_stretch_{noise}_first_update", "max")
        assert first == pytest.approx(ratios[1] - ratios[0])


def test_curves_begin_at_the_untrained_model_and_are_at_the_first_rate(frame):
    curves = frame[(frame["metric"] == "loss") & (frame["split"] == "test")]
    assert set(curves["learning_rate"]) == {0.5}
    assert set(curves["method"]) == DRAWN
    assert curves.loc[curves["step"] == 0, "value"].to_numpy() == pytest.approx(1)


def test_the_choices_of_kappa_and_the_control_are_those_asked_for(frame):
    parameters = Supernat(learning_rates=[0.5], kappas=["literal"], steps=STEPS)
    rows = pd.DataFrame(run_seed(SeedRun(0, parameters, torch.device("cpu"))).rows)
    assert set(rows["method"]) == {"gd", "literal", "gd_decayed"}
    for method in ("gd", "literal"):
        found, expected = (value(f, "final_loss", method) for f in (rows, frame))
        assert found == expected
    control, other = (value(f, "final_loss", "gd_decayed") for f in (rows, frame))
    assert control != pytest.approx(other)


@pytest.mark.parametrize("projection", ["printed", "orthogonal"])
def test_losses_and_eigenvalues_are_those_of_the_flow(projection):
    frame = pd.DataFrame(run(projection=projection))
    frame = frame[(frame["method"] == "gd") & (frame["learning_rate"] == 0.5)]
    drawn = SeedRun(0, Supernat(), torch.device("cpu")).stream("data")
    problem = noisy_regression(50, 10, 0.1, drawn, projection)
    w = supernat(problem.features, problem.y, 0.5, STEPS, None).weights
    losses = {
        "train": np.mean((w @ problem.features.T - problem.y) ** 2, axis=1),
        "test": expected_loss(w),
    }
    for split, loss in losses.items():
        curve = frame[(frame["metric"] == "loss") & (frame["split"] == split)].set_index("step")
        assert curve["value"].to_dict() == pytest.approx({t: loss[t] for t in curve.index})
    told = frame.drop_duplicates("metric").set_index("metric")["value"]
    assert told["smallest_loss"] == pytest.approx(losses["test"].min())
    assert told["smallest_loss_step"] == losses["test"].argmin() < STEPS
    # The signal has ten times the variance of the noise features, and the largest eigenvalue.
    *_, second, first = np.log10(np.linalg.eigvalsh(problem.features.T @ problem.features))
    assert told["log10_eigenvalue_signal"] == pytest.approx(first)
    assert told["log10_eigenvalue_noise_max"] == pytest.approx(second)


def test_twice_the_loss_takes_half_the_rate(frame):
    doubled = pd.DataFrame(run(loss_factor=1.0, learning_rates=[0.25]))
    found = value(doubled, "final_loss", "gd", rate=0.25)
    assert found == pytest.approx(value(frame, "final_loss", "gd"))


def test_differences_and_fits_are_those_of_the_last_weights_without_the_signal():
    rows = pd.DataFrame(run(steps=12))
    drawn = SeedRun(0, Supernat(), torch.device("cpu")).stream("data")
    problem = noisy_regression(50, 10, 0.1, drawn)
    w = {k: supernat(problem.features, problem.y, 0.5, 12, k).weights[-1] for k in (None, "trace")}
    expected = float(expected_loss(w["trace"]) - expected_loss(w[None]))
    assert value(rows, "loss_minus_gd", "trace") == pytest.approx(expected)
    target = problem.interpolator[1:]
    fit = w[None][1:] @ target / (target @ target)
    assert value(rows, "noise_fit", "gd") == pytest.approx(fit)


def test_the_modes_are_told_apart_by_their_share_of_the_signal():
    directions = np.array([[0.1, -0.99, 0.1], [0.0, 0.1, 0.99], [0.99, 0.1, 0.0]])
    logs = np.log([[10.0, 100.0, 1000.0]])
    found = _log10_eigenvalues(Flow(np.zeros((1, 3)), logs, directions))
    assert found["signal"] == pytest.approx([2])
    assert (found["noise_mean"][0], found["noise_max"][0]) == pytest.approx((2, 3))
