"""The checks find the paper's statements true, its misprints false, and can fail."""

import numpy as np
import pytest

from feature_alignment.determinism import stream
from feature_alignment.papers.baratin2021.checks import complexity_checks as module
from feature_alignment.papers.baratin2021.checks.complexity_checks import complexity_checks
from feature_alignment.papers.baratin2021.checks.spectral_checks import spectral_checks
from feature_alignment.papers.baratin2021.figures.fig_theory import EQUATIONS, INEQUALITIES
from feature_alignment.pipeline.checks import (
    BOUND_RATIO,
    DEVIATION,
    equation,
    inequality,
    largest,
    largest_of_each,
    misprint,
    relative_deviation,
)


@pytest.fixture(scope="module")
def checks():
    return [
        check
        for seed in (100, 101)
        for check in [*spectral_checks(stream(seed, "a")), *complexity_checks(stream(seed, "b"))]
    ]


def test_true_forms_hold_and_printed_ones_fail(checks):
    for check in checks:
        if check.metric == BOUND_RATIO:
            assert 0 < check.value <= 1, check
        elif check.columns["form"] == "printed":
            assert check.value > 0.1, check
        else:
            assert check.value < 1e-6, check


def test_bounds_are_no_looser_than_they_were(checks):
    """A lost factor makes an inequality hold the better, and shows in nothing else."""
    found = {}
    for check in checks:
        if check.metric == BOUND_RATIO:
            found.setdefault(check.columns["statement"], []).append(check.value)
    means = {statement: np.mean(values) for statement, values in found.items()}
    linear = dict.fromkeys(("prop10", "thm2", "eq14"), 0.94)
    margins = {"eq56": 0.18, "eq58": 0.52, "lemma12": 0.053, "thm13": 0.025}
    assert means == pytest.approx(linear | margins, rel=0.1)


def test_every_statement_of_the_figure_is_checked(checks):
    assert {check.columns["statement"] for check in checks} == {*EQUATIONS, *INEQUALITIES}


def test_every_misprint_has_its_correction(checks):
    forms = {}
    for check in checks:
        forms.setdefault(check.columns["statement"], set()).add(check.columns["form"])
    assert {"printed", "corrected"} in forms.values()
    assert all(f in ({"stated"}, {"printed", "corrected"}) for f in forms.values())


def test_how_sides_are_compared():
    assert relative_deviation([3.0, 0.0], [4.0, 0.0]) == pytest.approx(0.25)
    check = equation("x", 2.0, 4.0)
    assert (check.columns["form"], check.metric) == ("stated", DEVIATION)
    assert check.value == pytest.approx(0.5)
    printed, corrected = misprint("x", np.ones(2), np.zeros(2), np.ones(2))
    assert (printed.columns["form"], printed.value) == ("printed", 0)
    assert (corrected.columns["form"], corrected.value) == ("corrected", pytest.approx(1))
    assert inequality("x", 3, 2).value == pytest.approx(1.5)


@pytest.mark.parametrize("values", [[np.nan, 1.0], [1.0, np.nan], [0.5, np.nan, 1.0]])
def test_what_is_not_a_number_is_larger_than_any(values):
    assert np.isnan(largest(values))
    worst = {}
    for value in values:
        worst = largest_of_each(worst, {"a": value, "b": 1.0})
    assert np.isnan(worst.pop("a"))
    assert worst == {"b": 1.0}


def test_the_confidence_term_of_equation_56_is_the_papers(monkeypatch):
    """3√(log(2/δ)/2n), which alone is left where no loss is above 0 and every sign is wrong."""
    monkeypatch.setattr(module, "margin", lambda scores, _: -np.ones(scores.shape[:2]))
    monkeypatch.setattr(module, "ramp_loss", lambda margins, _: np.zeros(margins.shape))
    term = 3 * np.sqrt(np.log(2 / module.CONFIDENCE) / (2 * module.DRAWN))
    assert module._generalisation(stream(0, "a")).value == pytest.approx(1 / term)
