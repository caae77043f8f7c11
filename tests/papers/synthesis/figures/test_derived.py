import math

import pandas as pd
import pytest

from feature_alignment.papers.synthesis.figures.derived import (
    QUANTITIES,
    derived_rows,
    half_change_step,
)

STEPS = (0, 1, 2, 4, 8)
RISING = (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0, 0, 4, 4, 4), 1.5),  # linear between two measurements
        ((0, 0, -4, -4, -4), 1.5),  # falls count as rises
        ((1, 3, 5, 2, 1), 1),  # the largest distance decides, not the last
        ((0, 0, 0, 0, 2), 6),
        ((3, 3, 3, 3, 3), math.inf),
    ],
)
def test_half_of_the_change_is_made_where_the_curve_is_half_way(values, expected):
    assert half_change_step(pd.Series(values, index=STEPS)) == expected


def run_of(optimizer, share, seed=0, test_loss=(5, 4, 3, 4, 5), train_loss=(5, 4, 3, 2, 1), **own):
    """Tidy rows of one run of the MLP; quantities that are not named rise evenly."""
    about = {
        "point": f"mlp-{optimizer}-random{100 * share:.0f}",
        "network": "mlp",
        "optimizer": optimizer,
        "random_label_share": share,
        "seed": seed,
        "layer": "all",
    }
    curves = {("train", name): own.get(name, RISING) for name in QUANTITIES}
    curves |= {("train", "loss"): train_loss, ("test", "loss"): test_loss}
    return [
        {**about, "step": step, "split": split, "metric": metric, "value": value}
        for (split, metric), values in curves.items()
        for step, value in zip(STEPS, values, strict=True)
        if value is not None
    ]


def table(*others, **own):
    """The derived rows of four runs, the first of which has curves of its own."""
    runs = [*run_of("gd", 0, **own)]
    for optimizer, share in (("gd", 0.5), ("slo", 0), ("slo", 0.5)):
        runs += run_of(optimizer, share, **dict(others).get((optimizer, share), {}))
    return derived_rows(pd.DataFrame(runs))


def value(frame, **where):
    for column, wanted in where.items():
        frame = frame[frame[column] == wanted]
    return frame["value"].item()


FIRST = "mlp-gd-random0"


def test_what_does_not_move_has_neither_a_step_nor_correlations():
    rows = table(mean_nfc=(1, 1, 1, 1, 1))
    of_run = rows[rows["point"] == FIRST]
    assert "mean_nfc" not in set(of_run["quantity"]) | set(of_run["other"])
    assert rows["value"].notna().all()
    assert value(of_run, metric="centred_nfc_before_nfc") == 1  # it moves, and the other never does


def test_what_is_not_defined_at_first_begins_at_its_first_value():
    rows = table(mean_centred_nfc=(None, 4, 3, 2, 0))
    half = value(rows, point=FIRST, metric="half_change_step", quantity="mean_centred_nfc")
    assert half == 4
    both = {"quantity": "mean_centred_nfc", "other": "path_complexity"}
    assert value(rows, point=FIRST, metric="spearman", **both) == pytest.approx(-1)


def test_correlations_within_a_run_are_those_of_levels_and_of_changes():
    rows = table(label_alignment=(0, 1, 3, 6, 10), adapted_kernel_alignment=(0, 4, 7, 9, 10))
    pair = {"quantity": "label_alignment", "other": "adapted_kernel_alignment"}
    assert value(rows, point=FIRST, metric="spearman", **pair) == pytest.approx(1)
    assert value(rows, point=FIRST, metric="spearman_of_changes", **pair) == pytest.approx(-1)


def test_correlations_across_runs_are_those_of_the_last_values():
    ends = {("gd", 0.5): 7, ("slo", 0): 5, ("slo", 0.5): 6}  # of C; the first run's is 4
    gaps = {("gd", 0.5): 1, ("slo", 0): 3, ("slo", 0.5): 2}
    others = [
        (key, {"path_complexity": (0, 9, 2, 3, end), "loss_gap": (0, 0, 0, 0, gaps[key])})
        for key, end in ends.items()
    ]
    rows = table(*others, loss_gap=(0, 0, 0, 0, 8))
    pair = {"quantity": "path_complexity", "other": "loss_gap"}
    for network in ("mlp", "all"):
        found = value(rows, metric="spearman_across", network=network, **pair)
        assert found == pytest.approx(-1)


@pytest.mark.parametrize(("last", "expected"), [(3, 1), (5, 0)])
def test_random_labels_are_compared_with_true_ones(last, expected):
    other = {"label_alignment": (0, 1, 2, 3, last)}
    rows = table((("gd", 0.5), other))
    found = value(rows, metric="random_lower_label_alignment", pair="mlp-gd")
    assert found == expected
    assert set(rows.loc[rows["pair"] == "mlp-gd", "metric"]) == {
        "random_lower_label_alignment",
        "random_larger_complexity",
    }


@pytest.mark.parametrize(("last", "expected"), [(5, 1), (3, 0)])
def test_random_labels_take_more_complexity_or_do_not(last, expected):
    rows = table((("gd", 0.5), {"path_complexity": (0, 1, 2, 3, last)}))
    assert value(rows, metric="random_larger_complexity", pair="mlp-gd") == expected


def test_optimizers_are_compared_at_the_loss_that_both_reach():
    # SLO reaches 3, the lower of its losses, at once; gradient descent at step 2, NFC 2 away.
    slo = {"train_loss": (5, 3, 3, 3, 3), "mean_nfc": (0, -2.5, 0, 0, 0)}
    assert value(table((("slo", 0), slo)), metric="slo_moves_nfc_more", pair="mlp-random0") == 1
    slo["mean_nfc"] = (0, -1.5, 9, 9, 9)
    assert value(table((("slo", 0), slo)), metric="slo_moves_nfc_more", pair="mlp-random0") == 0


def test_events_of_a_run():
    early = {"label_alignment": (0, 4, 4, 4, 4), "effective_rank": (4, 3, 2, 2, 1)}
    rows = table(**early)
    for metric in ("label_alignment_before_best_loss", "label_alignment_before_gap"):
        assert value(rows, point=FIRST, metric=metric) == 1
        late = table(label_alignment=(0, 0, 0, 0, 4))
        assert value(late, point=FIRST, metric=metric) == 0
    assert value(rows, point=FIRST, metric="centred_nfc_before_nfc") == 0  # both at once
    assert value(rows, point=FIRST, metric="rank_falls_gap_grows") == 1
    shrinking = table(**early, loss_gap=(0, 1, 1, 0, -1))
    assert value(shrinking, point=FIRST, metric="rank_falls_gap_grows") == 0


def test_random_labels_are_compared_under_the_same_optimizer():
    slow = {"label_alignment": (0, 0, 0, 0, 1), "path_complexity": (0, 1, 2, 3, 9)}
    rows = table((("slo", 0), slow), (("slo", 0.5), {"label_alignment": (0, 0, 1, 1, 2)}))
    found = rows[rows["pair"] == "mlp-slo"].set_index("metric")["value"]
    assert found.to_dict() == {"random_lower_label_alignment": 0, "random_larger_complexity": 0}


def test_three_values_have_no_rank_correlation():
    rows = table(mean_centred_nfc=(None, None, 3, 2, 0))
    of_run = rows[(rows["point"] == FIRST) & (rows["metric"] == "spearman")]
    assert "mean_centred_nfc" not in set(of_run["quantity"]) | set(of_run["other"])
