import numpy as np
import pandas as pd
import pytest

from feature_alignment.papers.baratin2021.figures import fig7 as figure
from feature_alignment.pipeline.figures.table import FigureTable


class Run:
    def __init__(self, directions):
        rows = []
        for seed, step in ((0, 0), (0, 30), (1, 0), (1, 30)):
            at = {"point": "default", "seed": seed, "step": step, "layer": "all", "split": "test"}
            for rank in range(1, directions + 1):
                change, other = (2 + seed) / rank, (0.02, 0.14)[rank % 2]  # root mean square 0.1
                rows.append({**at, "metric": "linear_change", "value": change, "rank": rank})
                for direction, value in (("singular", change), ("random", other)):
                    row = {**at, "metric": "output_change", "value": value, "rank": rank}
                    rows.append({**row, "direction": direction})
            rows.append({**at, "metric": "singular_1_over_random", "value": 10 * (2 + seed)})
            rows.append({**at, "metric": "isotropic_floor", "value": 4.0})
        self.metrics = pd.DataFrame(rows)


def test_eigenvalues_are_the_squares_of_what_singular_values_predict():
    table = figure.table(Run(50))
    for stage in ("initialisation", "trained"):
        found = table.values("eigenvalue_ratio_50", stage=stage, split="test")
        assert found.tolist() == pytest.approx([1 / 2500] * 2)


def test_with_fewer_directions_there_is_no_50th_eigenvalue():
    table = figure.table(Run(5))
    with pytest.raises(KeyError, match=r"no rows where .*'eigenvalue_ratio_50'"):
        table.values("eigenvalue_ratio_50")
    assert np.isfinite(table.frame["value"]).all()


def test_the_figure_shows_what_linear_algebra_forces():
    frame = figure.table(Run(50)).frame
    left, right = figure.draw(FigureTable(frame)).axes
    for ax in (left, right):
        assert ax.get_title().endswith("first singular / random: 25 (at least 4)")
        (line,) = [line for line in ax.lines if line.get_linestyle() == ":"]
        assert line.get_ydata() == pytest.approx([0.4, 0.4])
