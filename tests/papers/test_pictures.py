"""Every picture, drawn from a small committed table, is compared with a small committed one.

Letters look different with another build of FreeType, and the layout moves with them. So pictures
are compared without their texts and legends, and the texts as such: what is left is the same on
every machine but for rounding, and one dropped line is noticed.

To keep a picture that was changed on purpose, or is new and was made at `quick`, after a look at it
in full:
`PYTHONPATH=src python tests/papers/test_pictures.py NAME …`, without a name for all of them.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from matplotlib.legend import Legend
from matplotlib.text import Text
from PIL import Image

from feature_alignment.pipeline.config import resolve_config
from feature_alignment.pipeline.figures import make
from feature_alignment.pipeline.papers import all_figures
from feature_alignment.pipeline.plan import make_plan

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent / "pictures"
"""Tables of the preset quick, values of three digits; small pictures and the texts of them."""
MADE = Path(__file__).parents[2] / "results" / "quick" / "tables"
"""Where `remake` finds the table of a figure that is new."""
TEXTS = FOLDER / "texts.json"
SHRINK = 4
"""Pixels of the picture that make one of the reference, each way."""
CONTRAST = 40
"""Of 255: pixels that differ by less in each channel are alike; 256 colours differ by less."""
UNMATCHED = 4
"""Pixels that may have no like within one of their place; another hinting of texts leaves 2."""
LABELS = ("labelbottom", "labeltop", "labelleft", "labelright")
FIGURES = [name for name in all_figures() if not name.startswith("example2030")]


def quick_plan():
    return make_plan(resolve_config({}, Path(__file__).parents[2] / "workflow", preset="quick"))


@pytest.fixture(scope="module")
def plan():
    return quick_plan()


def draw(name, plan, folder, change=lambda picture: None):
    """The picture of a figure made small and without its texts, and these."""
    texts = []
    save = make.save

    def save_without_texts(picture, path):
        change(picture)
        for text in picture.findobj(Text):
            texts.extend(filter(None, [text.get_text()]))
            text.set_visible(False)
        for legend in picture.findobj(Legend):
            legend.set_visible(False)
            legend.set_in_layout(False)
        for ax in picture.axes:
            ax.tick_params(which="both", **dict.fromkeys(LABELS, False))
        save(picture, path)

    spec = plan.figure_spec(name) | {"name": "reference", "preset": "reference"}
    with mock.patch.object(make, "save", save_without_texts):
        files = FOLDER / f"{name}.csv.xz", FOLDER / f"{name}.npz"
        make.draw_figure(spec, *files, [Path(folder) / "picture.png"])
    with Image.open(Path(folder) / "picture.png") as picture:
        return picture.convert("RGB").reduce(SHRINK), texts


def difference(one, other):
    """Pixels of either picture without a like in the other, or infinity if their sizes differ."""
    one, other = (np.asarray(picture, dtype=int) for picture in (one, other))
    if one.shape != other.shape:
        return np.inf
    return max(_unmatched(one, other), _unmatched(other, one))


def _unmatched(one, other):
    around = np.pad(other, ((1, 1), (1, 1), (0, 0)), mode="edge")
    height, width, _ = one.shape
    alike = [
        abs(one - around[down : down + height, right : right + width]).max(axis=2) <= CONTRAST
        for down in range(3)
        for right in range(3)
    ]
    return int((~np.any(alike, axis=0)).sum())


def reference(name):
    with Image.open(FOLDER / f"{name}.png") as picture:
        return picture.convert("RGB")


@pytest.mark.parametrize(
    "name",
    [pytest.param(f, marks=[pytest.mark.exhaustive] * (i % 4 > 0)) for i, f in enumerate(FIGURES)],
)
def test_a_picture_is_its_reference(name, plan, tmp_path):
    drawn, texts = draw(name, plan, tmp_path)
    assert texts == json.loads(TEXTS.read_text(encoding="utf-8"))[name]
    found = difference(drawn, reference(name))
    assert found <= UNMATCHED, f"{tmp_path / 'picture.png'}: {found} pixels differ"


@pytest.mark.parametrize(
    ("figure", "changed", "dataset", "told"),
    [
        ("baratin2021_fig4", "baratin2021_difficulty", "kmnist", "KMNIST"),
        ("baratin2021_fig7", "baratin2021_perturbation", "svhn", "SVHN"),
        ("baratin2021_fig13", "baratin2021_difficulty", "kmnist", "KMNIST"),
        ("lejeune2024_fig1", "lejeune2024_digit_regression", "kmnist", "KMNIST"),
        ("lejeune2024_fig1b", "lejeune2024_digit_regression", "kmnist", "KMNIST"),
        ("lejeune2024_fig1c", "lejeune2024_digit_regression", "kmnist", "KMNIST"),
        ("lejeune2024_fig2b", "lejeune2024_low_rank", "kmnist", "KMNIST"),
        ("lejeune2024_fig3", "lejeune2024_digit_regression", "kmnist", "KMNIST"),
    ],
)
def test_a_picture_names_the_data_that_was_chosen(figure, changed, dataset, told, tmp_path):
    mine = {"experiments": {changed: {"dataset": dataset}}}
    workflow = Path(__file__).parents[2] / "workflow"
    _, texts = draw(figure, make_plan(resolve_config(mine, workflow, preset="quick")), tmp_path)
    *drawn, stamp = (text for text in texts if any(w in text for w in ("MNIST", "SVHN", "CIFAR")))
    assert drawn
    assert all(told in text for text in [*drawn, stamp])
    assert not any(text.startswith(("MNIST", "CIFAR-10")) or ", MNIST" in text for text in drawn)


@pytest.mark.parametrize("name", ["baratin2021_fig4", "beaglehole2024_fig12", "lejeune2024_fig2"])
def test_one_dropped_line_is_noticed(name, plan, tmp_path):
    def drop(picture):
        lines = [line for line in picture.axes[-1].lines if len(line.get_xdata()) > 2]
        max(lines, key=lambda line: line.get_linewidth()).remove()

    assert difference(draw(name, plan, tmp_path, drop)[0], reference(name)) > 2 * UNMATCHED


def remake(names):
    """Draw references anew."""
    plan = quick_plan()
    texts = json.loads(TEXTS.read_text(encoding="utf-8")) if TEXTS.exists() else {}
    for name in names or FIGURES:
        if not (table := FOLDER / f"{name}.csv.xz").exists():  # a new figure, made at quick
            rows = pd.read_csv(MADE / f"{name}.csv", low_memory=False)
            rows["value"] = rows["value"].map("{:.3g}".format)
            rows.to_csv(table, index=False)
            if (MADE / f"{name}.npz").exists():
                shutil.copyfile(MADE / f"{name}.npz", FOLDER / f"{name}.npz")
        with tempfile.TemporaryDirectory() as folder:
            picture, texts[name] = draw(name, plan, folder)
        small = picture.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        small.save(FOLDER / f"{name}.png", optimize=True)
    content = json.dumps(texts, indent=1, sort_keys=True, ensure_ascii=False)
    TEXTS.write_text(content + "\n", encoding="utf-8")


if __name__ == "__main__":
    remake(sys.argv[1:])
