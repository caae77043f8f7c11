"""The tutorial's blocks run, print what it shows, and what it says of their outcome is so."""

import io
import re

import numpy as np
import pytest
import tutorial
from matplotlib.image import imread

PAGE = tutorial.PAGE.read_text(encoding="utf-8")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@pytest.fixture(scope="module")
def outcome():
    """The page as it comes out now, its pictures, and the names that the blocks leave."""
    return tutorial.executed(PAGE)


def test_blocks_are_run_one_after_the_other_and_what_they_print_and_save_is_kept():
    page = "```python\na = 2\n```{}\n\nThen:\n```python\nopen('x.png', 'w').close()\n```"
    page = page.replace("a = 2", "a = 2\nprint(a + 1)")
    text, pictures, names = tutorial.executed(page.format("\n\n```text\nof yore\n```"))
    assert text == page.format("\n\n```text\n3\n```")
    assert pictures == {"x.png": b""}
    assert names["a"] == 2


@pytest.mark.slow
def test_the_page_shows_what_its_blocks_print(outcome):
    # Processors round differently, and 500 updates amplify it.
    shown, found = PAGE, outcome[0]
    assert NUMBER.sub("0", shown) == NUMBER.sub("0", found)
    numbers = [list(map(float, NUMBER.findall(text))) for text in (found, shown)]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.1, abs=0.05)


@pytest.mark.slow
def test_the_kernel_turns_to_the_labels_while_its_rank_falls_and_rises_again(outcome):
    whole = outcome[2]["whole"]
    alignment, rank = whole["label_alignment"], whole["effective_rank"]
    assert alignment[100] > 1.3 * alignment[0]
    assert alignment[100] > 0.8 * alignment.max()
    assert rank[100] < 0.9 * rank[0]
    assert rank[500] > 1.05 * rank.min()


@pytest.mark.slow
def test_the_adapted_kernel_lies_between_start_and_end(outcome):
    names = outcome[2]
    start, adapted, end = (k.alignment(names["y_seen"]) for k in names["kernels"].values())
    assert start < adapted < end


@pytest.mark.slow
def test_changes_of_the_weights_are_better_aligned_than_the_weights(outcome):
    frame = outcome[2]["features"].frame()
    assert frame.loc["0", "nfc"] < 0.6 < frame.loc["0", "centred_nfc"]
    assert frame.loc["4", "nfc"] == pytest.approx(1)


@pytest.mark.slow
def test_the_layer_that_is_fast_decides_what_is_learnt(outcome):
    found = re.findall(
        r"accuracy ([\d.]+), alignment ([\d.]+), NFC of the first layer ([\d.]+)", outcome[0]
    )
    (right, alignment, nfc), (right2, alignment2, nfc2) = [map(float, line) for line in found]
    assert abs(right - right2) < 0.03
    assert alignment > 1.5 * alignment2
    assert nfc > 1.5 * nfc2


@pytest.mark.slow
def test_its_pictures_are_those_it_shows(outcome):
    shown = re.findall(r"!\[.*?\]\((.*?)\)", PAGE)
    assert sorted(shown) == [f"tutorial/{name}" for name in sorted(outcome[1])]
    for name, picture in outcome[1].items():
        found, there = (ink(file) for file in (io.BytesIO(picture), tutorial.PICTURES / name))
        # A panel that comes or goes changes this by 0.03, other instructions by 0.0015.
        assert np.abs(found - there).max() < 0.02, name


def ink(file):
    """How dark a picture is, part by part."""
    rows = np.array_split(1 - imread(file)[..., :3].mean(axis=-1), 6, axis=0)
    return np.array([[part.mean() for part in np.array_split(row, 6, axis=1)] for row in rows])
