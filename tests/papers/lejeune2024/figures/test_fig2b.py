from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from feature_alignment.papers.lejeune2024.figures import fig2b


class Runs(dict):
    """Runs whose layers have these singular values, by seed."""

    def __init__(self, values):
        run = SimpleNamespace(stacked=lambda _: np.array(values))
        super().__init__(dict.fromkeys(fig2b.TASKS, run))
        self.metrics = pd.DataFrame({"metric": ["loss"], "value": [0.0]})


def test_singular_values_are_relative_to_the_largest_of_their_own_network():
    table = fig2b.table(Runs([[4.0, 2.0], [1.0, 0.25]]))
    assert len(table.arrays) == len(fig2b.TASKS) * len(fig2b.MODELS)
    for relative in table.arrays.values():
        assert relative == pytest.approx([1, 0.375])
