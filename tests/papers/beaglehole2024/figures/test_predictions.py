"""Tables of the figures that compare predicted with observed correlations."""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from feature_alignment.papers.beaglehole2024.figures import fig3, fig7, fig_aspect_ratios
from feature_alignment.papers.beaglehole2024.figures import fig_theory as theory

FIXED = {"step": 0, "layer": "all", "split": "train"}
BALANCES = (0.1, 0.5, 0.9, 1.0)


def runs(rows):
    return SimpleNamespace(metrics=pd.DataFrame(rows).assign(**FIXED))


def figure_3(observed, predicted, shift_of_second_draw=0.0, networks=2):
    rows = []
    for point, seed in itertools.product(fig3.READINGS, (0, 1)):
        for gamma, seen, said in zip(BALANCES[-len(observed) :], observed, predicted, strict=True):
            where = {"point": point, "seed": seed, "balance": gamma}
            for network, shift in ((0, 0.0), (1, 0.2))[:networks]:
                value = seen + shift + seed * shift_of_second_draw
                rows.append({**where, "network": network, "metric": "observed", "value": value})
            rows.append({**where, "metric": "predicted", "value": said})
            shares = {"unique_term_identity": 2, "nfm_derivative_identity": 5, "data_cosine": 1}
            shares |= {"data_cosine_unshifted": 4, "observed_unshifted": 8}
            for metric, share in shares.items():
                rows.append({**where, "metric": metric, "value": gamma / share})
    return fig3.table(runs(rows))


def test_figure_3_compares_the_first_network_with_the_prediction():
    table = figure_3((0.2, 0.3, 0.6, 0.4), (0.2, 0.3, 0.5, 0.4))
    found = {
        metric: table.values(metric, point="square").tolist()[0]
        for metric in table.frame["metric"].unique()
        if metric
        not in {
            "observed",
            "predicted",
            "unique_term_identity",
            "nfm_derivative_identity",
            "data_cosine",
            "data_cosine_unshifted",
            "observed_unshifted",
        }
    }
    assert found == pytest.approx(
        {
            "largest_error": 0.1,
            "range_of_observed": 0.4,
            "rise_with_balance": 0.4,
            "data_rise_with_balance": 0.8,
            "data_rise_with_balance_unshifted": 0.2,
            "observed_rise_with_balance_unshifted": 0.1,
            "largest_network_deviation": 0.1,
            "smallest_balance_unique_term_identity": 0.05,
            "smallest_balance_nfm_derivative_identity": 0.02,
            "scatter_r2": 1 - 0.01 / 0.0875,
            "largest_error_of_mean": 0.1,
            "draw_over_network_deviation": 0.0,
        }
    )


def test_figure_3_compares_draws_of_the_data_with_networks():
    table = figure_3((0.2, 0.6, 0.4), (0.2, 0.5, 0.4), shift_of_second_draw=0.3)
    ratios = table.values("draw_over_network_deviation", point="softer")
    assert ratios.tolist() == pytest.approx([0.15 / 0.1] * 2)


def test_figure_3_has_no_deviation_of_one_network_and_no_rise_from_one_balance():
    table = figure_3((0.2, 0.6, 0.4), (0.2, 0.5, 0.4), networks=1)
    of_networks = {"largest_network_deviation", "draw_over_network_deviation"}
    assert not of_networks & set(table.frame["metric"])
    assert table.values("range_of_observed", point="square").tolist() == pytest.approx([0.4] * 2)
    table = figure_3((0.6, 0.4), (0.5, 0.4))
    assert not {"rise_with_balance", "data_rise_with_balance"} & set(table.frame["metric"])
    assert of_networks <= set(table.frame["metric"])


def figure_7_of(curve, networks=2):
    """Networks at ±2 errors around the prediction minus the error."""
    rows = []
    for phi, target in itertools.product(fig7.ACTIVATIONS, fig7.TARGETS):
        for alpha, said in curve:
            where = {"point": f"{phi}_{target}", "activation": phi, "target": target}
            where |= {"seed": 0, "decay_rate": alpha}
            rows.append({**where, "metric": "predicted", "value": said})
            rows.append({**where, "metric": "expected_kernel_rank", "value": 9 - alpha**2})
            if phi == "relu":
                linear = {"metric": "predicted_linearised", "value": said - 0.5}
                rows.append({**where, **linear})
            for width in (8, 64):
                wide = {**where, "width": width}
                error = 0.1 if phi == "relu" and width == 64 else 0.3
                for network, sign in enumerate((1, -3, -1)[:networks]):
                    value = said + sign * error
                    rows.append({**wide, "network": network, "metric": "observed", "value": value})
                rows.append({**wide, "metric": "predicted_with_mean_square", "value": said})
    return fig7.table(runs(rows))


@pytest.fixture
def figure_7():
    """Predicted .8, .5 and 1."""
    return figure_7_of(((0.0, 0.8), (1.0, 0.5), (4.0, 1.0)))


def test_figure_7_has_no_dip_without_rates_between_and_no_margin_of_one_network():
    metrics = set(figure_7_of(((0.0, 0.8), (4.0, 0.9), (6.0, 1.0))).frame["metric"])
    assert "largest_error" in metrics
    assert not any(metric.startswith("dip") for metric in metrics)
    table = figure_7_of(((0.0, 0.8), (1.0, 0.5), (4.0, 1.0)), networks=1)
    assert table.values("dip_of_predicted").tolist() == pytest.approx([0.3] * 4)
    assert not any(metric.endswith("_margin") for metric in table.frame["metric"])


def test_figure_7_measures_errors_by_width(figure_7):
    larger = figure_7.values("largest_error", point="relu_low_rank", size="larger").item()
    smaller = figure_7.values("largest_error", point="relu_low_rank", size="smaller").item()
    assert (larger, smaller) == pytest.approx((0.1, 0.3))
    difference = figure_7.values("relu_error_minus_quadratic_error").item()
    assert difference == pytest.approx(-0.2)
    # Observed .1 below the prediction, which itself is .5 above the linearised one.
    linear = figure_7.values("relu_linearised_error_minus_quadratic_error").item()
    assert linear == pytest.approx(0.4 - 0.3)


def test_figure_7_steps_from_one_decay_rate_to_the_next(figure_7):
    rows = figure_7.rows(metric="expected_kernel_rank_step", point="quadratic_high_rank")
    assert rows.set_index("decay_rate")["value"].to_dict() == {1.0: -1.0, 4.0: -15.0}


def test_figure_7_compares_the_prediction_with_the_best_constant(figure_7):
    values = pd.Series([0.8, 0.5, 1.0])
    constant = ((values - values.mean()) ** 2).mean() ** 0.5
    found = figure_7.values("error_over_constant", point="relu_low_rank", size="larger").item()
    assert found == pytest.approx(0.1 / constant)
    table = pd.DataFrame([[0.8, 0.5, 1.0]])
    assert fig7._error_over_constant(table, table * 0 + values.mean()).item() == pytest.approx(1)


def test_figure_7_takes_the_error_of_the_mean_over_networks_off_an_observed_dip(figure_7):
    where = {"point": "relu_low_rank", "size": "larger"}
    table = figure_7_of(((0.0, 0.8), (1.0, 0.5), (4.0, 1.0)), networks=3)
    for metric in ("dip_of_observed", "dip_of_predicted"):
        assert table.values(metric, **where).item() == pytest.approx(0.3)
    # Networks .1 above, .3 and .1 below what is predicted.
    error = np.std([0.1, -0.3, -0.1], ddof=1) / np.sqrt(3)
    margin = table.values("dip_of_observed_margin", **where).item()
    assert margin == pytest.approx(0.3 - error)
    assert "dip_of_predicted_margin" not in set(table.frame["metric"])
    assert figure_7.values("observed_without_decay", **where).item() == pytest.approx(0.7)
    assert figure_7.values("observed_with_largest_decay", **where).item() == pytest.approx(0.9)


@pytest.fixture
def theory_table():
    rows = []
    for size, dimensions in (("d", (8, 16, 32)), ("d log³d", (8, 16))):
        for d in dimensions:
            where = {"point": "relu", "target": "linear", "sample_size": size, "seed": 0}
            rows.append(
                {**where, "dimension": d, "metric": "one_minus_correlation", "value": 3 / d**2}
            )
    where = {"point": "propositions", "seed": 0}
    rows += [
        # A single sample, of which ρ is 1, and a single dimension: neither has a rate.
        {**where, "sample_size": "d/4", "dimension": 8, "metric": metric, "value": value}
        for metric, value in (("one_minus_correlation", 0.0), ("equation_10_rest_corrected", 1.0))
    ]
    rows += [{**where, "width": k, "metric": "ratio", "value": k} for k in (2, 8)]
    rows += [
        {**where, "dimension": d, "metric": f"lemma_13_deviation{form}", "value": d**power}
        for form, power in (("", -0.5), ("_as_printed", 0.5))
        for d in (8, 32)
    ]
    return theory.table(runs(rows))


def test_the_theory_table_marks_the_largest_dimension_and_width(theory_table):
    rows = theory_table.frame.query("extent == 'largest'")
    assert rows["dimension"].dropna().tolist() == [32, 16, 8, 8, 32, 32]
    assert rows["width"].dropna().tolist() == [8]


def test_the_theory_table_has_rates_in_the_dimension(theory_table):
    slopes = theory_table.values("one_minus_correlation_slope", point="relu")
    assert slopes.tolist() == pytest.approx([-2, -2])
    assert theory_table.values("lemma_13_deviation_slope").item() == pytest.approx(-0.5)
    assert theory_table.values("lemma_13_deviation_as_printed_slope").item() == pytest.approx(0.5)
    rates = theory_table.frame["metric"].str.endswith("_slope")
    assert theory_table.frame.loc[rates, "value"].notna().all()
    assert rates.sum() == 4


def test_errors_of_aspect_ratios_are_the_largest_over_samples_for_each_number_of_units():
    errors = {(1, 1): 0.1, (2, 1): -0.3, (1, 4): 0.2, (2, 4): 0.05}  # by ψ₁ and ψ₂
    rows = []
    for (psi1, psi2), error in errors.items():
        where = {"point": "relu", "psi1": psi1, "psi2": psi2}
        for metric, value in (("observed", 0.4), ("observed", 0.6), ("predicted", 0.5 + error)):
            rows.append({**where, "metric": metric, "value": value})
    found = fig_aspect_ratios.table(runs(rows)).rows(metric="largest_error_of_predicted")
    assert found.set_index("psi2")["value"].to_dict() == pytest.approx({1: 0.3, 4: 0.2})


def test_figure_3_takes_the_largest_deviation_between_networks():
    rows = []
    for point, (gamma, gap) in itertools.product(fig3.READINGS, ((0.1, 0.2), (0.9, 0.4))):
        where = {"point": point, "seed": 0, "balance": gamma}
        rows += [
            {**where, "network": i, "metric": "observed", "value": gamma / 2 + i * gap}
            for i in (0, 1)
        ]
        for metric in ("predicted", "unique_term_identity", "nfm_derivative_identity"):
            rows.append({**where, "metric": metric, "value": gamma})
        for metric in ("data_cosine", "data_cosine_unshifted", "observed_unshifted"):
            rows.append({**where, "metric": metric, "value": gamma})
    found = fig3.table(runs(rows)).values("largest_network_deviation", point="square")
    assert found.tolist() == pytest.approx([0.2])


def test_figure_7_takes_the_error_at_the_lowest_rate_below_3():
    rows = []
    for phi, target in itertools.product(fig7.ACTIVATIONS, fig7.TARGETS):
        for alpha, said, error in (
            (0, 0.8, 0.1),
            (1, 0.5, 0.02),
            (2, 0.6, 0.1),
            (3, 0.4, 0.1),
            (4, 1, 0.1),
        ):
            where = {"point": f"{phi}_{target}", "activation": phi, "target": target}
            where |= {"seed": 0, "decay_rate": float(alpha)}
            for metric in ("predicted", "expected_kernel_rank", "predicted_linearised"):
                rows.append({**where, "metric": metric, "value": said})
            for width in (8, 64):
                wide = {**where, "width": width}
                for network, sign in enumerate((1, -1)):
                    value = said + sign * error
                    rows.append({**wide, "network": network, "metric": "observed", "value": value})
                further = 1 / width
                rows.append({**wide, "metric": fig7.MEAN_SQUARE, "value": said + further})
    table = fig7.table(runs(rows))
    where = {"point": "relu_low_rank", "size": "larger"}
    assert table.values("dip_of_observed", **where).item() == pytest.approx(0.3)
    assert table.values("dip_of_observed_margin", **where).item() == pytest.approx(0.3 - 0.02)
    assert table.values("largest_error_with_mean_square", **where).item() == pytest.approx(1 / 64)
