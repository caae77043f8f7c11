import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgba

from feature_alignment.errors import UserError
from feature_alignment.pipeline.figures.drawing import (
    describe_seeds,
    draw_curve,
    draw_deviations,
    draw_paper,
    draw_points,
)
from feature_alignment.pipeline.figures.style import COLOURS, broken_axis, new_figure

VALUES = {0: [1.0, 2.0, 4.0, 9.0], 5: [3.0, 3.0, 3.0, 7.0]}
"""Four seeds at two steps: means 4 and 4, sums of squared differences 38 and 12."""


def tidy(seeds):
    return pd.DataFrame(
        {"seed": seed, "step": step, "value": values[seed]}
        for step, values in VALUES.items()
        for seed in range(seeds)
    )


def one_axes(**settings):
    ax = new_figure(1, 1, 3, 3)[1][0, 0]
    ax.set(**settings)
    return ax


def band(ax):
    """Lower and upper edge of the only band, by step."""
    (area,) = ax.collections
    points = area.get_paths()[0].vertices
    edges = [points[points[:, 0] == step, 1] for step in VALUES]
    return np.array([(edge.min(), edge.max()) for edge in edges]).T


def test_a_band_is_one_deviation_with_n_minus_1_around_the_mean():
    ax = one_axes()
    draw_curve(ax, tidy(4), "#0072B2", "a")
    (line,) = ax.lines
    np.testing.assert_allclose(line.get_ydata(), [4, 4])
    deviations = np.sqrt([38 / 3, 12 / 3])
    np.testing.assert_allclose(band(ax), [4 - deviations, 4 + deviations])
    assert ax.get_legend_handles_labels()[1] == ["a"]
    assert ax.get_legend() is None


def test_on_a_logarithmic_axis_the_band_is_that_of_the_logarithms():
    ax = one_axes(yscale="log")
    draw_curve(ax, tidy(4), "#0072B2")
    logs = np.log(list(VALUES.values()))
    mean, deviation = logs.mean(axis=1), logs.std(axis=1, ddof=1)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.exp(mean))
    np.testing.assert_allclose(band(ax), np.exp([mean - deviation, mean + deviation]))


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize(("seeds", "lines"), [(1, 1), (2, 3), (3, 4)])
def test_few_seeds_are_drawn_each_beside_their_mean(seeds, lines, scale):
    ax = one_axes(yscale=scale)
    draw_curve(ax, tidy(seeds), "#0072B2", "a", linestyle="--", marker="x")
    assert not ax.collections
    assert len(ax.lines) == lines
    rows = tidy(seeds).pivot(index="step", columns="seed", values="value")
    mean = np.exp(np.log(rows).mean(axis=1)) if scale == "log" else rows.mean(axis=1)
    np.testing.assert_allclose(ax.lines[-1].get_ydata(), mean)
    for line, seed in zip(ax.lines[:-1], rows, strict=False):
        np.testing.assert_allclose(line.get_ydata(), rows[seed])
        assert line.get_linewidth() < ax.lines[-1].get_linewidth()
    assert {line.get_color() for line in ax.lines} == {"#0072B2"}
    assert {line.get_linestyle() for line in ax.lines} == {"--"}
    assert ax.get_legend_handles_labels()[1] == ["a"]


def test_few_seeds_at_a_single_place_are_dots():
    ax = one_axes()
    draw_curve(ax, tidy(2).query("step == 5"), "#0072B2", marker="o")
    assert [line.get_marker() for line in ax.lines] == [".", ".", "o"]


def test_a_colour_that_is_none_is_named():
    with pytest.raises(UserError, match="colour: found 'trian'; did you mean 'train'"):
        draw_curve(one_axes(), tidy(2), "trian")


@pytest.mark.parametrize("draw", [draw_curve, draw_points])
def test_axis_labels_stay_the_callers(draw):
    ax = one_axes(xlabel="epoch")
    rows = tidy(3)
    if draw is draw_curve:
        draw_curve(ax, rows, "black")
    else:
        draw_points(ax, rows, {0: "start", 5: "end"}, {0: "black", 5: "red"}, by="step")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "")
    assert ax.xaxis.label.get_visible()


def test_curves_and_points_that_cannot_be_drawn_are_refused():
    rows, log, black = tidy(2), one_axes(yscale="log"), {0: "black"}
    with pytest.raises(ValueError, match="no rows"):
        draw_points(one_axes(), rows, {7: "x"}, {7: "black"}, by="step")
    with pytest.raises(UserError, match="metric value is 0 at seed 0, which is not positive"):
        draw_points(log, rows.assign(value=0), {0: "x"}, black, by="step")
    with pytest.raises(ValueError, match="no rows"):
        draw_curve(one_axes(), rows[:0], "black", "a")
    with pytest.raises(ValueError, match="several values for one seed and step"):
        draw_curve(one_axes(), pd.concat([rows, rows]), "black", "a")
    with pytest.raises(UserError, match="the curve 'a': metric loss is -2 at seed 0, which is not"):
        draw_curve(one_axes(yscale="log"), rows.assign(value=-2, metric="loss"), "black", "a")


@pytest.mark.parametrize("horizontal", [False, True])
@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("seeds", [1, 3, 4])
def test_points_stand_at_their_category_with_their_mean(seeds, scale, horizontal):
    ax = one_axes(**{"xscale" if horizontal else "yscale": scale})
    rows = tidy(seeds)
    colours = {0: "#D55E00", 5: "#0072B2"}
    draw_points(ax, rows, {5: "end", 0: "start"}, colours, by="step", horizontal=horizontal)
    dots = np.concatenate([dots.get_offsets() for dots in ax.collections])
    drawn = sorted(map(tuple, dots[:, ::-1] if horizontal else dots))
    places = {5: 0, 0: 1}
    wanted = sorted((places[s], v) for s, v in zip(rows["step"], rows["value"], strict=True))
    np.testing.assert_allclose(drawn, wanted)
    for step, colour in colours.items():
        values = np.array(VALUES[step][:seeds])
        mean = np.exp(np.log(values).mean()) if scale == "log" else values.mean()
        means = [
            np.array(line.get_data())[0 if horizontal else 1]
            for line in ax.lines
            if line.get_marker() in "_|" and to_rgba(line.get_color()) == to_rgba(colour)
        ]
        (drawn,) = means
        np.testing.assert_allclose(drawn[np.isfinite(drawn)], [mean])
    ticks = ax.get_yticklabels() if horizontal else ax.get_xticklabels()
    assert [tick.get_text() for tick in ticks] == ["end", "start"]


def test_groups_stand_side_by_side_each_mean_over_its_dots():
    ax = one_axes()
    rows = pd.concat([tidy(3).assign(kind=kind) for kind in "ab"])
    colours = {"a": "#D55E00", "b": "#0072B2"}
    draw_points(ax, rows, {0: "start", 5: "end"}, colours, by="step", group="kind")
    dots = np.concatenate([dots.get_offsets() for dots in ax.collections])
    assert sorted(set(dots[:, 0].round(6))) == [-0.2, 0.2, 0.8, 1.2]
    means = [x for line in ax.lines if line.get_marker() == "_" for x in line.get_xdata()]
    np.testing.assert_allclose(sorted(means), [-0.2, 0.2, 0.8, 1.2])
    assert ax.get_legend_handles_labels()[1] == ["a", "b"]
    assert ax.get_xlim() == (-0.5, 1.5)


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ({"a": 1}, "1 seed"),
        ({"a": 3, "derived": 1}, "3 seeds; thin lines = single seeds"),
        ({"a": 5, "b": 4}, "4 to 5 seeds; band = mean ± sd"),
        ({"a": 5, "b": 1, "derived": 1}, "1 to 5 seeds; band = mean ± sd"),
        ({"a": 5, "b": 2}, "2 to 5 seeds; band = mean ± sd; thin lines = single seeds"),
    ],
)
def test_the_footer_says_how_seeds_are_drawn(seeds, words):
    ax = one_axes()
    rows = pd.concat([tidy(4), tidy(1).assign(seed=4)])
    parts = [rows[rows["seed"] < n].assign(point=point) for point, n in seeds.items()]
    for part in parts:
        draw_curve(ax, part, "black")
    assert describe_seeds(pd.concat(parts), ax.figure, ["a", "b"]) == words


def test_the_footer_says_only_what_is_drawn():
    ax, rows = one_axes(), tidy(4)
    assert describe_seeds(rows, ax.figure) == "4 seeds"
    draw_points(ax, rows, {0: "start"}, {0: "black"}, by="step")
    assert describe_seeds(rows, ax.figure) == "4 seeds; dots = single seeds"
    assert describe_seeds(rows[["value"]], ax.figure) == ""  # no seeds, no words for them


def test_the_footer_tells_logarithms_and_criteria_where_there_are_any():
    ax, rows = one_axes(yscale="log"), tidy(4)
    draw_curve(ax, rows.assign(value=rows["value"].abs() + 1), "black")
    band = "band = mean ± sd, of logarithms on logarithmic axes"
    assert describe_seeds(rows, ax.figure) == f"4 seeds; {band}"
    draw_paper(ax, {"paper_value": 2})
    assert "criterion" not in describe_seeds(rows, ax.figure)
    draw_paper(ax, {"low": 2})
    criterion = "criterion = our bound for what the paper says in words"
    assert describe_seeds(rows, ax.figure) == f"4 seeds; {band}; {criterion}"


@pytest.mark.parametrize(("marks", "words"), [(1, "1 network"), (2, "2 networks")])
def test_the_footer_counts_networks_that_diverged(marks, words):
    rows = tidy(4).assign(metric="loss")
    diverged = rows.groupby("seed").head(1).head(marks).assign(metric="diverged_after")
    table = pd.concat([rows, diverged])
    assert describe_seeds(table, one_axes().figure) == f"4 seeds; {words} diverged"


@pytest.mark.parametrize("seeds", [1, 3, 4])
def test_no_curve_crosses_the_gap_of_a_broken_axis(seeds):
    ax = one_axes()
    rows = pd.concat([tidy(seeds), tidy(seeds).query("step == 5").assign(step=50)])
    broken_axis(ax, rows["step"])
    marks = len(ax.lines)
    draw_curve(ax, rows, "test", "loss")
    spans = {tuple(np.asarray(line.get_xdata(), float).round(9)) for line in ax.lines[marks:]}
    assert {(5, 50), (0,)} <= spans
    assert not any(0 in span and len(set(span)) > 1 for span in spans)
    assert ax.get_legend_handles_labels()[1] == ["loss"]


def test_a_thing_has_its_own_colour_and_line():
    ax = one_axes()
    draw_curve(ax, tidy(1), "test")
    draw_curve(ax, tidy(1), "test", linestyle=":")
    assert {line.get_color() for line in ax.lines} == {COLOURS["test"]}
    assert [line.get_linestyle() for line in ax.lines] == ["--", ":"]


@pytest.mark.parametrize(
    ("numbers", "texts", "lines"),
    [
        ({}, [], []),
        ({"paper_value": 0.5}, ["paper\n0.5"], [0.5]),
        ({"paper_value": 0.5, "decimals": 2}, ["paper\n0.50"], [0.5]),
        ({"paper_value": 0.5, "low": 0.5}, ["paper\n> 0.5"], [0.5]),
        ({"paper_value": 0.5, "high": 0.7}, ["paper\n0.5", "criterion\n< 0.7"], [0.5, 0.7]),
        ({"low": 2}, ["criterion\n> 2 ↑"], []),
        ({"low": -2}, ["criterion\n> -2 ↓"], []),
    ],
)
def test_the_papers_numbers_and_bounds_are_drawn_or_told_at_the_edge(numbers, texts, lines):
    ax = one_axes(ylim=(0, 1))
    draw_paper(ax, numbers)
    assert [text.get_text() for text in ax.texts] == texts
    assert [line.get_ydata()[0] for line in ax.lines] == lines
    assert ax.get_ylim() == (0, 1)
    assert all(0 <= text.xy[1] <= 1 for text in ax.texts)


def test_a_number_that_is_a_multiple_is_written_as_one():
    ax = one_axes(ylim=(0, 1))
    draw_paper(ax, {"paper_value": 0.1, "high": 0.1}, scale=5.0)
    assert [text.get_text() for text in ax.texts] == ["paper\n< 0.1×"]
    assert [line.get_ydata()[0] for line in ax.lines] == [0.5]


@pytest.mark.parametrize("largest", [1e-12, 11.0])
def test_every_marker_is_within_the_axis(largest):
    ax = one_axes()
    rows = pd.DataFrame(
        {"statement": ["a", "a"], "form": ["corrected", "printed"], "value": [0.0, largest]}
    )
    draw_deviations(ax, rows, {"a": "A"})
    low, high = ax.get_xlim()
    drawn = [x for line in ax.lines for x in line.get_xdata()]
    assert low < min(drawn)
    assert max(drawn) < high


def test_deviations_are_drawn_by_form_from_the_top_down():
    rows = pd.DataFrame(
        {
            "statement": ["a", "b", "b"],
            "form": ["stated", "printed", "corrected"],
            "value": [0.0, 2.0, 1e-9],
        }
    )
    _, ((ax,),) = new_figure(1, 1, 4, 3)
    draw_deviations(ax, rows, {"a": "first", "b": "second"})
    found = {
        line.get_label(): list(zip(line.get_xdata(), line.get_ydata(), strict=True))
        for line in ax.lines
    }
    assert found == {
        "the paper's form": [(1e-17, 0)],
        "corrected": [(1e-9, 1)],
        "as printed": [(2.0, 1)],
    }
    assert [label.get_text() for label in ax.get_yticklabels()] == ["first", "second"]
    low, high = ax.get_ylim()
    assert low > high
    assert ax.get_xlim()[1] == pytest.approx(6)


def test_the_papers_number_is_placed_within_an_axis_that_is_upside_down():
    _, ((ax,),) = new_figure(1, 1, 4, 3)
    ax.set_ylim(1, 0)
    draw_paper(ax, {"paper_value": 0.25})
    (line,) = ax.lines
    assert line.get_ydata()[0] == 0.25
