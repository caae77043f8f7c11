import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from feature_alignment.pipeline.figures.style import (
    COLOURS,
    LINES,
    PALETTE,
    RC,
    apply_style,
    broken_axis,
    describe,
    new_figure,
    panel_letters,
    save,
    sequence_colours,
    sequence_looks,
    show_matrix,
    stamp,
)

DRAW = """
import sys
import numpy as np
import pandas as pd
from feature_alignment.pipeline.figures.drawing import draw_curve, draw_points
from feature_alignment.pipeline.figures.style import COLOURS, new_figure, panel_letters
from feature_alignment.pipeline.figures.style import save, show_matrix, stamp

figure, axes = new_figure(1, 3, 7, 2.5)
axes[0, 0].plot([0, 1, 2], [1, 4, 2], color=COLOURS["train"], label="train $\\\\lambda_1$")
for seeds in (3, 5):
    rows = [(i, j, i + j * j) for i in range(seeds) for j in range(4)]
    rows = pd.DataFrame(rows, columns=["seed", "step", "value"])
    draw_curve(axes[0, 0], rows, COLOURS["test"], "test")
axes[0, 0].legend()
show_matrix(axes[0, 1], np.arange(12.0).reshape(3, 4), 11, "entry")
draw_points(axes[0, 2], rows, {0: "a", 2: "b"}, {0: "black", 2: "red"}, by="step")
panel_letters(*axes[0])
stamp(figure, "smoke", "digits (stand-in for mnist)")
for name in sys.argv[1:]:
    save(figure, name)
"""
SRC = Path(__file__).parents[3] / "src"


def small_figure():
    figure, axes = new_figure(1, 1, 3, 2)
    axes[0, 0].plot([0, 1], [0, 1])
    return figure


@pytest.mark.slow
def test_two_processes_write_the_same_bytes(tmp_path):
    written = []
    for hash_seed in ("1", "2"):
        paths = [tmp_path / hash_seed / f"figure{suffix}" for suffix in (".pdf", ".png")]
        environment = {**os.environ, "PYTHONPATH": str(SRC), "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", DRAW, *map(str, paths)]
        subprocess.run(command, check=True, env=environment)
        written.append([path.read_bytes() for path in paths])
    assert written[0] == written[1]


def test_files_hold_no_date_no_version_and_truetype_text(tmp_path):
    figure = small_figure()
    for suffix in (".pdf", ".png"):
        save(figure, tmp_path / f"figure{suffix}")
    pdf = (tmp_path / "figure.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert not re.search(rb"CreationDate|ModDate|Producer|Creator|D:20", pdf)
    assert b"/Type3" not in pdf
    assert b"/FontFile2" in pdf  # the text is TrueType
    with Image.open(tmp_path / "figure.png") as image:
        assert image.info.keys() <= {"dpi"}


def test_a_users_settings_do_not_change_the_figure(tmp_path):
    import matplotlib

    save(small_figure(), tmp_path / "before.png")
    matplotlib.rcParams["lines.linewidth"] = 9
    matplotlib.rcParams["font.size"] = 20
    save(small_figure(), tmp_path / "after.png")
    assert (tmp_path / "before.png").read_bytes() == (tmp_path / "after.png").read_bytes()


@pytest.mark.slow
def test_import_is_light_and_no_pyplot_figure_is_left_open():
    program = """
import sys
import feature_alignment.pipeline.figures.drawing
from feature_alignment.pipeline.figures.style import new_figure, show_matrix
assert not {"matplotlib", "seaborn"} & sys.modules.keys()
_, axes = new_figure(1, 1, 2, 2)
show_matrix(axes[0, 0], [[1.0]], 1.0, "entry")
from matplotlib import pyplot
assert not pyplot.get_fignums()
"""
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_every_setting_is_known_to_matplotlib():
    import matplotlib

    apply_style()
    assert {key: matplotlib.rcParams[key] for key in RC} == {**RC, "font.family": ["DejaVu Sans"]}


def test_axes_are_always_two_dimensional():
    for shape in ((1, 1), (1, 3), (2, 1)):
        _, axes = new_figure(*shape, 4, 3)
        assert axes.shape == shape


def test_a_failed_save_leaves_the_old_file_and_no_partial_one(tmp_path):
    path = tmp_path / "figure.png"
    path.write_bytes(b"old")
    figure = small_figure()
    figure.axes[0].set_title("$\\frac{$")
    with pytest.raises(ValueError, match="frac"):
        save(figure, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("matrix", "diverging", "limits", "extend"),
    [
        ([[0.0, 1.0]], False, (0, 1), "neither"),
        ([[0.0, 1.5]], False, (0, 1), "max"),
        ([[-0.1, 1.0]], False, (0, 1), "min"),
        ([[-0.1, 1.0]], True, (-1, 1), "neither"),
        ([[-2.0, 2.0]], True, (-1, 1), "both"),
    ],
)
def test_matrix_range_is_fixed_and_clipping_shows(matrix, diverging, limits, extend):
    _, axes = new_figure(1, 1, 2, 2)
    image = show_matrix(axes[0, 0], np.array(matrix), 1.0, "entry", diverging=diverging)
    assert image.get_clim() == limits
    assert image.colorbar.extend == extend
    assert image.colorbar.ax.get_ylabel() == "entry"


def test_a_matrix_can_show_its_entries_and_the_names_of_rows_and_columns():
    ax = new_figure(1, 1, 2, 2)[1][0, 0]
    rows, columns = pd.Index([0.5, 1.0], name="n"), pd.Index(["a", "b", "c"], name="d")
    matrix = pd.DataFrame([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], rows, columns)
    named = {"annot": True, "fmt": ".2f", "xticklabels": 2, "yticklabels": ["1/2", "1"]}
    show_matrix(ax, matrix, 1.0, None, **named)
    written = [text.get_text() for text in ax.texts]
    assert written == ["0.10", "0.20", "0.30", "0.40", "0.50", "0.60"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "c"]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["1/2", "1"]
    assert {tick.get_rotation() for tick in ax.get_yticklabels()} == {0}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("d", "n")
    assert len(ax.figure.axes) == 1


@pytest.mark.parametrize("matrix", [np.zeros(3), np.array([[np.nan, 1.0]])])
def test_a_matrix_that_cannot_be_shown_is_refused(matrix):
    _, axes = new_figure(1, 1, 2, 2)
    with pytest.raises(ValueError, match="finite 2-d matrix"):
        show_matrix(axes[0, 0], matrix, 1.0, "entry")
    with pytest.raises(ValueError, match="vmax must be above 0"):
        show_matrix(axes[0, 0], np.eye(2), 0.0, "entry")


@pytest.mark.parametrize(
    ("data", "width", "breaks"),
    [("generated", 6, 0), ("; ".join(["digits (stand-in for mnist)"] * 5), 3, 2)],
)
def test_the_stamp_lies_below_everything_else_within_the_figure(data, width, breaks):
    figure, axes = new_figure(1, 1, width, 2)
    axes[0, 0].set_xlabel("iteration")
    panel_letters(axes[0, 0])
    stamp(figure, "preset: smoke", data, "1 seed")
    figure.draw_without_rendering()
    text = figure.texts[0].get_text()
    assert text.startswith("preset: smoke   data: ")
    assert text.split() == f"preset: smoke data: {data} 1 seed".split()
    assert text.count("\n") >= breaks
    footer = figure.texts[0].get_window_extent()
    label = axes[0, 0].xaxis.label.get_window_extent()
    assert footer.x0 >= 0
    assert 0 <= footer.y0 < footer.y1 <= label.y0


def contrast_on_white(colour):
    """WCAG's: (1 + 0.05) / (relative luminance + 0.05)."""
    channels = np.array(to_rgb(colour))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return 1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05)


def test_every_colour_has_3_to_1_of_contrast_on_white():
    assert contrast_on_white("#ffffff") == pytest.approx(1)
    assert contrast_on_white("#767676") == pytest.approx(4.54, abs=0.01)
    for colour in (
        *PALETTE.values(),
        *(c for n in range(1, 20) for c in sequence_colours(range(n)).values()),
    ):
        assert contrast_on_white(colour) >= 3, colour


def test_what_is_shown_together_differs_in_colour_and_line():
    assert set(COLOURS.values()) <= set(PALETTE.values())
    for group in (
        ("train", "test"),
        ("linear", "binarised"),
        ("easy", "difficult"),
        ("centred", "uncentred"),
        ("fixed", "adaptive", "full"),
        ("gradient descent", "speed limited", "whole gradient"),
        ("norm bound", "optimal bound"),
    ):
        assert len({COLOURS[name] for name in group}) == len(group)
        assert len({LINES[name] for name in group}) == len(group)
    for group in (
        ("inside", "outside"),
        ("omega1", "omega2", "omega3"),
        ("stated", "corrected", "printed"),
        ("largest eigenvalue", "mean eigenvalue", "median eigenvalue", "train", "test"),
    ):
        assert len({COLOURS[name] for name in group}) == len(group)
    for number in (2, 5, 19):
        looks = sequence_looks(range(number)).values()
        assert len({look["colour"] for look in looks}) == number
        assert len({look["linestyle"] for look in looks}) == min(number, 5)


def test_letters_stand_in_order():
    _, axes = new_figure(2, 2, 3, 3)
    panel_letters(axes[0, 1], axes[1, 0])
    written = [[text.get_text() for text in ax.texts] for ax in axes.flat]
    assert written == [[], ["A"], ["B"], []]


@pytest.mark.parametrize(
    ("steps", "ticks"), [([0, 5, 70, 3000], ["0", "10", "100", "1000"]), ([0, 1, 9], list("0125"))]
)
def test_a_broken_axis_is_logarithmic_from_the_first_step_on(steps, ticks):
    ax = new_figure(1, 1, 3, 3)[1][0, 0]
    broken_axis(ax, pd.Series(steps))
    ax.figure.draw_without_rendering()
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ticks
    place = ax.transData.transform(
        [(step, 0) for step in (0, steps[1], 2 * steps[1], 4 * steps[1])]
    )
    gap, first, second = np.diff(place[:, 0])
    assert first == pytest.approx(second)
    assert 0 < gap < 0.2 * ax.bbox.width
    assert ax.get_xlim()[0] < 0 < steps[-1] < ax.get_xlim()[1]


def test_few_values_are_told_singly():
    assert describe(pd.Series([0.25, 0.5, 1.0])) == "0.25, 0.50, 1.00"
    assert describe(pd.Series([1.0, 2, 3, 4]), 3) == "2.500 ± 1.291"


def test_a_file_does_not_depend_on_what_was_saved_before(tmp_path):
    alone, _ = new_figure(1, 2, 4, 2)
    both, _ = new_figure(1, 2, 4, 2)
    for figure in (alone, both):
        for ax in figure.axes:
            ax.set(title="a title\nof two lines", ylabel="y")
    save(alone, tmp_path / "alone.png")
    for name in ("both.pdf", "both.png", "again.pdf", "again.png"):
        save(both, tmp_path / name)
    content = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert content["alone.png"] == content["both.png"] == content["again.png"]
    assert content["both.pdf"] == content["again.pdf"]
