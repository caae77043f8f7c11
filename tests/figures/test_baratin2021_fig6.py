import pandas as pd
import pytest

from feature_alignment.figures import baratin2021_fig6 as figure

EXPERIMENTS = {
    figure.EXPERIMENT: {
        "mlp": {
            "widths": [2, 4, 8],
            "random_label_shares": [0, 0.5],
            "noisy_width": 4,
            "seeds": 2,
        },
        "vgg19": {"base_widths": [1, 2], "seeds": 1},
    }
}


class Runs(dict):
    def __init__(self, gaps, measures):
        rows = []
        for point in figure.points(EXPERIMENTS):
            x = float(point.name.rpartition("-")[2])
            for seed in range(point.overrides["seeds"]):
                values = {figure.GAP: gaps(x) + 0.01 * seed, "goal_reached": 1.0}
                values |= {name: f(x) for name, f in measures.items()}
                rows += [
                    {"point": point.name, "seed": seed, "metric": metric, "value": value}
                    for metric, value in values.items()
                ]
        self.metrics = pd.DataFrame(rows)


@pytest.fixture
def table():
    measures = {
        figure.OURS: lambda x: 5 / (1 + x),
        "path_norm_over_margin": lambda x: 2 - 0.1 * x,
        "parameters": lambda x: x,
        "fisher_rao_norm": lambda x: 1.0,
    }
    return figure.table(Runs(lambda x: 0.5 - 0.01 * x, measures))


def test_points_are_the_settings_of_each_panel():
    points = figure.points(EXPERIMENTS)
    assert [point.name for point in points] == [
        *("width-2", "width-4", "width-8"),
        *("width_kaiming-2", "width_kaiming-4", "width_kaiming-8"),
        *("corruption-0", "corruption-0.5"),
        *("channels-1", "channels-2"),
    ]
    assert {point.overrides["dataset"] for point in points[:-2]} == {"mnist"}
    assert points[-1].overrides["seeds"] == 1


@pytest.mark.parametrize("panel", figure.PANELS)
def test_measures_are_ranked_against_the_gap(table, panel):
    found = {
        measure: table.values("spearman_with_gap", panel=panel, measure=measure).item()
        for measure in (figure.OURS, "path_norm_over_margin", "parameters")
    }
    assert list(found.values()) == pytest.approx([1, 1, -1])
    with pytest.raises(KeyError):
        table.values("spearman_with_gap", panel=panel, measure="fisher_rao_norm")


def test_rivals_follow_in_every_panel(table):
    """The path norm falls with the gap everywhere, the number of parameters nowhere."""
    assert table.values("rivals").tolist() == [1, 1]


def test_drawing_leaves_out_what_is_not_there(table):
    drawn = figure.draw(table)
    assert len(drawn.axes) == 2 * len(figure.PANELS)
