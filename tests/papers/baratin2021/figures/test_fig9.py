import numpy as np
import pandas as pd
import pytest

from feature_alignment.papers.baratin2021.experiments.interpolators import CURVES
from feature_alignment.papers.baratin2021.figures import fig9 as figure
from feature_alignment.pipeline.figures.table import FigureTable


def test_the_small_spread_along_the_first_mode_can_be_read():
    rng = np.random.default_rng(0)
    scales = [0.0, 0.1, 0.3, 0.5, 0.9]
    arrays = {f"solutions/{scale}": rng.normal(0, [0.1, 2], (50, 2)) for scale in scales}
    rows = [
        {"metric": metric, "scale": scale, "seed": seed, "value": 1.0}
        for metric in (*CURVES, "spread_ratio")
        for scale in scales
        for seed in (0, 1)
    ]
    *panels, _ = figure.draw(FigureTable(pd.DataFrame(rows), arrays)).axes
    assert len(panels) == figure.SHOWN
    widest = max(abs(array[:, 0]).max() for array in arrays.values())
    # All panels have the same label, of which five would run into one another.
    assert [bool(ax.get_xlabel()) for ax in panels] == [False, False, True, False, False]
    for ax in panels:
        low, zero, high = ax.get_xticks()
        assert (low, zero) == (-high, 0)
        assert 0.5 * widest < high < ax.get_xlim()[1]
        assert ax.get_xlim() == panels[0].get_xlim()
        assert ax.get_xlim()[1] == pytest.approx(1.15 * widest)
        assert ax.get_title().endswith("\nratio 1.0")
