import pandas as pd
import pytest

from feature_alignment.papers.baratin2021.figures import fig6 as figure
from feature_alignment.papers.baratin2021.parameters import (
    Complexity,
    ComplexityMLP,
    ComplexityVGG19,
)
from feature_alignment.pipeline.figures.figure import Settings

SHARES = (0, 0.25, 0.5, 1)
SECTION = Complexity(
    mlp=ComplexityMLP(widths=(2, 4, 8, 16), random_label_shares=SHARES, noisy_width=4, seeds=2),
    vgg19=ComplexityVGG19(base_widths=(1, 2), seeds=1),
)
POINTS = figure.points(Settings({Complexity.experiment: SECTION}))


class Runs(dict):
    def __init__(self, gaps, measures):
        rows = []
        for point in POINTS:
            x = point.columns["x"]
            for seed in range(point.parameters.seeds):
                values = {figure.GAP: gaps(x) + 0.01 * seed, "goal_reached": 1.0}
                values |= {name: f(x) for name, f in measures.items()}
                rows += [
                    {"point": point.name, **point.columns, "seed": seed}
                    | {"metric": metric, "value": value}
                    for metric, value in values.items()
                ]
        self.metrics = pd.DataFrame(rows)


MEASURES = {
    figure.OURS: lambda x: 5 / (1 + x),
    "path_norm_over_margin": lambda x: 2 - 0.1 * x,
    "parameters": lambda x: x,
    "fisher_rao_norm": lambda x: 1.0,
}


def falling():
    return Runs(lambda x: 0.5 - 0.01 * x, MEASURES)


@pytest.fixture
def runs():
    return falling()


@pytest.fixture(scope="module")
def table():
    return figure.table(falling())


def test_points_are_the_settings_of_each_panel():
    assert [point.name for point in POINTS] == [
        *("width-2", "width-4", "width-8", "width-16"),
        *("width_kaiming-2", "width_kaiming-4", "width_kaiming-8", "width_kaiming-16"),
        *("corruption-0", "corruption-0.25", "corruption-0.5", "corruption-1"),
        *("channels-1", "channels-2"),
    ]
    assert {point.parameters.dataset for point in POINTS[:-2]} == {"mnist"}
    assert [point.parameters.random_label_share for point in POINTS[8:12]] == list(SHARES)
    assert {point.parameters.width for point in POINTS[8:12]} == {4}
    weights = [(point.columns["panel"], point.parameters.init) for point in POINTS]
    assert dict(weights) == {
        "width": "pytorch",
        "width_kaiming": "kaiming",
        "corruption": "pytorch",
        "channels": "kaiming_zero_bias",
    }
    vgg = POINTS[-1].parameters
    assert (vgg.seeds, vgg.width, vgg.mlp) == (1, 2, ComplexityMLP())  # the MLP's is not its own


@pytest.mark.parametrize("panel", figure.PANELS)
def test_measures_are_ranked_against_the_gap(table, panel):
    found = {
        measure: table.values("spearman_with_gap", panel=panel, measure=measure).item()
        for measure in (figure.OURS, "path_norm_over_margin", "parameters")
    }
    assert list(found.values()) == pytest.approx([1, 1, -1])
    with pytest.raises(KeyError):
        table.values("spearman_with_gap", panel=panel, measure="fisher_rao_norm")


def remarks(table):
    return table.frame.loc[table.frame["metric"] == "rivals", "remark"].tolist()


def test_rivals_follow_in_every_panel_that_counts(table):
    """The path norm falls with the gap everywhere, the number of parameters nowhere.

    Two VGG19s do not count.
    """
    assert table.values("rivals").tolist() == [1, 1]
    first, second = remarks(table)
    assert first.startswith("counted over 2 of 3 panels (width, corruption), without what has no")
    assert second.startswith("counted over 2 of 3 panels (width_kaiming, corruption)")
    assert "Fisher–Rao norm" in first
    assert "path norm" not in first


def shares(table):
    return table.values("only_named_follow").tolist()


def test_only_the_named_ones_follow_if_they_do_and_no_other_does(runs):
    assert shares(figure.table(runs)) == [0, 0]  # the path norm follows, too
    metrics = runs.metrics
    runs.metrics = metrics[metrics["metric"] != "path_norm_over_margin"]
    assert shares(figure.table(runs)) == [1, 1]
    ours = runs.metrics["metric"] == figure.OURS
    runs.metrics.loc[ours & (runs.metrics["panel"] == "width"), "value"] *= -1
    assert shares(figure.table(runs)) == [0, 1]  # C itself has to follow


def test_the_share_is_of_samples_of_the_seeds(runs):
    """Drawn twice alike, seed 1 alone makes C go the wrong way: that is one draw in four."""
    metrics = runs.metrics
    runs.metrics = metrics = metrics[metrics["metric"] != "path_norm_over_margin"]
    wrong = (metrics["metric"] == figure.OURS) & (metrics["seed"] == 1)
    metrics.loc[wrong, "value"] *= -0.9
    for share in shares(figure.table(runs)):
        # Both panels have to be drawn right, each with probability 3/4.
        assert share == pytest.approx(9 / 16, abs=0.12)


@pytest.mark.parametrize("common", [0.0, 0.3])  # to all places of seed 1
def test_the_gaps_range_is_told_relative_to_what_seeds_differ_by(runs, common):
    metrics = runs.metrics
    gaps = (metrics["metric"] == figure.GAP) & (metrics["panel"] == "width")
    # Means 0.4, 0.3, 0.2, 0.1 and seeds 0.02 apart, in turn above and below: the standard error
    # is 0.01 at each place, of noise that has lost one of four parts with the seeds' means.
    order = metrics[gaps].sort_values(["x", "seed"]).index
    for i, row in enumerate(order):
        place, seed = divmod(i, 2)
        side = (-1) ** (place + seed)
        metrics.loc[row, "value"] = 0.4 - 0.1 * place + 0.01 * side + common * seed
    table = figure.table(runs)
    assert table.values("gap_range_over_noise", panel="width").item() == pytest.approx(
        30 * 0.75**0.5
    )


def test_a_measure_that_is_missing_in_a_panel_is_not_counted_but_named(runs):
    metrics = runs.metrics
    gone = (metrics["point"] == "corruption-1") & (metrics["metric"] == "path_norm_over_margin")
    runs.metrics = metrics[~gone]
    table = figure.table(runs)
    assert table.values("rivals").tolist() == [0, 0]
    assert all("path norm" in remark for remark in remarks(table))


def test_drawing_leaves_out_what_is_not_there(table):
    drawn = figure.draw(table)
    assert len(drawn.axes) == 2 * len(figure.PANELS)
    for ax in drawn.axes[len(figure.PANELS) :]:
        words = [text.get_text() for text in ax.texts if text.get_text() not in "EFGH"]
        assert words == ["n/a"] * (len(figure.MEASURES) - len(ax.patches))


def test_gaps_of_which_none_is_above_zero_are_drawn_as_they_are(runs):
    runs.metrics.loc[runs.metrics["metric"] == figure.GAP, "value"] = 0.0
    first = runs.metrics["x"] == runs.metrics["x"].min()
    runs.metrics.loc[first & (runs.metrics["metric"] == figure.GAP), "value"] = -0.2
    drawn = figure.draw(figure.table(runs))
    lines = (line for ax in drawn.axes[: len(figure.PANELS)] for line in ax.lines)
    gaps = [line.get_ydata() for line in lines if line.get_label() == "gap"]
    assert {float(value) for panel in gaps for value in panel} == {-0.2, 0.0}


def test_panels_of_too_few_networks_are_hatched_and_called_not_judged(table):
    drawn = figure.draw(table)
    for ax, panel in zip(drawn.axes[len(figure.PANELS) :], figure.PANELS, strict=True):
        networks = table.frame.loc[table.frame["panel"] == panel, "x"].nunique()
        few = networks < figure.LEAST_NETWORKS
        assert {bool(bar.get_hatch()) for bar in ax.patches} == {few}
        assert ax.get_title() == (f"not judged: {networks} networks" if few else "")
    assert {bool(bar.get_hatch()) for ax in drawn.axes for bar in ax.patches} == {True, False}


def test_a_network_that_some_seed_did_not_fit_is_hollow(runs):
    metrics = runs.metrics
    short = (metrics["metric"] == "goal_reached") & (metrics["point"] == "width-4")
    metrics.loc[short & (metrics["seed"] == 1), "value"] = 0.0
    panels = figure.draw(figure.table(runs)).axes[: len(figure.PANELS)]
    hollow = [line for ax in panels for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert [line.get_xdata().tolist() for line in hollow] == [[4.0], [], [], []]


@pytest.mark.parametrize("panel", ["corruption", "channels"])
def test_a_rival_follows_in_every_panel(runs, panel):
    metrics = runs.metrics
    more = metrics[metrics["panel"] == "channels"].assign(x=lambda d: d["x"] + 2)  # four VGG19s
    more.loc[more["metric"].isin([figure.GAP, *MEASURES]), "value"] -= 0.1
    metrics = pd.concat([metrics, more], ignore_index=True)
    runs.metrics = metrics
    assert figure.table(runs).values("rivals").tolist() == [1, 1]
    wrong = (metrics["metric"] == "path_norm_over_margin") & (metrics["panel"] == panel)
    metrics.loc[wrong, "value"] *= -1
    assert figure.table(runs).values("rivals").tolist() == [0, 0]


@pytest.mark.parametrize("order", ["013254876", "210354768", "012356748"])
def test_a_rank_correlation_of_nine_tenths_is_not_above_it(order):
    """Such as Pandas computes it: as 0.9, or one rounding below or above."""
    means = pd.DataFrame({figure.GAP: range(9), figure.OURS: [int(rank) for rank in order]})
    assert figure._correlations(means)[figure.OURS] == figure.FOLLOWS
