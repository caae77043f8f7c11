from itertools import product

import pandas as pd
import pytest

from feature_alignment.papers.lejeune2024.figures import digit_settings
from feature_alignment.papers.lejeune2024.parameters import DigitRegression
from feature_alignment.pipeline.figures.figure import Settings
from feature_alignment.pipeline.figures.table import FigureTable


def test_the_released_code_has_wider_networks_and_targets_annealed_in_a_quarter_of_their_epochs():
    settings = Settings({DigitRegression.experiment: DigitRegression()})
    points = {point.name: point.parameters for point in digit_settings.around_points(settings)}
    for targets in ("linear", "binarised"):
        changed = {"width": 256, "target_annealing_epochs": 100}
        assert points[f"released-{targets}"] == points[targets].but(**changed)


def test_a_setting_is_called_by_what_it_changes():
    names = {
        "width": "width {}",
        "hidden_layers": "depth {}",
        "learning_rate": "learning rate {}",
        "dataset": "{}",
    }
    for text, changes in digit_settings.CHANGES.values():
        told = {**changes}
        if "hidden_layers" in told:
            told["hidden_layers"] += 1  # depth counts the layer of the output
        said = [names[key].format(value) for key, value in told.items()]
        assert not changes or text.lower() == ", ".join(said)


@pytest.mark.parametrize(("more", "groups"), [(0.0, 3), (0.1, 4)])
def test_two_settings_with_the_same_values_are_one_group(more, groups):
    rows = [
        {"setting": setting, "targets": targets, "seed": seed, "value": 0.1 * seed + 0.2 + shift}
        for (setting, shift), targets, seed in product(
            (("released", 0.2), ("figure1", more), ("few", 0), ("text", 0.3)),
            ("linear", "binarised"),
            range(3),
        )
    ]
    frame = pd.DataFrame(rows).assign(layer="all", metric="label_similarity")
    flips = pd.DataFrame({"flips": digit_settings.FLIPS, "value": 0.5, "seed": 0})
    shares = frame[frame["setting"] == "figure1"].assign(metric="label_change_share")
    parts = [frame, frame.assign(metric="mixture_residual")]
    parts += [flips.assign(metric="label_similarity"), shares.assign(layer="layers.0")]
    table = FigureTable(pd.concat(parts))
    similarity = digit_settings.draw_around(table).axes[1]
    names = [tick.get_text() for tick in similarity.get_xticklabels()]
    assert len(names) == groups
    assert ("no more images" in names[1]) == (groups == 3)
