"""What the README says can be typed, can be."""

import re
from pathlib import Path

import torch

from feature_alignment.pipeline.papers import all_figures, papers

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_python_runs():
    torch.manual_seed(0)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(block, names)  # each block goes on from those before it
    assert names["monitor"].measured == {0, 10, 20, 30}
    assert names["solver"].coefficients_


def test_the_figures_and_papers_it_names_exist():
    named = set(re.findall(rf"\b(?:{'|'.join(papers())})_fig\w+", README))
    assert named
    own = {"baratin2021_fig_mine"}  # what a reader adds
    assert named <= set(all_figures()) | own


def test_the_files_it_links_exist():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
