from types import SimpleNamespace

import numpy as np
import pytest

from feature_alignment.papers.lejeune2024.figures import fig2
from feature_alignment.papers.lejeune2024.figures.fig2 import PENALTIES, draw, table


@pytest.fixture(scope="module")
def made():
    return table({})


@pytest.mark.slow
def test_tails_have_the_exponents_of_the_closed_forms(made):
    found = made.frame[made.frame["metric"].str.contains("tail_exponent")]
    exponents = found.pivot(index="penalty", columns="metric", values="value").loc[list(PENALTIES)]
    np.testing.assert_allclose(exponents["penalty_tail_exponent"], [2, 1, 2 / 3], atol=0.02)
    # ω growing like v^p has an ω̃ growing like v^(2p/(p + 2)).
    np.testing.assert_allclose(exponents["tail_exponent"], [1, 2 / 3, 1 / 2], atol=0.02)


def test_effective_penalties_wear_the_tilde_on_the_omega_alone(made):
    labels = [text.get_text() for text in draw(made).axes[0].get_legend().get_texts()]
    assert labels[:2] == ["$\\omega_1$", "$\\tilde{\\omega}_1$"]


def test_effective_penalties_are_nearly_the_square_of_small_arguments(made):
    assert made.values("small_v_ratio").tolist() == pytest.approx([1, 1, 1], abs=0.2)


def test_a_closed_form_that_is_wrong_at_one_argument_is_told(monkeypatch):
    right = fig2.adaptive_scales

    def wrong(*given):
        penalty = right(*given).penalty.copy()
        penalty[7] += 0.5
        return SimpleNamespace(penalty=penalty)

    monkeypatch.setattr(fig2, "adaptive_scales", wrong)
    assert table({}).values("closed_form_error").tolist() == pytest.approx([0.5] * 3, abs=1e-3)
