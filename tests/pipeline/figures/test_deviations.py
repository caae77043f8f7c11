import pandas as pd
import pytest

from feature_alignment.pipeline.figures.deviations import draw_deviations
from feature_alignment.pipeline.figures.style import new_figure


@pytest.mark.parametrize("largest", [1e-12, 11.0])
def test_every_marker_is_within_the_axis(largest):
    _, axes = new_figure(1, 1, 3, 3)
    rows = pd.DataFrame(
        {"statement": ["a", "a"], "form": ["corrected", "printed"], "value": [0.0, largest]}
    )
    draw_deviations(axes[0, 0], rows, {"a": "A"})
    low, high = axes[0, 0].get_xlim()
    drawn = [x for line in axes[0, 0].lines for x in line.get_xdata()]
    assert low < min(drawn)
    assert max(drawn) < high
