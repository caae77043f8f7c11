"""The tutorial's blocks run, and what it says of their outcome is so."""

import re
from pathlib import Path

import matplotlib
import pytest

pytestmark = pytest.mark.slow
TUTORIAL = (Path(__file__).parent.parent / "docs" / "tutorial.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """The names that the blocks leave, what they print, and the folder of their pictures."""
    folder = tmp_path_factory.mktemp("tutorial")
    printed = []
    names = {"print": printed.append}
    matplotlib.use("Agg")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in re.findall(r"```python\n(.*?)```", TUTORIAL, re.DOTALL):
            exec(block, names)
    return names, "\n".join(map(str, printed)), folder


def test_the_kernel_turns_to_the_labels_while_its_rank_falls_and_rises_again(outcome):
    whole = outcome[0]["whole"]
    alignment, rank = whole["label_alignment"], whole["effective_rank"]
    assert alignment[100] > 1.3 * alignment[0]
    assert alignment[100] > 0.8 * alignment.max()
    assert rank[100] < 0.9 * rank[0]
    assert rank[500] > 1.05 * rank.min()


def test_the_adapted_kernel_lies_between_start_and_end(outcome):
    names = outcome[0]
    start, adapted, end = (k.alignment(names["y_seen"]) for k in names["kernels"].values())
    assert start < adapted < end


def test_changes_of_the_weights_are_better_aligned_than_the_weights(outcome):
    frame = outcome[0]["features"].frame()
    assert frame.loc["0", "nfc"] < 0.6 < frame.loc["0", "centred_nfc"]
    assert frame.loc["4", "nfc"] == pytest.approx(1)


def test_the_layer_that_is_fast_decides_what_is_learnt(outcome):
    found = re.findall(
        r"accuracy ([\d.]+), alignment ([\d.]+), NFC of the first layer ([\d.]+)", outcome[1]
    )
    (right, alignment, nfc), (right2, alignment2, nfc2) = [map(float, line) for line in found]
    assert abs(right - right2) < 0.03
    assert alignment > 1.5 * alignment2
    assert nfc > 1.5 * nfc2


def test_its_pictures_are_those_it_shows(outcome):
    shown = re.findall(r"!\[.*?\]\((.*?)\)", TUTORIAL)
    assert sorted(shown) == sorted(path.name for path in outcome[2].glob("*.png"))
