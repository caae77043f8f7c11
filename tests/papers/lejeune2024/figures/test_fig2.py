import numpy as np
import pytest

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
